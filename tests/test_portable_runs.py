"""Ten experiments at smoke size, natively and on an emulated processor: the same bytes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from brace_nb.companion import code_cells, find_experiments, root

EMULATOR = shutil.which("qemu-x86_64")
EXPERIMENTS = (  # none takes an emulated processor minutes
    "assignment/loss_gradients assignment/loss_training assignment/masks codes/optimum codes/counterexample "
    "codes/first_descent codes/geometry ndim/printed_runs ndim/ascent ndim/label_error"
).split()


def work_of(experiment):
    "Its code without the parameters, and their values."
    cells = [c["source"] for c in code_cells(experiment.path) if "parameters" not in c["tags"]]
    return ["\n".join(cells), experiment.values]


def results(folder, *emulator):
    "File -> content of what the experiments leave."
    folder.mkdir()
    found, work = find_experiments("smoke"), folder / "work.json"
    work.write_text(json.dumps({n: work_of(found[n]) for n in EXPERIMENTS}))
    program = [*emulator, sys.executable, str(root() / "tests/emulated.py"), str(work), str(folder / "runs")]
    told = os.environ | {"PYTHONPATH": str(root())}
    run = subprocess.run(program, env=told, capture_output=True, text=True, timeout=3000)
    assert run.returncode == 0, run.stderr[-2000:]
    made = folder / "runs"
    files = [p for p in made.rglob("*") if p.is_file()]
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
