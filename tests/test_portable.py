"""One instruction set: the same bytes natively and on emulated processors of two vendors."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from brace_nb.companion import root

EMULATOR = shutil.which("qemu-x86_64")
PROCESSORS = ("Haswell", "EPYC-Rome", "Skylake-Client")


def digests(path, *emulator):
    program = [*emulator, sys.executable, str(root() / "tests/digests.py"), str(path)]
    surroundings = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    surroundings["PYTHONPATH"] = str(root())
    run = subprocess.run(program, env=surroundings, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    return digests(tmp_path_factory.mktemp("native") / "digests.json")


def test_two_runs_give_the_same_bytes(native, tmp_path):
    assert len(native) > 190
    assert digests(tmp_path / "again.json") == native


@pytest.mark.skipif(not EMULATOR, reason="needs qemu-x86_64 (Debian: apt-get install qemu-user)")
@pytest.mark.parametrize("processor", PROCESSORS)
def test_emulated_processors_give_the_same_bytes(native, processor, tmp_path):
    found = digests(tmp_path / "digests.json", EMULATOR, "-cpu", processor)
    assert found.keys() == native.keys()
    assert not [name for name in native if found[name] != native[name]]


def test_without_it_this_is_not_so(native, tmp_path):
    "The check can fail: with the variables left out, other bytes come out on a processor with AVX-512."
    flags = open("/proc/cpuinfo").read()
    if "avx512f" not in flags:
        pytest.skip("needs a processor with AVX-512, whose own choice differs")
    text = (root() / "tests/digests.py").read_text().replace("\nuse_one_instruction_set()\n", "\n")
    program = tmp_path / "digests.py"
    program.write_text(text)
    path = tmp_path / "free.json"
    surroundings = {**os.environ, "PYTHONPATH": str(root()), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, program, path], env=surroundings, check=True)
    found = json.loads(path.read_text())
    assert sum(found[name] != native[name] for name in native) > 20
