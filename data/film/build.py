"""Draw the film of a training: the similarity matrix of twelve emoji and their names turns diagonal.

    python data/film/build.py        # trains for 120 tiny steps (seconds on one core) and writes film.gif

Rows are pictures, columns the English names of the same concepts: twelve that are learned and, apart from
them, one that no training shows. A very small encoder learns 24 concepts only, these twelve among them, by
their names alone and undistorted, so that seconds are enough; of the unseen one it knows nothing, and that is
to be seen. Between the moments that the training keeps, the film fades from one matrix to the next; the
colors have one scale for all moments.
"""

import sys
from pathlib import Path

from brace_nb.core import use_one_instruction_set

use_one_instruction_set()

import numpy as np  # noqa: E402
from matplotlib import colormaps, get_data_path  # noqa: E402
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
STEPS, EVERY, CELL, FADE, CONCEPTS = 120, 4, 22, 3, 24
LEFT, TOP, GAP = 30, 84, 6  # Pixels for pictures, for words, and before what is unseen


def chosen(emoji, count=12):
    "The first concepts of the list that training shows, and the first that it does not show."
    names = dict(zip(emoji.names("en"), emoji.ids()))
    train = set(emoji.ids("train").tolist())
    found = [int(names[n]) for n in NAMES.split(",") if n in names]
    return [i for i in found if i in train][:count], next(i for i in found if i not in train)


def few(emoji, ids):
    "The chosen concepts and the first others of training that all designers have drawn."
    drawn = set(emoji.ids("train", flags=False).tolist()).intersection(
        *(emoji.available(d).tolist() for d in emoji.designers)
    )
    kept = sorted([*ids, *sorted(drawn - set(ids))[:: len(drawn) // CONCEPTS][: CONCEPTS - len(ids)]])
    texts = emoji.texts[emoji.texts["id"].isin(kept)].reset_index(drop=True)
    pictures = {d: Sprites({i: s.encoded[i] for i in kept}, s.native) for d, s in emoji.pictures.items()}
    return Tuples(emoji.concepts.loc[kept], texts, pictures, emoji.optional_kinds)


def moments(emoji, ids, unseen):
    "(Step, cosines of pictures and names) through a small training; the last row and column are unseen."
    shown, kept = [*ids, unseen], []
    pictures, names = emoji.images("noto", shown), emoji.names("en", shown)

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


def place(k, n):
    "Where cell k begins; what is unseen lies apart."
    return k * CELL + GAP * (k == n - 1)


def word(name, font):
    "A name that is read from below."
    page = Image.new("RGB", (TOP - 6, CELL), "white")
    ImageDraw.Draw(page).text((0, CELL // 2), name, fill="black", font=font, anchor="lm")
    return page.rotate(90, expand=True)


def frame(step, matrix, icons, words, low, high):
    "One picture of the film."
    colors = (255 * colormaps["cividis"](np.clip((matrix - low) / (high - low), 0, 1))[..., :3]).astype(int)
    n, font = len(matrix), ImageFont.truetype(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf", 11)
    width = place(n, n) + CELL + GAP
    page = Image.new("RGB", (LEFT + width, TOP + width + 18), "white")
    draw = ImageDraw.Draw(page)
    for i in range(n):
        page.paste(icons[i], (LEFT - 22, TOP + place(i, n) + 2))
        page.paste(word(words[i], font), (LEFT + place(i, n), 0))
        for j in range(n):
            x, y = LEFT + place(j, n), TOP + place(i, n)
            draw.rectangle((x, y, x + CELL - 1, y + CELL - 1), fill=tuple(colors[i, j]))
    right = matrix.argmax(1) == np.arange(n)
    said = f"step {step}: {right[:-1].sum()} of {n - 1} pictures find their name;"
    draw.text((LEFT, TOP + width - 14), said, fill="black", font=font)
    said = f"the unseen one {'does' if right[-1] else 'does not'}"
    draw.text((LEFT, TOP + width + 1), said, fill="black", font=font)
    return page


def main():
    emoji = load_emoji()
    ids, unseen = chosen(emoji)
    shown = [*ids, unseen]
    icons = [Image.fromarray(p).resize((18, 18)) for p in on_background(emoji.images("noto", shown, 64))]
    kept = moments(emoji, ids, unseen)
    low, high = np.quantile(kept[-1][1], 0.05), np.median(np.diag(kept[-1][1]))
    look = icons, emoji.names("en", shown), low, high
    frames = []
    for (step, a), (_, b) in zip(kept, kept[1:]):
        frames += [frame(step, a + (b - a) * t / FADE, *look) for t in range(FADE)]
    frames += [frame(*kept[-1], *look)] * 15
    scale = Image.fromarray((colormaps["cividis"](np.arange(256))[None, :, :3] * 255).astype(np.uint8))
    sample = Image.new("RGB", (frames[-1].width, frames[-1].height * 2), "white")
    sample.paste(frames[-1], (0, 0))
    sample.paste(scale.resize((frames[-1].width, frames[-1].height)), (0, frames[-1].height))
    palette = sample.quantize(256)
    frames = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]
    path = HERE / "film.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=90, loop=0, optimize=True)
    print(f"{path.name}: {len(frames)} frames, {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
