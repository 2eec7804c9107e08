"""What is read first: turns that do not come back, and help that says what a command is.

The list holds turns that made readers read twice; beside each stands what to write instead. A machine finds
words, not riddles: for the rest STYLE's advice is to read aloud.
"""

import ast
import json
import re

import pytest

from brace_nb.companion import parser, root

ROOT = root()
TURNS = {
    r"\b(?:no|some|any)body\b": "name who it is, or use the passive",
    r"\bhas no place\b": "say what cannot be done with it, and what happens",
    r"\bno reason for\b": "say what does not follow",
    r"\bis worth what\b": "say when it helps, and by how much",
    r"\bnothing to spare\b": "say how much is left",
    r"\ba little (?:dearer|worse a)\b": "more expensive",
    r"\b(?:gradient|unit)s? dies?\b": "the gradient vanishes",
    r"\bmoves along with it\b": "say what is trained",
    r"\bmay leave the picture nowhere\b": "lie completely inside the picture",
    r"\bmiddling\b": "of medium priority",
    r"\bno strangers\b": "non-contrastive",
    r"\bonly has to mean\b": "its output has one requirement",
    r"\bHow near, and\b": "How good is it, and is it faster?",
    r"\bneither is the\b": "say what tells it, and what does not",
    r"\bbelong to the corner\b": "the 0/1 vector that makes the smallest angle with it",
}


def cells(path, most=None):
    "Text of the first cells of a notebook."
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(c["source"]) for c in found[:most] if c["cell_type"] == "markdown")


def first_read():
    "Name -> text of everything that readers meet first."
    nbs = ROOT / "nbs"
    texts = {name: (ROOT / name).read_text() for name in ("README.md", "RUNNING.md", "CONTRIBUTING.md")}
    texts["front page"] = (nbs / "_book/front.md").read_text()
    whole = [
        nbs / "index.ipynb",
        nbs / "one_hour.ipynb",
        nbs / "running.ipynb",
        *(nbs / "reports").glob("*.ipynb"),
    ]
    texts |= {p.relative_to(ROOT).as_posix(): cells(p) for p in whole}
    openings = [*nbs.glob("[0-9]_*/*.ipynb"), *nbs.glob("experiments/*/*.ipynb")]
    texts |= {p.relative_to(ROOT).as_posix(): cells(p, 2) for p in openings}
    modules = [p for p in (ROOT / "brace_nb").rglob("*.py") if p.name not in ("_modidx.py", "__init__.py")]
    texts |= {
        p.relative_to(ROOT).as_posix(): ast.get_docstring(ast.parse(p.read_text())) or "" for p in modules
    }
    commands = next(a for a in parser()._actions if a.choices)
    texts |= {f"brace-nb {name}": c.format_help() for name, c in commands.choices.items()}
    return texts


def faults(text):
    "Turns of a text that are on the list."
    return [(found[0], cure) for turn, cure in TURNS.items() for found in re.finditer(turn, text, re.I)]


def test_turns_that_do_not_come_back():
    found = {name: faults(text) for name, text in first_read().items()}
    assert len(found) > 300
    assert not (wrong := {name: f for name, f in found.items() if f}), wrong


@pytest.mark.parametrize("said", ["a designer nobody saw", "NaN has no place in an order", "a little dearer"])
def test_a_turn_is_found(said):
    assert faults(f"It is {said}.") and not faults("The gradient vanishes for the worst pairs.")


def test_help_is_a_sentence_about_the_command():
    commands = next(a for a in parser()._actions if a.choices)
    for name, command in commands.choices.items():
        assert len(command.description.split()) >= 3, name
        for action in command._actions:
            assert action.help, f"{name} {action.dest}"
