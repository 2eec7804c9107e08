"""A real Slurm: jobs run in their allocations, need nothing of the login node, and leave none in the queue.

Skipped, with the reason, without root or Debian's packages: `apt-get install -y munge slurm-wlm`.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from made_copy import copy_package
from made_slurm import lacking, queue, slurm, wait_for
from test_engine import MAIN, notebook

from brace_nb.companion import root

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking() or "-")

REAL = "codes/counterexample"
TOY = """def seen():
    import os
    return [os.environ.get(name) for name in ("SLURM_JOB_ID", "BRACE_NB_WARM", "TMPDIR")]

def killed():
    import os
    os.kill(os.getpid(), 9)
"""
SEEN = """import json
from brace_nb.companion import output
from brace_nb.toy import seen
(output()/"seen.json").write_text(json.dumps(seen()[:3]))
"""
# The executor looks whether jobs have ended, ten seconds later each time nothing has
QUICK = "import asyncio\nsleep = asyncio.sleep\nasyncio.sleep = lambda s, *more: sleep(min(s, 1), *more)\n"
STUDY = """data: {views: {picture: picture.npy, name: name.npy}, held: 0.4}
factors: {learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}}
runs: 2
fixed: {steps: 2, batch_size: 4}
"""


@pytest.fixture(scope="module")
def cluster():
    "A Slurm; its folder has a short name, since a socket's path may have 107 letters."
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        with slurm(Path(folder)) as environment:
            yield environment


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    "A real experiment; one says where it ran, one fails, one is killed, one never ends."
    folder = tmp_path_factory.mktemp("clone")
    copy_package(folder)
    for name in (
        "Snakefile",
        "settings.ini",
        f"nbs/experiments/{REAL}.ipynb",
        "data/profiles/slurm/config.yaml",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root() / name, folder / name)
    shutil.copytree(root() / "data/claims", folder / "data/claims")
    smoke = yaml.safe_load((root() / "data/profiles/smoke.yaml").read_text())
    (folder / "data/profiles/cpu.yaml").write_text(yaml.safe_dump({REAL: smoke[REAL]}))
    (folder / "brace_nb/toy.py").write_text(TOY)
    notebook(folder, "toy/seen", "n = 3", SEEN.replace(":3", ":n"))
    notebook(folder, "toy/wrong", "n = 11", 'raise ArithmeticError(f"row {n} is odd")')
    notebook(folder, "toy/killed", "n = 1", "from brace_nb.toy import killed\nkilled(); n")
    notebook(folder, "toy/endless", "n = 600", "import time\ntime.sleep(n)")
    config = folder / "data/profiles/slurm/config.yaml"
    quick = config.read_text().replace("checks: 10", "checks: 1").replace("wait: 60", "wait: 10")
    config.write_text(quick)
    (folder / "sitecustomize.py").write_text(QUICK)
    return folder


def started(cluster, project, *words, **more):
    "A `brace-nb` command on the login node, as it runs."
    own = dict(BRACE_NB_ROOT=str(project), PYTHONPATH=str(project), BRACE_NB_WARM="/nowhere/socket")
    call = [sys.executable, "-c", MAIN, *words, "--snakemake-profile", str(project / "data/profiles/slurm")]
    how = dict(
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=project, env=cluster | own | more
    )
    return subprocess.Popen(call, **how)


@pytest.fixture(scope="module")
def study(project):
    "A study over 20 rows of two views."
    folder = project / "mine"
    folder.mkdir()
    for seed, name in enumerate(("picture", "name")):
        np.save(folder / f"{name}.npy", np.random.default_rng(seed).normal(size=(20, 5)).astype(np.float32))
    (folder / "study.yaml").write_text(STUDY)
    return folder / "study.yaml"


@pytest.fixture(scope="module")
def ended(cluster, project, study):
    "Figures and a study, at the same time: exit code, what was said."
    runs = (
        started(cluster, project, "figures", "--only", f"{REAL},toy/seen,toy/wrong,toy/killed"),
        started(cluster, project, "sweep", str(study), "--parts", "1"),
    )
    said = [run.communicate(timeout=170)[0] for run in runs]
    return [(run.returncode, text) for run, text in zip(runs, said)]


def test_experiments_run_inside_their_allocations_and_failures_are_told(ended, project):
    code, said = ended[0]
    assert code == 1, said
    seen = project / "data/derived/cpu/runs/toy/seen/out/output/seen.json"
    job, socket, temporary = json.loads(seen.read_text())
    assert int(job) > 0 and socket is None and not str(temporary).startswith(str(project))
    assert list((project / "figures/codes").glob("counterexample*.png"))
    assert re.search(r"\[0/4\] .* left  4 queued", said), said
    assert re.search(r": running \(.*\d queued", said), said
    assert "toy/seen: done" in said and f"{REAL}: done" in said
    assert "toy/wrong: failed" in said and "ArithmeticError: row 11 is odd" in said
    assert "toy/killed: failed" in said and "Error in rule toy__killed" in said
    assert "not finished: toy/killed, toy/wrong" in said


def test_a_study_runs_in_the_queue(ended, cluster):
    code, said = ended[1]
    assert code == 0 and "2 of 2 runs" in said, said
    jobs = [line.split() for line in queue(cluster, "--states", "all")]  # Slurm knows them for a while
    states = [{state for state, name in jobs if name.startswith(p)} for p in {n[:21] for _, n in jobs}]
    assert sorted(states, key=len) == [{"COMPLETED"}, {"COMPLETED", "FAILED"}]


def test_what_ends_the_driver_cancels_its_jobs(cluster, project, ended):
    assert not queue(cluster)
    run = started(cluster, project, "figures", "--only", "toy/endless")
    mark = project / "data/derived/cpu/begun/toy/endless"
    wait_for(mark.exists, 60)
    assert any(line.startswith("RUNNING brace-nb-") for line in queue(cluster))
    run.send_signal(signal.SIGTERM)
    said, _ = run.communicate(timeout=20)
    assert run.returncode == 128 + signal.SIGTERM, said
    wait_for(lambda: not queue(cluster), 10)
