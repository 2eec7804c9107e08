"The project itself: notebooks and package in step, notebooks clean, README and ledger up to date, house rules."

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from brace_nb.companion.claims import load_claims, problems
from brace_nb.companion.cli import readme
from brace_nb.companion.experiments import code_cells, experiments
from brace_nb.companion.figures import root

ROOT = root()
NOTEBOOKS = sorted(p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
EXPERIMENTS = [p for p in NOTEBOOKS if "experiments" in p.relative_to(ROOT / "nbs").parts]
name = lambda p: p.relative_to(ROOT).as_posix()


def tool(command, folder):
    subprocess.run(
        [str(Path(sys.executable).with_name(command))], cwd=folder, check=True, capture_output=True
    )


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory):
    "A copy of the notebooks, exported and cleaned."
    folder = tmp_path_factory.mktemp("rebuilt")
    shutil.copytree(ROOT / "nbs", folder / "nbs", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    for file in ("settings.ini", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / file, folder)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    tool("nbdev_export", folder)
    tool("nbdev_clean", folder)
    return folder


def test_package_is_what_the_notebooks_export(rebuilt):
    "Run `make export` when this fails; the notebook at fault is named."
    ours, theirs = (
        {p.relative_to(f / "brace_nb").as_posix(): p.read_text() for p in (f / "brace_nb").rglob("*.py")}
        for f in (ROOT, rebuilt)
    )
    source = lambda text: (re.search(r"File to edit: [./]*(\S+\.ipynb)", text) or ["", "a deleted notebook"])[
        1
    ]
    wrong = [
        f"{k} <- {source(theirs.get(k) or ours[k])}"
        for k in sorted(ours.keys() | theirs.keys())
        if ours.get(k) != theirs.get(k)
    ]
    assert not wrong, f"not in step with their notebooks: {wrong}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_is_clean(path, rebuilt):
    assert path.read_text() == (rebuilt / path.relative_to(ROOT)).read_text(), "run `make export`"
    assert path.stat().st_size < 400_000, "outputs of a lesson stay small"


@pytest.mark.parametrize("path", EXPERIMENTS, ids=name)
def test_experiment_keeps_the_house_rules(path):
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    assert not any(c["outputs"] for c in cells), "experiments are stored without outputs"
    for cell in code_cells(path):
        for node in ast.walk(ast.parse(cell["source"])):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno <= 5, f"{node.name} belongs in a lesson notebook"
            if isinstance(node, ast.ImportFrom):
                assert not any(a.name == "*" for a in node.names), "import names, the engine follows them"


def test_every_row_of_the_ledger_is_recorded_where_it_says_and_nowhere_else():
    rows, recorded = load_claims(), {i: e.name for e in experiments("cpu").values() for i in e.claims}
    literal = {i: r["experiment"] for i, r in rows.items() if r["experiment"]}
    assert recorded == literal
    assert {r["experiment"] for r in rows.values()} - {None} <= set(experiments("cpu"))


def test_committed_ledger_has_every_row_and_the_accepted_verdicts():
    rows = json.loads((ROOT / "figures/claims.json").read_text())
    assert [r["id"] for r in rows] == list(load_claims())
    accepted = load_claims()
    assert not problems([r | {"accepted": accepted[r["id"]]["verdict"]} for r in rows])


def test_committed_figures_have_their_numbers_and_facts():
    pictures = sorted((ROOT / "figures").glob("*/*.png"))
    assert pictures
    for png in pictures:
        facts = json.loads(png.with_suffix(".json").read_text())
        assert facts["profile"] == "cpu" and len(facts["alt"].split()) >= 4 and facts["run"]["commit"]
        assert any(f.endswith(".csv") for f in facts["files"]) and all(
            (ROOT / "figures" / f).exists() for f in facts["files"] if not f.endswith(".svg")
        )
        assert set(facts["claims"]) <= set(load_claims())


def test_readme_is_the_front_page():
    assert (ROOT / "README.md").read_text() == readme(), "run `make readme`"


def test_lock_covers_the_declared_requirements():
    locked = {
        re.split(r"[=<>]", line)[0].lower().replace("-", "_")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and line[0] != "#"
    }
    settings = (ROOT / "settings.ini").read_text()
    declared = {
        re.split(r"[=<>]", w)[0].lower().replace("-", "_")
        for line in re.findall(r"^\w*requirements = (.*)$", settings, re.M)
        for w in line.split()
    }
    assert declared <= locked, f"constraints.txt does not pin {sorted(declared - locked)}"
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text(), (
        "the lock names the version, not the +cpu build, so that it holds on any machine"
    )


def test_import_needs_only_numpy_and_torch():
    code = "import sys; import brace_nb, brace_nb.codes.projection; print(sorted({m.split('.')[0] for m in sys.modules} & {'numba','matplotlib','pandas','open_clip','fastcore','sklearn','usearch','pyarrow','PIL'}))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
