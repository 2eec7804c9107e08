"""A page for every part, with its lessons and experiments, and a page of its functions."""

import importlib
import inspect
import re
from pathlib import Path

from brace_nb.companion import read_facts
from brace_nb.core import Entry, Registry
from heroes import hero
from mathematics import typeset
from sources import (
    PARTS,
    ROOT,
    escaped,
    experiments,
    lessons,
    linked,
    plain,
    put,
    raw,
    summary_of,
    title_of,
    toctree,
)


WITHOUT_FUNCTIONS = ("as_printed", "paper")  # Nobody imports from them


def is_machinery(path: Path) -> bool:
    "Has it a letter after its number? Most of these a reader can skip."
    return bool(re.match(r"\d\d[a-z]_", path.name))


def entry(path: Path) -> str:
    "A notebook as an item of a list."
    about = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", summary_of(path))  # without links; code stays code
    link = f"[{plain(title_of(path))}](/{path.relative_to(ROOT).as_posix()})"
    return f"- {link}" + (f": {about}" if about else "")


def thumbnail(path: Path, facts: dict) -> str:
    "An experiment as a card with its first figure."
    name = f"{path.parent.name}/{path.stem}"
    figures = [f for f, about in sorted(facts.get("figures", {}).items()) if about["experiment"] == name]
    image = f'<img src="../_static/small/{linked(figures[0])}.webp" alt="" loading="lazy">' if figures else ""
    words = f"{escaped(plain(title_of(path)))}"
    return f'<a class="thumb" href="../nbs/experiments/{linked(name)}.html">{image}<span>{words}</span></a>'


def parts() -> None:
    "A page for every part."
    facts = read_facts(ROOT / "figures")
    for folder, row in lessons().items():
        title, about, _ = PARTS[folder]
        part, mine = folder.partition("_")[2], experiments(folder)
        page = [f"# {title}", "", about, ""]
        page += hero(folder)
        if row:
            page += ["## Lessons", "", "In this order; a lesson is also the source of a module.", ""]
            page += [*(entry(p) for p in row if not is_machinery(p)), ""]
        if machinery := [p for p in row if is_machinery(p)]:
            page += [
                "Details of these lessons; most are machinery that a reader can skip:",
                "",
                *(entry(p) for p in machinery),
                "",
            ]
        if mine:
            page += ["## Experiments", "", "One question each; together they make every figure.", ""]
            page += raw('<div class="thumbs">', *(thumbnail(p, facts.get(part, {})) for p in mine), "</div>")
        if part not in WITHOUT_FUNCTIONS:
            page += ["## Functions", "", f"[All public names of `brace_nb.{part}`](/api/{part}.md)", ""]
        names = [f"/{p.relative_to(ROOT).with_suffix('').as_posix()}" for p in [*row, *mine]]
        put(f"parts/{part}.md", "\n".join([*page, *toctree(*names)]))


def first_line(thing) -> str:
    "What a name is, in a line."
    text = (inspect.getdoc(thing) or "").strip().splitlines() if callable(thing) else []
    return plain(text[0]) if text else ""


_TOLD = ("title", "formula", "says", "source", "valid", "parameters")  # Columns of a registry's table


def _fact(value) -> str:
    "A field of an entry as a cell."
    if isinstance(value, bool):
        return "yes" if value else "no"
    if callable(value):
        return "" if value.__name__ == "<lambda>" else f"`{value.__name__}`"
    return _as_cell(", ".join(map(str, value)) if isinstance(value, tuple | list | dict) else str(value))


def _as_cell(text: str) -> str:
    "Text in a line of Markdown: formulas are typeset, other signs mean nothing."
    parts = re.split(r"(\$[^$]*\$)", typeset(text).replace("\n", " "))
    return "".join(p if k % 2 else re.sub(r"([|<*_])", r"\\\1", p) for k, p in enumerate(parts))


def entries_table(thing: dict) -> list[str]:
    "The entries of a registry, a row each, with the fields that are words."
    columns = [c for c in _TOLD if any(getattr(e, c, None) not in (None, "", ()) for e in thing.values())]
    head = ["name", *columns]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for key, entry in thing.items():
        cells = [f"`{key}`", *(_fact(getattr(entry, c, "")) for c in columns)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def registry(name: str, thing) -> list[str]:
    "A public name that is no function: what it holds."
    if isinstance(thing, Registry) and thing and all(isinstance(e, Entry) for e in thing.values()):
        return [
            f"## {name}",
            "",
            f"{len(thing)} entries; `{thing.what}=` takes a name.",
            "",
            *entries_table(thing),
            "",
        ]
    lines = [f"## {name}", "", f"A `{type(thing).__name__}`"]
    if isinstance(thing, dict | tuple | list):
        keys = [f"`{k}`" for k in thing if isinstance(k, str | int)]
        lines[-1] += f" of {len(thing)}: {', '.join(keys)}." if keys else f" of {len(thing)}."
    return [*lines, ""]


def kind_of(item: tuple) -> tuple:
    "Functions first, then classes, then the rest, each by name."
    name, thing = item
    return (2 if not callable(thing) else int(isinstance(thing, type))), name


def documented(part: str, name: str, thing) -> list[str]:
    "The directive for a function or a class; one block for all of them is parsed sooner than one for each."
    if not callable(thing):
        return []
    kind, members = ("autoclass", ["   :members:"]) if isinstance(thing, type) else ("autofunction", [])
    return [f".. {kind}:: brace_nb.{part}.{name}", *members, ""]


def function_page(part: str) -> list[str]:
    "All public names of a part: a list, then each with its arguments."
    module = importlib.import_module(f"brace_nb.{part}")
    found = {name: getattr(module, name) for name in module.__all__}
    things = dict(sorted(found.items(), key=kind_of))
    page = [f"# brace_nb.{part}", "", f"`from brace_nb.{part} import ...`", ""]
    for name, thing in things.items():
        about = f": {first_line(thing)}" if first_line(thing) else ""
        about = _as_cell(about)
        target = f"#brace_nb.{part}.{name}" if callable(thing) else f"#{name.lower().replace('_', '-')}"
        page.append(f'- <a href="{target}"><code>{name}</code></a>{about}')
    page.append("")
    page += [
        "```{eval-rst}",
        *(line for item in things.items() for line in documented(part, *item)),
        "```",
        "",
    ]
    for name, thing in things.items():
        page += [] if callable(thing) else registry(name, thing)
    return page


def first_lines() -> dict[str, str]:
    "Full name of every public function and class -> its first line."
    found = {}
    for part in (p.partition("_")[2] for p in PARTS if p.partition("_")[2] not in WITHOUT_FUNCTIONS):
        module = importlib.import_module(f"brace_nb.{part}")
        found |= {f"brace_nb.{part}.{name}": first_line(getattr(module, name)) for name in module.__all__}
    return found


def functions() -> None:
    "A page of public names for every part that has some."
    names = [p.partition("_")[2] for p in PARTS if p.partition("_")[2] not in WITHOUT_FUNCTIONS]
    for part in names:
        put(f"api/{part}.md", "\n".join(function_page(part)))
    index = ["# Functions", "", "Public names, by part; each leads to the lesson that it is written in.", ""]
    about = {p.partition("_")[2]: words for p, (_, words, _) in PARTS.items()}
    index += [f"- [brace_nb.{part}]({part}.md): {about[part]}" for part in names]
    put("api/index.md", "\n".join([*index, "", *toctree(*names)]))
