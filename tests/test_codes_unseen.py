"Unseen pairs: hits in plain loops, the steps from floats to codes, candidates."

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brace_nb.codes import (
    CodeEncoder,
    UnseenPairs,
    code_candidates,
    code_steps,
    encoder_hits,
    gloss_pairs,
    hits_interval,
    partner_hits,
)


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 3), st.integers(0, 999))
def test_hits_in_plain_loops(queries, items, k, seed):
    random = np.random.default_rng(seed)
    forward, backward = random.integers(0, 4, size=(2, queries, items)).astype(float)
    rows = random.integers(0, items, queries)
    expected = []
    for q, own in enumerate(rows):
        hit = 0.0
        for scores in (forward, backward):
            better = sum(1 for v in scores[q] if v > scores[q][own])
            tied = sum(1 for v in scores[q] if v == scores[q][own])  # the partner is one of them
            places = range(better + 1, better + tied + 1)  # which it takes with equal chance
            hit += 50.0 * sum(1 for place in places if place <= k) / tied
        expected.append(hit)
    assert partner_hits(forward, backward, rows, k) == pytest.approx(expected)


def test_bad_rows_and_the_interval():
    with pytest.raises(ValueError, match=r"rows must be in 0..2; got 0 to 3"):
        partner_hits(np.eye(3), np.eye(3), np.array([0, 1, 3]))
    low, mean, high = hits_interval(np.full((2, 5), 40.0))
    assert low == mean == high == 40


def world(n=300, features=24, seed=0):
    random = np.random.default_rng(seed)
    meaning = random.normal(size=(n + 120, 10))
    seen = meaning @ random.normal(size=(10, features))
    x, y = ((seen + 0.3 * random.normal(size=seen.shape)).astype(np.float32) for _ in range(2))
    rows = np.arange(n)
    held, test = ((x[i : i + 60], y[i : i + 60]) for i in (n, n + 60))
    return UnseenPairs("made up", x, y, np.stack([rows, rows], 1), held, test, np.arange(0, 60, 2))


def test_the_steps_are_those_of_the_encoder():
    w = world()
    corner = CodeEncoder.preset("best", dim=16, epochs=0, ridge=None).fit(*w.training)
    steps = code_steps(corner, *w.test)
    assert np.allclose(steps["non-negative"][0][0], corner.embed_images(w.test[0]), atol=1e-6)
    codes = corner.encode_texts(w.test[1])
    assert ((steps["corner, cosine"][0][1] > 0).numpy() == codes).all()
    scores = corner.scores(w.test[0], codes, "image")
    ask, told = steps["float query, corner"]
    assert np.allclose((ask[0] @ told[1].T).numpy(), scores, atol=1e-5)
    sign = CodeEncoder.preset("best", dim=16, epochs=0, ridge=None, container="sign").fit(*w.training)
    other = code_steps(sign, *w.test)["sign"][0]
    assert torch.equal(other[0] > 0, torch.from_numpy(sign.encode_images(w.test[0])))


@pytest.mark.parametrize("name, model", code_candidates(16, 2).items())
def test_candidates_find_unseen_partners(name, model):
    w = world()
    model.fit(*w.training)
    for floats in (False, True):
        hits = encoder_hits(model, w, floats)
        assert hits.shape == (30,) and hits.mean() > 15
    every = UnseenPairs(**vars(w) | dict(asked=np.arange(60)))
    for floats in (False, True):  # there a tie is a miss
        assert encoder_hits(model, every, floats).mean() >= 100 * model.recall(*w.test, floats=floats) - 1e-4


def test_gloss_pairs_come_from_a_file(tmp_path):
    sides = {f"{k}_{s}": np.eye(4) for k in ("words", "gloss") for s in ("train", "val", "test")}
    np.savez(tmp_path / "embeddings.npz", **sides)
    pairs = gloss_pairs(tmp_path, most=3)
    assert (
        len(pairs.asked) == 3 and pairs.title == "4 glosses of unseen words" and pairs.pairs.shape == (4, 2)
    )
