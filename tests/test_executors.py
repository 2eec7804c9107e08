"""Any queue with a command that submits: jobs on a node that shares only the clone with the login node.

The node is a script: an environment of its own, a TMPDIR of its own, a session of its own. Snakemake speaks
to it by `snakemake-executor-plugin-cluster-generic`, as to LSF, PBS or Grid Engine.
"""

import json
import os
import shutil
import signal
import subprocess
import sys

import psutil
import pytest
import yaml
from made_slurm import wait_for
from test_engine import MAIN
from test_slurm import REAL, project  # noqa: F401  (a fixture)

pytest.importorskip("snakemake_executor_plugin_cluster_generic", reason="extra `slurm` is not installed")

SUBMIT = """#!/bin/sh
mkdir -p {node}/tmp
env -i PATH="{path}" HOME={node} TMPDIR={node}/tmp BRACE_NB_ROOT={project} PYTHONPATH={project} \\
    setsid sh "$1" > {node}/$$.out 2>&1 < /dev/null &
echo $!
"""
CANCEL = '#!/bin/sh\nfor job in "$@"; do kill -- -$job; done\n'


@pytest.fixture
def queue_profile(tmp_path, project):  # noqa: F811
    "A Snakemake profile whose queue is a script."
    node, profile = tmp_path / "node", tmp_path / "profile"
    profile.mkdir()
    words = dict(node=node, path=os.environ["PATH"], project=project)
    for name, text in (("submit", SUBMIT.format(**words)), ("cancel", CANCEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    settings = {
        "executor": "cluster-generic",
        "cluster-generic-submit-cmd": str(tmp_path / "submit"),
        "cluster-generic-cancel-cmd": str(tmp_path / "cancel"),
        "jobs": 4,
        "latency-wait": 5,
    }
    (profile / "config.yaml").write_text(yaml.safe_dump(settings))
    yield profile
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("HOME") == str(node):
            process.kill()


def started(project, profile, only):  # noqa: F811
    "`brace-nb figures` on the login node, as it runs."
    own = dict(BRACE_NB_ROOT=str(project), PYTHONPATH=str(project), BRACE_NB_WARM="/nowhere/socket")
    call = [sys.executable, "-c", MAIN, "figures", "--only", only, "--snakemake-profile", str(profile)]
    how = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=project)
    return subprocess.Popen(call, env=os.environ | own, **how)


def on_the_node(profile):
    "Processes that run on the node."
    home = str(profile.parent / "node")
    return [p for p in psutil.process_iter(["environ"]) if (p.info["environ"] or {}).get("HOME") == home]


def test_jobs_need_nothing_of_the_login_node(project, queue_profile):  # noqa: F811
    shutil.rmtree(project / "data/derived", ignore_errors=True)
    run = started(project, queue_profile, f"{REAL},toy/seen,toy/wrong")
    said, _ = run.communicate(timeout=170)
    assert run.returncode == 1, said
    seen = project / "data/derived/cpu/runs/toy/seen/out/output/seen.json"
    _, socket, temporary = json.loads(seen.read_text())
    assert socket is None and str(temporary).startswith(str(queue_profile.parent / "node"))
    assert f"{REAL}: done" in said and "toy/seen: done" in said and "not finished: toy/wrong" in said
    assert "ArithmeticError: row 11 is odd" in said


def test_what_ends_the_driver_cancels_its_jobs(project, queue_profile):  # noqa: F811
    run = started(project, queue_profile, "toy/endless")
    wait_for((project / "data/derived/cpu/begun/toy/endless").exists, 60)
    assert on_the_node(queue_profile)
    run.send_signal(signal.SIGTERM)
    said, _ = run.communicate(timeout=30)
    assert run.returncode == 128 + signal.SIGTERM, said
    wait_for(lambda: not on_the_node(queue_profile), 10)
