"""Cut the embeddings of the lessons and pages out of the result of `foundations/encoder`.

    python data/embeddings/build.py            # write emoji.safetensors and emoji.json into this folder
    python data/embeddings/build.py --check    # compare the committed file with the encoder's result

Needs `make figures ONLY=foundations/encoder` first. 320 concepts that all four designers have drawn and all
four languages name, without people, flags, symbols and clocks: 176 that the encoder was trained on, 64 that
it was watched on, 80 it has never met; evenly spaced in the order of the concepts. Float16 of unit rows:
`image_<designer>` and `text_<language>`, (320, 256).
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from brace_nb.foundations import load_emoji

HERE = Path(__file__).resolve().parent
RESULT = HERE.parent / "derived/cpu/runs/foundations/encoder/out/output"
COUNTS = {"train": 176, "val": 64, "test": 80}
LEFT_OUT = ("People & Body", "Flags", "Symbols", "time")  # categories, and the subcategory of the clocks


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def chosen(arrays):
    "Ids of the concepts of the lessons."
    concepts = load_emoji().concepts
    whole = np.all([np.isfinite(a).all(1) for a in arrays.values()], axis=0)
    kept = whole & ~concepts[["category", "subcategory"]].isin(LEFT_OUT).any(axis=1).to_numpy()
    ids = []
    for split, count in COUNTS.items():
        there = concepts.index.to_numpy()[kept & (concepts["split"] == split).to_numpy()]
        ids += there[np.linspace(0, len(there) - 1, count).round().astype(int)].tolist()
    return np.array(sorted(ids))


def cut(result=RESULT):
    "Name -> the arrays of the committed file, out of the encoder's result."
    with np.load(Path(result) / "embeddings.npz") as file:
        arrays = {name: file[name] for name in file.files}
    ids = chosen(arrays)
    return {"id": ids} | {name: rows[ids].astype(np.float16) for name, rows in arrays.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the committed file, write nothing")
    arrays, path = cut(), HERE / "emoji.safetensors"
    if parser.parse_args().check:
        committed = load_file(path)
        same = committed.keys() == arrays.keys() and all((committed[k] == arrays[k]).all() for k in arrays)
        print(
            "the committed file is the encoder's" if same else "the committed file differs from the encoder's"
        )
        return not same
    save_file(arrays, path)
    facts = dict(
        experiment="foundations/encoder",
        profile="cpu",
        weights=digest(RESULT / "checkpoint/model.safetensors"),
        sha256=digest(path),
    )
    (HERE / "emoji.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{path.name}: {len(arrays['id'])} concepts, {path.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
