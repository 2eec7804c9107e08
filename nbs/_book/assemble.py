"""Write the pages of the site below data/derived/book/src; `make book` then builds it."""

import importlib.util
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import gallery_page  # noqa: E402
import ledger_page  # noqa: E402
import map_page  # noqa: E402
import notebook_pages  # noqa: E402
import part_pages  # noqa: E402
import play_pages  # noqa: E402
from heroes import small_of  # noqa: E402
from sources import HERE, KEPT, PARTS, ROOT, SOURCE, copy  # noqa: E402
from sources import cells_of, experiments, lessons, plain, put, raw, reports, title_of, toctree  # noqa: E402

from brace_nb.companion import read_facts  # noqa: E402

REFUTED = ("thesis.s2_1_5.batch_size", "brace.reference.batched", "thesis.s2_2_4.recall")


def citation() -> None:
    "How to cite, and under which licences this stands."
    cff = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    page = ["# Cite, licences", "", "## Citation", "", "The file `CITATION.cff` of the repository:", ""]
    page += ["```yaml", cff.strip(), "```", "", "## Licences", "", "```text", notice.strip(), "```", ""]
    put("cite.md", "\n".join(page))


def part_card(folder: str) -> str:
    "A part on the front page."
    title, about, _ = PARTS[folder]
    part = folder.partition("_")[2]
    image = f'<img src="_static/small/{small_of(folder)}.webp" alt="" loading="lazy">'
    found = {"lessons": len(lessons()[folder]), "experiments": len(experiments(folder))}
    count = ", ".join(f"{n} {what}" for what, n in found.items() if n)
    words = f"<b>{title}</b><br>{about}<br><small>{count}</small>"
    return f'<a class="thumb" href="parts/{part}.html">{image}<span>{words}</span></a>'


def front(rows: list[dict], figures: int) -> None:
    "The front page."
    main, others = list(PARTS)[1:7], [list(PARTS)[0], *list(PARTS)[7:]]
    text = (HERE / "front.md").read_text(encoding="utf-8")
    says = read_facts(ROOT / "figures")["codes"]["figures"]["codes/tradeoff"]["says"]
    blocks = dict(
        FINDING=" ".join(sentence for sentence, holds in says.items() if holds),
        PARTS="\n".join(raw('<div class="thumbs wide">', *map(part_card, main), "</div>")),
        OTHERS="\n".join(raw('<div class="thumbs wide">', *map(part_card, others), "</div>")),
        REPORTS="\n".join(f"- [{plain(title_of(p))}]({p.relative_to(ROOT).as_posix()})" for p in reports()),
        PLAY="\n".join(play_pages.cards("play/")),
        ROWS=str(len(rows)),
        FIGURES=str(figures),
        COUNTS="\n".join(raw(ledger_page.counts(rows, "ledger/"))),
        REFUTED="\n".join(raw("<ul>", *ledger_page.refuted(rows, REFUTED), "</ul>")),
    )
    for name, block in blocks.items():
        text = text.replace(f"@{name}@", block)
    names = [f"parts/{p.partition('_')[2]}" for p in main]
    tail = toctree("nbs/one_hour", "reports", caption="Begin")
    tail += toctree(*names, caption="Read")
    tail += toctree("play/index", "gallery/index", "ledger/index", "api/index", caption="Look up")
    rest = [f"parts/{p.partition('_')[2]}" for p in others]
    tail += toctree(*rest, "cite", caption="About")
    put("index.md", "\n".join([text, *tail]))


def prose_of(path: Path) -> str:
    "The text of a notebook's cells, without marks, for a line of context in the search."
    texts = ["".join(c["source"]) for c in cells_of(path) if c["cell_type"] == "markdown"]
    text = re.sub(
        r"```.*?```|!\[[^\]]*\]\([^)]*\)|<[^>]+>|^[#>|-]+ *|\|", " ", "\n".join(texts), flags=re.S | re.M
    )
    return re.sub(r"\s+", " ", plain(text)).strip()


def context() -> None:
    "What the search shows below a hit: the texts of all pages, and the first line of each function."
    pages = [p for row in lessons().values() for p in row] + reports() + [ROOT / "nbs/one_hour.ipynb"]
    pages += [p for part in PARTS for p in experiments(part)]
    texts = {p.relative_to(ROOT).with_suffix("").as_posix(): prose_of(p) for p in pages}
    lines = part_pages.first_lines()
    said = json.dumps(dict(pages=texts, functions=lines), ensure_ascii=False, separators=(",", ":"))
    put("_static/search_texts.js", f"globalThis.TEXTS = {said};\n")


def static() -> None:
    "Style, scripts, the film, and the file that draws mathematics."
    for path in (HERE / "static").iterdir():
        copy(path, f"_static/{path.name}")
    math = Path(importlib.util.find_spec("sphinx-mathjax-offline").submodule_search_locations[0])
    copy(math / "static/mathjax/tex-svg.js", "_static/tex-svg.js")
    for name in ("conf.py", "docs_of.py", "mathematics.py"):
        copy(HERE / name, name)
    for name in ("data/film/film.gif", "figures/ledger.svg", "figures/worlds.svg"):
        copy(ROOT / name, name)
    map_page.write()
    context()


def main() -> int:
    "Write all pages; delete those that are gone."
    listed = json.loads((ROOT / "figures/claims.json").read_text(encoding="utf-8"))
    rows = {r["id"]: r for r in listed}
    SOURCE.mkdir(parents=True, exist_ok=True)
    notebook_pages.notebooks(rows)
    gallery_page.pictures()
    figures = gallery_page.gallery(rows)
    ledger_page.ledger(listed)
    part_pages.parts()
    part_pages.functions()
    play_pages.write()
    citation()
    front(listed, figures)
    static()
    for path in SOURCE.rglob("*"):
        if path.is_file() and path not in KEPT and "__pycache__" not in path.parts:
            path.unlink()
    pages = sum(p.suffix in (".md", ".ipynb") and "_static" not in p.parts for p in KEPT)
    print(f"{pages} pages in {SOURCE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
