"Who may know whom, and with which packages alone each module is imported (the rules are in `house.py`)."

import subprocess
import sys

import pytest
from house import KNOWS, ROOMS, imports, modules

from brace_nb import codes
from brace_nb.companion import root


@pytest.mark.parametrize("rule", ROOMS)
def test_the_rooms_are_in_order(rule):
    found = list(rule(root()))
    assert not found, "\n" + "\n".join(found)


def test_every_part_has_its_place():
    parts = {p.name for p in (root() / "brace_nb").iterdir() if (p / "__init__.py").exists()}
    assert parts == set(KNOWS)


def test_imports_are_found_wherever_they_stand():
    source = "import brace_nb.codes as c\ndef f():\n    from ..core import like\n    from . import packing\n"
    found = imports(source, "brace_nb.codes.search")
    assert found == [
        ("brace_nb.codes", "", 1, True),
        ("brace_nb.core", "like", 3, False),
        ("brace_nb.codes", "packing", 4, False),
    ]
    assert imports("from .core import like", "brace_nb", True) == [("brace_nb.core", "like", 1, True)]


# In a process for each module: the heavy packages cannot be imported at all.
PROBE = """
import os, sys, torch
heavy = "numba scipy matplotlib pandas pyarrow open_clip torchvision sklearn usearch safetensors PIL"
for package in (heavy + " yaml tqdm fastcore nbdev papermill snakemake transformers psutil").split():
    sys.modules[package] = None
for module in sys.argv[1:]:
    if os.fork() == 0:
        try:
            exec(f"import {module}")
            os._exit(0)
        except BaseException as error:
            print(f"{module}: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
    os.wait()
"""


def test_every_module_but_compiled_kernels_is_imported_with_numpy_and_torch_only():
    found = [".".join(p.with_suffix("").parts) for p in modules(root()) if not p.stem.endswith("kernels")]
    said = subprocess.run([sys.executable, "-c", PROBE, *found], cwd=root(), capture_output=True, text=True)
    assert said.returncode == 0 and not said.stdout, said.stdout + said.stderr


def test_a_part_lists_its_public_names():
    assert {"binarize", "CodeIndex"} <= {*codes.__all__} and {*codes.__all__} <= {*dir(codes)}
