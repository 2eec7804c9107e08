"""The picture that stands for a part: a figure of an experiment, or the picture that a lesson draws."""

import base64
import re

from brace_nb.companion import captions_of, read_facts
from gallery_page import small_copy
from sources import PARTS, ROOT, SOURCE, cells_of, plain, put, title_of


def drawn_by(lesson: str) -> bytes:
    "The first picture that a lesson has stored."
    outputs = (o for cell in cells_of(ROOT / f"nbs/{lesson}.ipynb") for o in cell.get("outputs", []))
    pictures = (o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {}))
    return base64.b64decode("".join(next(pictures)))


def said_of(lesson: str) -> tuple[str, str]:
    "Alternative text and caption of a lesson's picture."
    text = "\n\n".join("".join(cell["source"]) for cell in cells_of(ROOT / f"nbs/{lesson}.ipynb"))
    alt = re.search(r"^#\| fig-alt: (.+)$", text, re.M)[1]
    return alt, re.search(r"^\*Figure\. (.+)\*$", text, re.M)[1]


def small_of(folder: str) -> str:
    "The small copy of a part's picture, below `_static/small`."
    hero = PARTS[folder][2]
    return f"heroes/{folder.partition('_')[2]}" if (ROOT / f"nbs/{hero}.ipynb").exists() else hero


def hero(folder: str) -> list[str]:
    "The picture of a part with its finding, and where it is from."
    name, part = PARTS[folder][2], folder.partition("_")[2]
    if (ROOT / f"nbs/{name}.ipynb").exists():
        drawn = put(f"_static/heroes/{part}.png", drawn_by(name))
        small_copy(drawn, SOURCE / f"_static/small/heroes/{part}.webp")
        picture, page = f"/_static/heroes/{part}.png", f"nbs/{name}.ipynb"
        alt, caption = said_of(name)
    else:
        about = read_facts(ROOT / "figures")[part]["figures"][name]
        picture, page = f"/figures/{name}.png", f"nbs/experiments/{about['experiment']}.ipynb"
        alt, caption = about["alt"].replace("\n", " "), captions_of(ROOT / page).get(name) or about["alt"]
    source = f"[{plain(title_of(ROOT / page))}](/{page})"
    lines = [f":::{{figure}} {picture}", f":alt: {plain(alt)}", ":width: 100%", ""]
    return [*lines, f"{caption.rstrip('.')}. From: {source}.", ":::", ""]
