"""The cells of experiments, one experiment after another: `python tests/emulated.py WORK FOLDER`.

WORK is a json file, name -> [code, parameters]: the registry is read natively, because to parse 180
notebooks takes an emulated processor minutes. `tests/test_portable_runs.py` compares what comes out here
with what comes out on emulated processors.
"""

import json
import os
import sys
from pathlib import Path

from brace_nb.core import use_one_instruction_set

use_one_instruction_set()


def main(work, folder):
    for name, (code, values) in json.loads(Path(work).read_text()).items():
        run = Path(folder, name)
        run.mkdir(parents=True)
        os.environ["BRACE_NB_RUN"] = str(run)
        exec(compile(code, name, "exec"), dict(values))
        print(name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
