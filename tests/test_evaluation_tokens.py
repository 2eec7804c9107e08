"Tokens: distances, stability indices, token score, against plain loops."

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import spearmanr

from brace_nb.as_printed.evaluation import thesis_sigma
from brace_nb.companion import PALETTE, style
from brace_nb.evaluation import (
    STABILITY,
    StabilityIndex,
    instability,
    jaccard_stability,
    near_and_far,
    nogueira_stability,
    spearman_interval,
    token_distances,
    token_scores,
)


def test_distances_equal_a_loop_and_ignore_what_was_not_seen():
    rng = np.random.default_rng(0)
    x, seen = rng.standard_normal((30, 5)), [1, 4, 7, 29]
    mean = sum(x[i] for i in seen) / 4
    d = token_distances(x, seen)
    assert np.isnan(np.delete(d, seen)).all() and d[seen] == pytest.approx(
        [np.sqrt(((x[i] - mean) ** 2).sum()) for i in seen]
    )
    assert token_distances(torch.from_numpy(x).requires_grad_(), center="origin") == pytest.approx(
        np.linalg.norm(x, axis=1)
    )
    wild = x.copy()
    wild[0] = 1e9  # not seen: moves nothing
    assert token_distances(wild, seen)[seen] == pytest.approx(d[seen])


def test_near_and_far_break_ties_by_id_and_never_overlap():
    near, far = near_and_far(np.array([2.0, 1, np.nan, 1, 5, 5]), 2)
    assert near.tolist() == [1, 3] and far.tolist() == [4, 5]


def slow_nogueira(sets, v):
    r = len(sets)
    z = np.array([[float(f in s) for f in range(v)] for s in sets])
    p, k = z.mean(0), z.sum(1).mean()
    return 1 - sum(r / (r - 1) * p[f] * (1 - p[f]) for f in range(v)) / v / ((k / v) * (1 - k / v))


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 6), st.integers(1, 6), st.integers(0, 10**6))
def test_stability_indices_equal_plain_loops(runs, k, seed):
    rng = np.random.default_rng(seed)
    sets = [rng.choice(12, k, replace=False) for _ in range(runs)]
    pairs = [len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in itertools.combinations(sets, 2)]
    assert jaccard_stability(sets) == pytest.approx(np.mean(pairs)) and nogueira_stability(
        sets, 12
    ) == pytest.approx(slow_nogueira(sets, 12))
    union, common = set().union(*sets), set(sets[0]).intersection(*sets)
    assert instability(sets) == (
        pytest.approx((len(union) - len(common)) / len(common) / runs) if common else np.inf
    )
    for name, index in STABILITY.items():
        assert index.function([sets[0]] * runs, 12) == pytest.approx(index.identical), name


def test_random_sets_are_at_chance_and_the_thesis_score_divides_by_zero():
    rng = np.random.default_rng(0)
    values = [
        nogueira_stability([rng.choice(200, 20, replace=False) for _ in range(10)], 200) for _ in range(200)
    ]
    assert abs(np.mean(values)) < 0.005
    assert (
        thesis_sigma([1, 2], [3]) == np.inf
        and np.isnan(thesis_sigma([], []))
        and thesis_sigma([1, 2, 3], [3, 4], runs=2) == 1.5
    )
    assert instability([[1], [2]]) == np.inf and np.isnan(nogueira_stability([[0, 1], [0, 1]], 2))


def slow_scores(near, far, majority):
    out = []
    for r in range(len(near)):
        product = 1
        for sets in (near, far):
            others = [set(s) for i, s in enumerate(sets) if i != r]
            votes = {t: sum(t in o for o in others) for t in set().union(*others)}
            agreed = {
                t
                for t, n in votes.items()
                if (n == len(others) if majority >= 1 else n > majority * len(others))
            }
            product *= len(agreed & set(sets[r])) / len(sets[r])
        out.append(product)
    return out


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 6), st.integers(1, 5), st.sampled_from([0.3, 0.5, 1.0]), st.integers(0, 10**6))
def test_token_scores_equal_a_loop(runs, k, majority, seed):
    rng = np.random.default_rng(seed)
    near, far = ([rng.choice(8, k, replace=False) for _ in range(runs)] for _ in range(2))
    assert token_scores(near, far, majority) == pytest.approx(slow_scores(near, far, majority))
    assert (token_scores(near, far, majority, leave_one_out=False) >= 0).all()


def test_own_vote_inflates_the_thesis_score():
    near = [[0, 1], [2, 3], [4, 5]]
    assert (token_scores(near, near, majority=0.3) == 0).all() and (
        token_scores(near, near, majority=0.3, leave_one_out=False) == 1
    ).all()


def test_spearman_equals_scipy_and_its_interval_covers():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(40).round(1)
    y = x + rng.standard_normal(40)
    rho, low, high = spearman_interval(x, y)
    assert rho == pytest.approx(spearmanr(x, y).statistic) and low < rho < high
    hits = [
        l <= 0 <= h
        for _, l, h in (
            spearman_interval(rng.standard_normal(30), rng.standard_normal(30), 400, seed=s)
            for s in range(100)
        )
    ]
    assert np.mean(hits) > 0.85 and spearman_interval(np.ones(5), np.arange(5))[0] == 0


def test_runs_of_a_group_are_one_draw():
    "Unrelated columns that share an effect of six groups: runs taken for independent miss 0 too often."
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(6), 5)
    naive, grouped = [], []
    for s in range(200):
        x, y = (rng.standard_normal(6)[groups] + 0.3 * rng.standard_normal(30) for _ in "xy")
        for found, g in ((naive, None), (grouped, groups)):
            rho, low, high = spearman_interval(x, y, 200, seed=s, groups=g)
            found.append(low <= 0 <= high)
            assert rho == pytest.approx(spearmanr(x, y).statistic) and -1 <= low <= rho <= high <= 1
    assert np.mean(naive) < 0.75 and np.mean(grouped) > 0.9


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: token_distances(np.zeros(3)), "must have the shape"),
        (lambda: token_distances(np.zeros((3, 2)), [3]), "from 0 to 2"),
        (lambda: token_distances(np.zeros((3, 2)), center="median"), "center"),
        (lambda: near_and_far(np.arange(5.0), 3), "half of the 5"),
        (lambda: near_and_far(np.arange(5.0), 0), "k must"),
        (lambda: jaccard_stability([[1]]), "two runs"),
        (lambda: jaccard_stability([[1], []]), "at least one token"),
        (lambda: nogueira_stability([[1], [2]], 1), "vocabulary"),
        (lambda: token_scores([[1], [2]], [[1], [2], [3]]), "same runs"),
        (lambda: spearman_interval([1, 2, 3], [1, 2, 3]), "R>3"),
        (lambda: spearman_interval([1, 2, 3, np.nan], [1, 2, 3, 4]), "finite"),
        (lambda: spearman_interval([1, 2, 3, 4], [1, 2, 3, 4], groups=[0, 0, 0, 0]), "at least two groups"),
        (lambda: spearman_interval([1, 2, 3, 4], [1, 2, 3, 4], groups=[0, 1]), "groups"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_index_of_stability_is_one_cell(monkeypatch):
    facts = dict(formula="|intersection|/|union|", source="a test", identical=1.0, random=0.0, color="green")
    index = StabilityIndex(
        title="all in common",
        function=lambda sets, vocabulary: len(set.intersection(*map(set, sets))) / len(set().union(*sets)),
        **facts,
    )
    monkeypatch.setitem(STABILITY, "common", index)
    assert STABILITY["common"].function([[1, 2], [2, 3]], 9) == 1 / 3
    test_stability_indices_equal_plain_loops()
    assert style(index)["color"] == PALETTE["green"]
