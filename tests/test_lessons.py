"""What a lesson has: a summary and ways on; pictures and exercises where they teach, with solutions that run.

Notebooks with a letter (`NNa_*`: kernels and sub-lessons) and the tables of names (`zz_init`) need not be
whole lessons; those that have exercises need solutions all the same. `nbdev_test` runs every cell of a
lesson, its solutions as well; here their form is held.
"""

import json
import re

import pytest

from brace_nb.companion import root

ROOT = root()
NOTEBOOKS = sorted((ROOT / "nbs").glob("[0-9]_*/*.ipynb"))
LESSONS = [path for path in NOTEBOOKS if path.stem != "zz_init" and not re.match(r"\d\d[a-z]_", path.name)]


def name(path):
    return path.relative_to(ROOT / "nbs").with_suffix("").as_posix()


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def source(cell):
    return "".join(cell["source"])


def has_exercises(path):
    "Does a notebook say Try, as a heading or at the start of a line?"
    prose = "\n".join(source(c) for c in cells_of(path) if c["cell_type"] == "markdown")
    return re.search(r"^(## |\*+)Try\b", prose, re.M) is not None


def section(cells, heading):
    "The cells from a heading of the second level to the next one."
    start = [i for i, c in enumerate(cells) if re.match(rf"## {heading}\b", source(c))]
    if not start:
        return []
    rest = cells[start[0] + 1 :]
    ends = [i for i, c in enumerate(rest) if c["cell_type"] == "markdown" and source(c).startswith("## ")]
    return [cells[start[0]], *rest[: ends[0] if ends else len(rest)]]


def unsolved(cells, least):
    "What the exercises lack: so many solutions, one for each question, which check something and are run."
    found, tried = [], section(cells, "Try")
    solutions = [c for c in tried if "solution" in c["metadata"].get("tags", [])]
    questions = re.findall(
        r"^\*\*\d+\.\*\*", "\n".join(source(c) for c in tried if c["cell_type"] == "markdown"), re.M
    )
    if len(solutions) < least:
        found.append(f"Try with {least} solution{'s' * (least > 1)}")
    if len(solutions) < len(questions):
        found.append("a solution for every question")
    if any(not re.search(r"\bassert\b|expect_fail\(", source(c)) for c in solutions):
        found.append("a check in every solution")
    if any(re.search(r"^#\|\s*eval:\s*false", source(c), re.M) for c in solutions):
        found.append("solutions that are run")
    return found


def faults(path):
    "What a lesson lacks."
    cells = cells_of(path)
    found = []
    summary = "\n".join(source(c).partition("\n")[2] for c in section(cells, "Remember"))
    if len(re.findall(r"[.!?](?:\s|$)", summary)) < 3:
        found.append("Remember with three sentences")
    if has_exercises(path):
        found += unsolved(cells, 1)
    if not section(cells, "Measured in"):
        found.append("Measured in")
    last = source(cells[-1])
    for word, end in (("Previous", LESSONS[0]), ("Next", LESSONS[-1])):
        if path != end and not re.search(rf"{word}:\W*\[[^\]]+\]\([^)]+\.ipynb\)", last):
            found.append(f"a link to the {word.lower()} lesson")
    if not any(cell.get("outputs") for cell in cells):
        found.append("stored outputs")
    return found


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_a_lesson_is_whole(path):
    assert not faults(path), f"{name(path)} lacks {', '.join(faults(path))}"


@pytest.mark.parametrize("path", filter(has_exercises, NOTEBOOKS), ids=name)
def test_exercises_have_solutions_that_run(path):
    assert not unsolved(cells_of(path), 1), f"{name(path)} lacks {', '.join(unsolved(cells_of(path), 1))}"


def test_what_is_missing_is_seen(tmp_path):
    empty = dict(cell_type="markdown", metadata={}, source=["# A title"])
    path = tmp_path / "00_empty.ipynb"
    path.write_text(json.dumps(dict(cells=[empty])))
    assert len(faults(path)) == 5
    solution = dict(cell_type="code", metadata=dict(tags=["solution"]), source=["1 + 1"], outputs=[])
    texts = ("## Remember\n\nOne. Two. Three.", "## Try", "## Measured in\n\nNext: [b](b.ipynb)")
    remember, exercises, last = (dict(cell_type="markdown", metadata={}, source=[t]) for t in texts)
    path.write_text(json.dumps(dict(cells=[remember, exercises, *[solution] * 3, last])))
    lacking = "a check in every solution", "a link to the previous lesson", "stored outputs"
    assert faults(path) == list(lacking)


def test_text_is_no_solution(tmp_path):
    older = dict(cell_type="markdown", metadata={}, source=["**Remember.** One.\n\n*Try.* (1) Why?"])
    path = tmp_path / "00a_older.ipynb"
    path.write_text(json.dumps(dict(cells=[older])))
    assert has_exercises(path) and unsolved([older], 1) == ["Try with 1 solution"]
    question = dict(cell_type="markdown", metadata={}, source=["## Try\n\n**1.** Why?\n\n**2.** And then?"])
    never = dict(metadata=dict(tags=["solution"]), cell_type="code", source=["#| eval: false\n", "assert 1"])
    assert unsolved([question, never], 1) == ["a solution for every question", "solutions that are run"]
    path.write_text(json.dumps(dict(cells=[dict(older, source=["Try it."])])))
    assert not has_exercises(path)
