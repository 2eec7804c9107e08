"""The recipes of CONTRIBUTING.md are walked in a copy of the checkout: what they say is what must be done."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from made_copy import copy_package

from brace_nb.companion import root

ROOT = root()
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
MOST = 2  # files that a recipe may touch; rows of the ledger, which are data, aside


class Step(NamedTuple):
    language: str  # Of the block: python, yaml, diff, markdown, js, shell
    target: str  # File that is changed, or "check"
    text: str


def recipes() -> dict[str, tuple[str, list[Step]]]:
    "Title of a recipe -> its words, and its blocks."
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.M)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {title: (part, [Step(*found) for found in BLOCK.findall(part)]) for title, part in pairs}


RECIPES = recipes()


def cell(source: str, kind: str = "code", tags: tuple = ()) -> dict:
    "A cell of a notebook."
    more = dict(outputs=[], execution_count=None) if kind == "code" else {}
    metadata = dict(tags=list(tags)) if tags else {}
    return dict(cell_type=kind, id="", metadata=metadata, source=source.strip("\n")) | more


def new_notebook(text: str) -> dict:
    "A notebook of a text whose cells begin with `# %%`, as editors write and read it."
    cells = []
    for head, body in re.findall(r"^# %%([^\n]*)\n(.*?)(?=^# %%|\Z)", text, re.M | re.S):
        if "[markdown]" in head:
            cells.append(cell(re.sub(r"^# ?", "", body, flags=re.M), "markdown"))
        else:
            cells.append(cell(body, tags=tuple(head.split())))
    kernel = dict(display_name="python3", language="python", name="python3")
    return dict(cells=cells, metadata=dict(kernelspec=kernel), nbformat=4, nbformat_minor=5)


def write_notebook(path: Path, notebook: dict) -> None:
    "Every cell gets an id of its own."
    for number, one in enumerate(notebook["cells"]):
        one["id"] = one["id"] or f"added-{number}"
    path.write_text(json.dumps(notebook, indent=1), encoding="utf-8")


def replaced(text: str, diff: str) -> str:
    "A text after a change that is told by lines that stay, go (-) and come (+)."
    lines = diff.splitlines()
    old = "\n".join(line[1:] for line in lines if line[0] in " -")
    new = "\n".join(line[1:] for line in lines if line[0] in " +")
    assert text.count(old) == 1, f"the page quotes {text.count(old)} places:\n{old}"
    return text.replace(old, new)


def change(path: Path, diff: str) -> None:
    "Change one place of a file, or of one cell of a notebook."
    if path.suffix != ".ipynb":
        path.write_text(replaced(path.read_text(encoding="utf-8"), diff), encoding="utf-8")
        return
    notebook = json.loads(path.read_text(encoding="utf-8"))
    removed = next(line[1:] for line in diff.splitlines() if line.startswith("-"))
    holding = [c for c in notebook["cells"] if removed in "".join(c["source"])]
    assert len(holding) == 1, f"{len(holding)} cells hold {removed!r}"
    holding[0]["source"] = replaced("".join(holding[0]["source"]), diff)
    write_notebook(path, notebook)


def do(step: Step, folder: Path) -> None:
    "Carry out one block: a new cell, a new notebook, a new file, further rows, or a change."
    path = folder / step.target
    if step.language == "diff":
        change(path, step.text)
    elif path.suffix == ".ipynb" and path.exists():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        notebook["cells"].append(cell(step.text))
        write_notebook(path, notebook)
    elif path.suffix == ".ipynb":
        write_notebook(path, new_notebook(step.text))
    else:
        before = path.read_text(encoding="utf-8") + "\n" if path.exists() else ""
        path.write_text(before + step.text, encoding="utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    "All files of a copy that are not made by running something."
    paths = (p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    names = ((p.relative_to(folder).as_posix(), p) for p in paths)
    made = ("data/derived", "figures/", "brace_nb/", ".pytest_cache")
    return {n: p.read_bytes() for n, p in names if not n.startswith(made) and "__pycache__" not in n}


def run(folder: Path, *command: str, text: str | None = None) -> str:
    "Run something in the copy, with its package."
    told = dict(PYTHONPATH=str(folder), BRACE_NB_ROOT=str(folder), OMP_NUM_THREADS="1")
    told["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, env=os.environ | told
    )
    assert found.returncode == 0, f"{' '.join(command)}\n{found.stdout[-2000:]}\n{found.stderr[-2000:]}"
    return found.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    "A copy of the checkout; what is large and only read is linked."
    folder = tmp_path_factory.mktemp("contributing") / "checkout"
    shutil.copytree(ROOT / "nbs", folder / "nbs", ignore=shutil.ignore_patterns("__pycache__", "_proc"))
    copy_package(folder)
    shutil.copytree(ROOT / "figures", folder / "figures")
    (folder / "data/claims").mkdir(parents=True)
    for path in ROOT.glob("data/claims/*"):
        shutil.copy(path, folder / "data/claims")
    for path in ROOT.glob("data/*"):
        if path.name not in ("claims", "derived"):
            (folder / "data" / path.name).symlink_to(path)
    for name in ("settings.ini", "setup.py", "pyproject.toml", "Snakefile", "README.md", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    (folder / "tests").symlink_to(ROOT / "tests")
    return folder


@pytest.fixture(scope="module")
def walked(copy):
    "All recipes done: title -> the files that each changed; then one export."
    changed = {}
    for title, (_, steps) in RECIPES.items():
        before = contents(copy)
        for step in steps:
            if step.target != "check":
                do(step, copy)
        after = contents(copy)
        changed[title] = {name for name in after if before.get(name) != after[name]}
    before = {p: p.read_bytes() for p in (copy / "brace_nb").rglob("*.py")}
    run(copy, "nbdev_export")
    package = {p for p in (copy / "brace_nb").rglob("*.py") if before.get(p) != p.read_bytes()}
    return changed, {p.relative_to(copy).as_posix() for p in package}


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_does_what_it_says(walked, copy, title):
    checks = [step for step in RECIPES[title][1] if step.target == "check"]
    assert checks, "a recipe shows how to see that it worked"
    for step in checks:
        if step.language == "python":
            run(copy, sys.executable, "-", text=step.text)
        for line in step.text.splitlines() if step.language == "shell" else ():
            run(copy, *line.split())


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_touches_the_files_it_names_and_at_most_two(walked, title):
    changed, named = walked[0][title], set(re.findall(r"`((?:nbs|data)/[\w/]+\.\w+)`", RECIPES[title][0]))
    assert changed == {step.target for step in RECIPES[title][1] if step.target != "check"}
    assert changed <= named, "the words of the recipe name every file"
    assert len([name for name in changed if not name.startswith("data/")]) <= MOST


def test_nothing_else_of_the_package_moves(walked):
    "Only the modules of the notebooks that the recipes name, and nbdev's index."
    wanted = {"brace_nb/_modidx.py"}
    for _, steps in RECIPES.values():
        for step in steps:
            if re.match(r"nbs/\d_", step.target):
                part, name = re.fullmatch(r"nbs/\d_(\w+)/\d+\w?_(\w+)\.ipynb", step.target).groups()
                wanted.add(f"brace_nb/{part}/{name}.py")
    assert walked[1] <= wanted, walked[1] - wanted


def test_an_entry_is_on_its_page_with_nothing_else_to_do(walked, copy):
    "The site's script of the copy holds the entries that the recipes add."
    script = "import sys; sys.path.insert(0, 'nbs/_book'); import registries; print(registries.script())"
    told = run(copy, sys.executable, "-c", script)
    for name in ("squared_pairs", "in_order", "diagonal"):
        assert f'"{name}":' in told, name
