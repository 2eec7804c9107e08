"Notebooks in this process, and the forks that run them: outputs, errors, limits, nothing left behind."

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from papermill.exceptions import PapermillExecutionError

from brace_nb.companion import name_counterparts, run_notebook, submit, warm_process


def write(path, *cells, parameters=""):
    "A notebook of these cells, the first of them parameters."
    kernel = dict(name="python3", language="python", display_name="")
    nb = nbformat.v4.new_notebook(metadata=dict(kernelspec=kernel))
    nb.cells = [nbformat.v4.new_code_cell(parameters, metadata=dict(tags=["parameters"]))]
    nb.cells += [nbformat.v4.new_code_cell(c) for c in cells]
    nbformat.write(nb, path)
    return path


def outputs(path):
    "Outputs of all cells, in order."
    return [o for c in nbformat.read(path, 4).cells for o in c.get("outputs", [])]


def test_parameters_outputs_and_magics(tmp_path):
    cells = ["print(n)", "x = !echo shell\nx[0]", "import pandas as pd\npd.DataFrame({'a': [1]})", "1;"]
    run_notebook(write(tmp_path / "a.ipynb", *cells, parameters="n = 1"), tmp_path / "b.ipynb", dict(n=5))
    text, shell, table = outputs(tmp_path / "b.ipynb")
    assert (
        text.text == "5\n" and shell.data["text/plain"] == "'shell'" and "<table" in table.data["text/html"]
    )


def test_figures_are_shown_and_closed(tmp_path):
    cells = ["import matplotlib.pyplot as plt\nplt.plot([1, 2]);", "print(len(plt.get_fignums()))"]
    source, target = write(tmp_path / "a.ipynb", *cells), tmp_path / "b.ipynb"
    code = f"from brace_nb.companion import run_notebook; run_notebook({str(source)!r}, {str(target)!r})"
    backend = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | backend)
    picture, count = outputs(target)
    assert "image/png" in picture.data and count.text == "0\n"


def test_what_a_reader_has_in_a_matplotlibrc_changes_nothing(tmp_path):
    import matplotlib

    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 20}):
        cell = "from matplotlib import rcParams as said\nprint(said['lines.linewidth'], said['font.size'])"
        run_notebook(write(tmp_path / "a.ipynb", cell), tmp_path / "b.ipynb")
    assert outputs(tmp_path / "b.ipynb")[0].text == "1.5 10.0\n"


def test_the_first_error_ends_the_run_and_names_its_cell(tmp_path):
    with pytest.raises(PapermillExecutionError, match="no such thing"):
        source = write(tmp_path / "a.ipynb", "1", "raise KeyError('no such thing')", "open('x', 'w')")
        run_notebook(source, tmp_path / "b.ipynb", folder=tmp_path)
    assert not (tmp_path / "x").exists() and "no such thing" in (tmp_path / "b.ipynb").read_text()


@pytest.mark.parametrize(
    "cell", ["raise SystemExit(0)", "import sys; sys.exit()", "%%time\nraise SystemExit"]
)
def test_a_cell_that_ends_the_notebook_early_is_an_error(tmp_path, cell):
    "papermill takes `SystemExit(0)` for success; the cells after it would be missing in silence."
    source = write(tmp_path / "a.ipynb", "1", cell, "open('x', 'w')")
    with pytest.raises(PapermillExecutionError, match="a cell may not end the run"):
        run_notebook(source, tmp_path / "b.ipynb", folder=tmp_path)
    assert not (tmp_path / "x").exists() and "SystemExit" in (tmp_path / "b.ipynb").read_text()


def test_a_cell_that_never_ends_is_ended(tmp_path):
    with pytest.raises(PapermillExecutionError, match="cell 1 ran longer than 0.2 seconds"):
        run_notebook(write(tmp_path / "a.ipynb", "while True: pass"), tmp_path / "b.ipynb", cell_seconds=0.2)


def work(kind, folder):
    "What the forks do here: say who they are, start a subprocess, wait."
    folder = Path(folder)
    if kind == "modules":
        print(
            sorted({"torch", "pandas"} & sys.modules.keys()), os.environ.get("MINE"), os.getcwd(), flush=True
        )
        return 7
    if kind == "fails":
        raise RuntimeError("told to")
    if kind == "killed":
        return subprocess.run(["sh", "-c", "kill -9 $$"]).returncode
    sleeper = subprocess.Popen(["sleep", "600"])
    (folder / "pids").write_text(f"{os.getpid()} {sleeper.pid}")
    time.sleep(600)


CLIENT = (
    "import sys; from brace_nb.companion import submit;"
    "sys.exit(submit({path!r}, dict(kind={kind!r}, folder={folder!r})))"
)


@pytest.fixture
def warm(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with warm_process("test_runner:work", ("pandas",)) as path:
        yield path


def client(path, kind, folder, **options):
    "A process that submits a job, as the scheduler's jobs do."
    code = CLIENT.format(path=path, kind=kind, folder=str(folder))
    return subprocess.Popen([sys.executable, "-c", code], cwd=folder, **options)


def wait_for(condition, seconds=20):
    "Wait until something is true; say whether it became so."
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_fork_has_the_imports_and_the_surroundings_of_its_job(warm, tmp_path):
    job = client(
        warm, "modules", tmp_path, stdout=subprocess.PIPE, text=True, env=os.environ | {"MINE": "yes"}
    )
    assert job.communicate(timeout=60)[0].strip() == f"['pandas'] yes {tmp_path}" and job.returncode == 7
    job = client(warm, "fails", tmp_path, stderr=subprocess.PIPE, text=True)
    assert "RuntimeError: told to" in job.communicate(timeout=60)[1] and job.returncode == 1
    assert client(warm, "killed", tmp_path).wait(timeout=60) == 128 + signal.SIGKILL  # -9 would come as 247


@pytest.mark.parametrize("victim", ["job", "fork"])
def test_kill_leaves_nothing_behind(warm, tmp_path, victim):
    job = client(warm, "sleeps", tmp_path)
    assert wait_for((tmp_path / "pids").exists, 60)
    assert wait_for(lambda: len((tmp_path / "pids").read_text().split()) == 2)
    fork, sleeper = map(int, (tmp_path / "pids").read_text().split())
    os.kill(job.pid if victim == "job" else fork, signal.SIGKILL)
    assert wait_for(lambda: gone(fork) and gone(sleeper))
    assert job.wait(timeout=20) == (-signal.SIGKILL if victim == "job" else 128 + signal.SIGKILL)
    again = client(warm, "modules", tmp_path, stdout=subprocess.DEVNULL)
    assert again.wait(timeout=60) == 7


def test_the_end_of_the_engine_ends_the_forks(tmp_path):
    code = (
        "from brace_nb.companion import submit, warm_process\n"
        "with warm_process('test_runner:work') as path:\n"
        f"    submit(path, dict(kind='sleeps', folder={str(tmp_path)!r}))"
    )
    paths = f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    engine = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths})
    assert wait_for(lambda: (tmp_path / "pids").exists() and " " in (tmp_path / "pids").read_text(), 60)
    engine.kill()
    assert wait_for(lambda: all(gone(int(p)) for p in (tmp_path / "pids").read_text().split()))
    engine.wait()


@pytest.mark.parametrize("kilobytes", [0, 100, 400])
def test_an_environment_may_be_larger_than_what_a_socket_takes_at_once(warm, tmp_path, kilobytes):
    large = {f"MODULE_{k}": "x" * 10_000 for k in range(kilobytes // 10)}
    job = client(warm, "modules", tmp_path, stdout=subprocess.DEVNULL, env=os.environ | large)
    assert job.wait(timeout=60) == 7


def test_a_warm_process_whose_engine_is_gone_before_it_looks_ends(tmp_path):
    gone_already = subprocess.Popen(["true"])
    gone_already.wait()
    told = f"{str(tmp_path / 'jobs')!r}, 'builtins:int', [], {gone_already.pid}"
    code = f"from brace_nb.companion import serve; serve({told})"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_no_warm_process_is_an_error_after_some_patience(tmp_path):
    with pytest.raises(FileNotFoundError):
        submit(str(tmp_path / "none"), {}, patience=0.1)
    with socket.socket(socket.AF_UNIX) as left:  # of an engine that was killed: nobody listens
        left.bind(str(tmp_path / "left"))
        start = time.monotonic()
        with pytest.raises(ConnectionRefusedError):
            submit(str(tmp_path / "left"), {}, patience=600)
        assert time.monotonic() - start < 300


def test_an_executed_notebook_names_the_counterpart_above_its_figure(tmp_path):
    (tmp_path / "figures/a").mkdir(parents=True)
    for name, claims in dict(mine=["thesis.fig.5_2"], other=[]).items():
        (tmp_path / f"figures/a/{name}.png").write_bytes(name.encode())
        facts = dict(figure=f"a/{name}", claims=claims)
        (tmp_path / f"figures/a/{name}.json").write_text(json.dumps(facts))
    shown = [base64.b64encode(name).decode() for name in (b"mine", b"other", b"not saved")]
    outputs = [dict(output_type="display_data", metadata={}, data={"image/png": p}) for p in shown]
    cell = dict(cell_type="code", source="fig", outputs=[dict(output_type="stream", text="a"), *outputs])
    (tmp_path / "notebook.ipynb").write_text(json.dumps(dict(cells=[cell])))
    name_counterparts(tmp_path)
    found = json.loads((tmp_path / "notebook.ipynb").read_text())["cells"][0]["outputs"]
    said = {"text/markdown": "*Counterpart of: thesis, Figure 5.2.*"}
    assert [o.get("data") for o in found] == [None, said, *({"image/png": p} for p in shown)]
