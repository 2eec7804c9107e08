"""The library's registries as one script: what the pages to play with know of an entry besides its number.

`_static/registries.js` sets `brace.registries`: table -> name -> title, formula, source, color, guarantees.
An entry of the library that no script computes stands on its page all the same, "in Python only".
"""

import dataclasses
import inspect
import json
import re

import torch

from brace_nb import assignment, codes, foundations, ndim
from brace_nb.companion import style
from sources import put

LETTERS = {
    r"\bsum_": "Σ_",
    r"\bprod_": "Π_",
    r"\bsqrt\b": "√",
    r"\^2": "²",
    r"(?<!\w)-(?=[ |\w√])": "−",
    r"\$": "",
}


def written(text: str) -> str:
    "A title or a formula as a reader of a page expects it: Σ for sum, √ for sqrt, no marks of mathematics."
    for pattern, letter in LETTERS.items():
        text = re.sub(pattern, letter, text)
    return text


def facts_of(entry) -> dict:
    "All of an entry that is words, numbers or a truth; its color as figures draw it."
    fields = {f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}
    facts = {k: v for k, v in fields.items() if isinstance(v, str | int | float)}
    facts |= {k: written(facts[k]) for k in ("title", "formula") if k in facts}
    return facts | dict(color=style(entry)["color"])


def entries(registry: dict) -> dict:
    "Name -> facts."
    return {name: facts_of(entry) for name, entry in registry.items()}


def formats() -> dict:
    "Number formats, each with its largest value."
    top = {name: torch.finfo(f.dtype).max for name, f in assignment.FLOAT_FORMATS.items()}
    return {name: facts | dict(top=top[name]) for name, facts in entries(assignment.FLOAT_FORMATS).items()}


def presets() -> dict:
    "Rules of the recursion by name, first the one that `assign` takes when it is told none."
    told = inspect.signature(assignment.assign).parameters
    usual = {name: told[name].default for name in ("steps", "factor", "select")}
    return dict(default=usual) | {name: dict(rule) for name, rule in assignment.PRESETS.items()}


def tables() -> dict:
    "All tables of the script."
    return dict(
        methods=entries(assignment.METHODS),
        formats=formats(),
        presets=presets(),
        distributions=entries(assignment.DISTRIBUTIONS),
        measures=entries(ndim.MEASURES),
        statistics=entries(ndim.STATISTICS),
        losses=entries(ndim.KINDS),
        codes=entries(codes.CODES),
        similarities=entries(codes.CODE_MEASURES),
        designers=entries(foundations.DESIGNERS),
    )


def script() -> str:
    "The text of `_static/registries.js`."
    return f"brace.registries = {json.dumps(tables(), ensure_ascii=False, indent=1)};\n"


def write() -> None:
    "Write the script."
    put("_static/registries.js", script())
