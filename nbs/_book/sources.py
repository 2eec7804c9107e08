"""What every page of the site needs: where things lie, how a page is written, names of parts and sources."""

import html
import json
import re
from functools import cache
from pathlib import Path
from urllib.parse import quote

from brace_nb.companion import root

ROOT = root()
HERE = Path(__file__).parent
SOURCE = ROOT / "data/derived/book/src"
KEPT: set[Path] = set()  # Files of this run; the others are deleted at its end

OWN_DATA = "7_companion/13a_public_pieces"  # the lesson on what the sources used
PARTS = {  # Folder below nbs: title, what it is about, the figure, or the lesson, whose picture stands for it
    "0_core": (
        "Core",
        "What all parts stand on: arrays, files, threads, the training loop.",
        "0_core/07_arguments",
    ),
    "1_foundations": (
        "Foundations",
        "Tuples of pictures and texts, encoders, contrastive losses, training.",
        "foundations/tuples",
    ),
    "2_codes": (
        "Codes",
        "Binary and ternary codes of embeddings: the nearest corner, search, heads that learn codes.",
        "codes/tradeoff",
    ),
    "3_ndim": (
        "N dimensions",
        "Similarity of n embeddings at once, the cube of all tuples, its regions and its losses.",
        "ndim/equivalence",
    ),
    "4_assignment": (
        "Assignment",
        "Linear sum assignment: exact and approximate solvers, small number formats, cycles, losses.",
        "assignment/pareto",
    ),
    "5_evaluation": (
        "Evaluation",
        "What an embedding space knows: retrieval, probes, geometry, CKA, invariance, tokens.",
        "evaluation/cka_maps",
    ),
    "6_grounding": (
        "Grounding",
        "Trained systems: n encoders on tuples, translation, scenes, detection.",
        "grounding/scenes_examples",
    ),
    "7_companion": (
        "Companion",
        "How this project works: figures, ledger, engine, command line.",
        "7_companion/04_ledger_pages",
    ),
    "8_as_printed": (
        "As printed",
        "Formulas exactly as the sources print them, wrong ones included; only experiments use them.",
        "8_as_printed/04a_assignment_code",
    ),
    "9_paper": (
        "On the sources' own data",
        "Experiments for readers who have the sources' data and weights; no lessons.",
        OWN_DATA,
    ),
}
SOURCES = {  # Of the ledger: name, chapter
    "sbrace": ("S-BRaCE", "the post"),
    "brace": ("BRaCE", "the post"),
    "notes": ("Notes", "on contrastive learning"),
    "thesis_2": ("Thesis", "chapter 2"),
    "thesis_3": ("Thesis", "chapter 3"),
    "thesis_4": ("Thesis", "chapter 4"),
    "thesis_5": ("Thesis", "chapter 5"),
    "thesis_6": ("Thesis", "chapter 6"),
    "thesis_7": ("Thesis", "chapter 7"),
    "thesis_appendix": ("Thesis", "appendices"),
    "project": ("This project", "its own claims"),
}


def put(path: str, content: str | bytes) -> Path:
    "Write a page or a picture; an unchanged one keeps its time, so that Sphinx need not read it again."
    target = SOURCE / path
    data = content.encode() if isinstance(content, str) else content
    if not target.exists() or target.read_bytes() != data:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    KEPT.add(target)
    return target


def copy(path: Path, target: str) -> None:
    "Copy a file."
    put(target, path.read_bytes())


def wide(title: str, *lines: str) -> list[str]:
    "The lines of a page without a table of contents at its side."
    return ["---", "hide-toc: true", "---", "", f"# {title}", "", *lines]


def raw(*lines: str) -> list[str]:
    "A block of HTML in a page of Markdown."
    return ["```{raw} html", *lines, "```", ""]


def toctree(*pages: str, hidden: bool = True, caption: str = "") -> list[str]:
    "A table of contents."
    options = [":hidden:"] * hidden + [f":caption: {caption}"] * bool(caption)
    return ["```{toctree}", ":maxdepth: 1", *options, "", *pages, "```", ""]


@cache
def cells_of(path: Path) -> list[dict]:
    "The cells of a notebook."
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def title_of(path: Path) -> str:
    "First heading of a notebook."
    for cell in cells_of(path):
        if found := re.match(r"#\s+(.+)", "".join(cell["source"])):
            return found[1]
    return path.stem


def summary_of(path: Path) -> str:
    "The quoted sentence below the title of a notebook, or the first sentence."
    for cell in cells_of(path):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and text.startswith("#"):
            body = text.partition("\n")[2].strip()
            first = re.split(r"\n\s*\n", body)[0] if body else ""
            quoted = re.match(r">\s*(.+)", first)
            plain = quoted[1] if quoted else re.split(r"(?<=[.?!])\s", first)[0]
            return "" if plain.startswith("!") else plain.strip()
    return ""


def plain(text: str) -> str:
    "Markdown as text: no marks of code, emphasis and links."
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[`*]", "", text)


def escaped(value) -> str:
    "A value as text of a page; fractions to four digits."
    if isinstance(value, float) and not value.is_integer():
        value = f"{value:.4g}"
    return html.escape("" if value is None else str(value))


def linked(name: str) -> str:
    "A path, or the id of a row, as part of a link: no letter of it ends the link or begins another tag."
    return quote(name)


def verdict_class(verdict: str) -> str:
    "The name of a verdict's color; where two worlds are told, that of the first."
    return f"verdict {re.match(r'not run|[a-z]+', verdict)[0].replace(' ', '-')}"


def row_link(row: dict, up: str = "../") -> str:
    "Where a row of the ledger stands for good."
    return f"{up}ledger/{row['source']}.html#{linked(row['id'])}"


def badges(rows: list[dict], up: str = "../") -> str:
    "A badge for each row of the ledger, with its verdict, that leads to it."
    links = [
        f'<a class="{verdict_class(r["verdict"])}" href="{row_link(r, up)}" '
        f'title="{escaped(r["id"])}: {escaped(str(r["says"])[:160])}">{r["verdict"]}</a>'
        for r in rows
    ]
    return " ".join(links)


def lessons() -> dict[str, list[Path]]:
    "Part -> its lessons in reading order, machinery last."
    found = {}
    for part in PARTS:
        paths = [p for p in sorted((ROOT / "nbs" / part).glob("*.ipynb")) if not p.name.startswith("zz_")]
        found[part] = sorted(paths, key=lambda p: (bool(re.match(r"\d\d[a-z]_", p.name)), p.name))
    return found


def reports() -> list[Path]:
    "The reports beside the sources, in the order of the sources; others behind them."
    found = sorted((ROOT / "nbs/reports").glob("*.ipynb"))
    order = {name: k for k, name in enumerate(SOURCES)}
    return sorted(found, key=lambda p: (order.get(p.stem, len(order)), p.stem))


def experiments(part: str) -> list[Path]:
    "Experiments of a part, by its folder's name."
    return sorted((ROOT / "nbs/experiments" / part.partition("_")[2]).glob("*.ipynb"))
