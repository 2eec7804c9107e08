"""Draws the film of a training: the similarity matrix of twelve emoji and their names turns diagonal.

    python data/film/build.py        # trains for 320 small steps (minutes on one core) and writes film.gif

Rows are pictures, columns the English names of the same twelve concepts, all from training. Between the moments that the
training keeps, the film fades from one matrix to the next; the colors have one scale for all moments.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from PIL import Image, ImageDraw, ImageFont

from brace_nb.foundations import TrainingConfig, load_emoji, on_background, train_encoder

HERE = Path(__file__).resolve().parent
NAMES = (
    "red heart,cat,penguin,frog,palm tree,red apple,hot dog,tram,sailboat,rainbow,light bulb,package,key,owl,bicycle,teapot,"
    "strawberry,snowflake,umbrella,rocket,guitar,camera,shark,sunflower"
)
STEPS, EVERY, CELL, FADE = 320, 10, 20, 3


def chosen(emoji, count=12):
    "The first concepts of the list that training shows."
    names = dict(zip(emoji.names("en"), emoji.ids()))
    train = set(emoji.ids("train").tolist())
    return [int(names[n]) for n in NAMES.split(",") if names.get(n) in train][:count]


def moments(emoji, ids):
    "(Step, cosines of pictures and names) through a small training."
    pictures, names, kept = emoji.images("noto", ids), emoji.names("en", ids), []

    def keep(encoder):
        kept.append(encoder.encode_images(pictures) @ encoder.encode_texts(names).T)
        return {}

    config = TrainingConfig(steps=STEPS, batch_size=64, warmup=20, languages=("en",), texts=2)
    train_encoder(emoji, config=config, monitor=keep, monitor_every=EVERY, progress=False)
    return list(zip(range(0, STEPS + 1, EVERY), kept))


def frame(step, matrix, icons, low, high):
    "One picture of the film."
    colors = (colormaps["cividis"](np.clip((matrix - low) / (high - low), 0, 1))[..., :3] * 255).astype(np.uint8)
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
    torch.set_num_threads(1)
    emoji = load_emoji()
    ids = chosen(emoji)
    icons = [Image.fromarray(p).resize((16, 16)) for p in on_background(emoji.images("noto", ids, 64))]
    kept = moments(emoji, ids)
    low, high = kept[-1][1].min(), kept[-1][1].max()
    frames = []
    for (step, a), (_, b) in zip(kept, kept[1:]):
        frames += [frame(step, a + (b - a) * t / FADE, icons, low, high) for t in range(FADE)]
    frames += [frame(*kept[-1], icons, low, high)] * 15
    palette = frames[-1].quantize(64)
    frames = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]
    path = HERE / "film.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=90, loop=0, optimize=True)
    print(f"{path.name}: {len(frames)} frames, {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
