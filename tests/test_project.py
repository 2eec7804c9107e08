"""The project itself: notebooks and package in step, notebooks clean, links alive, README, ledger and figures
up to date, a wheel that works."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from brace_nb.companion import (
    evidence_by_row,
    find_experiments,
    judged,
    ledger,
    load_claims,
    load_replications,
    problems,
    read_facts,
    PAGES,
    root,
    split_tables,
    unfold,
    write_pages,
)

ROOT = root()
NOTEBOOKS = sorted(p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
LINKED = [*NOTEBOOKS, *(ROOT / name for name in (*PAGES, "CHANGELOG.md", "NOTICE"))]


def name(path):
    return path.relative_to(ROOT).as_posix()


def tool(command, folder):
    subprocess.run(
        [str(Path(sys.executable).with_name(command))], cwd=folder, check=True, capture_output=True
    )


# --- notebooks and package


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


def package_files(folder):
    return {
        p.relative_to(folder / "brace_nb").as_posix(): p.read_text()
        for p in (folder / "brace_nb").rglob("*.py")
    }


def source_of(text):
    "The notebook a module says it comes from."
    found = re.search(r"File to edit: [./]*(\S+\.ipynb)", text)
    return found[1] if found else "a deleted notebook"


def test_package_is_what_the_notebooks_export(rebuilt):
    "Run `make export` when this fails; the notebook at fault is named."
    ours, theirs = package_files(ROOT), package_files(rebuilt)
    wrong = [
        f"{k} <- {source_of(theirs.get(k) or ours[k])}"
        for k in sorted(ours.keys() | theirs.keys())
        if ours.get(k) != theirs.get(k)
    ]
    assert not wrong, f"not in step with their notebooks: {wrong}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_is_clean(path, rebuilt):
    assert path.read_text() == (rebuilt / path.relative_to(ROOT)).read_text(), "run `make export`"
    assert path.stat().st_size < 400_000, "outputs of a lesson stay small"


def prose(path):
    "The text of a page."
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


@pytest.mark.parametrize("path", LINKED, ids=name)
def test_links_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", prose(path))
    here = [
        t for t in targets if "://" not in t and "data/derived/book/html/" not in t
    ]  # test_book has the site
    lost = [t for t in here if not (path.parent / t).exists()]
    assert not lost, f"no such file: {lost}"


def test_what_is_said_to_make_is_not_run_by_its_shell():
    said = ["make", "-n", "figures", "ONLY=x; echo HARM", "DATA=`echo HARM`", "-o", ".venv/.installed"]
    shown = subprocess.run(said, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "HARM" not in shown and '--only "$ONLY"' in shown and '--data "$DATA"' in shown


def test_an_environment_that_was_interrupted_before_it_had_pip_is_made_anew(tmp_path):
    "Ctrl-C in the first seconds of `make` leaves a python without pip."
    for name in ("Makefile", "settings.ini", "setup.py", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    stub, broken = tmp_path / "stub", tmp_path / ".venv/bin/python"
    stub.write_text('#!/bin/sh\ncase "$*" in *venv*) echo "$@" > made; cp stub .venv/bin/python;; esac\n')
    broken.write_text("#!/bin/sh\nexit 1\n")
    for path in (stub, broken):
        path.chmod(0o755)
    call = ["make", "install", "PYTHON=./stub"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "--clear" in (tmp_path / "made").read_text(), done.stderr


# --- experiments


def test_every_row_of_the_ledger_is_recorded_where_it_says_and_nowhere_else():
    rows, recorded = load_claims(), {i: e.name for e in find_experiments("cpu").values() for i in e.claims}
    literal = {i: r["experiment"] for i, r in rows.items() if r["experiment"]}
    assert recorded == literal
    assert {r["experiment"] for r in rows.values()} - {None} <= set(find_experiments("cpu"))


# --- what is committed


def test_committed_ledger_has_every_row_and_the_accepted_verdicts():
    rows = unfold(json.loads((ROOT / "figures/claims.json").read_text()))
    assert [r["id"] for r in rows] == list(load_claims())
    accepted = load_claims()
    assert not problems([r | {"accepted": accepted[r["id"]]["verdict"]} for r in rows])
    kept = {r["id"]: {k: r.get(k) for k in ("measured", "null", "gained")} | {"note": ""} for r in rows}
    again = unfold(ledger(accepted, kept, load_replications(), evidence_by_row(accepted)))
    moved = {r["id"]: r["verdict"] for r in again if r["verdict"] != accepted[r["id"]]["verdict"]}
    assert not moved, "what is committed, judged by the rows as they stand, has other verdicts"


def test_every_second_measurement_fits_its_row():
    rows = load_claims()
    for course in load_replications().values():
        for id, record in course.items():
            assert id in rows, f"{id} is no row; take its record out of data/replications"
            assert judged(rows[id], record)["verdict"], f"{id}: run it again with PROFILE=other_seeds"


def test_committed_figures_have_their_numbers_and_facts():
    facts = read_facts(ROOT / "figures")
    figures = {name: f for part in facts.values() for name, f in part["figures"].items()}
    makers = {name: e for part in facts.values() for name, e in part["experiments"].items()}
    pictures = {f"{p.parent.name}/{p.stem}" for p in ROOT.glob("figures/*/*.png")}
    tables = {f"{p.parent.name}/{p.stem}" for p in ROOT.glob("data/numbers/*/*.csv")}
    assert pictures and pictures == tables == set(figures)
    for figure, f in figures.items():
        assert len(f["alt"].split()) >= 4 and set(f["claims"]) <= set(load_claims())
        maker = makers[f["experiment"]]
        assert maker["profile"] == "cpu" and set(maker) == {"profile", "parameters", "inputs"}
        saved = {
            file.removeprefix(figure).removesuffix(".csv").strip(".") for file in f["files"] if ".csv" in file
        }
        assert saved == set(split_tables((ROOT / f"data/numbers/{figure}.csv").read_text())), figure


def test_the_figures_folder_stays_small():
    listed = subprocess.run(["git", "ls-files", "figures"], cwd=ROOT, capture_output=True, text=True).stdout
    files = listed.split() or [p for p in (ROOT / "figures").rglob("*") if p.is_file() and p.suffix != ".svg"]
    pictures = [name for name in files if str(name).endswith(".png")]
    assert len(files) <= min(300, len(pictures) + 40)  # beside the pictures only pages and facts


def test_pages_are_what_their_notebooks_say():
    write_pages(check=True)  # `make readme` writes them


def test_readme_is_two_screens():
    text = (ROOT / "README.md").read_text()
    words = [w for w in re.sub(r"\]\([^)]*\)", "]", text).split() if re.search(r"\w", w)]
    assert len(text.splitlines()) <= 100 and len(words) <= 600


def test_contents_list_every_lesson_and_experiment():
    "Reports stand beside their sources, in the README."
    text = (ROOT / "CONTENTS.md").read_text() + (ROOT / "README.md").read_text()
    pages = [p for p in NOTEBOOKS if p.parent != ROOT / "nbs" and not re.match(r"zz_init|\d\d[a-z]_", p.name)]
    assert not [name(p) for p in pages if f"({name(p)})" not in text]


# --- packages


def names(words):
    return {re.split(r"[=<>]", word)[0].lower().replace("-", "_") for word in words}


def test_lock_covers_the_declared_requirements():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    locked = names(line for line in lines if line and line[0] != "#")
    listed = re.findall(r"^\w*requirements = (.*)$", (ROOT / "settings.ini").read_text(), re.M)
    declared = names(" ".join(listed).split())
    assert declared <= locked, f"constraints.txt does not pin {sorted(declared - locked)}"
    assert "torch==2.13.0" in lines, (
        "the lock names the version, not the +cpu build, so that it holds anywhere"
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    "The wheel of this repository, unpacked where nothing else is."
    folder = tmp_path_factory.mktemp("wheel")
    for file in ("settings.ini", "pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / file, folder)
    shutil.copytree(ROOT / "brace_nb", folder / "brace_nb", ignore=shutil.ignore_patterns("__pycache__"))
    command = "pip wheel --quiet --no-deps --no-build-isolation --wheel-dir built ."
    subprocess.run([sys.executable, "-m", *command.split()], cwd=folder, check=True)
    (wheel,) = (folder / "built").glob("brace_nb-*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def in_empty_place(installed, folder, code):
    "Run code with the wheel's package, far from any checkout; to compile its kernels anew takes long."
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BRACE_NB")}
    environment |= {"PYTHONPATH": str(installed), "NUMBA_DISABLE_JIT": "1"}
    how = dict(cwd=folder, env=environment, capture_output=True, text=True)
    return subprocess.run([sys.executable, "-P", "-c", code], **how)


def test_the_wheel_has_every_module_and_says_that_it_is_typed(installed):
    here = {p.relative_to(ROOT).as_posix() for p in (ROOT / "brace_nb").rglob("*.py")}
    there = {p.relative_to(installed).as_posix() for p in (installed / "brace_nb").rglob("*.py")}
    assert here == there and (installed / "brace_nb/py.typed").exists()


def test_the_source_archive_builds_the_same_package(tmp_path):
    files = (
        "settings.ini setup.py pyproject.toml MANIFEST.in README.md RUNNING.md LICENSE NOTICE CITATION.cff"
    )
    for file in (*files.split(), "CHANGELOG.md", "constraints.txt"):
        shutil.copy(ROOT / file, tmp_path)
    shutil.copytree(ROOT / "brace_nb", tmp_path / "brace_nb", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "setup.py", "-q", "sdist"], cwd=tmp_path, check=True, capture_output=True)
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    here = {p.relative_to(ROOT).as_posix() for p in (ROOT / "brace_nb").rglob("*.py")}
    assert here | {"settings.ini", "constraints.txt", "LICENSE", "NOTICE", "brace_nb/py.typed"} <= names


def test_versions_agree():
    said = re.search(r"^version = (.*)$", (ROOT / "settings.ini").read_text(), re.M)[1]
    assert f'__version__ = "{said}"' in (ROOT / "brace_nb/__init__.py").read_text()
    assert f"version: {said}\n" in (ROOT / "CITATION.cff").read_text()
    assert (ROOT / "CHANGELOG.md").read_text().splitlines()[4].startswith(f"## {said}")


def test_the_wheel_imports_and_says_where_its_data_come_from(installed, tmp_path):
    parts = sorted(p.parent.name for p in (installed / "brace_nb").glob("*/__init__.py"))
    imported = in_empty_place(installed, tmp_path, "import brace_nb." + ", brace_nb.".join(parts))
    assert imported.returncode == 0, imported.stderr
    code = (
        "import brace_nb, brace_nb.codes as c; print(brace_nb.__file__); print(c.binarize([[3.0, 1.0, 0.1]]))"
    )
    used = in_empty_place(installed, tmp_path, code)
    assert used.returncode == 0 and str(installed) in used.stdout, used.stderr
    emoji = in_empty_place(installed, tmp_path, "from brace_nb.foundations import load_emoji; load_emoji()")
    last = emoji.stderr.strip().splitlines()[-1]
    assert last.startswith("FileNotFoundError") and "data/emoji" in last and "clone" in last, last
