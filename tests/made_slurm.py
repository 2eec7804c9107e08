"""A Slurm of one node on loopback, whose jobs see another TMPDIR than the one who submits.

It starts Debian's `munged`, `slurmctld` and `slurmd` (`apt-get install munge slurm-wlm`), as root, and stops
them. Nothing is written outside the folder; there is no accounting, as on a small cluster.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "unshare")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
CONF = """
ClusterName=brace
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=200000
KillWait=2
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=64000
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def lacking() -> str:
    "Why there can be no Slurm here; empty where there can."
    if os.geteuid():
        return "Slurm's daemons are started as root"
    if missing := [name for name in PROGRAMS if not shutil.which(name, path=PATH)]:
        return f"no {', '.join(missing)}: apt-get install munge slurm-wlm"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        return "no mount namespaces here: a node could not have a TMPDIR of its own"
    return ""


def free_ports(n):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def wait_for(what, seconds=20.0):
    "The first true answer of a function; none in time is an error."
    end = time.monotonic() + seconds
    while not (answer := what()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what} said nothing in {seconds:g} s")
        time.sleep(0.1)
    return answer


def queue(environment, *words):
    "State and name of each job that waits or runs."
    said = subprocess.run(
        ["squeue", "-h", "-o", "%T %j", *words], env=environment, capture_output=True, text=True
    )
    return said.stdout.split("\n")[:-1]


@contextlib.contextmanager
def slurm(folder, cores=4):  # The variables under which its commands find it
    "A running Slurm; what is written to the login node's TMPDIR is not seen by a job."
    host = socket.gethostname().partition(".")[0]
    for name in ("state", "spool", "login"):
        (folder / name).mkdir()
    folder.chmod(0o755)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    conf = CONF.format(host=host, ports=free_ports(2), folder=folder, cores=cores)
    (folder / "slurm.conf").write_text(conf)
    own = dict(PATH=PATH, SLURM_CONF=str(folder / "slurm.conf"), TMPDIR=str(folder / "login"))
    environment = os.environ | own
    munged = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket"]
    munged += [f"--{k}={folder}/munge.{k[:3]}" for k in ("pid-file", "log-file", "seed-file")]
    # Snakemake keeps SLURM_CONF from a job's `srun`, so that the node has the file where Debian looks for it
    node = f"mount -t tmpfs none {folder}/login && mount --bind {folder} /etc/slurm && exec slurmd -D"
    calls = [[*munged, f"--key-file={folder}/munge.key"], ["slurmctld", "-D", "-i"]]
    calls += [["unshare", "--mount", "sh", "-c", node]]
    started = []
    try:
        for call in calls:
            how = dict(stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True)
            with open(folder / "daemons.log", "ab") as log:
                started.append(subprocess.Popen(call, env=environment, stdout=log, **how))
            if call[0] == "munged":
                wait_for((folder / "munge.socket").exists)
        idle = ["sinfo", "-h", "-t", "idle", "-o", "%n"]
        wait_for(lambda: subprocess.run(idle, env=environment, capture_output=True).stdout.strip())
        yield environment
    finally:
        subprocess.run(["scancel", "--user", "root"], env=environment, capture_output=True, timeout=20)
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not queue(environment), 5)
        for process in reversed(started):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
