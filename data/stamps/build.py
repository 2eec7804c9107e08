"""Build the stamp tuples of this folder from Debian's package, byte for byte the committed files.

    python data/stamps/build.py --check                # build aside and compare with the committed files
    python data/stamps/build.py --out data/stamps      # build in place
    python data/stamps/build.py --package FILE --check # from a package that is already here

Needs apt-get or --package, dpkg-deb, and the Python packages numpy, scipy, pillow, pyarrow, and for this
builder only resvg_py==0.5.0 and soundfile==0.14.0. Licence: NOTICE.md and GPL-2.txt. Files written:
    concepts.parquet       id, name (the English sentence), place (file in the package), category,
                           subcategory, made (drawing, photograph), group, split
    captions.parquet       id, lang, kind (name), text: one sentence in each language
    images_stamps.parquet  id, webp64: lossless WebP, 64 x 64 RGBA
    speech_<lang>.parquet  id, logmel: the sentence read aloud, 64 bands x 64 frames of uint8, row by row
"""

import argparse
import hashlib
import io
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

PACKAGE, VERSION = "tuxpaint-stamps-default", "2022.06.04-1"
PICTURES = "usr/share/tuxpaint/stamps"
LEFT_OUT = "symbols/alphabets"  # 158 pictures of single letters
LEAST = 900  # a language is kept when it names at least so many of the package's texts
SPOKEN = "bg ca es fr ro ru".split()  # read aloud for at least 850 stamps
SIDE, RENDER = 64, 256  # pixels: stored, and as which an SVG is drawn before it is shrunk
FLAT = 0.45  # a picture in which a larger share of neighboring pixels is equal is a drawing
RATE, WINDOW, HOP, BANDS, FRAMES = 16_000, 1_024, 640, 64, 64  # speech: 64 frames of 40 ms
DECIBELS = 60  # below the loudest cell a cell is silent


def tidy(text):
    return " ".join(text.replace("\ufeff", "").split())


# ---------------------------------------------------------------- stamps and their texts
def read_texts(path):
    "Language -> sentence of a text file; the first line is English."
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    found = {"en": tidy(lines[0])}
    for line in lines[1:]:
        if told := re.match(r"([A-Za-z_@]+)\.utf8=(.*)", line):
            found.setdefault(told[1], tidy(told[2]))
    return {lang: text for lang, text in found.items() if text}


def stamps(folder):
    "Place of each stamp (without ending) -> its texts, in the order of the places."
    pictures = {p.with_suffix("") for kind in ("png", "svg") for p in folder.rglob(f"*.{kind}")}
    places = sorted(p.relative_to(folder).as_posix() for p in pictures if p.with_suffix(".txt").is_file())
    kept = [p for p in places if not p.startswith(LEFT_OUT)]
    return {p: found for p in kept if (found := read_texts(folder / f"{p}.txt")).get("en")}


def languages(folder):
    "Languages with at least LEAST texts in the whole package."
    counts = {}
    for path in folder.rglob("*.txt"):
        for lang in read_texts(path):
            counts[lang] = counts.get(lang, 0) + 1
    return sorted(lang for lang, count in counts.items() if count >= LEAST)


def groups(found):
    "Stamps that share their English sentence or their file's stem, as a number each."
    first, parent = {}, list(range(len(found)))

    def top(i):
        while parent[i] != i:
            i = parent[i]
        return i

    for i, (place, texts) in enumerate(found.items()):
        stem = re.sub(r"[-_]?\d+$", "", place.rsplit("/", 1)[-1].lower())
        sentence = re.sub(r"[^a-z0-9 ]", "", re.sub(r"^(a|an|the) ", "", texts["en"].lower()))
        for key in (f"stem {stem}", f"text {sentence}"):
            parent[top(i)] = top(first.setdefault(key, i))
    return [list(found)[top(i)] for i in range(len(found))]


def split_of(group, salt="stamp-tuples-v1"):
    "20 % test, 10 % val, the rest train, by a hash of the group."
    share = int(hashlib.sha256(f"{salt}|{group}".encode()).hexdigest()[:8], 16) / 2**32
    return "test" if share < 0.20 else "val" if share < 0.30 else "train"


# ---------------------------------------------------------------- pictures
def drawn(path):
    "An SVG as a PIL image."
    import resvg_py

    text = path.read_text(encoding="utf-8", errors="replace")
    return Image.open(io.BytesIO(bytes(resvg_py.svg_to_bytes(svg_string=text, width=RENDER, dpi=90))))


def is_flat(picture):
    "Are many neighboring opaque pixels equal?"
    picture.thumbnail((RENDER, RENDER), Image.NEAREST)
    pixels = np.asarray(picture).astype(int)
    opaque = pixels[..., 3] > 250
    both = opaque[:, 1:] & opaque[:, :-1]
    equal = (pixels[:, 1:, :3] == pixels[:, :-1, :3]).all(-1) & both
    return equal.sum() > FLAT * max(both.sum(), 1)


def fit(picture):
    "A square of SIDE pixels: the longer side fills it, in premultiplied float32, the rest is transparent."
    rgba = np.asarray(picture.convert("RGBA"), np.float32) / 255
    rgba = np.concatenate([rgba[..., :3] * rgba[..., 3:], rgba[..., 3:]], -1)
    scale = SIDE / max(rgba.shape[:2])
    height, width = (max(1, round(scale * side)) for side in rgba.shape[:2])
    planes = [Image.fromarray(rgba[..., i].copy()).resize((width, height), Image.BOX) for i in range(4)]
    out = np.zeros((SIDE, SIDE, 4), np.float32)
    top, left = (SIDE - height) // 2, (SIDE - width) // 2
    out[top : top + height, left : left + width] = np.stack([np.asarray(p) for p in planes], -1)
    alpha = np.clip(out[..., 3:], 0, 1)
    color = np.clip(out[..., :3] / np.maximum(alpha, 1e-6), 0, 1) * (alpha > 1 / 510)
    return np.rint(np.concatenate([color, alpha], -1) * 255).astype(np.uint8)


def picture_of(folder, place):
    "(pixels, made): the SVG where there is one, as the program that shows the stamps takes it."
    svg, png = (folder / f"{place}.{kind}" for kind in ("svg", "png"))
    if svg.is_file():
        pixels = fit(drawn(svg))
        return pixels if pixels.any() else fit(Image.open(png)), "drawing"
    picture = Image.open(png).convert("RGBA")
    pixels = fit(picture)
    return pixels, "drawing" if "/cartoon/" in place or is_flat(picture) else "photograph"


def webp(rgba):
    "Lossless WebP of RGBA pixels."
    data = io.BytesIO()
    Image.fromarray(rgba).save(data, "WEBP", lossless=True, quality=80, method=4, exact=True)
    return data.getvalue()


# ---------------------------------------------------------------- speech
def mel_bands():
    "Triangles on the mel scale from 50 Hz to 8 kHz, shape (BANDS, WINDOW // 2 + 1)."
    ends = 2_595 * np.log10(1 + np.array([50, RATE / 2]) / 700)
    corners = 700 * (10 ** (np.linspace(*ends, BANDS + 2) / 2_595) - 1)
    hertz = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    rise = (hertz - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    fall = (corners[2:, None] - hertz) / (corners[2:] - corners[1:-1])[:, None]
    return np.clip(np.minimum(rise, fall), 0, None)


def logmel(path, bands):
    "Log-mel spectrogram of a sound file from its first loud frame on, uint8, shape (BANDS, FRAMES)."
    import soundfile
    from scipy.signal import resample_poly

    sound, rate = soundfile.read(path)
    sound = sound.mean(1) if sound.ndim == 2 else sound
    step = np.gcd(RATE, rate)
    sound = np.pad(resample_poly(sound, RATE // step, rate // step), (0, WINDOW))
    starts = range(0, len(sound) - WINDOW + 1, HOP)
    frames = np.stack([sound[s : s + WINDOW] for s in starts]) * np.hanning(WINDOW)
    energy = bands @ (np.abs(np.fft.rfft(frames)) ** 2).T
    level = 10 * np.log10(np.maximum(energy, 1e-12))
    level = np.clip((level - level.max()) / DECIBELS + 1, 0, 1)
    level = level[:, int(np.argmax(level.max(0) > 1 / 3)) :][:, :FRAMES]
    return np.rint(255 * np.pad(level, ((0, 0), (0, FRAMES - level.shape[1])))).astype(np.uint8)


def speech_table(folder, places, lang):
    bands, rows = mel_bands(), {}
    for i, place in enumerate(places):
        path = folder / f"{place}_desc_{lang}.ogg"
        if path.is_file():
            rows[i] = logmel(path, bands).tobytes()
    return pa.table(dict(id=pa.array(rows, pa.int16()), logmel=pa.array(list(rows.values()), pa.binary())))


# ---------------------------------------------------------------- tables
def tables(folder):
    "The tables of this folder, by name."
    found, kept = stamps(folder), set(languages(folder))
    pictures = [picture_of(folder, place) for place in found]
    rows = []
    for i, (place, group) in enumerate(zip(found, groups(found))):
        category, _, rest = place.partition("/")
        under = rest.partition("/")[0] if "/" in rest else category
        row = dict(id=i, name=found[place]["en"], place=place, category=category, subcategory=under)
        rows.append(row | dict(made=pictures[i][1], group=group, split=split_of(group)))
    yield "concepts", pa.Table.from_pylist(rows)
    texts = [
        (i, lang, text) for i, t in enumerate(found.values()) for lang, text in t.items() if lang in kept
    ]
    ids, langs, said = zip(*texts)
    kind = pa.array(["name"] * len(ids)).dictionary_encode()
    lang = pa.array(langs).dictionary_encode()
    yield "captions", pa.table(dict(id=pa.array(ids, pa.int16()), lang=lang, kind=kind, text=pa.array(said)))
    stored = pa.array([webp(pixels) for pixels, _ in pictures], pa.binary())
    yield "images_stamps", pa.table(dict(id=pa.array(range(len(rows)), pa.int16()), webp64=stored))
    for lang in SPOKEN:
        yield f"speech_{lang}", speech_table(folder, list(found), lang)


def write(table, path):
    "Parquet under a temporary name, then renamed."
    part = path.with_suffix(".part")
    small = dict(compression="zstd", compression_level=19, write_statistics=False, store_schema=False)
    pq.write_table(table, part, **small)
    part.replace(path)


# ---------------------------------------------------------------- command
def unpack(package, aside):
    "The folder of stamps in the package, fetched by apt-get when none is given."
    if package is None:
        subprocess.run(["apt-get", "download", "-q", f"{PACKAGE}={VERSION}"], check=True, cwd=aside)
        package = next(Path(aside).glob("*.deb"))
    subprocess.run(["dpkg-deb", "-x", package, f"{aside}/package"], check=True)
    return Path(aside) / "package" / PICTURES


def differing(built, committed):
    "Names of the files that differ in bytes, each with whether the tables differ too."
    for ours in sorted(built.glob("*.parquet")):
        theirs = committed / ours.name
        if not theirs.is_file():
            yield ours.name, "not committed"
        elif ours.read_bytes() != theirs.read_bytes():
            same = pq.read_table(ours).equals(pq.read_table(theirs))
            yield ours.name, "same table, other bytes (another pyarrow?)" if same else "other content"


def main():
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--package", type=Path, help=f"{PACKAGE} {VERSION} (default: apt-get fetches it)")
    parser.add_argument("--out", type=Path, help="folder to write to")
    told = "build aside and compare with the files beside this script"
    parser.add_argument("--check", action="store_true", help=told)
    args = parser.parse_args()
    if not args.check and not args.out:
        parser.error("say --check, or --out FOLDER")
    with tempfile.TemporaryDirectory() as aside:
        folder, out = unpack(args.package, aside), args.out or Path(aside)
        out.mkdir(parents=True, exist_ok=True)
        for name, table in tables(folder):
            write(table, out / f"{name}.parquet")
            print(f"{name:<18} {len(table):>7,} rows", flush=True)
        if args.check:
            found = dict(differing(out, Path(__file__).parent))
            for name, how in found.items():
                print(f"{name}: {how}")
            if set(found.values()) & {"other content", "not committed"}:
                raise SystemExit(1)
            if not found:
                print("byte for byte the committed files")


if __name__ == "__main__":
    main()
