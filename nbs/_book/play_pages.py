"""The pages to play with: `play/<name>.md` and `static/<name>.js`; a page stands on the site by being there.

The front matter of a page says its title, what one does there, which lesson explains it, and which data it
reads, if any; `@PAGE@` in the text is the place that the script fills. The picture on its card is
`static/play_<name>.webp`. `python nbs/_book/play_pages.py [name ...]` takes it, in Chromium, of pages that
are named, or of all that have none; data come from the last `make book`.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

import registries
from sources import HERE, ROOT, SOURCE, escaped, plain, put, raw, title_of, toctree, wide

SCRIPTS = ("play.js", "registries.js")  # what all pages read before their own script
WIDTH = 520  # pixels of a card's picture
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def names() -> list[str]:
    "Every page of the folder."
    return [path.stem for path in sorted((HERE / "play").glob("*.md"))]


def read(name: str) -> tuple[dict, str]:
    "Front matter and text of a page."
    _, head, text = (HERE / f"play/{name}.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(head), text


def place(name: str) -> list[str]:
    "The element that a page's script fills, its words without scripts, and the scripts."
    about, _ = read(name)
    lesson = about["lesson"]
    title = escaped(plain(title_of(ROOT / f"nbs/{lesson}.ipynb")))
    link = f'<a href="../nbs/{lesson}.html">{title}</a>'
    silent = f"<noscript>This page needs scripts. What it shows is in {link}</noscript>"
    scripts = [*SCRIPTS, *filter(None, [about.get("data")]), f"{name}.js"]
    return [
        f'<div class="play" id="play-{name}">{silent}</div>',
        *(f'<script src="../_static/{script}"></script>' for script in scripts),
    ]


def card(name: str, folder: str) -> str:
    "A page as a card, seen from the folder above or from beside it."
    about, _ = read(name)
    picture = f"_static/play_{name}.webp"
    image = f'<img src="{"" if folder else "../"}{picture}" alt="" loading="lazy">'
    image = image if (HERE / "static" / Path(picture).name).exists() else ""
    words = f"<span><b>{escaped(about['title'])}</b><br>{escaped(about['about'])}</span>"
    return f'<a class="thumb" href="{folder}{name}.html">{image}{words}</a>'


def cards(folder: str = "") -> list[str]:
    "All pages as cards."
    return raw('<div class="thumbs wide">', *(card(name, folder) for name in names()), "</div>")


def write() -> None:
    "The pages, their index, and what they know of the library."
    for name in names():
        about, text = read(name)
        text = text.replace("@PAGE@\n", "\n".join(raw(*place(name))))
        put(f"play/{name}.md", "\n".join(wide(about["title"], text.lstrip())))
    page = ["# Play", "", "Pages that compute in your browser; nothing is sent anywhere.", "", *cards()]
    put("play/index.md", "\n".join([*page, *toctree(*names())]))
    registries.write()


def bare(name: str, folder: Path) -> Path:
    "A page without its frame, as a file that a browser opens beside `_static`."
    (folder / "play").mkdir(exist_ok=True)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += '<meta name="color-scheme" content="light dark">'
    head += '<link rel="icon" href="data:,">'
    head += '<link rel="stylesheet" href="../_static/book.css">'
    target = folder / f"play/{name}.html"
    target.write_text("\n".join([f"<!doctype html>{head}<body>", *place(name), "</body>"]), encoding="utf-8")
    return target


def picture(name: str, browser: str, folder: Path) -> None:
    "Take the picture of a page's card: the upper part of what its script shows."
    from PIL import Image

    shot, page = folder / f"{name}.png", bare(name, folder)
    with page.open("a", encoding="utf-8") as drawn:
        drawn.write("<style>.play th code { display: none }</style>")  # a picture names methods in words
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=3000"]
    flags += [f"--screenshot={shot}", f"--window-size={2 * WIDTH},{2 * WIDTH}"]
    subprocess.run([browser, *flags, page.as_uri()], check=True, capture_output=True)
    buffer = io.BytesIO()
    with Image.open(shot) as image:
        image.convert("RGB").resize((WIDTH, WIDTH)).crop((0, 0, WIDTH, WIDTH // 2)).save(
            buffer, "WEBP", quality=82
        )
    (HERE / f"static/play_{name}.webp").write_bytes(buffer.getvalue())


def main(wanted: list[str]) -> int:
    "Take the pictures that are asked for, or those that are missing."
    browser = os.environ.get("BRACE_NB_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    missing = [name for name in names() if not (HERE / f"static/play_{name}.webp").exists()]
    if browser is None:
        print("no picture was taken, because there is no Chromium: `apt-get install chromium`")
        return 0
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        for made in (SOURCE / "_static", HERE / "static"):
            if made.exists():
                shutil.copytree(made, folder / "_static", dirs_exist_ok=True)
        (folder / "_static/registries.js").write_text(registries.script(), encoding="utf-8")
        for name in wanted or missing:
            picture(name, browser, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
