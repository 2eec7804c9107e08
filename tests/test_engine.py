"""The experiments engine, on a small project of its own: staleness, failures, kills, locks.

What one experiment does (`brace-nb job`) and what is out of date (`stale`) is asked directly; Snakemake runs
where it is the point: order, chains, failures among others, kills.
"""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from made_copy import copy_package
from traced import executed, outside, unheld

from brace_nb.companion import (
    DATA,
    code_closure,
    engine,
    find_experiments,
    fingerprint,
    locked,
    make,
    root,
    stale,
    warm_process,
)
from brace_nb.companion import job as engine_job
from brace_nb.core import wait_for

MAIN = "from brace_nb.companion.cli import main; main()"
TOY = {
    "__init__": "from ..core.lazy_names import lazy\n"
    '__getattr__, __dir__, __all__ = lazy(__name__, scaling="double", others="triple", waiting="slow")\n',
    "scaling": 'SCALE = 2\n\n\ndef double(x):\n    "Twice x."\n    return SCALE * x\n',
    "others": "def triple(x):\n    return 3 * x\n",
    "waiting": "def slow(seconds, mark):\n    import time\n"
    "    from pathlib import Path\n\n    Path(mark).touch()\n    time.sleep(seconds)\n    return seconds\n",
}
HEAD = """import matplotlib.pyplot as plt
from brace_nb.companion import artifacts, output, record, save_figure
"""
PLOT = """fig, ax = plt.subplots(figsize=(3.3, 2))
ax.plot([0, value]);
save_figure(fig, "{name}", data=dict(x=[0, value]), alt="A line that ends at the value.")
"""
ROW = (
    "toy.a: {kind: claim, where: w, says: 10, tolerance: 0, why: exact, needs: nothing, "
    "experiment: two/a, on_miss: differs, verdict: reproduced}\n"
)


def notebook(folder, name, parameters, *cells):
    path = folder / "nbs/experiments" / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    code = [(parameters, ["parameters"])] + [(c, []) for c in cells]
    found = [
        dict(cell_type="code", id=f"c{i}", execution_count=None, outputs=[], source=s, metadata=dict(tags=t))
        for i, (s, t) in enumerate(code)
    ]
    kernel = dict(kernelspec=dict(name="python3", display_name="python3", language="python"))
    path.write_text(json.dumps(dict(nbformat=4, nbformat_minor=5, metadata=kernel, cells=found)))


@pytest.fixture(scope="module")
def forks():
    "What a run has for its jobs: a process that has imported what all need, for all jobs of these tests."
    preload = ("papermill", "execnb.shell", "yaml", "matplotlib.pyplot", "pandas")
    with warm_process("brace_nb.companion.engine:job", preload) as socket:
        yield socket


@pytest.fixture
def project(tmp_path, monkeypatch, forks):
    "two/a uses double; two/b uses triple; two/c needs two/a's results."
    copy_package(tmp_path)
    shutil.copy(root() / "Snakefile", tmp_path)
    (tmp_path / "brace_nb/toy").mkdir()
    for name, text in TOY.items():
        (tmp_path / f"brace_nb/toy/{name}.py").write_text(text)
    (tmp_path / "settings.ini").touch()
    (tmp_path / "data/profiles").mkdir(parents=True)
    (tmp_path / "data/claims").mkdir()
    (tmp_path / "data/profiles/cpu.yaml").write_text("two/a: {value: 5}\n")
    (tmp_path / "data/claims/toy.yaml").write_text(ROW)
    twice = '(output()/"x.txt").write_text(str(double(value)))\nrecord("toy.a", double(value))'
    draw = {name: PLOT.format(name=f"two/{name}") for name in "abc"}
    notebook(tmp_path, "two/a", "value = 1", HEAD + "from brace_nb.toy import double", draw["a"], twice)
    thrice = "from brace_nb.toy import triple\nvalue = triple(value)\n"
    notebook(tmp_path, "two/b", "value = 2", HEAD, thrice + draw["b"])
    read = 'value = value + int((artifacts("two/a")/"x.txt").read_text())\n'
    notebook(tmp_path, "two/c", "value = 0", HEAD, read + draw["c"])
    monkeypatch.setenv("BRACE_NB_ROOT", str(tmp_path))
    monkeypatch.setenv(engine.processes.VARIABLE, forks)
    return tmp_path


def environment(folder):
    return os.environ | {"BRACE_NB_ROOT": str(folder), "PYTHONPATH": str(folder)}


def run(folder, *words, command="figures"):
    "A `brace-nb` command in a process of its own."
    call = [sys.executable, "-c", MAIN, command, *words]
    how = dict(cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=240)
    return subprocess.run(call, **how)


def job(folder, name):
    "One experiment, as Snakemake runs it: in a fork of the warm process."
    return run(folder, name, command="job")


def ran(result):
    "Names of the experiments that a run executed."
    return {line.split("  ")[1].split(":")[0] for line in result.stdout.splitlines() if ": done in" in line}


def waiting():
    "Name -> reasons, asked directly."
    return stale(find_experiments("cpu"))


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def processes(folder):
    "Processes that work for this project."
    found = []
    for p in psutil.process_iter(["environ", "pid"]):
        ours = (p.info["environ"] or {}).get("BRACE_NB_ROOT") == str(folder)
        if ours and p.pid != os.getpid() and p.status() != psutil.STATUS_ZOMBIE:
            found.append(p)
    return found


def published(folder, *kinds):
    "File -> content, of the published figures."
    paths = [*(folder / "figures/two").iterdir(), *(folder / "data/numbers/two").iterdir()]
    paths = [p for p in paths if p.suffix in kinds]
    return {p.name: p.read_bytes() for p in paths}


def test_a_picture_that_its_numbers_deny_leaves_the_last_good_one_and_its_rows(project):
    assert run(project, "--only", "two/a").returncode == 0
    kept = [project / "figures" / name for name in ("two/a.png", "claims.json")]
    before = [path.read_bytes() for path in kept]
    edit(project / "nbs/experiments/two/a.ipynb", 'value.\\")', 'value.\\", says={\\"It falls.\\": False})')
    edit(project / "nbs/experiments/two/a.ipynb", '"toy.a\\", double(value)', '"toy.a\\", double(value) + 1')
    refused = run(project, "--only", "two/a")
    assert refused.returncode == 1 and "two/a: the numbers deny 'It falls.'" in refused.stdout
    assert [path.read_bytes() for path in kept] == before
    assert run(project, "--only", "two/a").returncode == 1  # until it is mended
    edit(project / "nbs/experiments/two/a.ipynb", "False})", "True})")
    assert run(project, "--only", "two/a").returncode == 0
    assert kept[0].read_bytes() == before[0] and kept[1].read_bytes() != before[1]


def test_runs_what_is_stale_and_nothing_else(project):
    first = run(project)
    assert first.returncode == 0, first.stdout + first.stderr
    assert ran(first) == {"two/a", "two/b", "two/c"} and "[3/3]" in first.stdout
    assert "1 reproduced" in first.stdout
    figures = published(project, ".png", ".svg", ".csv")
    assert set(figures) == {f"{n}.{k}" for n in "abc" for k in ("png", "svg", "csv")}
    facts = json.loads((project / "figures/two/facts.json").read_text())
    assert set(facts["figures"]) == {"two/a", "two/b", "two/c"}
    assert facts["experiments"]["two/a"]["parameters"] == {"value": 5}
    made = json.loads((project / "data/derived/cpu/runs/two/a/out/result.json").read_text())
    assert made["run"]["packages"]["torch"] and made["run"]["seconds"] >= 0

    scaling = project / "brace_nb/toy/scaling.py"
    edit(scaling, '"Twice x."', '"Two times x."')  # a docstring
    (project / "figures/two/b.png").unlink()  # a lost figure
    second = run(project)
    assert ran(second) == set() and "nothing to run" in second.stdout
    assert published(project, ".png", ".svg", ".csv") == figures

    edit(scaling, "return SCALE * x", "return x * SCALE")  # the same result: the chain stops
    third = run(project)
    assert ran(third) == {"two/a"} and "two/c: unchanged" in third.stdout

    edit(scaling, "SCALE = 2", "SCALE = 4")  # a constant, through a function, to those who need the result
    why = run(project, "--dry-run").stdout
    assert "two/a: code brace_nb.toy.scaling changed" in why and "two/c: needs two/a" in why
    assert "two/b" not in why
    fourth = run(project)
    assert ran(fourth) == {"two/a", "two/c"} and "accepts 'reproduced'" in fourth.stdout
    assert run(project, "--check", command="claims").returncode == 1

    edit(scaling, "SCALE = 4", "SCALE = 2")
    assert run(project, "--force").returncode == 0
    assert published(project, ".png", ".svg", ".csv") == figures
    assert run(project, "--check", command="claims").returncode == 0


def test_narrow_jobs_do_not_keep_the_widest_waiting(project):
    "After the first figure the longest chain begins, also when its first job takes all cores."
    for k in range(3):
        notebook(project, f"two/n{k}", "value = 0.3", "import time\ntime.sleep(value)")
    notebook(project, "two/wide", "threads = 2", HEAD, '(output() / "x.txt").write_text(str(threads))')
    notebook(project, "two/after", "value = 1", HEAD, 'value, artifacts("two/wide")')
    known = {"two/a": 3, "two/b": 1, "two/c": 3, "two/wide": 9, "two/after": 9}
    known |= {"two/n0": 12, "two/n1": 12}  # together more urgent than the widest, and neither alone
    (project / "figures").mkdir()
    (project / "figures/profiles.json").write_text(json.dumps(dict(cpu=dict(seconds=known))))
    said = run(project, "--cores", "2")
    assert said.returncode == 0, said.stdout + said.stderr
    told = re.findall(r"^\[.*left  (\S+): ", said.stdout, re.M)
    assert list(dict.fromkeys(told))[:2] == ["two/b", "two/wide"], said.stdout


def test_what_is_stale_and_what_is_gone(project, monkeypatch):
    assert {name: why for name, why in waiting().items() if name != "two/c"} == {
        "two/a": ["never run"],
        "two/b": ["never run"],
    }
    for name in ("two/a", "two/b", "two/c"):
        assert job(project, name).returncode == 0
    assert waiting() == {}
    edit(project / "brace_nb/toy/others.py", "return 3 * x", "return x + x + x")
    assert waiting() == {"two/b": ["code brace_nb.toy.others changed"]}
    edit(project / "brace_nb/toy/others.py", "return x + x + x", "return 3 * x")
    edit(project / "data/profiles/cpu.yaml", "value: 5", "value: 6")
    assert waiting() == {
        "two/a": ["parameter value changed"],
        "two/c": ["needs two/a, which has to run"],
    }
    edit(project / "data/profiles/cpu.yaml", "value: 6", "value: 5")
    edit(project / "data/claims/toy.yaml", "says: 10", "says: 99")
    assert waiting()["two/a"] == ["row toy.a changed"]
    edit(project / "data/claims/toy.yaml", "says: 99", "says: 10")
    edit(project / "data/claims/toy.yaml", "where: w", "where: elsewhere")
    assert waiting() == {}  # what only a reader reads
    edit(project / "data/claims/toy.yaml", "where: elsewhere", "where: w")
    with monkeypatch.context() as patch:
        patch.setattr("brace_nb.companion.staleness.package_versions", lambda: "numpy 9")
        assert all(why[0] == "packages changed" for why in waiting().values()) and len(waiting()) == 3
    (project / "data/derived/cpu/runs/two/b/out/figures/two/b.png").unlink()
    assert waiting() == {"two/b": ["its figures/two/b.png was deleted"]}

    # the figures of an experiment that is gone go too, unless only a part was asked for
    (project / "nbs/experiments/two/b.ipynb").unlink()
    assert run(project, "--only", "two/a").returncode == 0
    assert (project / "figures/two/b.png").exists()  # a run of a part leaves the others alone
    assert run(project).returncode == 0
    assert set(published(project, ".png", ".csv")) == {"a.png", "a.csv", "c.png", "c.csv"}


def test_a_failing_notebook_shows_its_traceback_and_the_rest_finishes(project):
    assert job(project, "two/a").returncode == 0
    before = (project / "figures/two/a.png").read_bytes()
    edit(project / "brace_nb/toy/scaling.py", "return SCALE * x", "raise ZeroDivisionError('by design')")
    result = run(project, "--force")
    assert result.returncode != 0 and "ZeroDivisionError" in result.stdout and "by design" in result.stdout
    assert "two/a: failed" in result.stdout and ran(result) == {"two/b"}
    assert (project / "figures/two/a.png").read_bytes() == before
    edit(project / "brace_nb/toy/scaling.py", "raise ZeroDivisionError('by design')", "return SCALE * x")
    assert set(waiting()) == {"two/c"}  # a's good result is still valid


@pytest.mark.parametrize("whole_group", [False, True], ids=["engine alone", "whole group"])
def test_kill_9_loses_nothing_and_leaves_no_orphans(project, whole_group):
    mark = project / "slow-started"
    call = "from brace_nb.toy import slow\nvalue = slow(seconds, mark)\n" + PLOT.format(name="two/slow")
    notebook(project, "two/slow", f"seconds = 60\nmark = {str(mark)!r}", HEAD, call)
    for name in "ac":
        (project / f"nbs/experiments/two/{name}.ipynb").unlink()
    (project / "data/profiles/cpu.yaml").write_text("")
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    call = [sys.executable, "-c", MAIN, "figures", "--cores", "2"]
    engine = subprocess.Popen(call, cwd=project, env=environment(project), **quiet)
    deadline = time.time() + 120
    while not (mark.exists() and (project / "data/derived/cpu/runs/two/b/out/result.json").exists()):
        assert time.time() < deadline and engine.poll() is None
        time.sleep(0.1)
    with pytest.raises(RuntimeError, match="in progress"), locked(project / "data/derived/cpu/lock", 0):
        pass
    os.killpg(engine.pid, signal.SIGKILL) if whole_group else engine.kill()
    engine.wait()
    deadline = time.time() + 20
    while processes(project) and time.time() < deadline:
        time.sleep(0.2)
    assert not processes(project)
    edit(project / "brace_nb/toy/waiting.py", "time.sleep(seconds)", "time.sleep(0)")
    result = run(project)
    assert result.returncode == 0 and ran(result) == {"two/slow"}, result.stdout + result.stderr


def in_the_background():
    "A shell lets what a script starts in the background ignore SIGINT."
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def ignores_interrupts(process):
    mask = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())[1]
    return bool(int(mask, 16) >> (signal.SIGINT - 1) & 1)


def test_sigterm_ends_a_run_and_leaves_no_temporary_folder(project):
    mark, temporary = project / "slow-started", project / "tmp"
    temporary.mkdir()
    call = "from brace_nb.toy import slow\nvalue = slow(seconds, mark)"
    notebook(project, "two/slow", f"seconds = 60\nmark = {str(mark)!r}", call)
    call = [sys.executable, "-c", MAIN, "figures", "--only", "two/slow"]
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=in_the_background)
    run = subprocess.Popen(call, cwd=project, env=environment(project) | {"TMPDIR": str(temporary)}, **quiet)
    deadline = time.time() + 120
    while not mark.exists():
        assert time.time() < deadline and run.poll() is None
        time.sleep(0.1)
    snakemake = [p for p in psutil.Process(run.pid).children() if "snakemake" in " ".join(p.cmdline())]
    assert ignores_interrupts(run) and [ignores_interrupts(p) for p in snakemake] == [False]
    run.terminate()
    assert run.wait(60) == 128 + signal.SIGTERM and not list(temporary.iterdir())
    deadline = time.time() + 20
    while processes(project) and time.time() < deadline:
        time.sleep(0.2)
    assert not processes(project)


def test_half_done_work_is_resumed_only_for_the_same_inputs(project):
    cell = """n = len(list(output().glob("part*")))
(output()/f"part{n}").touch()
assert n > 0, "killed"
value = value + n
"""
    notebook(project, "two/resume", "value = 1", HEAD, cell + PLOT.format(name="two/resume"))
    assert job(project, "two/resume").returncode != 0
    assert job(project, "two/resume").returncode == 0  # found part0 of the failed run
    edit(project / "data/profiles/cpu.yaml", "two/a", "two/resume: {value: 7}\ntwo/a")
    assert job(project, "two/resume").returncode != 0  # other inputs: started afresh


@pytest.mark.parametrize(
    "profile, message",
    [
        ("two/z: {value: 5}", r"unknown experiments \['two/z'\]"),
    ],
)
def test_a_bad_profile_is_refused_before_anything_runs(project, profile, message):
    (project / "data/profiles/cpu.yaml").write_text(profile)
    with pytest.raises(ValueError, match=message):
        make()


def test_cuda_that_is_not_there_is_an_error_of_one_line(project):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    (project / "data/profiles/cpu.yaml").write_text("requires: cuda")
    said = run(project)
    assert said.returncode == 2 and "needs a CUDA device" in said.stderr and "Traceback" not in said.stderr


NEEDS = "from brace_nb.companion import artifacts\nartifacts({name!r}), value"


@pytest.mark.parametrize(
    "parameters, cell, message",
    [
        ("value = 1\nunused = 2", "print(value)", "['unused'] are never read"),
        ("value = 1", NEEDS.format(name="two/e"), "needs 'two/e', which does not exist"),
        ("value = 1", "artifacts('two/' + value)", "name the experiment literally"),
        ("value = 1", "value +* 2", "two/d.ipynb, cell 1: not Python, line 1"),
        ("value = {'a', 'b'}", "value", "texts as keys; got {'value': {"),
        ("value = {1: 2}", "value", "texts as keys; got {'value': {1: 2}}"),
        ("value = 1", "import os\nos.environ.get('A'), value", "reads the environment (`environ`)"),
        ("value = 1", "from os import getenv\ngetenv('A'), value", "reads the environment (`getenv`)"),
    ],
)
def test_a_broken_notebook_is_named_and_stops_only_what_needs_it(project, parameters, cell, message):
    notebook(project, "two/d", parameters, cell)
    notebook(project, "two/f", "value = 1", NEEDS.format(name="two/d"))
    said = []
    assert make(dry_run=True, say=lambda text, **_: said.append(text)) == 1
    assert any("two/d cannot run" in line and message in line for line in said)
    assert any("two/f cannot run: needs 'two/d', which cannot run" in line for line in said)
    assert "3 experiments, profile cpu: 3 to run" in said
    assert make(only="two/a", dry_run=True, say=lambda text, **_: None) == 0


NO_NOTEBOOKS = {
    "": "is not readable json",
    '{"cells": [': "is not readable json",
    "<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> other\n": "holds an unresolved merge conflict",
    "[]": "is json, but not a notebook",
    "{}": "is json, but not a notebook",
    '{"cells": "x"}': "is json, but not a notebook",
    '{"cells": [{"cell_type": "code"}]}': "is json, but not a notebook",
    '{"cells": [{"cell_type": "code", "source": 3, "metadata": {}}]}': "is json, but not a notebook",
}


def test_a_broken_file_of_a_notebook_is_named(project):
    for content, message in NO_NOTEBOOKS.items():
        (project / "nbs/experiments/two/d.ipynb").write_text(content)
        broken = {}
        assert set(find_experiments("cpu", broken)) == {"two/a", "two/b", "two/c"}
        assert "two/d.ipynb " + message in broken["two/d"]


@pytest.mark.parametrize("name", ["two/a b", "two/x;touch DONE", "two/{name}", "two/$(touch DONE)"])
def test_a_name_that_means_something_to_a_shell_is_refused(project, name):
    notebook(project, name, "value = 1", "value")
    broken = {}
    assert set(find_experiments("cpu", broken)) == {"two/a", "two/b", "two/c"}
    assert "named with letters, digits, _ and -" in broken[name]
    (project / "data/profiles/$(touch DONE).yaml").touch()
    for call in (lambda: make("$(touch DONE)"), lambda: engine_job("two/b", "../smoke")):
        with pytest.raises(ValueError, match="unknown profile"):
            call()
    with pytest.raises(ValueError, match="named with letters"):
        engine_job("../../x", "cpu")
    assert not list(project.rglob("DONE")) and not list(project.rglob("x.json"))


def test_cells_of_ipython_are_python(project):
    cells = ["%%bash\necho hi", "x = !ls\nlen(x)", "y = (7\n % 5)", "%%time\nz = 1", "value"]
    notebook(project, "two/d", "value = 1", *cells)
    sources = find_experiments("cpu")["two/d"].sources
    assert "run_cell_magic('bash'" in sources[0] and "getoutput('ls')" in sources[1]
    assert sources[2] == cells[2] and fingerprint(find_experiments("cpu")["two/d"])


def test_a_circle_is_refused(project):
    notebook(project, "two/d", "value = 1", NEEDS.format(name="two/d"))
    with pytest.raises(ValueError, match="circle: two/d -> two/d"):
        make()


def test_a_result_is_kept_by_hand_and_says_so(project):
    assert job(project, "two/a").returncode == 0
    edit(project / "brace_nb/toy/scaling.py", "return SCALE * x", "return x * SCALE")
    assert waiting()["two/a"] == ["code brace_nb.toy.scaling changed"]
    said = run(project, "--accept", "two/a")
    assert said.returncode == 0 and "kept by hand although code brace_nb.toy.scaling changed" in said.stdout
    assert "two/a" not in waiting()
    kept = json.loads((project / "data/derived/cpu/runs/two/a/out/result.json").read_text())
    assert kept["accepted"][0]["changed"] == ["code brace_nb.toy.scaling changed"]
    edit(project / "brace_nb/toy/scaling.py", "SCALE = 2", "SCALE = 3")
    assert waiting()["two/a"] == ["code brace_nb.toy.scaling changed"]
    assert run(project, "--accept", "two/b").returncode == 2  # nothing there to keep


def test_damage_is_named_and_made_again(project):
    assert job(project, "two/a").returncode == 0
    out = project / "data/derived/cpu/runs/two/a/out"
    for file in ("figures/two/a.png", "output/x.txt", "claims.json"):
        (out / file).write_bytes(b"damaged")
        assert waiting()["two/a"] == [f"its {file} is damaged"]
        assert job(project, "two/a").returncode == 0 and "two/a" not in waiting()
    for content in ("{", "{}", "[]", "null", "3", '{"files": [], "run": {}, "fingerprint": {}}'):
        (out / "result.json").write_text(content)
        assert waiting()["two/a"] == ["its result.json is damaged"]
    assert job(project, "two/a").returncode == 0 and "two/a" not in waiting()


def test_code_that_no_import_shows_is_refused(project):
    hidden = "module = __import__('brace' + '_nb.toy.scaling', fromlist=['x'])\nmodule.double(value)"
    notebook(project, "two/d", "value = 1", hidden)
    result = job(project, "two/d")
    assert result.returncode == 1
    said = result.stdout
    assert "two/d ran code of brace_nb" in said and "brace_nb.toy.scaling, which its" in said


TESTS = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(root())])}  # where `traced` is
CHEAP = ("ndim/statistics", "assignment/printed_metrics", "codes/first_descent", "foundations/data")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    "The traces of the cheap experiments: forks of one process that has imported what is not ours."
    folder = tmp_path_factory.mktemp("traces")
    code = (
        "import functools, os, sys\n"
        "import execnb.shell, matplotlib.pyplot, numba, pandas, papermill, scipy.stats, torch\n"
        f"for name in {CHEAP}:\n"
        "    if not os.fork():\n"
        "        break\n"
        "    assert os.wait()[1] == 0, name\n"
        "else:\n"
        "    sys.exit()\n"
        "from brace_nb.companion import find_experiments, root, run_notebook\nfrom traced import traced\n"
        "e, path = find_experiments('smoke')[name], f'{sys.argv[1]}/{name.replace(\"/\", \"-\")}'\n"
        "around = functools.partial(traced, path, root() / 'brace_nb')\n"
        "run_notebook(e.path, path + '.ipynb', e.values, root(), around=around)\n"
        "os._exit(0)  # to take down what was imported takes as long as the run\n"
    )
    for name in set(DATA.values()):
        shutil.copytree(root() / name, folder / name)  # which nobody else opens
    own = {"BRACE_NB_RUN": str(folder / "run"), "BRACE_NB_DATA": str(folder / "data"), "MPLBACKEND": "agg"}
    surroundings = os.environ | own | TESTS
    subprocess.run([sys.executable, "-c", code, str(folder)], env=surroundings, check=True, timeout=480)
    return folder


@pytest.mark.parametrize("name", CHEAP)
def test_what_a_real_experiment_executes_lies_in_its_inputs(name, traces):
    "Every function that its cells call; `python tests/traced.py` traces all."
    experiment = find_experiments("smoke")[name]
    calls = traces / name.replace("/", "-")
    found = executed(calls, root())
    closure = code_closure(experiment.sources)
    assert not outside({m: names for m, names in found.items() if m != "brace_nb.companion.runs"}, closure)
    parts = {module.split(".")[1] for module in found}
    assert {"companion", name.split("/")[0]} <= parts and sum(map(len, found.values())) > 10
    without = {m: d for m, d in closure.items() if not m.startswith(f"brace_nb.{name.split('/')[0]}.")}
    assert outside(found, without), "the test must be able to fail"


@pytest.mark.parametrize("name", CHEAP)
def test_what_a_real_experiment_imports_and_opens_lies_in_its_fingerprint(name, traces, monkeypatch):
    "Distributions that the package or a cell imports, and files of the clone."
    monkeypatch.setenv("BRACE_NB_DATA", str(traces / "data"))
    calls, inputs = traces / name.replace("/", "-"), fingerprint(find_experiments("smoke")[name])
    assert not unheld(calls, inputs, root())
    without = {k: v for k, v in inputs.items() if not k.startswith("data ")} | dict(packages="python 3.11")
    found = unheld(calls, without, root())
    assert "numpy" in found, "the test must be able to fail"
    assert any("data/emoji" in f for f in found) == ("data data/emoji" in inputs)


READS = """import sympy, tokenize
from brace_nb.foundations import load_emoji
open({secret!r}).read()
load_emoji()
"""


def test_a_trace_sees_files_and_distributions(tmp_path, monkeypatch):
    secret = root() / "CITATION.cff"
    shutil.copytree(root() / "data/emoji", tmp_path / "data/emoji")
    monkeypatch.setenv("BRACE_NB_DATA", str(tmp_path / "data"))  # so that only this run opens them
    code = "import sys\nfrom traced import traced\nwith traced(*sys.argv[1:]):\n"
    code += f"    exec({READS.format(secret=str(secret))!r}, dict(__name__='__main__'))\n"
    calls = tmp_path / "calls"
    subprocess.run(
        [sys.executable, "-c", code, calls, root() / "brace_nb"], env=os.environ | TESTS, check=True
    )
    inputs = dict(packages="numpy 2, pandas 3, torch 2, pyarrow 1") | {"data data/emoji": "digest"}
    found = unheld(calls, inputs, root())
    assert {"sympy", str(secret)} <= set(found) and not any("emoji" in f for f in found)
    del inputs["data data/emoji"]
    assert any("data/emoji" in f for f in unheld(calls, inputs, root()))


def test_a_trace_sees_kernels_threads_forks_and_programs(project, tmp_path):
    (project / "brace_nb/toy/kernels.py").write_text(
        "import numba\n\n\n@numba.njit\ndef kernel(x):\n    return x + 1\n\n\n"
        "def threaded():\n    return 1\n\n\ndef forked():\n    return 1\n\n\ndef idle():\n    return 1\n"
    )
    code = (
        "import os, subprocess, sys, threading\nfrom traced import traced\n"
        f"with traced({str(tmp_path / 'calls')!r}, {str(project / 'brace_nb')!r}):\n"
        "    from brace_nb.toy.kernels import forked, kernel, threaded\n    kernel(1)\n"
        "    thread = threading.Thread(target=threaded)\n    thread.start()\n    thread.join()\n"
        "    if not os.fork():\n        forked()\n        os._exit(0)\n    os.wait()\n"
        "    program = 'from brace_nb.toy.others import triple; triple(1)'\n"
        "    subprocess.run([sys.executable, '-c', program], check=True)\n"
    )
    paths = {"PYTHONPATH": os.pathsep.join([str(project), str(Path(__file__).parent)])}
    subprocess.run([sys.executable, "-c", code], env=environment(project) | paths, cwd=project, check=True)
    found = executed(tmp_path / "calls", project)
    assert found["brace_nb.toy.kernels"] == {"<module>", "kernel", "threaded", "forked"}
    assert found["brace_nb.toy.others"] == {"<module>", "triple"}


def test_a_cell_that_never_ends_is_ended(project):
    notebook(project, "two/d", "value = 1", "while value: pass")
    result = run(project, "--only", "two/d", "--cell-seconds", "1")
    assert result.returncode == 1 and "cell 1 ran longer than 1 seconds" in result.stdout


def test_an_interrupt_ends_a_scheduler_that_waits_for_its_jobs():
    stubborn = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(1, flush=True); "
        "time.sleep(600)"
    )
    scheduler = subprocess.Popen([sys.executable, "-S", "-c", stubborn], stdout=subprocess.PIPE)
    scheduler.stdout.readline()

    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        wait_for(scheduler, patience=0.2)
    assert scheduler.returncode == -signal.SIGKILL


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(project, monkeypatch):
    assert job(project, "two/a").returncode == 0
    shown = published(project, ".png", ".svg", ".csv")
    (project / "figures/two/a.png").write_bytes(b"older")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the disk")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RuntimeError, match="No space left on device. Free some space; nothing is lost"):
            make(only="two/a", say=lambda *_, **__: None)
    assert not list(project.rglob(".*.part")) and (project / "figures/two/a.png").read_bytes() == b"older"
    assert make(only="two/a", say=lambda *_, **__: None) == 0
    assert published(project, ".png", ".svg", ".csv") == shown


def test_a_job_on_a_full_disk_says_so_and_keeps_the_last_good_result(project):
    assert job(project, "two/a").returncode == 0
    before = (project / "data/derived/cpu/runs/two/a/out/result.json").read_bytes()
    edit(project / "data/profiles/cpu.yaml", "value: 5", "value: 6")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); " + MAIN
    call = [sys.executable, "-c", "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); " + limit]
    own = {
        k: v for k, v in environment(project).items() if k != engine.processes.VARIABLE
    }  # no fork: the limit is its own
    how = dict(cwd=project, env=own, capture_output=True, text=True, timeout=120)
    failed = subprocess.run([*call, "job", "two/a"], **how)
    assert failed.returncode == 1 and "File too large. Free some space" in failed.stdout
    assert (project / "data/derived/cpu/runs/two/a/out/result.json").read_bytes() == before
    assert not list(project.rglob(".*.part"))
    assert job(project, "two/a").returncode == 0 and "two/a" not in waiting()


def test_a_folder_that_cannot_be_written_is_one_line(project):
    (project / "figures").write_text("not a folder")
    failed = run(project, "--only", "two/b")
    lines = [line for line in failed.stderr.splitlines() if line.startswith("brace-nb: ")]
    assert failed.returncode != 0 and "Traceback" not in failed.stdout + failed.stderr
    assert lines and "figures" in lines[-1] and "Put a folder in its place" in lines[-1]


# The administrator may write everywhere, unless this right is taken away
POWERLESS = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="the administrator may write")
def test_a_read_only_folder_is_one_line(project):
    assert job(project, "two/b").returncode == 0
    (project / "figures/two/b.png").unlink()
    (project / "figures/two").chmod(0o555)
    call = [*POWERLESS * (os.geteuid() == 0), sys.executable, "-c", MAIN, "figures", "--only", "two/b"]
    failed = subprocess.run(call, cwd=project, env=environment(project), capture_output=True, text=True)
    (project / "figures/two").chmod(0o755)
    assert failed.returncode == 2 and "Make it writable for you" in failed.stderr
    assert run(project, "--only", "two/b").returncode == 0 and (project / "figures/two/b.png").exists()


def test_no_home_no_git_and_a_foreign_kernel_change_nothing(project, tmp_path_factory):
    assert job(project, "two/b").returncode == 0
    figures = published(project, ".png", ".svg", ".csv")
    other = tmp_path_factory.mktemp("surroundings")
    (other / "bin").mkdir()
    for name in filter(shutil.which, ("bash", "sh", "which")):
        (other / "bin" / name).symlink_to(shutil.which(name))
    (other / "jupyter/kernels/python3").mkdir(parents=True)
    spec = dict(argv=["/bin/false"], display_name="foreign", language="python")
    (other / "jupyter/kernels/python3/kernel.json").write_text(json.dumps(spec))
    poor = {"HOME": "/proc/none", "PATH": str(other / "bin"), "JUPYTER_PATH": str(other / "jupyter")}
    call = [sys.executable, "-c", MAIN, "figures", "--only", "two/b", "--force"]
    surroundings = {k: v for k, v in environment(project).items() if not k.startswith("XDG_")} | poor
    how = dict(cwd=project, env=surroundings, capture_output=True, text=True, timeout=120)
    result = subprocess.run(call, **how)
    assert result.returncode == 0, result.stdout + result.stderr
    assert ran(result) == {"two/b"} and published(project, ".png", ".svg", ".csv") == figures


def test_an_unknown_name_is_refused(project):
    with pytest.raises(ValueError, match="nothing is called 'three'"):
        make(only="three")


WHERE = """def where():
    import os
    return os.environ.get("BRACE_NB_WARM", "no socket"), os.getppid()
"""


def test_with_a_snakemake_profile_jobs_share_nothing_with_the_engine(project, monkeypatch, capsys):
    (project / "profile").mkdir()
    (project / "profile/config.yaml").write_text("cores: 2\n")
    (project / "brace_nb/toy/places.py").write_text(WHERE)
    seen = '(output()/"x.txt").write_text(where()[value])'
    notebook(project, "two/d", "value = 0", HEAD + "from brace_nb.toy.places import where", seen)
    notebook(project, "two/e", "value = 3", 'raise ArithmeticError(f"row {value}\x1b[2J")')
    monkeypatch.setattr(engine.processes, "warm_process", None)
    monkeypatch.setenv("PYTHONPATH", str(project))
    assert make(only="two/d,two/e", snakemake_profile=str(project / "profile")) == 1
    assert (project / "data/derived/cpu/runs/two/d/out/output/x.txt").read_text() == "no socket"
    said = capsys.readouterr().out
    assert "two/d: running (" in said and "two/e: failed (1 " in said and "ArithmeticError: row 3" in said
    assert r"row 3\x1b[2J" in said and "\x1b" not in said
    with pytest.raises(FileNotFoundError, match="is no Snakemake profile"):
        make(only="two/e", snakemake_profile=str(project / "nowhere"))


def test_slurm_profile_plans_one_job_an_experiment(project):
    source = Path(__file__).resolve().parents[1] / "data/profiles/slurm"
    shutil.copytree(source, project / "data/profiles/slurm")
    (project / "data/derived/cpu").mkdir(parents=True)
    where = "--snakefile Snakefile --directory data/derived/cpu --profile data/profiles/slurm --dry-run"
    how = dict(cwd=project, env=environment(project), capture_output=True, text=True, timeout=120)
    result = subprocess.run([sys.executable, "-m", "snakemake", *where.split()], **how)
    assert result.returncode == 0, result.stderr
    said = result.stdout + result.stderr
    assert all(f"two__{n}" in said for n in "abc") and "runtime=120" in said


def test_a_night_is_committed_judges_and_is_not_run_twice(project):
    "The long profile measures 12 where the half hour measures 10; the row is judged by 12."
    (project / "data/profiles/long.yaml").write_text("over: cpu\ntwo/a: {value: 6}\n")
    first = run(project, "--profile", "long")
    assert first.returncode == 0 and ran(first) == {"two/a"}, first.stdout + first.stderr
    kept = json.loads((project / "data/evidence/two/a.json").read_text())
    assert kept["rows"]["toy.a"]["measured"] == 12 and kept["parameters"]["value"] == 6
    assert not list((project / "data/evidence").glob("*/b.json"))
    result = run(project, "--only", "two/a")
    row = json.loads((project / "figures/claims.json").read_text())[0]
    assert row["verdict"] == "differs" and row["measured"] == 12 and "10 (reproduced)" in row["moved"]
    assert "differs" in result.stdout
    shutil.rmtree(project / "data/derived/long")
    again = run(project, "--profile", "long")
    assert again.returncode == 0 and ran(again) == set(), again.stdout
    edit(project / "brace_nb/toy/scaling.py", "SCALE = 2", "SCALE = 3")
    assert ran(run(project, "--profile", "long")) == {"two/a"}
