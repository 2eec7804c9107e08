"""Builds the emoji tuples of this folder from published packages; the result is byte for byte the committed files.

    python data/emoji/build.py --check             # build aside and compare with the committed files
    python data/emoji/build.py --out data/emoji    # build in place
    python data/emoji/build.py --packages node_modules --check   # from packages that are already installed

Needs npm (or --packages) and the Python packages numpy, pillow, pyarrow, resvg_py==0.5.0 (only this builder needs the last).
Licences of the sources: NOTICE.md and licences/. Files written:
    concepts.parquet            id, emoji, unified, name, category, subcategory, group, added_in, is_country_flag, split
    captions.parquet            id, lang, kind (name, keyword, unicode_name, shortcode), text        Unicode CLDR, emoji-datasource
    captions_openmoji.parquet   the same columns, kind openmoji_tag, English                         OpenMoji, CC-BY-SA, kept apart
    images_<designer>.parquet   id, webp64: lossless WebP, 64 x 64 RGBA, one file a designer so that the licences stay apart
"""

import argparse, csv, hashlib, io, json, re, subprocess, tempfile, unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa, pyarrow.parquet as pq
from PIL import Image

SOURCES = {  # npm package -> version; the licence of what is taken from it
    "emoji-datasource": "16.0.0",  # MIT: list of concepts, categories, short names
    "emoji-datasource-google": "16.0.0",  # Apache-2.0: Noto Emoji, 64 px PNG
    "emoji-datasource-twitter": "16.0.0",  # CC-BY-4.0: Twemoji, 64 px PNG
    "openmoji": "17.0.0",  # CC-BY-SA-4.0: SVG pictures and tags
    "@iconify-json/fluent-emoji-flat": "1.2.6",  # MIT: Fluent Emoji, flat SVG
    "cldr-annotations-full": "48.2.0",  # Unicode-3.0: names and keywords
    "cldr-annotations-derived-full": "48.2.0",  # Unicode-3.0: names and keywords of sequences
}
LANGUAGES = [
    "en",
    "es",
    "zh",
    "de",
    "fr",
    "ja",
    "ar",
    "hi",
    "cy",
    "ga",
    "eu",
    "sw",
    "zu",
    "yo",
    "ha",
    "am",
    "ig",
    "qu",
]
SIDE, RENDER = 64, 256  # pixels: stored, and as which an SVG is drawn before its 4 x 4 box mean
FILES = [
    "concepts",
    "captions",
    "captions_openmoji",
    "images_noto",
    "images_twemoji",
    "images_openmoji",
    "images_fluent",
]


def characters(code):
    return "".join(chr(int(c, 16)) for c in code.split("-"))


def plain(text):
    return text.replace("\ufe0f", "")  # without the emoji presentation selector


def tidy(text):
    return unicodedata.normalize("NFC", " ".join(text.split()))


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


# ---------------------------------------------------------------- groups and splits
PERSON = "man|woman|men|women|person|people|boy|girl|boys|girls|child|adult|prince|princess"
HOURS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"


def concept_group(name):
    "Key that gendered, mirrored and counted variants of a concept share, so that they never straddle two splits."
    key = re.sub(r" facing right$", "", name.lower().replace("’", "'"))
    if key.startswith("keycap"):
        return "keycap"
    if key.startswith(("family", "kiss:", "couple with heart")):
        return key.split(":")[0]
    if key in {*PERSON.split("|")} - {"boys", "girls", "adult"}:
        key = "person"
    else:
        key = re.sub(rf"\b({PERSON}|mr\.|mrs\.|mx) *:? *", "", key)
    key = re.sub(r"^(in|with|:) ", "", key.strip()).strip(" :,")
    return "clock-face" if re.match(rf"({HOURS})(-thirty| o'clock)$", key) else key or name.lower()


def split_of(group, salt="emoji-tuples-v1"):
    "12 % test, 8 % val, the rest train, by a hash of the group."
    share = int(hashlib.sha256(f"{salt}|{group}".encode()).hexdigest()[:8], 16) / 2**32
    return "test" if share < 0.12 else "val" if share < 0.20 else "train"


# ---------------------------------------------------------------- pictures
def blank(rgba):
    "Colour under fully transparent pixels set to zero."
    rgba = np.array(rgba.convert("RGBA"))
    rgba[rgba[..., 3] == 0] = 0
    return rgba


def shrink(rgba, side):
    "Box mean of the premultiplied pixels, in float32; a picture that is not square is stretched (two Fluent drawings, by 3 %)."
    x = np.asarray(rgba.convert("RGBA"), np.float32) / 255
    x[..., :3] *= x[..., 3:]
    planes = [np.asarray(Image.fromarray(x[..., i]).resize((side, side), Image.BOX)) for i in range(4)]
    alpha = np.clip(planes[3], 0, 1)[..., None]
    colour = np.clip(np.stack(planes[:3], -1) / np.clip(planes[3], 1e-6, 1)[..., None], 0, 1) * (
        alpha > 1 / 510
    )
    return np.rint(np.concatenate([colour, alpha], -1) * 255).astype(np.uint8)


def draw(svg):
    "An SVG as RGBA pixels."
    import resvg_py

    picture = Image.open(
        io.BytesIO(bytes(resvg_py.svg_to_bytes(svg_string=svg, width=RENDER, height=RENDER)))
    )
    return shrink(picture, SIDE)


def webp(rgba):
    "Lossless WebP of RGBA pixels."
    data = io.BytesIO()
    Image.fromarray(rgba).save(data, "WEBP", lossless=True, quality=80, method=4, exact=True)
    return data.getvalue()


def png_pictures(packages, entries, designer):
    "id -> pixels of the 64 px PNG of emoji-datasource-<designer>."
    folder = packages / f"emoji-datasource-{designer}" / "img" / designer / str(SIDE)
    return {
        i: blank(Image.open(folder / e["image"]))
        for i, e in enumerate(entries)
        if (folder / e["image"]).is_file()
    }


def openmoji_pictures(packages, keys):
    "id -> pixels of OpenMoji's colour SVG."
    files = {
        plain(characters(p.stem)): p
        for p in sorted((packages / "openmoji/color/svg").iterdir())
        if re.fullmatch(r"[0-9A-F-]+\.svg", p.name)
    }
    return {i: draw(files[k].read_text(encoding="utf-8")) for i, k in enumerate(keys) if k in files}


def fluent_pictures(packages, keys):
    "id -> pixels of Fluent's flat SVG."
    folder = packages / "@iconify-json/fluent-emoji-flat"
    icons, names = (
        read_json(folder / "icons.json"),
        {plain(characters(c)): n for c, n in read_json(folder / "chars.json").items()},
    )

    def svg(name):
        icon = icons["icons"].get(name) or icons["icons"][icons["aliases"][name]["parent"]]
        width, height = icon.get("width", icons["width"]), icon.get("height", icons["height"])
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">{icon["body"]}</svg>'

    return {i: draw(svg(names[k])) for i, k in enumerate(keys) if k in names}


# ---------------------------------------------------------------- concepts and captions
def annotations(packages, lang):
    "CLDR's names (tts) and keywords (default) of a language, by emoji."
    out = {}
    for package, folder, key in (
        ("cldr-annotations-full", "annotations", "annotations"),
        ("cldr-annotations-derived-full", "annotationsDerived", "annotationsDerived"),
    ):
        path = packages / package / folder / lang / "annotations.json"
        if path.is_file():
            out |= {plain(e): v for e, v in read_json(path)[key].get("annotations", {}).items()}
    return out


def concept_rows(entries, english):
    for i, (entry, known) in enumerate(zip(entries, english)):
        name = known["tts"][0]
        group = concept_group(name)
        yield dict(
            id=i,
            emoji=characters(entry["unified"]),
            unified=entry["unified"],
            name=name,
            category=entry["category"],
            subcategory=entry["subcategory"],
            group=group,
            added_in=entry["added_in"],
            is_country_flag=entry["subcategory"] in ("country-flag", "subdivision-flag"),
            split=split_of(group),
        )


def caption_rows(entries, keys, notes):
    for i, (entry, key) in enumerate(zip(entries, keys)):
        for lang in LANGUAGES:
            known = notes[lang].get(key, {})
            name = tidy(known["tts"][0]) if known.get("tts") else None
            if name:
                yield i, lang, "name", name
            yield from (
                (i, lang, "keyword", tidy(word)) for word in known.get("default", []) if tidy(word) != name
            )
        yield i, "en", "unicode_name", entry["name"].lower()
        yield from ((i, "en", "shortcode", re.sub("[_-]", " ", name)) for name in entry["short_names"])


def tag_rows(packages, keys):
    with open(packages / "openmoji/data/openmoji.csv", encoding="utf-8", newline="") as file:
        rows = {plain(characters(r["hexcode"])): r for r in csv.DictReader(file)}
    for i, key in enumerate(keys):
        yield from (
            (i, "en", "openmoji_tag", tag.strip())
            for tag in (rows.get(key, {}).get("openmoji_tags") or "").split(",")
            if tag.strip()
        )


# ---------------------------------------------------------------- tables
def caption_table(rows):
    ids, langs, kinds, texts = zip(*rows)
    return pa.table(
        dict(
            id=pa.array(ids, pa.int16()),
            lang=pa.array(langs).dictionary_encode(),
            kind=pa.array(kinds).dictionary_encode(),
            text=pa.array(texts),
        )
    )


def image_table(pictures):
    return pa.table(
        dict(
            id=pa.array(pictures, pa.int16()),
            webp64=pa.array([webp(p) for p in pictures.values()], pa.binary()),
        )
    )


def tables(packages):
    "The tables of FILES, by name."
    entries = sorted(
        (e for e in read_json(packages / "emoji-datasource/emoji.json") if e["category"] != "Component"),
        key=lambda e: (e["sort_order"], e["unified"]),
    )
    keys, notes = (
        [plain(characters(e["unified"])) for e in entries],
        {lang: annotations(packages, lang) for lang in LANGUAGES},
    )
    yield "concepts", pa.Table.from_pylist(list(concept_rows(entries, [notes["en"][k] for k in keys])))
    yield "captions", caption_table(caption_rows(entries, keys, notes))
    yield "captions_openmoji", caption_table(tag_rows(packages, keys))
    yield "images_noto", image_table(png_pictures(packages, entries, "google"))
    yield "images_twemoji", image_table(png_pictures(packages, entries, "twitter"))
    yield "images_openmoji", image_table(openmoji_pictures(packages, keys))
    yield "images_fluent", image_table(fluent_pictures(packages, keys))


def write(table, path):
    "Parquet under a temporary name, then renamed."
    part = path.with_suffix(".part")
    pq.write_table(
        table, part, compression="zstd", compression_level=19, write_statistics=False, store_schema=False
    )
    part.replace(path)


# ---------------------------------------------------------------- command
def check_versions(packages):
    for name, version in SOURCES.items():
        path = packages / name / "package.json"
        found = read_json(path)["version"] if path.is_file() else "nothing"
        if found != version:
            raise SystemExit(
                f"{packages} should hold {name} {version}, but it holds {found}. Leave --packages out to let npm install the right versions."
            )


def install(folder):
    "The packages of SOURCES, installed by npm below `folder`."
    subprocess.run(
        [
            "npm",
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefix",
            folder,
            *(f"{n}@{v}" for n, v in SOURCES.items()),
        ],
        check=True,
    )
    return Path(folder) / "node_modules"


def compare(built, committed):
    "Names of the files that differ in bytes, each with whether the tables differ too."
    differing = [
        f for f in FILES if (built / f"{f}.parquet").read_bytes() != (committed / f"{f}.parquet").read_bytes()
    ]
    return {
        f: "same table, other bytes (another pyarrow?)"
        if pq.read_table(built / f"{f}.parquet").equals(pq.read_table(committed / f"{f}.parquet"))
        else "other content"
        for f in differing
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--packages",
        type=Path,
        help="node_modules with the packages of SOURCES (default: npm installs them aside)",
    )
    parser.add_argument("--out", type=Path, help="folder to write to")
    parser.add_argument(
        "--check", action="store_true", help="build aside and compare with the files beside this script"
    )
    args = parser.parse_args()
    if not args.check and not args.out:
        parser.error("say --check, or --out FOLDER")
    with tempfile.TemporaryDirectory() as aside:
        packages = args.packages or install(aside)
        check_versions(packages)
        out = args.out or Path(aside)
        out.mkdir(parents=True, exist_ok=True)
        for name, table in tables(packages):
            write(table, out / f"{name}.parquet")
            print(f"{name:<18} {len(table):>7,} rows", flush=True)
        if args.check:
            differing = compare(out, Path(__file__).parent)
            for name, how in differing.items():
                print(f"{name}: {how}")
            if any(how == "other content" for how in differing.values()):
                raise SystemExit(1)
            if not differing:
                print("byte for byte the committed files")


if __name__ == "__main__":
    main()
