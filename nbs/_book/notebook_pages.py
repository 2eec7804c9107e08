"""A page for every lesson and every experiment."""

import ast
import json
import re
from contextlib import suppress
from pathlib import Path

from brace_nb.companion import parameters as own_parameters
from brace_nb.companion import counterparts, read_facts
from mathematics import typeset
from sources import OWN_DATA, PARTS, ROOT, badges, cells_of, escaped, experiments, lessons, linked, plain
from sources import verdict_class
from sources import copy, put, reports, row_link, title_of, toctree

_PICTURE = re.compile(  # with the finding that a report has below it
    r"^!\[((?:(?!\]\().)*)\]\(((?:\.\./)+figures/([^)]+)\.png)\)[ \t]*$(\n\n\*[^*]+\* (?=\[`make figures))?",
    re.M,
)
CITE = " · [Cite](/cite.md)"
NO_FIGURE = "It draws no figure; other experiments read what it computes."
NEEDED = f"[the sources' own data](/nbs/{OWN_DATA}.ipynb)"
NOT_RUN = f"It has not been run for this site, because it needs {NEEDED}."
_TAGS = ("hide-input", "hide-output", "hide-cell", "remove-input", "remove-output", "remove-cell")


def is_noise(source: str) -> bool:
    "Set-up that no reader needs."
    return bool(re.search(r"^#\|\s*(hide|default_exp)", source, re.M))


def markdown(number: str, *lines: str) -> dict:
    "A cell of text."
    return dict(cell_type="markdown", id=number, metadata={}, source="\n".join(lines))


def width_of(figure: str) -> str:
    "The share of the column that a figure of its printed width takes."
    from PIL import Image

    path = ROOT / f"figures/{figure}.png"
    if not path.exists():
        return "100%"
    with Image.open(path) as picture:
        inches = picture.width / picture.info.get("dpi", (200, 200))[0]
    return f"{min(100, max(40, round(15 * inches)))}%"


def without_missing(source: str) -> str:
    "Pictures of figures that nobody made yet are words."

    def words(found: re.Match) -> str:
        made = (ROOT / f"figures/{found[2]}.png").exists()
        return found[0] if made else f"*{found[1]}* (`make figures` draws this)"

    return re.sub(r"!\[([^\]]*)\]\((?:\.\./)+figures/([^)]+)\.png\)", words, source)


def site_target(target: str, notebook: Path) -> str | None:
    "Where a link of a notebook leads in the site; None for a file that has no page."
    name, mark, place = target.partition("#")
    if not name or re.match(r"[a-z]+:|//|/", target):
        return target
    path = (notebook.parent / name).resolve()
    relative = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else name
    if row := re.match(r"figures/claims/(\w+)\.md", relative):
        return f"/ledger/{row[1]}.md"
    if relative == "figures/CLAIMS.md":
        return "/ledger/rows.md"
    if re.match(r"figures/(\w+/)?README\.md", relative):
        return "/gallery/index.md"
    if relative in ("nbs/index.ipynb", "README.md", "CONTENTS.md"):
        return "/index.md"
    is_page = relative.startswith("nbs/") and path.suffix == ".ipynb" and not path.name.startswith("zz_")
    is_figure = re.fullmatch(r"figures/\w+/\w+\.png", relative)
    return f"/{relative}{mark}{place}" if path.exists() and (is_page or is_figure) else None


def with_links(source: str, notebook: Path) -> str:
    "Links to pages of the site; a file without a page is named instead."

    def link(found: re.Match) -> str:
        text, target = found.groups()
        there = site_target(target, notebook)
        return f"{text} (`{target.lstrip('./')}`)" if there is None else f"[{text}]({there})"

    return re.sub(r"(?<!!)\[([^\]\[]*)\]\(([^)\s]+)\)", link, source)


def is_imports(source: str) -> bool:
    "Does a cell do nothing but import?"
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a line that only IPython reads
        return False
    return all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body)


def is_plumbing(source: str) -> bool:
    "Does a cell define nothing but helpers of its module (names that begin with _)?"
    try:
        body = ast.parse(re.sub(r"^#\|.*\n?", "", source, flags=re.M)).body
    except SyntaxError:
        return False
    kinds = (ast.FunctionDef, ast.ClassDef)
    return bool(body) and all(isinstance(node, kinds) and node.name.startswith("_") for node in body)


def as_text(cell: dict) -> list[dict]:
    "A cell that only puts out Markdown is that Markdown; its links are then those of the site."
    texts = ["".join(o.get("data", {}).get("text/markdown", "")) for o in cell.get("outputs", [])]
    if cell["cell_type"] != "code" or "#| echo: false" not in "".join(cell["source"]) or not any(texts):
        return [cell]
    rows = re.compile(r"\[([a-z ,]+)\]\((?:\.\./)+figures/claims/(\w+)\.md#([^)]+)\)")

    def badge(found: re.Match) -> str:
        row = dict(source=found[2], id=found[3])
        return f'<a class="{verdict_class(found[1])}" href="{row_link(row, "../../")}">{found[1]}</a>'

    return [markdown(f"{cell['id']}-{k}", rows.sub(badge, text)) for k, text in enumerate(texts)]


OF_FIGURE = dict(png="large", csv="numbers")  # what is linked below a figure


def with_captions(source: str, rows_of: dict[str, list[dict]], up: str) -> str:
    "Pictures that stand alone become figures whose caption is seen, with verdicts and numbers below."

    def figure(found: re.Match) -> str:
        alt, path, name, finding = found.groups()
        links = [
            f'<a href="{up}_static/figures/{linked(name)}.{k}">{word}</a>' for k, word in OF_FIGURE.items()
        ]
        of = counterparts(
            [r["id"] for r in rows_of.get(name, [])], {r["id"]: r for r in rows_of.get(name, [])}
        )
        extra = [
            f'<span class="of-figure">{f"Counterpart of: {escaped(of)} · " if of else ""}{" · ".join(links)}'
        ]
        extra += [f"{badges(rows_of.get(name, []), up)}</span>"]
        lines = [f":::{{figure}} {path}", f":alt: {plain(alt)}", f":width: {width_of(name)}"]
        lines += ["", typeset(finding.strip("\n* ") if finding else alt), ":::", ""]
        return "\n".join([*lines, "```{raw} html", " ".join(extra), "```", *(["", ""] if finding else [])])

    return _PICTURE.sub(figure, source)


def draws(cell: dict) -> bool:
    "Does a cell put out a picture?"
    return any("image/png" in o.get("data", {}) for o in cell.get("outputs", []))


def spoken(text: str) -> str:
    "Markdown as a reader hears it: without marks, links and formulas' dollars."
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\s+", " ", re.sub(r"[*`$#>|]|\\(?=\W)", "", text)).strip()


def caption_below(cells: list[dict], k: int) -> str:
    "What stands in italics at the begin of the text below a cell."
    below = next((c for c in cells[k + 1 :] if "".join(c["source"]).strip()), None)
    if below is None or below["cell_type"] != "markdown":
        return ""
    found = re.match(r"\s*\*(?!\*)(?:Figure\.\s*)?(.+?)\*(?:\n|$)", "".join(below["source"]), re.S)
    return spoken(found[1]) if found else ""


def text_above(cells: list[dict], k: int) -> str:
    "Caption in italics, or the last sentence, of the text above a cell, after the heading it stands under."
    above = ["".join(c["source"]) for c in cells[:k] if c["cell_type"] == "markdown"]
    lines = [line for text in above for line in text.split("\n") if line.strip()]
    headings = [spoken(line) for line in lines if line.startswith("#")]
    prose = [line for line in lines if not re.match(r"#|!\[|\||```|:::", line)]
    if caption := re.fullmatch(r"\*(?!\*)(?:Figure\.\s*)?(.+?)\*", (prose or [""])[-1].strip()):
        return spoken(caption[1])
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z])", spoken((prose or [""])[-1]).removeprefix("- "))
    return ": ".join(x.rstrip(".:") for x in (*headings[-1:], " ".join(sentences[-2:])) if x) + "."


def axes_of(source: str) -> str:
    "The names of the axes that a cell draws, as far as they are plain words in it."
    found = {k: re.findall(rf'{k}(?:=|\()"([^"{{}}]+)"', source) for k in ("xlabel", "ylabel")}
    x, y = (" or ".join(dict.fromkeys(spoken(w.replace("\\n", " ")) for w in found[k])) for k in found)
    return f" A plot of {y} against {x}." if x and y else ""


def with_alternatives(cells: list[dict]) -> list[dict]:
    "Every cell that draws says what: in its own words, in its caption, or in the text above it."
    for k, cell in enumerate(cells):
        if draws(cell):
            source = "".join(cell["source"])
            own = re.search(r"^#\| fig-alt: (.+)$", source, re.M)
            words = own[1] if own else caption_below(cells, k) or text_above(cells, k) + axes_of(source)
            cell["metadata"] = cell["metadata"] | dict(alt=words)
    return cells


def clean_cell(cell: dict, folded: bool, rows_of: dict, notebook: Path) -> dict:
    "A cell without directives and without what went to stderr, with the links of the site."
    source = "".join(cell["source"])
    tags = [t for t in cell["metadata"].get("tags", []) if t in _TAGS]
    alt = cell["metadata"].get("alt")
    cell = cell | dict(metadata={}, source=re.sub(r"^#\|.*\n?", "", source, flags=re.M))
    if cell["cell_type"] == "code":
        cell["outputs"] = [o for o in cell["outputs"] if o.get("name") != "stderr"]
        tags += ["hide-input"] * (folded or is_imports(cell["source"]) or is_plumbing(cell["source"]))
    else:
        up = "../" * (len(notebook.relative_to(ROOT).parts) - 1)
        text = with_links(without_missing(cell["source"]), notebook)
        cell["source"] = with_captions(text, rows_of, up)
    if tags:
        cell["metadata"] = dict(tags=sorted(set(tags)))
    if alt:  # of the picture that the cell draws
        cell["metadata"]["mystnb"] = dict(image=dict(alt=alt))
    return cell


def put_notebook(path: Path, top: dict, end: dict, rows_of: dict, folded: bool = False) -> None:
    "A notebook as a page: its first cell, how to run it, the rest, what stands at the end."
    name = path.relative_to(ROOT)
    nb = json.loads(path.read_text(encoding="utf-8"))
    found = with_alternatives([c for c in cells_of(path) if not is_noise("".join(c["source"]))])
    found = [new for c in found for new in as_text(c) if "".join(new["source"]).strip()]
    found = [clean_cell(c, folded, rows_of, path) for c in found]
    nb["metadata"] = dict(kernelspec=nb["metadata"].get("kernelspec", {}))
    cells = [*found[:1], top, *found[1:], end]
    put(name.as_posix(), json.dumps(nb | dict(cells=cells)))


def first_parameter(path: Path) -> str:
    "The name of a parameter of an experiment, for the line that runs it with another value."
    with suppress(ValueError):  # what the engine says of a notebook that cannot run
        return next(iter(own_parameters(path)), "")
    return ""


def run_line(path: Path, command: str = "", parameter: str = "") -> dict:
    "How to run a notebook oneself."
    name = path.relative_to(ROOT).as_posix()
    kept = f"_static/notebooks/{name.removeprefix('nbs/')}"
    copy(path, kept)
    up = "../" * name.count("/")
    link = f'<a href="{up}{linked(kept)}" download>Download this notebook</a>'
    say = f'<p class="run-line">{link} or run it: <code>make lab</code>, then open <code>{name}</code>'
    more = f", or <code>{command}</code>" if command else ""
    if parameter:
        line = f".venv/bin/papermill {name} data/derived/mine.ipynb -p {parameter} VALUE"
        more += f". With another parameter, in the clone: <code>{line}</code>, or by a profile of your own"
    return markdown("run-line", "```{raw} html", f"{say}{more}.</p>", "```")


def neighbors(path: Path, row: list[Path]) -> str:
    "Links to the page before and the page after."
    at = row.index(path)
    links = [f"Before: [{plain(title_of(row[at - 1]))}]({row[at - 1].name})"] if at else []
    if at + 1 < len(row):
        links.append(f"Next: [{plain(title_of(row[at + 1]))}]({row[at + 1].name})")
    return " · ".join(links)


def lesson_end(path: Path, part: str, row: list[Path]) -> dict:
    "Where a lesson leads."
    name = part.partition("_")[2]
    said = re.search(r"\b[Nn]ext:|\b[Pp]revious:", "".join(cells_of(path)[-1]["source"]).replace("*", ""))
    links = ["" if said else neighbors(path, row), f"[Part: {PARTS[part][0]}](/parts/{name}.md)"]
    links += [] if name == "as_printed" else [f"[Functions](/api/{name}.md)"]
    return markdown("links", "---", "", " · ".join(x for x in links if x) + CITE)


def parameters(facts: dict) -> list[str]:
    "A table of the parameters of an experiment."
    rows = [f"| `{k}` | `{v}` |" for k, v in facts.get("parameters", {}).items()]
    return ["### Parameters of the committed figures", "", "| parameter | value |", "|---|---|", *rows, ""]


def provenance(facts: dict) -> list[str]:
    "What the committed results of an experiment depend on."
    marks = " ".join(f"{k} `{v[:8]}`" for k, v in facts.get("inputs", {}).items())
    said = f"Profile `{facts.get('profile', 'cpu')}`; fingerprints of what it depends on: {marks}."
    return ["### Provenance", "", said, "", "A changed fingerprint makes `make figures` run it again.", ""]


def answers(rows: list[dict]) -> list[str]:
    "The rows of the ledger that an experiment measures."
    if not rows:
        return []
    lines = [
        f'<tr><td><a href="{row_link(r, "../../../")}">{escaped(r["where"])}</a></td>'
        f"<td>{escaped(r['says'])}</td><td>{escaped(r['text'])}</td><td>{badges([r], '../../../')}</td></tr>"
        for r in rows
    ]
    head = "<tr><th>where</th><th>the source says</th><th>we measured</th><th>verdict</th></tr>"
    table = f'<div class="ledger small"><table><thead>{head}</thead><tbody>'
    return ["### In the ledger", "", "```{raw} html", table, *lines, "</tbody></table></div>", "```", ""]


def experiment_end(path: Path, row: list[Path], facts: dict, rows: list[dict]) -> dict:
    "Verdicts, parameters and provenance of an experiment."
    lines = ["---", "", "## Results and provenance", "", *answers(rows)]
    part = path.parent.name
    silent = NOT_RUN if part == "paper" else NO_FIGURE
    lines += [*parameters(facts), *provenance(facts)] if facts else [silent, ""]
    return markdown(
        "provenance", *lines, "---", "", f"{neighbors(path, row)} · [Part](/parts/{part}.md){CITE}"
    )


def figure_rows(facts: dict, rows: dict) -> dict[str, list[dict]]:
    "Figure -> its rows of the ledger."
    found = {}
    for part in facts.values():
        for figure, about in part["figures"].items():
            found[figure] = [rows[id] for id in about["claims"] if id in rows]
    return found


def front_pages(rows_of: dict) -> None:
    "The hour and the reports beside the sources."
    for path in (ROOT / "nbs/one_hour.ipynb", *reports()):
        end = markdown(
            "links", "---", "", f"[All reports](/reports.md) · [The ledger](/ledger/rows.md){CITE}"
        )
        put_notebook(path, run_line(path), end, rows_of)
    lines = [f"- [{plain(title_of(p))}](/{p.relative_to(ROOT).as_posix()})" for p in reports()]
    about = "What each source says, what of it holds here, and how that is known, in the source's own order."
    names = [f"/{p.relative_to(ROOT).with_suffix('').as_posix()}" for p in reports()]
    put("reports.md", "\n".join(["# Beside the sources", "", about, "", *lines, "", *toctree(*names)]))


def notebooks(rows: dict) -> None:
    "A page for every lesson and every experiment, the hour and the reports."
    facts = read_facts(ROOT / "figures")
    rows_of = figure_rows(facts, rows)
    front_pages(rows_of)
    for part, row in lessons().items():
        for path in row:
            put_notebook(path, run_line(path), lesson_end(path, part, row), rows_of)
        mine = experiments(part)
        for path in mine:
            name = f"{path.parent.name}/{path.stem}"
            about = facts.get(path.parent.name, {}).get("experiments", {}).get(name, {})
            asked = [r for r in rows.values() if r["experiment"] == name]
            top = run_line(path, f"make figures ONLY={name}", first_parameter(path))
            put_notebook(path, top, experiment_end(path, mine, about, asked), rows_of, folded=True)
