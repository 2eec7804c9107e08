"""All whose bytes are compared between processors, by one process: `emulated.py FOLDER [MORE...]`.

Digests of functions; with the word `trainings` theirs, and with a file what the cells of experiments leave.
The file is json, name -> [code, parameters]: the registry is read natively, because to parse 180 notebooks
takes an emulated processor minutes. To import costs it a minute already: one process does everything, and
two libraries that compute nothing here are left out, in the native run as well.
"""

import gc
import json
import os
import sys
import types
from pathlib import Path

gc.disable()  # a search for garbage among a million imported objects

from brace_nb.core import use_one_instruction_set  # noqa: E402

use_one_instruction_set()


def without_compilers():
    "Stand-ins for torch's compiler, which every optimizer imports, and for transformers."
    compiler, utils = types.ModuleType("torch._dynamo"), types.ModuleType("torch._dynamo.utils")
    compiler.disable, compiler.graph_break = lambda function, *_, **__: function, lambda: None
    utils.is_compile_supported = lambda device: False
    sys.modules |= {"torch._dynamo": compiler, "torch._dynamo.utils": utils, "transformers": None}


def experiments(work, folder):
    "Run their cells, one experiment after another."
    from brace_nb.companion import STYLE

    STYLE["savefig.dpi"] = 40  # of pictures that nobody looks at
    for name, (code, values) in work.items():
        run = Path(folder, name)
        run.mkdir(parents=True)
        os.environ["BRACE_NB_RUN"] = str(run)
        exec(compile(code, name, "exec"), dict(values))


def main(folder, *more):
    without_compilers()
    import digests

    folder = Path(folder)
    digests.main(folder / "digests.json")
    for work in set(more) - {"trainings"}:
        experiments(json.loads(Path(work).read_text()), folder / "runs")
    if "trainings" in more:
        import trainings

        digests.FOUND.clear()
        trainings.main(folder / "trainings.json")


if __name__ == "__main__":
    main(*sys.argv[1:])
