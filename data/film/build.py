"""Draw the film of a training: the similarity matrix of twelve emoji and their names turns diagonal.

    python data/film/build.py        # trains for 120 tiny steps (seconds on one core) and writes film.gif

Rows are pictures, columns the English names of the same twelve concepts. A very small encoder learns 24
concepts only, these twelve among them, by their names alone and undistorted, so that seconds are enough.
Between the moments that the training keeps, the film fades from one matrix to the next; the colors have one
scale for all moments.
"""

import sys
from pathlib import Path

from brace_nb.core import use_one_instruction_set

use_one_instruction_set()

import numpy as np  # noqa: E402
from matplotlib import colormaps  # noqa: E402
from PIL import Image, ImageDraw, ImageFont  # noqa: E402

from brace_nb.foundations import (  # noqa: E402
    EncoderConfig,
    Sprites,
    TrainingConfig,
    Tuples,
    load_emoji,
    on_background,
    train_encoder,
)

HERE = Path(__file__).resolve().parent
NAMES = (
    "red heart,cat,penguin,frog,palm tree,red apple,hot dog,tram,sailboat,rainbow,light bulb,package,key,owl,"
    "bicycle,teapot,strawberry,snowflake,umbrella,rocket,guitar,camera,shark,sunflower"
)
STEPS, EVERY, CELL, FADE, CONCEPTS = 120, 4, 20, 3, 24


def chosen(emoji, count=12):
    "The first concepts of the list that training shows."
    names = dict(zip(emoji.names("en"), emoji.ids()))
    train = set(emoji.ids("train").tolist())
    return [int(names[n]) for n in NAMES.split(",") if names.get(n) in train][:count]


def few(emoji, ids):
    "The chosen concepts and the first others of training that all designers have drawn."
    drawn = set(emoji.ids("train", flags=False).tolist()).intersection(
        *(emoji.available(d).tolist() for d in emoji.designers)
    )
    kept = sorted([*ids, *sorted(drawn - set(ids))[:: len(drawn) // CONCEPTS][: CONCEPTS - len(ids)]])
    texts = emoji.texts[emoji.texts["id"].isin(kept)].reset_index(drop=True)
    pictures = {d: Sprites({i: s.encoded[i] for i in kept}, s.native) for d, s in emoji.pictures.items()}
    return Tuples(emoji.concepts.loc[kept], texts, pictures, emoji.optional_kinds)


def moments(emoji, ids):
    "(Step, cosines of pictures and names) through a small training."
    pictures, names, kept = emoji.images("noto", ids), emoji.names("en", ids), []

    def keep(encoder):
        kept.append(encoder.encode_images(pictures) @ encoder.encode_texts(names).T)
        return {}

    options = dict(languages=("en",), texts=1, name_share=1.0, keyword_share=0.0, token_dropout=0.0)
    options |= dict(rotation=0.0, zoom=0.0, shift=0.0, color_mixing=0.0, brightness=0.0, grey_share=0.0)
    config = TrainingConfig(steps=STEPS, batch_size=24, warmup=10, pictures=1, white_share=1.0, **options)
    small = dict(embed_dim=64, image_model="test_resnet", text_width=64, text_heads=1, vocab_size=512)
    train_encoder(
        few(emoji, ids),
        EncoderConfig(**small),
        config,
        monitor=keep,
        monitor_every=EVERY,
        progress=False,
    )
    return list(zip(range(0, STEPS + 1, EVERY), kept))


def frame(step, matrix, icons, low, high):
    "One picture of the film."
    colors = (colormaps["cividis"](np.clip((matrix - low) / (high - low), 0, 1))[..., :3] * 255).astype(
        np.uint8
    )
    squares = colors.repeat(CELL, 0).repeat(CELL, 1)
    n, edge = len(matrix), CELL + 8
    page = Image.new("RGB", (edge + n * CELL + 8, edge + n * CELL + 26), "white")
    page.paste(Image.fromarray(squares), (edge, edge))
    draw = ImageDraw.Draw(page)
    for k, icon in enumerate(icons):
        page.paste(icon, (3, edge + k * CELL + 2))
        page.paste(icon, (edge + k * CELL + 2, 3))
    right = (matrix.argmax(1) == np.arange(n)).sum()
    words = f"step {step}: {right} of {n} pictures find their name"
    draw.text((edge, edge + n * CELL + 6), words, fill="black", font=ImageFont.load_default(11))
    return page


def main():
    emoji = load_emoji()
    ids = chosen(emoji)
    icons = [Image.fromarray(p).resize((16, 16)) for p in on_background(emoji.images("noto", ids, 64))]
    kept = moments(emoji, ids)
    low, high = np.quantile(kept[-1][1], 0.05), np.median(np.diag(kept[-1][1]))
    frames = []
    for (step, a), (_, b) in zip(kept, kept[1:]):
        frames += [frame(step, a + (b - a) * t / FADE, icons, low, high) for t in range(FADE)]
    frames += [frame(*kept[-1], icons, low, high)] * 15
    scale = Image.fromarray((colormaps["cividis"](np.arange(256))[None, :, :3] * 255).astype(np.uint8))
    sample = Image.new("RGB", (frames[-1].width, frames[-1].height * 2), "white")
    sample.paste(frames[-1], (0, 0))
    sample.paste(scale.resize((frames[-1].width, frames[-1].height)), (0, frames[-1].height))
    palette = sample.quantize(128)
    frames = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]
    path = HERE / "film.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=90, loop=0, optimize=True)
    print(f"{path.name}: {len(frames)} frames, {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
