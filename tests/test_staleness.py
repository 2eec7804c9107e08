"""What changes a result changes what the engine compares: one construct for each way it is found.

Each construct of staleness_constructs.txt is a small project with `{V}` somewhere. With V = 1 and V = 2 the
experiment prints different values (this is checked by running it), so its fingerprint must differ too.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from brace_nb.companion import root


def constructs(text):
    "name -> list of (file or `cell`, source)."
    found = {}
    for block in re.split(r"(?m)^=== ", text)[1:]:
        name, _, body = block.partition("\n")
        parts = [p.partition("\n") for p in re.split(r"(?m)^--- ", body)[1:]]
        found[name] = [(file, source.rstrip("\n") + "\n") for file, _, source in parts]
    return found


TEXT = Path(__file__).with_name("staleness_constructs.txt").read_text()
CONSTRUCTS, UNCHANGED = (constructs(half) for half in TEXT.split("\n### unchanged\n"))
LAZY = (root() / "brace_nb/core/lazy_names.py").read_text()


def write(folder, parts, value):
    "The small project with V = value; returns the code of its cells."
    parts = [(file, source.replace("{V}", str(value))) for file, source in parts]
    for file, source in [("__init__.py", ""), *parts]:
        path = folder / "brace_nb" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if file != "cell":
            path.write_text(LAZY if source.strip() == "@lazy" else source)
    sources = ["seed = 0", "seed", *(source.rstrip("\n") for file, source in parts if file == "cell")]
    cell = dict(cell_type="code", execution_count=None, outputs=[])
    nb = dict(nbformat=4, nbformat_minor=5, metadata={}, cells=[])
    for i, source in enumerate(sources):
        nb["cells"].append(
            cell | dict(id=f"c{i}", source=source, metadata=dict(tags=["parameters"] * (i == 0)))
        )
    for path, text in {
        "nbs/experiments/toy/x.ipynb": json.dumps(nb),
        "data/profiles/cpu.yaml": "",
        "data/claims/toy.yaml": "{}",
        "settings.ini": "[DEFAULT]\n",
        "constraints.txt": "",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return "\n".join(sources)


LOOK = """
import json, os, sys
from brace_nb.companion import find_experiments, fingerprint
folders = json.load(sys.stdin)
for folder in folders:
    os.environ["BRACE_NB_ROOT"] = folder
    print(json.dumps(fingerprint(find_experiments("cpu")["toy/x"])))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    "name -> (printed with V = 1, with V = 2, two fingerprints); the engine looks at all in one process."
    folders, printed = [], {}
    for name, parts in {**CONSTRUCTS, **UNCHANGED}.items():
        for value in (1, 2):
            folder = tmp_path_factory.mktemp("project")
            code = write(folder, parts, value)
            folders.append(str(folder))
            run = [sys.executable, "-S", "-c", code]
            done = subprocess.run(
                run, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(folder)}
            )
            assert not done.returncode, (name, done.stderr)
            printed.setdefault(name, []).append(done.stdout)
    done = subprocess.run(
        [sys.executable, "-c", LOOK], input=json.dumps(folders), capture_output=True, text=True
    )
    assert not done.returncode, done.stderr[-3000:]
    prints = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (*printed[name], *prints[2 * i : 2 * i + 2]) for i, name in enumerate(printed)}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_what_changes_a_result_changes_its_fingerprint(found, name):
    one, two, before, after = found[name]
    assert one != two, "the construct does not change the printed value: the table is wrong"
    assert before != after


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_changes_nothing_reruns_nothing(found, name):
    one, two, before, after = found[name]
    assert one == two and before == after
