"""Write the site's pages below data/derived/book/src: lessons, experiments, figures, ledger, functions."""

import html
import json
import re
import shutil
import sys
from pathlib import Path

from brace_nb.companion import by_kind, captions_of, read_facts, root

ROOT = root()
SOURCE = ROOT / "data/derived/book/src"
PARTS = [p.name for p in sorted((ROOT / "nbs").glob("[0-9]_*"))]
VERDICTS = ("reproduced", "differs", "refuted", "undecided", "checked", "failed", "not run")
COLORS = dict(
    zip(VERDICTS, ("success", "warning", "danger", "info", "secondary", "danger", "light"), strict=True)
)


def put(path: str, text: str) -> None:
    "Write a page; an unchanged page keeps its time, so that Sphinx need not read it again."
    target = SOURCE / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")
    KEPT.add(target)


KEPT: set[Path] = set()


def title_of(path: Path) -> str:
    "First heading of a notebook."
    for cell in json.loads(path.read_text())["cells"]:
        if found := re.match(r"#\s+(.+)", "".join(cell["source"])):
            return found[1]
    return path.stem


# --- notebooks


def is_noise(source: str) -> bool:
    "Set-up that no reader needs."
    return bool(re.search(r"^#\|\s*(hide|default_exp)", source, re.M))


def clean_cell(cell: dict, folded: bool) -> dict:
    "A cell without directives and without what went to stderr."
    source = "".join(cell["source"])
    cell = cell | dict(metadata={}, source=re.sub(r"^#\|.*\n?", "", source, flags=re.M))
    if cell["cell_type"] == "code":
        cell["outputs"] = [o for o in cell["outputs"] if o.get("name") != "stderr"]
        if folded:
            cell["metadata"] = dict(tags=["hide-input"])
    return cell


def neighbor_links(path: Path, row: list[Path]) -> dict:
    "Previous and next page of a part."
    at = row.index(path)
    links = []
    if at:
        links.append(f"Before: [{title_of(row[at - 1])}]({row[at - 1].name})")
    if at + 1 < len(row):
        links.append(f"Next: [{title_of(row[at + 1])}]({row[at + 1].name})")
    return dict(cell_type="markdown", id="links", metadata={}, source="---\n\n" + " · ".join(links))


def put_notebook(path: Path, last: dict, folded: bool = False) -> None:
    "A notebook as a page."
    nb = json.loads(path.read_text())
    cells = [c for c in nb["cells"] if not is_noise("".join(c["source"]))]
    cells = [clean_cell(c, folded) for c in cells if "".join(c["source"]).strip()] + [last]
    nb["metadata"] = dict(kernelspec=nb["metadata"].get("kernelspec", {}))
    put(path.relative_to(ROOT).as_posix(), json.dumps(nb | dict(cells=cells)))


def lessons() -> dict[str, list[Path]]:
    "Part -> its lessons in reading order, machinery last."
    found = {}
    for part in PARTS:
        paths = [p for p in sorted((ROOT / "nbs" / part).glob("*.ipynb")) if not p.name.startswith("zz_")]
        found[part] = sorted(paths, key=lambda p: (bool(re.match(r"\d\d[a-z]_", p.name)), p.name))
    return found


def experiment_end(name: str, facts: dict) -> dict:
    "How to run an experiment, and with which parameters its figures were made."
    run = f"Run it: `make figures ONLY={name}`. Read it in JupyterLab: `make lab`."
    made = facts.get("experiments", {}).get(name)
    rows = [f"| `{k}` | `{v}` |" for k, v in (made or {}).get("parameters", {}).items()]
    table = ["", "| parameter | value |", "|---|---|", *rows] if rows else []
    return dict(
        cell_type="markdown", id="provenance", metadata={}, source="\n".join(["---", "", run, *table])
    )


def notebooks() -> None:
    "A page for every lesson and every experiment."
    for row in lessons().values():
        for path in row:
            put_notebook(path, neighbor_links(path, row))
    facts = read_facts(ROOT / "figures")
    for path in sorted((ROOT / "nbs/experiments").glob("*/*.ipynb")):
        part = path.parent.name
        end = experiment_end(f"{part}/{path.stem}", facts.get(part, {}))
        put_notebook(path, end, folded=True)


def pictures() -> None:
    "The figures that pages link."
    for path in sorted((ROOT / "figures").glob("*/*.png")):
        target = SOURCE / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != path.read_bytes():
            shutil.copyfile(path, target)
        KEPT.add(target)


# --- gallery


def badge(row: dict) -> str:
    "A verdict that links to its row."
    link = f"../ledger/{row['source']}.html#{row['id']}"
    return f'<a class="verdict {row["verdict"].replace(" ", "-")}" href="{link}">{row["verdict"]}</a>'


def card(figure: str, facts: dict, rows: dict) -> list[str]:
    "A figure of the gallery."
    notebook = f"/nbs/experiments/{facts['experiment']}"
    caption = captions_of(ROOT / f"nbs/experiments/{facts['experiment']}.ipynb").get(figure, facts["alt"])
    counted = by_kind([rows[id] for id in facts["claims"] if id in rows])
    words = " ".join(f"{n} {v}" for verdicts in counted.values() for v, n in verdicts.items())
    alt = facts["alt"].replace("\n", " ")
    lines = ["::::{grid-item-card}", f":img-top: /figures/{figure}.png", f":img-alt: {alt}"]
    lines += [f":link: {notebook}", ":link-type: doc", "", caption]
    return [*lines, *(["", ":::{card-footer}", words, ":::"] if words else []), "::::", ""]


def gallery(rows: dict) -> None:
    "A page of figures for every part."
    pages = []
    for part, facts in sorted(read_facts(ROOT / "figures").items()):
        page = [f"# Figures: {part}", "", ":::::{grid} 1 2 2 3", ":gutter: 2", ""]
        for figure, about in sorted(facts["figures"].items()):
            page += card(figure, about, rows)
        put(f"gallery/{part}.md", "\n".join([*page, ":::::", ""]))
        pages.append(part)
    toc = ["```{toctree}", *pages, "```", ""]
    put(
        "gallery/index.md",
        "\n".join(["# Figures", "", "Every figure, by part. A card leads to its experiment.", "", *toc]),
    )


# --- ledger


def text(value) -> str:
    return html.escape("" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value))


def shown_in(row: dict, figures: dict) -> str:
    "Links to the figures and the experiment of a row."
    links = [f'<a href="../_figures/{f}.png">{f.partition("/")[2]}</a>' for f in figures.get(row["id"], [])]
    if row["experiment"]:
        links.append(f'<a href="../nbs/experiments/{row["experiment"]}.html">notebook</a>')
    return "<br>".join(links)


def line(row: dict, figures: dict) -> str:
    "A row of the ledger as a row of a table."
    said = f"{text(row['says'])} {text(row['unit'])}" + (
        f" ± {text(row['tolerance'])}" if row["tolerance"] is not None else ""
    )
    found = text(row["text"]) if row["text"] else f"needs {text(row['needs'])}"
    null = f"<br><small>null: {text(row['null_text'])}</small>" if row.get("null_text") else ""
    note = f"<br><small>{text(row['note'])}</small>" if row["note"] else ""
    verdict = f'<span class="verdict {row["verdict"].replace(" ", "-")}">{row["verdict"]}</span>'
    cells = [
        f'<a href="#{row["id"]}"><code>{row["id"]}</code></a><br><small>{text(row["where"])}</small>',
        said,
    ]
    cells += [text(row["test"]), found + null + note, verdict, shown_in(row, figures)]
    facts = f'data-kind="{row["kind"]}" data-verdict="{row["verdict"]}" data-source="{row["source"]}"'
    return f'<tr id="{row["id"]}" {facts}>' + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"


def table(rows: list[dict], figures: dict) -> str:
    "Rows of the ledger; the filter above it appears where scripts run."
    heads = ("row", "the source says", "what would fail", "we measured", "verdict", "shown in")
    head = "<tr>" + "".join(f"<th>{h}</th>" for h in heads) + "</tr>"
    body = "\n".join(line(r, figures) for r in rows)
    return f'<div class="ledger"><table><thead>{head}</thead><tbody>\n{body}\n</tbody></table></div>'


def shares(rows: list[dict]) -> str:
    "A bar of the verdicts of a source."
    count = {v: sum(r["verdict"] == v for r in rows) for v in VERDICTS}
    parts = "".join(
        f'<span class="verdict {v.replace(" ", "-")}" style="flex:{n}" title="{n} {v}">{n}</span>'
        for v, n in count.items()
        if n
    )
    return f'<div class="shares">{parts}</div>'


def ledger(rows: list[dict]) -> None:
    "The ledger: counts, a page for each source, and all rows with a filter."
    figures: dict[str, list[str]] = {}
    for part in read_facts(ROOT / "figures").values():
        for name, facts in part["figures"].items():
            for id in facts["claims"]:
                figures.setdefault(id, []).append(name)
    sources = list(dict.fromkeys(r["source"] for r in rows))
    page = [
        "# Ledger",
        "",
        "What the sources say, what would make it fail, what we measured, and a verdict.",
        "",
    ]
    for source in sources:
        mine = [r for r in rows if r["source"] == source]
        page += [
            f"**[{source}]({source}.md)**, {len(mine)} rows",
            "",
            "```{raw} html",
            shares(mine),
            "```",
            "",
        ]
        raw = ["```{raw} html", table(mine, figures), "```", ""]
        put(f"ledger/{source}.md", "\n".join([f"# Ledger: {source}", "", *raw]))
    page += ["```{toctree}", ":hidden:", *sources, "```", ""]
    put("ledger/index.md", "\n".join(page))


# --- functions


def functions() -> None:
    "A page of public names for every part."
    import importlib

    parts = [p.partition("_")[2] for p in PARTS if p.partition("_")[2] != "as_printed"]
    for part in parts:
        module = importlib.import_module(f"brace_nb.{part}")
        page = [f"# brace_nb.{part}", ""]
        for name in module.__all__:
            thing = getattr(module, name)
            kind = (
                "autoclass" if isinstance(thing, type) else "autofunction" if callable(thing) else "autodata"
            )
            if kind != "autodata":
                page += ["```{eval-rst}", f".. {kind}:: brace_nb.{part}.{name}", "```", ""]
        put(f"api/{part}.md", "\n".join(page))
    put("api/index.md", "\n".join(["# Functions", "", "```{toctree}", *parts, "```", ""]))


# --- front page


def front() -> None:
    "The README as front page, then everything in reading order."
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    readme = readme.replace("](figures/CLAIMS.md)", "](ledger/index.md)").replace(
        "](figures/README.md)", "](gallery/index.md)"
    )
    readme = re.sub(r"\]\((?!nbs/|figures/.*png|ledger|gallery|http|#)([^)]+)\)", r"](/_plain/\1)", readme)
    readme = re.sub(r"\[([^\]]+)\]\(/_plain/[^)]+\)", r"\1", readme)
    blocks = [readme, ""]
    for part, row in lessons().items():
        name = part.partition("_")[2]
        blocks += ["```{toctree}", ":hidden:", f":caption: {name}", ":maxdepth: 1", ""]
        blocks += [p.relative_to(ROOT).with_suffix("").as_posix() for p in row]
        if (ROOT / "nbs/experiments" / name).is_dir():
            blocks += [f"experiments/{name}"]
        blocks += ["```", ""]
    blocks += [
        "```{toctree}",
        ":hidden:",
        ":caption: results",
        "gallery/index",
        "ledger/index",
        "api/index",
        "```",
        "",
    ]
    put("index.md", "\n".join(blocks))
    for folder in sorted((ROOT / "nbs/experiments").iterdir()):
        paths = sorted(folder.glob("*.ipynb"))
        toc = [f"/nbs/experiments/{folder.name}/{p.stem}" for p in paths]
        head = [
            f"# Experiments: {folder.name}",
            "",
            "One question each; together they make every figure.",
            "",
        ]
        put(f"experiments/{folder.name}.md", "\n".join([*head, "```{toctree}", *toc, "```", ""]))


def static() -> None:
    "Style, script, and the file that draws mathematics."
    import importlib.util

    target = SOURCE / "_static"
    target.mkdir(parents=True, exist_ok=True)
    here = Path(__file__).parent
    for path in (here / "static").iterdir():
        shutil.copyfile(path, target / path.name)
    math = Path(importlib.util.find_spec("sphinx-mathjax-offline").submodule_search_locations[0])
    shutil.copyfile(math / "static/mathjax/tex-svg.js", target / "tex-svg.js")
    for name in ("conf.py", "docs_of.py"):
        shutil.copyfile(here / name, SOURCE / name)


def main() -> int:
    "Write all pages; delete those that are gone."
    rows = json.loads((ROOT / "figures/claims.json").read_text(encoding="utf-8"))
    SOURCE.mkdir(parents=True, exist_ok=True)
    notebooks()
    pictures()
    gallery({r["id"]: r for r in rows})
    ledger(rows)
    functions()
    front()
    static()
    for path in SOURCE.rglob("*"):
        stays = path in KEPT or path.is_dir() or path.parent.name == "_static" or path.parent == SOURCE
        if not stays:
            path.unlink()
    print(f"{len(KEPT)} pages and pictures in {SOURCE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
