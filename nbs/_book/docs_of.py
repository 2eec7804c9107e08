"""A list of parameters below a docstring, for Sphinx, from the comments beside the arguments."""

import inspect
import re

from mathematics import typeset


def _plain(line: str) -> str:
    "A line of a docstring as text: only backticks keep a meaning, and formulas are typeset."
    parts = re.split(r"(`+[^`]*`+)", typeset(line, ":math:`{}`"))
    text = "".join(part if part.startswith("`") else re.sub(r"([|*@]|_\b)", r"\\\1", part) for part in parts)
    text = re.sub(r"(?<=[^\s(\[{'\"/-])(?=:math:`)", r"\\ ", text)  # formulas stand apart from letters
    return re.sub(r"(:math:`[^`]*`)(?=[^\s.,;:!?)\]}'\"/-])", r"\1\\ ", text)


def _described(name: str, about: dict) -> list[str]:
    "An argument, its default and what it is."
    default = about.get("default", inspect.Parameter.empty)
    known = default is not inspect.Parameter.empty
    suffix = f" Default: ``{default!r}``." if known else ""
    return [f"    {name}: {_plain(about['docment'])}{suffix}"]


def add_parameters(app, what, name, thing, options, lines: list[str]) -> None:
    "Append `Args` and `Returns` to a docstring, from the comments beside the arguments."
    from fastcore.docments import docments

    lines[:] = [_plain(line) for line in lines]
    if what not in ("function", "method", "class") or not callable(thing):
        return
    try:
        found = docments(thing, full=True, returns=True)
    except (OSError, TypeError, ValueError, SyntaxError, AttributeError):
        return
    returned = found.pop("return", None)
    arguments = {n: a for n, a in found.items() if n != "self" and a.get("docment")}
    if arguments:
        lines += ["", "Args:", *(line for n, a in arguments.items() for line in _described(n, a)), ""]
    if returned and returned.get("docment") and what != "class":
        lines += ["", "Returns:", f"    {_plain(returned['docment'])}", ""]
