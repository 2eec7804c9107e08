"""One instruction set: the same bytes natively and on emulated processors of two vendors."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from made_trainings import trainings_of_the_package

from brace_nb.companion import root

EMULATOR = shutil.which("qemu-x86_64")
needs_emulator = pytest.mark.skipif(
    not EMULATOR, reason="needs qemu-x86_64 (Debian: apt-get install qemu-user)"
)
PROCESSORS = ("Haswell", "EPYC-Rome", "Skylake-Client")


def digests(path, *emulator, program="digests.py", names=()):
    program = [*emulator, sys.executable, str(root() / "tests" / program), str(path), *names]
    surroundings = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    surroundings["PYTHONPATH"] = str(root())
    run = subprocess.run(program, env=surroundings, capture_output=True, text=True, timeout=3000)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    return digests(tmp_path_factory.mktemp("native") / "digests.json")


def test_two_runs_give_the_same_bytes(native, tmp_path):
    assert len(native) > 190
    assert digests(tmp_path / "again.json") == native


def check_emulated(native, path, processor, **program):
    "The same names and digests on an emulated processor."
    found = digests(path, EMULATOR, "-cpu", processor, **program)
    assert found.keys() == native.keys()
    assert not [name for name in native if found[name] != native[name]]


@needs_emulator
@pytest.mark.parametrize("processor", PROCESSORS)
def test_emulated_processors_give_the_same_bytes(native, processor, tmp_path):
    check_emulated(native, tmp_path / "digests.json", processor)


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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return digests(tmp_path_factory.mktemp("trained") / "trainings.json", program="trainings.py")


def test_two_trainings_give_the_same_bytes(trained, tmp_path):
    assert len(trained) > 100
    assert digests(tmp_path / "again.json", program="trainings.py") == trained


ONE_OF_A_KIND = (  # all 105 take minutes under emulation: `python tests/trainings.py FILE` there runs them
    "encoder test_resnet,objective siglip,heads best,code itq,networks linear,six layers,proof pairs,"
    "encoders slice,side by side,decoder queries,whole model linear,students English,detector exact,bags,"
    "together,distilled,third_encoder,guessing_students,path,language head,prequential,probes"
).split(",")


@needs_emulator
def test_trainings_on_an_emulated_processor_give_the_same_bytes(trained, tmp_path):
    told = dict(program="trainings.py", names=ONE_OF_A_KIND)
    found = digests(tmp_path / "trainings.json", EMULATOR, "-cpu", "Haswell", **told)
    names = [f"training {name}" for name in ONE_OF_A_KIND]
    assert not [name for name in names if found[name] != trained[name]]


NO_GRADIENT = {"train_bpe", "text_student"}  # counts pairs of bytes; builds a model


def test_every_training_is_among_them(trained):
    "All modules that make an optimizer, all functions that train, and at least a digest for each."
    sources = {path: path.read_text() for path in (root() / "brace_nb").rglob("*.py")}
    makers = [path for path, text in sources.items() if re.search(r"torch\.optim\.[A-Z]\w+\(", text)]
    names = [".".join(path.relative_to(root()).with_suffix("").parts) for path in makers]
    assert len(names) > 12 and trained["modules"] == sorted(names)
    wanted = {name for name, _ in trainings_of_the_package()} - NO_GRADIENT
    assert len(wanted) > 20 and not wanted - set(trained["functions"])
