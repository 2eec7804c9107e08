"Invariance: firing thresholds, target-conditioned invariance, RIS, against plain loops and identities."

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.evaluation import (
    TRAJECTORIES,
    firing,
    invariance_score,
    target_invariance,
    trajectory,
)


def slow_firing(values, rate):
    "f and G of one unit."
    n = len(values)
    k = round(rate * n)
    ordered = sorted(values, reverse=True)
    t = (ordered[k - 1] + ordered[k]) / 2
    fires = [v > t for v in values]
    return fires, sum(fires) / n


def slow_scores(h, items, labels, ks, rate):
    "Every quantity by the definition: one unit, one class, one item, one view at a time."
    n_items, classes, units = max(items) + 1, sorted(set(labels)), h.shape[1]
    I, L, C, G, S = (np.zeros((len(classes), units)) for _ in range(5))
    for i in range(units):
        best = None
        for sign in (1, -1):
            fires, g = slow_firing((sign * h[:, i]).tolist(), rate)
            local, steady = [], []
            for y in classes:
                means = []
                for z in range(n_items):
                    if labels[z] == y:
                        own = [f for f, item in zip(fires, items) if item == z]
                        means.append(sum(own) / len(own))
                local.append(sum(means) / len(means))
                fired = [m for m in means if m > 0]
                steady.append(sum(fired) / len(fired) if fired else 0)
            invariance = [l / g if g else np.nan for l in local]
            if best is None or g and max(invariance) > best[0] + 1e-9:
                best = (max(invariance) if g else -1, invariance, local, steady, g, sign)
        I[:, i], L[:, i], C[:, i], G[:, i], S[:, i] = best[1], best[2], best[3], best[4], best[5]
    out = {}
    for k in ks:
        ris = np.mean([np.mean(sorted((v for v in row if not np.isnan(v)), reverse=True)[:k]) for row in I])
        steady = np.mean([np.mean(sorted(row, reverse=True)[:k]) for row in C])
        out[k] = dict(ris=ris, consistency=steady)
    return I, L, G[0], S[0], out


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n_items, classes, units = draw(st.integers(4, 12)), draw(st.integers(2, 4)), draw(st.integers(2, 7))
    count = rng.integers(1, 5, n_items)
    items = rng.permutation(np.repeat(np.arange(n_items), count))
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, max(n_items - classes, 0))])[
        :n_items
    ]
    h = rng.standard_normal((len(items), units))
    if draw(st.booleans()):
        h = h.round(0)  # ties
    return h, items, labels, draw(st.sampled_from([0.2, 0.34, 0.5]))


@settings(max_examples=120, deadline=None)
@given(problems())
def test_equals_plain_loops(problem):
    h, items, labels, rate = problem
    if not 0 < round(rate * len(h)) < len(h) or len(set(labels.tolist())) < 2:
        return
    I, L, G, S, want = slow_scores(h, items.tolist(), labels.tolist(), (1, 2), rate)
    found = target_invariance(h, labels, items, rate)
    assert np.allclose(found["invariance"], I, equal_nan=True, atol=1e-12) and np.allclose(
        found["realized"], G
    )
    assert (found["signs"] == S).all() and np.allclose(found["local"], L, atol=1e-12)
    if np.isnan(I).any():
        return  # dead units: K may exceed what is alive
    score = invariance_score(h, labels, items, ks=(1, 2), firing_rate=rate)
    for k in (1, 2):
        assert score[k]["ris"] == pytest.approx(want[k]["ris"], abs=1e-12) and score[k][
            "consistency"
        ] == pytest.approx(want[k]["consistency"], abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_balanced_classes_average_to_one_for_every_unit(classes, each, views, seed):
    rng = np.random.default_rng(seed)
    h = rng.standard_normal((classes * each, views, 9))
    if classes * each * views < 3:
        return
    found = target_invariance(
        h, np.arange(classes * each) % classes, firing_rate=max(1 / classes, 1 / (classes * each * views))
    )
    assert np.allclose(found["invariance"].mean(0), 1) and (found["invariance"] >= 0).all()
    assert (found["invariance"] <= 1 / found["realized"] + 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 60), st.floats(0.1, 0.9))
def test_thresholds_fire_exactly_k_without_ties_and_never_more_with_them(seed, n, rate):
    rng = np.random.default_rng(seed)
    k = round(rate * n)
    if not 0 < k < n:
        return
    fires, t, g = firing(rng.standard_normal((n, 4)), rate)
    assert (fires.sum(0) == k).all() and np.allclose(g, k / n)
    fires, t, g = firing(rng.integers(0, 3, (n, 4)), rate)
    assert (fires.sum(0) <= k).all() and np.allclose(g, fires.mean(0))
    assert firing(np.ones((n, 1)), rate)[2] == 0  # a constant never fires


def test_neighboring_numbers_are_told_apart():
    one = np.nextafter(1, 2)
    fires, t, _ = firing(np.array([[1.0], [one]]), 0.5)
    assert fires[:, 0].tolist() == [False, True]


def test_scale_and_shift_change_nothing_and_torch_equals_numpy():
    rng = np.random.default_rng(0)
    h, labels = rng.standard_normal((20, 3, 30)), rng.permutation(np.arange(20) % 4)
    score = invariance_score(h, labels, permutations=5)
    other = invariance_score(h * rng.choice([0.5, 3.0], 30) + rng.standard_normal(30), labels, permutations=5)
    assert score[10]["ris"] == pytest.approx(other[10]["ris"]) and score[10]["z"] == pytest.approx(
        other[10]["z"]
    )
    assert (
        invariance_score(torch.from_numpy(h), torch.from_numpy(labels), permutations=5)
        == score
        == invariance_score(h.reshape(60, 30), labels, np.repeat(np.arange(20), 3), permutations=5)
    )
    assert score["firing_rate"] == 0.25 and score["realized"] == (0.25, 0.25, 0.25) and score["dead"] == 0


def test_many_classes_keep_the_rate_at_five_per_cent():
    rng = np.random.default_rng(0)
    assert invariance_score(rng.standard_normal((80, 2, 30)), np.arange(80) % 40)["firing_rate"] == 0.05


def test_null_without_structure_and_gap_with_it():
    rng = np.random.default_rng(1)
    labels, noise = np.arange(60) % 5, rng.standard_normal((60, 4, 40))
    score = invariance_score(noise, labels, permutations=60, seed=3)
    assert abs(score[10]["z"]) < 4 and score[10]["ris_null"] > 1.1  # the best ten are good by luck
    structured = noise + 3 * np.eye(5)[labels][:, None, :].repeat(8, -1)
    assert invariance_score(structured, labels, permutations=60, seed=3)[10]["z"] > 20
    perfect = invariance_score(
        np.eye(5)[labels][:, None, :].repeat(4, 1).repeat(5, -1) + 1e-6 * rng.random((60, 4, 25)),
        labels,
        ks=[5],
    )
    assert (
        perfect[5]["ris"] == pytest.approx(5)
        and perfect[5]["ris_norm"] == pytest.approx(1)
        and perfect[5]["consistency"] == 1
    )


def test_the_null_moves_whole_items():
    "Views of an item stay together: one unit that fires on one item only, and its class decides."
    h = np.zeros((4, 3, 1))
    h[0] = 1
    score = invariance_score(h, [0, 0, 1, 1], ks=[1], firing_rate=0.25, permutations=30)[1]
    assert score["ris_null"] == score["ris"] == 1 and score["ris_null_sd"] == 0 and np.isnan(score["z"])


def test_consistency_sees_what_ris_cannot():
    flicker, steady = np.tile([1.0, 0], (8, 4)), np.repeat([1.0, 0], 4)[:, None] * np.ones((8, 8))
    scores = [
        invariance_score(
            np.concatenate([f, np.zeros((8, 8))])[..., None], np.repeat([0, 1], 8), ks=[1], firing_rate=0.25
        )[1]
        for f in (flicker, steady)
    ]
    assert (
        scores[0]["ris"] == scores[1]["ris"] == 1
        and scores[0]["consistency_of_top"] < scores[1]["consistency_of_top"]
    )


R = np.random.default_rng(0).standard_normal((6, 2, 4))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: invariance_score(R[0], [0, 1]), "items, views, units"),
        (lambda: invariance_score(R, [0] * 6, ks=[1]), "at least two classes"),
        (lambda: invariance_score(R, [0, 1]), "one for each of 6 items"),
        (lambda: invariance_score(R, [0, 1] * 3, ks=[5]), "K must be at most.*got 5 for 4 units"),
        (lambda: invariance_score(R, [0, 1] * 3, ks=[0]), "ks must be a whole number >= 1"),
        (lambda: invariance_score(R * np.nan, [0, 1] * 3, ks=[1]), r"finite; rows \[0, 1"),
        (lambda: invariance_score(R.reshape(12, 4), [0, 1] * 3, np.arange(12) + 1, ks=[1]), "without gaps"),
        (lambda: invariance_score(R.reshape(12, 4), [0, 1] * 3, np.arange(6), ks=[1]), "12 whole numbers"),
        (lambda: invariance_score(np.full((2, 2, 2), "a"), [0, 1]), "must be real numbers"),
        (lambda: firing(R[:, 0], 1.0), "firing_rate must"),
        (lambda: invariance_score(np.ones((6, 2, 4)), [0, 1] * 3, ks=[1]), "4 never fire"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_trajectories_start_with_the_picture_and_move_it():
    rgba = np.zeros((2, 8, 8, 4), np.uint8)
    rgba[0, 3:5, 3:5] = (200, 30, 10, 255)
    for name, one in TRAJECTORIES.items():
        views = one.views
        v = trajectory(rgba, name)
        assert v.shape == (2, len(views), 8, 8, 3) and v.dtype == np.uint8 and (v[1] == 255).all()
        assert np.abs(v[0, 0].astype(int) - np.where(rgba[0, ..., 3:] > 0, rgba[0, ..., :3], 255)).max() <= 1
        assert all((v[0, i] != v[0, 0]).any() for i in range(1, len(views)))
    right = trajectory(rgba, "translation")[0, 1]
    assert (255 - right[..., 1].astype(float)).sum(0) @ np.arange(8) > (
        255 - trajectory(rgba, "translation")[0, 0, ..., 1].astype(float)
    ).sum(0) @ np.arange(8)
    with pytest.raises(ValueError, match="trajectory must be one of"):
        trajectory(rgba, "mirror")
