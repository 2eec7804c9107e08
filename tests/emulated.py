"""Run experiments at smoke size one after another in one process: `python tests/emulated.py FOLDER NAME...`.

The folder becomes a project of its own, with links to everything that is not a result.
`tests/test_portable_runs.py` compares what comes out here with what comes out on emulated processors.
"""

import os
import sys
from pathlib import Path

from brace_nb.core import use_one_instruction_set

use_one_instruction_set()

ROOT = Path(__file__).resolve().parents[1]


def project(folder):
    "A project in an empty folder that shares all but results with this one."
    shared = ["nbs", "brace_nb", "settings.ini", *(p.relative_to(ROOT) for p in (ROOT / "data").iterdir())]
    for path in map(Path, shared):
        if path.name != "derived":
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(ROOT / path)
    (folder / "figures").mkdir()
    os.environ["BRACE_NB_ROOT"] = str(folder)


def main(folder, *names):
    project(Path(folder))
    from brace_nb.companion import run_one

    for name in names:
        run_one(name, "smoke", force=True)
        print(name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
