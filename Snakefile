# The experiments as Snakemake rules: one per notebook, in the order of their needs; a quick figure comes
# first, then the longest chain.
# `brace-nb figures` (make figures) runs this; on a cluster add --snakemake-profile data/profiles/slurm.
import json, shlex, sys
from brace_nb.companion import (
    expected_seconds, find_experiments, fingerprint, known_seconds, priorities, quick_figure, resources_of,
)
from brace_nb.core import write_atomic

PROFILE = str(config.get("profile", "cpu"))
MAIN = "from brace_nb.companion.cli import main; main()"
FORCE = ["--force"] if int(config.get("force", 0)) else []
FOUND = find_experiments(PROFILE, {})
SECONDS = expected_seconds(FOUND, known_seconds(FOUND))
ORDER, FIRST = priorities(FOUND, SECONDS), quick_figure(FOUND, SECONDS)
MOST = max((e.threads for e in FOUND.values()), default=1)

rule all:
    input: [f"done/{name}.json" for name in FOUND]

for e in FOUND.values():
    # What the result depends on, in a file that changes only when the dependencies do.
    own = {k: v for k, v in fingerprint(e).items() if not k.startswith("results of ")}
    write_atomic(e.folder.parents[2] / "inputs" / f"{e.name}.json", json.dumps(own, indent=1))
    rule:
        name: e.rule
        input: f"inputs/{e.name}.json", [f"done/{need}.json" for need in e.needs]
        output: f"done/{e.name}.json"
        # The first figure takes seconds. It holds as many cores as the widest job: beside it a narrow one
        # would start, and another beside that, and the widest, on which the longest chain waits, last.
        threads: MOST if e.name == FIRST else e.threads
        priority: ORDER[e.name]
        resources: **resources_of(e)
        params: command=shlex.join([sys.executable, "-c", MAIN, "job", e.name, "--profile", PROFILE, *FORCE])
        shell: "exec {params.command}"
