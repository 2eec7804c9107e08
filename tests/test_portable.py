"""One instruction set: the same bytes natively and on emulated processors of two vendors.

Compared are digests of functions, of a few steps of every kind of training, and all that the cells of ten
experiments leave at smoke size. Every processor computes the functions, of which the rest is made. Each is
one process, because to import takes an emulated one a minute; two run at a time.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from made_trainings import trainings_of_the_package

from brace_nb.companion import code_cells, find_experiments, root

EMULATOR = shutil.which("qemu-x86_64")
needs_emulator = pytest.mark.skipif(
    not EMULATOR, reason="needs qemu-x86_64 (Debian: apt-get install qemu-user)"
)
EXPERIMENTS = (  # none takes an emulated processor minutes
    "assignment/loss_gradients assignment/printed_metrics assignment/masks codes/optimum codes/counterexample"
    " codes/first_descent codes/geometry ndim/printed_runs ndim/label_error assignment/printed_code"
).split()


def work_of(experiment):
    "Its code without the parameters, and their values."
    cells = [c["source"] for c in code_cells(experiment.path) if "parameters" not in c["tags"]]
    return ["\n".join(cells), experiment.values]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    "The file of the experiments' cells."
    found, path = find_experiments("smoke"), tmp_path_factory.mktemp("work") / "work.json"
    path.write_text(json.dumps({name: work_of(found[name]) for name in EXPERIMENTS}))
    return path


def computed(folder, *more, emulator=()):
    "Name -> digest, or content of a file, of what a processor computes."
    program = [*emulator, sys.executable, root() / "tests/emulated.py", folder, *more]
    surroundings = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    surroundings["PYTHONPATH"] = str(root())
    run = subprocess.run(program, env=surroundings, capture_output=True, text=True, timeout=3000)
    assert run.returncode == 0, run.stderr[-2000:]
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    for name in [name for name in found if name.endswith(".json")]:
        values = json.loads(found.pop(name))
        values = values.items() if isinstance(values, dict) else [("", values)]
        found |= {f"{name}: {key}": value for key, value in values}
    return found


@pytest.fixture(scope="module")
def native(work, tmp_path_factory):
    found = computed(tmp_path_factory.mktemp("native"), work, "trainings")
    assert sum(name.startswith("digests") for name in found) > 190
    assert sum(name.startswith("trainings") for name in found) > 100
    pictures = [name for name in found if name.endswith(".png")]
    assert len(pictures) >= len(EXPERIMENTS) - 1
    return found


def differing(one, other):
    "What only one has, or has otherwise."
    return [name for name in one.keys() | other.keys() if one.get(name, 1) != other.get(name, 2)]


@pytest.mark.skipif(EMULATOR is not None, reason="the emulated runs are compared in its place")
def test_two_runs_give_the_same_bytes(native, work, tmp_path):
    assert not differing(computed(tmp_path, work, "trainings"), native)


PROCESSORS = {  # -> the beginnings of the names of what it computes
    "Haswell": ("digests", "trainings"),
    "EPYC-Rome": ("digests", "runs"),
    "Skylake-Client": ("digests",),
}


@pytest.fixture(scope="module")
def emulated(native, work, tmp_path_factory):
    "Processor -> what it will have computed; numba's kernels were compiled natively before."
    asked = {"trainings": "trainings", "runs": work}
    with ThreadPoolExecutor(2) as pool:
        yield {
            name: pool.submit(
                computed,
                tmp_path_factory.mktemp(name),
                *[asked[what] for what in more],
                emulator=(EMULATOR, "-cpu", name),
            )
            for name, (_, *more) in PROCESSORS.items()
        }


@needs_emulator
@pytest.mark.parametrize("processor", PROCESSORS)
def test_emulated_processors_give_the_same_bytes(native, emulated, processor):
    told = {name: value for name, value in native.items() if name.startswith(PROCESSORS[processor])}
    assert not differing(emulated[processor].result(), told)


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
    assert sum(digest != native[f"digests.json: {name}"] for name, digest in found.items()) > 20


NO_GRADIENT = {"train_bpe", "text_student"}  # counts pairs of bytes; builds a model


def test_every_training_is_among_them(native):
    "All modules that make an optimizer, all functions that train, and at least a digest for each."
    sources = {path: path.read_text() for path in (root() / "brace_nb").rglob("*.py")}
    makers = [path for path, text in sources.items() if re.search(r"torch\.optim\.[A-Z]\w+\(", text)]
    names = [".".join(path.relative_to(root()).with_suffix("").parts) for path in makers]
    assert len(names) > 12 and native["trainings.json: modules"] == sorted(names)
    wanted = {name for name, _ in trainings_of_the_package()} - NO_GRADIENT
    assert len(wanted) > 20 and not wanted - set(native["trainings.json: functions"])
