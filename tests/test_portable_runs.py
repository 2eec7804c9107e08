"""Ten experiments at smoke size, natively and on an emulated processor: the same bytes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from brace_nb.companion import root

EMULATOR = shutil.which("qemu-x86_64")
EXPERIMENTS = (
    "assignment/network assignment/loss_gradients codes/optimum codes/counterexample foundations/losses "
    "grounding/proof_of_concept grounding/loss_variants ndim/printed_runs ndim/ascent ndim/blind_spots"
).split()
OWN = ("result.json", "inputs.json", "run.json", "notebook.ipynb", "history.sqlite")  # dates, places, seconds


def results(folder, *emulator):
    "File -> content of what the experiments leave."
    folder.mkdir()
    program = [*emulator, sys.executable, str(root() / "tests/emulated.py"), str(folder), *EXPERIMENTS]
    told = os.environ | {"PYTHONPATH": str(root())}
    run = subprocess.run(program, env=told, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr[-2000:]
    made = folder / "data/derived/smoke/runs"
    files = [p for p in made.rglob("*") if p.is_file() and p.name not in OWN]
    return {p.relative_to(made).as_posix(): content(p) for p in files}


def content(path: Path):
    "A file's bytes; of a record of the ledger what is no time."
    if path.name != "claims.json":
        return path.read_bytes()
    rows = json.loads(path.read_text())
    return {id: row for id, row in rows.items() if id != "thesis.table.6_10.v4_faster"}


@pytest.mark.skipif(not EMULATOR, reason="needs qemu-x86_64 (Debian: apt-get install qemu-user)")
def test_experiments_give_the_same_bytes(tmp_path):
    native = results(tmp_path / "native")
    assert len(native) > 50 and sum(name.endswith(".png") for name in native) >= len(EXPERIMENTS) - 1
    emulated = results(tmp_path / "emulated", EMULATOR, "-cpu", "Haswell")
    assert emulated.keys() == native.keys()
    assert not [name for name in native if emulated[name] != native[name]]
