"The experiments engine, on a small project of its own: staleness, failures, kills, locks."

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from brace_nb.companion.figures import root

MAIN = "from brace_nb.companion.cli import main; main()"
TOY = """
"A module with three functions."
SCALE = 2

def double(x):
    "Twice x."
    return SCALE * x

def triple(x): return 3 * x

def slow(seconds, mark):
    import time
    from pathlib import Path
    Path(mark).touch()
    time.sleep(seconds)
    return seconds
"""
HEAD = "import matplotlib.pyplot as plt\nfrom brace_nb.companion.claims import record\nfrom brace_nb.companion.experiments import artifacts, output\nfrom brace_nb.companion.figures import save_figure\n"
PLOT = 'fig, ax = plt.subplots(figsize=(3.3, 2))\nax.plot([0, value]);\nsave_figure(fig, "{name}", data=dict(x=[0, value]), alt="A line that ends at the value.")\n'


def notebook(folder, name, parameters, *cells):
    path = folder / "nbs/experiments" / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    code = [(parameters, ["parameters"])] + [(c, []) for c in cells]
    cells = [
        dict(cell_type="code", id=f"c{i}", execution_count=None, outputs=[], source=s, metadata=dict(tags=t))
        for i, (s, t) in enumerate(code)
    ]
    path.write_text(
        json.dumps(
            dict(
                nbformat=4,
                nbformat_minor=5,
                metadata=dict(kernelspec=dict(name="python3", display_name="python3", language="python")),
                cells=cells,
            )
        )
    )


@pytest.fixture
def project(tmp_path):
    "two/a -> uses double; two/b -> uses triple; two/c -> needs two/a's results."
    shutil.copytree(root() / "brace_nb", tmp_path / "brace_nb", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "brace_nb/toy.py").write_text(TOY)
    shutil.copy(root() / "Snakefile", tmp_path)
    (tmp_path / "settings.ini").touch()
    (tmp_path / "data/profiles").mkdir(parents=True)
    (tmp_path / "data/profiles/cpu.yaml").write_text("two/a: {value: 5}\n")
    row = "{seed: s, where: w, says: 10, tolerance: 0, why: exact, needs: nothing, experiment: two/a, verdict: reproduced}"
    (tmp_path / "data/claims.yaml").write_text(f"toy.a: {row}\n")
    notebook(
        tmp_path,
        "two/a",
        "value = 1",
        HEAD + "from brace_nb.toy import double",
        PLOT.format(name="two/a"),
        '(output()/"x.txt").write_text(str(double(value)))\nrecord("toy.a", double(value))',
    )
    notebook(
        tmp_path,
        "two/b",
        "value = 2",
        HEAD + "from brace_nb.toy import triple",
        "value = triple(value)\n" + PLOT.format(name="two/b"),
    )
    notebook(
        tmp_path,
        "two/c",
        "value = 0",
        HEAD,
        'value = value + int((artifacts("two/a")/"x.txt").read_text())\n' + PLOT.format(name="two/c"),
    )
    return tmp_path


def environment(folder):
    return os.environ | {"BRACE_NB_ROOT": str(folder), "PYTHONPATH": str(folder)}


def run(folder, *words, command="figures"):
    return subprocess.run(
        [sys.executable, "-c", MAIN, command, *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=240,
    )


def ran(result):
    "Names of the experiments that a run executed."
    return {line.split("  ")[1].split(":")[0] for line in result.stdout.splitlines() if ": done in" in line}


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def processes(folder):
    "Processes that work for this project."
    found = []
    for p in psutil.process_iter(["environ", "pid"]):
        environ = p.info["environ"] or {}
        if (
            environ.get("BRACE_NB_ROOT") == str(folder)
            and p.pid != os.getpid()
            and p.status() != psutil.STATUS_ZOMBIE
        ):
            found.append(p)
    return found


def test_runs_what_is_stale_and_nothing_else(project):
    first = run(project)
    assert first.returncode == 0, first.stdout + first.stderr
    assert ran(first) == {"two/a", "two/b", "two/c"} and "[3/3]" in first.stdout
    assert "1 reproduced" in first.stdout
    figures = {
        p.relative_to(project): p.read_bytes()
        for p in (project / "figures").rglob("*")
        if p.is_file() and p.name != "profiles.json"
    }
    assert {f"figures/two/{n}.{k}" for n in "abc" for k in ("png", "svg", "csv", "json")} <= {
        p.as_posix() for p in figures
    }
    facts = json.loads((project / "figures/two/a.json").read_text())
    assert (
        facts["parameters"] == {"value": 5}
        and facts["run"]["seconds"] > 0
        and facts["run"]["packages"]["torch"]
    )

    start = time.time()
    second = run(project)
    assert ran(second) == set() and "nothing to run" in second.stdout and time.time() - start < 15

    edit(project / "brace_nb/toy.py", '"Twice x."', '"Two times x."')  # a docstring
    (project / "figures/two/b.png").unlink()  # a lost figure
    third = run(project)
    assert (
        ran(third) == set()
        and (project / "figures/two/b.png").read_bytes() == figures[Path("figures/two/b.png")]
    )

    edit(project / "brace_nb/toy.py", "return 3 * x", "return x + x + x")  # one function, same result
    assert ran(run(project)) == {"two/b"}

    edit(
        project / "brace_nb/toy.py", "SCALE = 2", "SCALE = 4"
    )  # a constant, through a function, to those who need the result
    why = run(project, "--dry-run").stdout
    assert (
        "two/a: code brace_nb.toy:SCALE changed" in why and "two/c: needs two/a" in why and "two/b" not in why
    )
    fourth = run(project)
    assert (
        ran(fourth) == {"two/a", "two/c"}
        and "1 differs" in fourth.stdout.replace("  ", " ")
        and "accepts 'reproduced'" in fourth.stdout
    )
    assert run(project, "--check", command="claims").returncode == 1

    edit(project / "brace_nb/toy.py", "SCALE = 4", "SCALE = 2")
    assert run(project, "--force").returncode == 0
    assert {
        p: p.read_bytes() for p in map(project.joinpath, figures) if p.suffix in (".png", ".svg", ".csv")
    } == {project / p: c for p, c in figures.items() if p.suffix in (".png", ".svg", ".csv")}
    assert run(project, "--check", command="claims").returncode == 0


def test_a_result_that_stays_the_same_stops_the_chain(project):
    assert run(project).returncode == 0
    edit(project / "brace_nb/toy.py", "return SCALE * x", "return x * SCALE")
    result = run(project)
    assert ran(result) == {"two/a"} and "two/c: unchanged" in result.stdout


def test_a_failing_notebook_shows_its_traceback_and_the_rest_finishes(project):
    assert run(project, "--only", "two/a").returncode == 0
    before = (project / "figures/two/a.png").read_bytes()
    edit(project / "brace_nb/toy.py", "return SCALE * x", "raise ZeroDivisionError('by design')")
    result = run(project)
    assert result.returncode != 0 and "ZeroDivisionError" in result.stdout and "by design" in result.stdout
    assert "two/a: failed" in result.stdout and ran(result) == {"two/b"}
    assert (project / "figures/two/a.png").read_bytes() == before
    edit(project / "brace_nb/toy.py", "raise ZeroDivisionError('by design')", "return SCALE * x")
    assert ran(run(project)) == {"two/c"}  # a's good result is still valid


@pytest.mark.parametrize("whole_group", [False, True], ids=["engine alone", "whole group"])
def test_kill_9_loses_nothing_and_leaves_no_orphans(project, whole_group):
    mark = project / "slow-started"
    notebook(
        project,
        "two/slow",
        f"seconds = 60\nmark = {str(mark)!r}",
        HEAD + "from brace_nb.toy import slow",
        "value = slow(seconds, mark)\n" + PLOT.format(name="two/slow"),
    )
    engine = subprocess.Popen(
        [sys.executable, "-c", MAIN, "figures"],
        cwd=project,
        env=environment(project),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.time() + 120
    while not (
        mark.exists()
        and all((project / f"data/derived/cpu/runs/two/{n}/out/result.json").exists() for n in "abc")
    ):
        assert time.time() < deadline and engine.poll() is None
        time.sleep(0.1)
    second = run(project, "--only", "two/b")
    assert second.returncode == 2 and "in progress" in second.stderr
    os.killpg(engine.pid, signal.SIGKILL) if whole_group else engine.kill()
    engine.wait()
    deadline = time.time() + 20
    while processes(project) and time.time() < deadline:
        time.sleep(0.2)
    assert not processes(project)
    edit(project / "brace_nb/toy.py", "time.sleep(seconds)", "time.sleep(0)")
    result = run(project)
    assert result.returncode == 0 and ran(result) == {"two/slow"}, result.stdout + result.stderr


def test_half_done_work_is_resumed_only_for_the_same_inputs(project):
    cell = 'import os\nn = len(list(output().glob("part*"))); (output()/f"part{n}").touch()\nassert n > 0, "killed"\nvalue = value + n\n'
    notebook(project, "two/resume", "value = 1", HEAD, cell + PLOT.format(name="two/resume"))
    assert run(project, "--only", "two/resume").returncode != 0
    assert run(project, "--only", "two/resume").returncode == 0  # found part0 of the failed run
    edit(project / "data/profiles/cpu.yaml", "two/a", "two/resume: {value: 7}\ntwo/a")
    assert run(project, "--only", "two/resume").returncode != 0  # other inputs: started afresh


def test_bad_input_is_refused_before_anything_runs(project):
    for content, message in [
        ("two/a: {values: 5}", "sets ['values'] for two/a"),
        ("two/z: {value: 5}", "unknown experiments ['two/z']"),
    ]:
        (project / "data/profiles/cpu.yaml").write_text(content)
        result = run(project)
        assert result.returncode == 2 and message in result.stderr
    (project / "data/profiles/cpu.yaml").write_text("requires: cuda")
    import torch

    if not torch.cuda.is_available():
        assert "needs a CUDA device" in run(project).stderr
    (project / "data/profiles/cpu.yaml").write_text("")
    assert "nothing is called 'three'" in run(project, "--only", "three").stderr
    notebook(project, "two/d", "value = 1\nunused = 2", "print(value)")
    assert "['unused'] are never read" in run(project).stderr
    notebook(
        project,
        "two/d",
        "value = 1",
        'from brace_nb.companion.experiments import artifacts\nartifacts("two/e"), value',
    )
    assert "needs 'two/e', which does not exist" in run(project).stderr
    notebook(
        project,
        "two/d",
        "value = 1",
        'from brace_nb.companion.experiments import artifacts\nartifacts("two/d"), value',
    )
    assert "circle" in run(project).stderr


def test_slurm_profile_plans_one_job_an_experiment(project):
    shutil.copytree(root() / "data/profiles/slurm", project / "data/profiles/slurm")
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        "Snakefile",
        "--directory",
        "data/derived/cpu",
        "--profile",
        "data/profiles/slurm",
        "--dry-run",
    ]
    (project / "data/derived/cpu").mkdir(parents=True)
    result = subprocess.run(
        command, cwd=project, env=environment(project), capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    said = result.stdout + result.stderr
    assert all(f"two__{n}" in said for n in "abc") and "slurm_partition=main" in said
