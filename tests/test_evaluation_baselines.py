"Baselines without a network: against plain loops, their properties, bad input."

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.evaluation import BASELINES, baseline_embeddings, label_auc

TEXTS = st.lists(st.text("ab c", min_size=1, max_size=8), min_size=1, max_size=5).filter(
    lambda found: any(re.search(r"\w", text) for text in found)
)


def pictures(n=4, side=16, seed=0, channels=3):
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, channels), np.uint8)


def slow_pixels(images, side):
    "Box by box, in float64."
    out = []
    for image in images.astype(np.float64):
        step = len(image) // side
        boxes = [
            1 - image[i : i + step, j : j + step].mean((0, 1)) / 255
            for i in range(0, len(image), step)
            for j in range(0, len(image), step)
        ]
        row = np.concatenate(boxes)
        out.append(row / np.sqrt((row**2).sum()))
    return np.array(out)


def slow_cosine(a, b, pieces):
    "Cosine of two texts by the counts of their pieces."
    a, b = pieces(a), pieces(b)
    dot = sum(a.count(p) * b.count(p) for p in set(a))
    return dot / np.sqrt(sum(a.count(p) ** 2 for p in set(a)) * sum(b.count(p) ** 2 for p in set(b)))


def ngrams(text):
    text = re.sub(r"\s\s+", " ", text.lower())
    return [text[i : i + n] for n in (1, 2, 3) for i in range(len(text) - n + 1)]


@pytest.mark.parametrize("kind, side", [("pixels", 8), ("color", 1)])
def test_pictures_against_boxes(kind, side):
    (found,) = baseline_embeddings(kind, pictures())
    assert np.allclose(found, slow_pixels(pictures(), side), atol=1e-5)


@pytest.mark.parametrize(
    "kind, pieces", [("words", lambda t: re.findall(r"\w+", t.lower())), ("ngrams", ngrams)]
)
def test_texts_against_counts(kind, pieces):
    texts, others = ["red heart", "Red  circle", "the red red sea"], ["a heart", "red"]
    x, y = baseline_embeddings(kind, texts, others)
    for i, a in enumerate(texts):
        for j, b in enumerate(others):
            assert abs(float(x[i] @ y[j]) - slow_cosine(a, b, pieces)) < 1e-6


@settings(max_examples=30, deadline=None)
@given(TEXTS)
def test_rows_have_length_one_or_zero(texts):
    for kind in ("words", "ngrams"):
        (x,) = baseline_embeddings(kind, texts)
        length = np.linalg.norm(x, axis=1)
        assert ((np.abs(length - 1) < 1e-5) | (length == 0)).all() and x.dtype == np.float32


def test_parts_share_a_space_and_keep_their_rows():
    apart = baseline_embeddings("words", ["a b"], ["b c", "a"])
    (whole,) = baseline_embeddings("words", ["a b", "b c", "a"])
    assert np.array_equal(np.concatenate(apart), whole)
    halves = baseline_embeddings("pixels", pictures()[:1], pictures()[1:])
    assert np.array_equal(np.concatenate(halves), baseline_embeddings("pixels", pictures())[0])


def test_transparency_is_white_and_torch_is_taken():
    clear = pictures(channels=4)
    clear[..., 3] = 0
    assert not baseline_embeddings("pixels", clear)[0].any()
    same = baseline_embeddings("pixels", torch.from_numpy(pictures()))[0]
    assert np.array_equal(same, baseline_embeddings("pixels", pictures())[0])


def test_other_rows_change_nothing():
    alone, among = (baseline_embeddings("pixels", pictures()[:n])[0][0] for n in (1, 4))
    assert np.array_equal(alone, among)
    assert all(entry.reads in ("image", "text") and entry.title for entry in BASELINES.values())


@pytest.mark.parametrize(
    "kind, parts, says",
    [
        ("sound", (["a"],), "kind must be one of"),
        ("words", (), "something to embed"),
        ("words", (["", " "],), "a letter somewhere"),
        ("ngrams", ([1],), "texts must be strings"),
        ("pixels", (np.zeros((1, 12, 12, 3), np.uint8),), "divides"),
        ("pixels", (np.zeros((3, 12), np.uint8),), "pictures|images"),
    ],
)
def test_bad_input(kind, parts, says):
    with pytest.raises(ValueError, match=says):
        baseline_embeddings(kind, *parts)


def slow_auc(x, labels):
    "Pair by pair, in float64."
    unit = [np.asarray(v, float) / max(np.sqrt((np.asarray(v, float) ** 2).sum()), 1e-300) for v in x]
    out = []
    for i, a in enumerate(unit):
        own = [a @ b for j, b in enumerate(unit) if j != i and labels[j] == labels[i]]
        apart = [a @ b for j, b in enumerate(unit) if labels[j] != labels[i]]
        wins = [(s > t) + 0.5 * (s == t) for s in own for t in apart]
        out.append(np.mean(wins) if wins else np.nan)
    return np.array(out)


@pytest.mark.parametrize("seed", range(4))
def test_auc_of_labels_against_pairs(seed):
    random = np.random.default_rng(seed)
    x, labels = random.normal(size=(14, 3)), random.integers(0, 4, 14)
    assert np.allclose(label_auc(x, labels), slow_auc(x, labels), equal_nan=True)
    assert np.allclose(label_auc(torch.from_numpy(x), labels), label_auc(x, labels), equal_nan=True)


def test_auc_knows_chance_ties_and_single_labels():
    random = np.random.default_rng(0)
    assert abs(label_auc(random.normal(size=(400, 8)), np.arange(400) % 4).mean() - 0.5) < 0.02
    assert (label_auc(np.ones((6, 2)), [0, 0, 0, 1, 1, 1]) == 0.5).all()
    alone = label_auc(random.normal(size=(3, 2)), ["a", "a", "b"])
    assert np.isnan(alone[2]) and np.isfinite(alone[:2]).all()
    assert np.isnan(label_auc(random.normal(size=(3, 2)), [1, 1, 1])).all()


@pytest.mark.parametrize(
    "x, labels", [(np.ones(3), [1, 2, 3]), (np.ones((3, 2)), [1, 2]), ([[np.nan, 1]], [1])]
)
def test_auc_refuses(x, labels):
    with pytest.raises(ValueError):
        label_auc(x, labels)
