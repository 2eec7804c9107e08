"""Build the glosses of this folder from Debian's package of WordNet, byte for byte the committed file.

    python data/glosses/build.py --check             # build aside and compare with the committed file
    python data/glosses/build.py --out data/glosses  # build in place
    python data/glosses/build.py --wordnet /usr/share/wordnet --check   # from an installed wordnet-base

Needs apt-get and dpkg-deb (or --wordnet) and the Python packages pandas and pyarrow. Licence: NOTICE.md.
File written:
    glosses.parquet    synset ("n00001740"), words ("physical entity, thing"), gloss, split

A gloss is cut at its first example. Synsets that share a word (letter case aside) belong to one component,
and a component lies in one split. Test (5,000 synsets) and val (2,000) take whole components in the order of
a hash; a component enters them only if none of its glosses and lists of words stands anywhere else.
"""

import argparse
import hashlib
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pandas as pd

PACKAGE = "wordnet-base"  # WordNet 3.0
PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
HELD = {"test": 5000, "val": 2000}


def synsets(folder):
    "(synset, words, gloss) of every line of data."
    for letter, part in PARTS.items():
        for line in (folder / f"data.{part}").read_text(encoding="utf-8").splitlines():
            if line.startswith(" "):  # the licence
                continue
            facts, gloss = line.split(" | ", 1)
            fields = facts.split(" ")
            count = int(fields[3], 16)
            words = [re.sub(r"\(\w+\)$", "", w).replace("_", " ") for w in fields[4 : 4 + 2 * count : 2]]
            yield letter + fields[0], words, re.split(r'; *"', gloss, maxsplit=1)[0].strip().rstrip(";")


def components(words):
    "The number of the component of each synset: synsets that share a word are in one."
    parent = list(range(len(words)))

    def root(i):
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first = {}
    for i, own in enumerate(words):
        for word in own:
            parent[root(i)] = root(first.setdefault(word.lower(), i))
    return [root(i) for i in range(len(words))]


def splits(table):
    "Whole components in the order of a hash, until a split is full."
    times = Counter(zip(["gloss"] * len(table), table.gloss)) + Counter(
        zip(["words"] * len(table), table.words)
    )
    alone = [times["gloss", g] == 1 and times["words", w] == 1 for g, w in zip(table.gloss, table.words)]
    parts = table.assign(alone=alone).groupby("component")
    facts = parts.agg(size=("synset", "size"), first=("synset", "first"), alone=("alone", "all"))
    order = [hashlib.sha256(f"glosses-v1|{s}".encode()).hexdigest() for s in facts["first"]]
    facts = facts[facts.alone].assign(order=[o for o, a in zip(order, facts.alone) if a]).sort_values("order")
    found, room = {}, dict(HELD)
    for component, size in facts["size"].items():
        for split in room:
            if size <= room[split]:
                found[component] = split
                room[split] -= size
                break
    return table.component.map(found).fillna("train")


def build(wordnet, out):
    "Write the file."
    rows = list(synsets(wordnet))
    table = pd.DataFrame(dict(synset=[r[0] for r in rows], words=[", ".join(r[1]) for r in rows]))
    table = table.assign(gloss=[r[2] for r in rows], component=components([r[1] for r in rows]))
    table = table.assign(split=splits(table)).drop(columns="component")
    assert {s: int((table.split == s).sum()) for s in HELD} == HELD
    table.to_parquet(out / "glosses.parquet", index=False, compression="zstd", compression_level=19)


def unpacked(folder):
    "Debian's package, fetched and opened."
    subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["dpkg-deb", "-x", *folder.glob("*.deb"), folder], check=True)
    return folder / "usr/share/wordnet"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wordnet", type=Path, help="folder of an installed wordnet-base")
    parser.add_argument("--out", type=Path, help="folder to write")
    parser.add_argument("--check", action="store_true", help="compare with the committed file")
    a = parser.parse_args()
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        target = a.out or Path(folder)
        build(a.wordnet or unpacked(Path(folder)), target)
        if a.check and (target / "glosses.parquet").read_bytes() != (here / "glosses.parquet").read_bytes():
            raise SystemExit("the file differs from the committed one")
        print("as committed" if a.check else f"written: {target / 'glosses.parquet'}")


if __name__ == "__main__":
    main()
