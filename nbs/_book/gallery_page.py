"""Every figure with its caption, its part and its verdicts."""

import re
from collections import Counter
from pathlib import Path

from brace_nb.companion import captions_of, counterparts, derived, read_facts
from sources import (
    PARTS,
    ROOT,
    SOURCE,
    KEPT,
    copy,
    escaped,
    linked,
    plain,
    put,
    raw,
    row_link,
    title_of,
    verdict_class,
    wide,
)

WIDTH = 640  # Pixels of a small picture
_PAPER = re.compile(r'(<g id="patch_\d+">\s*<path d="[^"]*" style="fill: )#ffffff"/>')


def small_copy(path: Path, target: Path) -> None:
    "A small copy of a picture, made again when the picture is newer."
    from PIL import Image

    KEPT.add(target)
    if target.exists() and target.stat().st_mtime >= path.stat().st_mtime:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(path) as picture:
        picture = picture.convert("RGB")
        height = max(1, round(picture.height * WIDTH / picture.width))
        picture.resize((WIDTH, height), Image.Resampling.LANCZOS).save(target, "WEBP", quality=82)


def facts_of_figures() -> dict[str, dict]:
    "What is known of every published figure."
    return {name: f for part in read_facts(ROOT / "figures").values() for name, f in part["figures"].items()}


def vector_of(figure: str, experiment: str) -> Path:
    "The svg that the same call made beside the png, where this machine has run the experiment."
    return derived("cpu") / "runs" / experiment / "out/figures" / f"{figure}.svg"


def without_paper(svg: str) -> str:
    "The same picture on no ground, for slides and colored pages: figure and axes are not filled."
    return _PAPER.sub(r'\1none"/>', svg)


def pictures() -> None:
    "The figures that pages show and link, small copies for the gallery, and the plotted numbers."
    for path in sorted((ROOT / "figures").glob("*/*.png")):
        name = path.relative_to(ROOT / "figures")
        copy(path, f"figures/{name.as_posix()}")
        copy(path, f"_static/figures/{name.as_posix()}")
        small_copy(path, SOURCE / "_static/small" / name.with_suffix(".webp"))
        numbers = name.with_suffix(".csv").as_posix()
        if (ROOT / f"data/numbers/{numbers}").exists():
            copy(ROOT / f"data/numbers/{numbers}", f"_static/figures/{numbers}")
    for figure, told in facts_of_figures().items():
        if (vector := vector_of(figure, told["experiment"])).exists():
            copy(vector, f"_static/figures/{figure}.svg")
            put(f"_static/figures/{figure}.clear.svg", without_paper(vector.read_text(encoding="utf-8")))


def size_of(figure: str) -> tuple[int, int]:
    "Width and height of a small copy, so that the page does not jump while it loads."
    from PIL import Image

    with Image.open(ROOT / f"figures/{figure}.png") as picture:
        return WIDTH, round(picture.height * WIDTH / picture.width)


def verdict_words(rows: list[dict]) -> str:
    "How many rows of each verdict a figure shows; a badge leads to the first of them."
    count = Counter(r["verdict"] for r in rows)
    first = {r["verdict"]: r for r in reversed(rows)}
    return " ".join(
        f'<a class="{verdict_class(v)}" href="{row_link(first[v])}">{v}{f" × {n}" if n > 1 else ""}</a>'
        for v, n in count.items()
    )


def card(figure: str, about: dict, rows: list[dict], part: str) -> str:
    "A figure of the gallery."
    notebook = ROOT / f"nbs/experiments/{about['experiment']}.ipynb"
    known = notebook.exists()
    caption = captions_of(notebook).get(figure, "") if known else ""
    page = f"../nbs/experiments/{linked(about['experiment'])}.html"
    file = f"../_static/figures/{linked(figure)}"
    id = escaped(figure.replace("/", "-"))
    width, height = size_of(figure)
    alt = escaped(about["alt"].replace("\n", " "))
    source = f'src="../_static/small/{linked(figure)}.webp" width="{width}" height="{height}" loading="lazy"'
    image = f'<img {source} alt="{alt}">'
    title = escaped(plain(title_of(notebook))) if known else escaped(about["experiment"])
    of = counterparts(about.get("claims", ()), {r["id"]: r for r in rows})
    source_of = f'<span class="of-figure">Counterpart of: {escaped(of)}.</span>' if of else ""
    vector = vector_of(figure, about["experiment"])
    ways = {"svg": "vector", "clear.svg": "transparent"} if vector.exists() else {}
    svg = "".join(f'<a href="{file}.{end}">{word}</a> · ' for end, word in ways.items())
    verdicts = " ".join(sorted({r["verdict"].replace(" ", "-") for r in rows}))
    return (
        f'<figure class="card" id="{id}" data-part="{part}" data-verdicts="{verdicts}">'
        f'<a href="{page}">{image}</a><figcaption>{source_of}{escaped(plain(caption) or about["alt"])}'
        f'<span class="of-figure"><span class="part">{part}</span> {verdict_words(rows)} '
        f'<a href="{page}">{title}</a> · <a href="{file}.png">large</a> · {svg}'
        f'<a href="{file}.csv">numbers</a></span></figcaption></figure>'
    )


def gallery(rows: dict) -> int:
    "One page of all figures, part by part; a filter appears where scripts run. Returns their number."
    facts = read_facts(ROOT / "figures")
    total = sum(len(f["figures"]) for f in facts.values())
    about = f"All {total} figures, as `make figures` makes them. A picture leads to its experiment."
    page = wide("Figures", about, "")
    page += raw('<div id="gallery-filter"></div>')
    for folder, (title, _, _) in PARTS.items():
        part = folder.partition("_")[2]
        if part in facts:
            page += [f"## {title}", "", "```{raw} html", '<div class="cards">']
            for figure, told in sorted(facts[part]["figures"].items()):
                page.append(card(figure, told, [rows[id] for id in told["claims"] if id in rows], part))
            page += ["</div>", "```", ""]
    put("gallery/index.md", "\n".join(page))
    return total
