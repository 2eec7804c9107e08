"""Write data/embeddings/emoji_map.npz, which the page "A map of the emoji" reads.

It needs results of the default profile: `make figures ONLY=codes/heads`, then `python nbs/_book/map_data.py`.
Arrays, in the order of the tuples; views are four designers' pictures, then names in four languages:
`places` uint16 (views, concepts, 2), t-SNE on 0..65534, 65535 where there is no picture;
`codes` uint8 (views, concepts, bytes), packed codes of the heads of `codes/heads`, seed 0;
`near` uint16 (designers, languages, concepts, 5), the names with the largest cosine to a picture;
`digest` uint8 (32), of the embeddings: another machine may train another encoder.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np

from brace_nb.codes import CodeEncoder, pack
from brace_nb.companion import root
from brace_nb.foundations import DESIGNERS

LANGUAGES = ("en", "es", "sw", "zh")
NONE = 65535
NEIGHBORS = 5


def nearest_names(pictures: np.ndarray, names: np.ndarray) -> np.ndarray:
    "Row numbers of the names with the largest cosine, best first; the first of equals."
    order = (-(pictures @ names.T)).argsort(1, kind="stable")
    return order[:, :NEIGHBORS]


def places_of(views: list[np.ndarray]) -> list[np.ndarray]:
    "Places in the plane of every row of every view, by one t-SNE of all of them."
    from sklearn.manifold import TSNE

    there = [np.isfinite(x).all(1) for x in views]
    rows = np.concatenate([x[t] for x, t in zip(views, there)])
    found = TSNE(2, init="pca", metric="cosine", perplexity=30, max_iter=600, random_state=0).fit_transform(
        rows
    )
    found -= found.min(0)
    found = np.rint(found / found.max() * (NONE - 1)).astype(np.uint16)
    parts = iter(np.split(found, np.cumsum([t.sum() for t in there])[:-1]))
    places = [np.full((len(t), 2), NONE, np.uint16) for t in there]
    for place, t in zip(places, there):
        place[t] = next(parts)
    return places


def codes_of(views: list[np.ndarray], model: CodeEncoder) -> list[np.ndarray]:
    "Packed codes; no bit where there is no picture."
    found = []
    for number, x in enumerate(views):
        encode = model.encode_images if number < len(DESIGNERS) else model.encode_texts
        there = np.isfinite(x).all(1)
        codes = np.zeros((len(x), model.dim // 8), np.uint8)
        codes[there] = pack(encode(x[there]))
        found.append(codes)
    return found


def near_of(views: list[np.ndarray]) -> np.ndarray:
    "The nearest names of every picture in every language."
    pictures, names = views[: len(DESIGNERS)], views[len(DESIGNERS) :]
    near = np.full((len(pictures), len(names), len(pictures[0]), NEIGHBORS), NONE, np.uint16)
    for d, x in enumerate(pictures):
        there = np.isfinite(x).all(1)
        for j, y in enumerate(names):
            near[d, j, there] = nearest_names(x[there], y)
    return near


RUNS = root() / "data/derived/cpu/runs"
EMBEDDINGS = RUNS / "foundations/encoder/out/output/embeddings.npz"
HEADS = RUNS / "codes/heads/out/output/seed-0.safetensors"


def read_results() -> tuple:
    "The embeddings of all views, and the heads."
    stored = np.load(EMBEDDINGS)
    views = [stored[f"image_{d}"] for d in DESIGNERS] + [stored[f"text_{lang}"] for lang in LANGUAGES]
    return views, CodeEncoder.load(HEADS)


def digest_of(views: list[np.ndarray]) -> np.ndarray:
    "What tells these embeddings from others."
    whole = hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in views))
    return np.frombuffer(whole.digest(), np.uint8)


def main() -> int:
    "Read the encoder's and the heads' results, write the file."
    views, model = read_results()
    target = Path(root() / "data/embeddings/emoji_map.npz")
    target.parent.mkdir(exist_ok=True)
    arrays = dict(codes=codes_of(views, model), near=near_of(views), digest=digest_of(views))
    arrays |= dict(places=places_of(views))
    np.savez_compressed(target, **arrays)
    print(f"{target.relative_to(root())}: {target.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
