"Who may know whom, and which names each part offers (the rules are in `house.py`)."

import json
import subprocess
import sys

import pytest
from house import KNOWS, imports, shadowed_modules, strangers

from brace_nb.companion import root

NAMES = {
    "core": "as_tensor widen like check_finite rows normalize atomic_path write_atomic open_matrix "
    "read_arrays thread_count parallel_map train Bar EarlyStopping deferred_interrupt expect_fail",
    "foundations": "load_emoji clip_loss siglip_loss info_nce barlow_twins_loss proto_nce_loss",
    "codes": "binarize ternarize partial_sums certified_prefix counterexample_interval pack unpack jaccard "
    "hamming_similarity code_statistics CodeIndex CodeEncoder",
    "ndim": "cube cube_loss MEASURES partitions region_mask region_of region_sizes mask_value",
    "assignment": "assign METHODS",
    "evaluation": "cka hsic cka_matrix compare_models recall_at_k ranks linear_probe zero_shot alignment "
    "uniformity",
    "companion": "record artifacts output save_figure use_style PALETTE style root panel grouped_bars "
    "lines_with_band dots_by_seed heatmap",
}


@pytest.mark.parametrize("rule", [strangers, shadowed_modules])
def test_the_rooms_are_in_order(rule):
    found = rule(root())
    assert not found, "\n" + "\n".join(f"{v.place}: {v.what}" for v in found)


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


# In a process for each name: the heavy packages cannot be imported at all.
PROBE = """
import json, os, sys, torch
parts = json.loads(sys.argv[1])
heavy = "numba scipy matplotlib pandas pyarrow open_clip torchvision sklearn usearch safetensors PIL"
for package in (heavy + " yaml tqdm fastcore nbdev papermill snakemake transformers psutil").split():
    sys.modules[package] = None
for part, name in [(part, name) for part, names in parts.items() for name in names.split()]:
    if os.fork() == 0:
        try:
            exec(f"from brace_nb.{part} import {name}")
            module = sys.modules[f"brace_nb.{part}"]
            assert name in module.__all__ and name in dir(module), f"{name} is not in __all__"
            os._exit(0)
        except BaseException as error:
            print(f"{part}: {name}: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
    os.wait()
"""


def test_public_names_come_from_their_part_with_numpy_and_torch_only():
    command = [sys.executable, "-c", PROBE, json.dumps(NAMES)]
    said = subprocess.run(command, cwd=root(), capture_output=True, text=True)
    assert said.returncode == 0 and not said.stdout, said.stdout + said.stderr
