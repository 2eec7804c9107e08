"""What the page "A map of the emoji" reads: pictures as one sprite sheet, numbers and words as a script."""

import base64
import io
import json
from functools import cache


import numpy as np

from brace_nb.foundations import DESIGNERS, HELD_OUT_DESIGNER, load_emoji
from sources import KEPT, ROOT, SOURCE, put

DATA = ROOT / "data/embeddings/emoji_map.npz"
LANGUAGES = {"en": "English", "es": "Spanish", "sw": "Swahili", "zh": "Chinese"}
SIDE, COLUMNS = 32, 48  # Pixels of a picture in the sheet; pictures in a row of it


@cache
def tuples():
    "The emoji."
    return load_emoji()


def packed(array: np.ndarray) -> str:
    "Little-endian bytes of an array, as text."
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def sheet(designer: str):
    "All pictures of a designer, row by row; none where there is none."
    from PIL import Image

    emoji = tuples()
    rows = -(-len(emoji) // COLUMNS)
    whole = Image.new("RGBA", (COLUMNS * SIDE, rows * SIDE))
    ids = emoji.available(designer)
    order = {int(id): n for n, id in enumerate(emoji.concepts.index)}
    for id, picture in zip(ids, emoji.images(designer, ids, size=SIDE)):
        n = order[int(id)]
        whole.paste(Image.fromarray(picture), (n % COLUMNS * SIDE, n // COLUMNS * SIDE))
    return whole


def write_sheets() -> None:
    "A sprite sheet for each designer, made again when the data are newer."
    for designer in DESIGNERS:
        target = SOURCE / f"_static/emoji_{designer}.webp"
        source = ROOT / f"data/emoji/images_{designer}.parquet"
        KEPT.add(target)
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            buffer = io.BytesIO()
            sheet(designer).save(buffer, "WEBP", quality=70)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(buffer.getvalue())


def words() -> list[dict]:
    "For each language, word -> row numbers: the captions that the data hold."
    emoji = tuples()
    order = {int(id): n for n, id in enumerate(emoji.concepts.index)}
    found = []
    for lang in LANGUAGES:
        rows: dict[str, set] = {}
        frame = emoji.captions(lang=lang, kind=[k for k in emoji.kinds if k in ("name", "keyword")])
        for id, text in zip(frame.id, frame.text):
            rows.setdefault(text.lower(), set()).add(order[int(id)])
        found.append({text: sorted(at) for text, at in sorted(rows.items())})
    return found


def data(stored) -> dict:
    "Everything of the script."
    emoji = tuples()
    categories, names = emoji.labels("category")
    return dict(
        designers=list(DESIGNERS),
        unseen=HELD_OUT_DESIGNER,
        languages=LANGUAGES,
        columns=COLUMNS,
        side=SIDE,
        names=[emoji.names(lang) for lang in LANGUAGES],
        emoji=emoji.concepts.emoji.tolist(),
        category=categories.tolist(),
        categories=names,
        split=emoji.concepts.split.tolist(),
        words=words(),
        **{
            name: dict(shape=stored[name].shape, data=packed(stored[name]))
            for name in ("places", "codes", "near")
        },
    )


def write() -> None:
    "The sheets and the script."
    write_sheets()
    text = json.dumps(data(np.load(DATA)), ensure_ascii=False, separators=(",", ":"))
    put("_static/map_data.js", f"brace.mapData = {text};\n")
