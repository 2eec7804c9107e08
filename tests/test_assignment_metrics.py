"Metrics of assignments against plain loops, their identities, and bad input."

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import linear_sum_assignment

from brace_nb.as_printed.assignment import legacy_scores, legacy_scores_from_counts, printed_scores
from brace_nb.assignment import (
    DISTRIBUTIONS,
    agreement,
    agreement_from_counts,
    check_cost,
    is_valid,
    line_faults,
    sample_matrices,
    solution_quality,
    to_matrix,
    total_score,
)

quick = settings(max_examples=60, deadline=None)
shapes = st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(0, 10**6))


def optimum(cost):
    return to_matrix(*linear_sum_assignment(cost), cost.shape)


def loop_scores(y, t):
    h, w = y.shape
    both = sum(float(y[i, j]) * float(t[i, j]) for i in range(h) for j in range(w))
    ours, theirs = sum(float(a) for a in y.ravel()), sum(float(a) for a in t.ravel())
    error = sum((float(y[i, j]) - float(t[i, j])) ** 2 for i in range(h) for j in range(w)) / (h * w)
    return (
        both / ours if ours else 0,
        both / theirs if theirs else 0,
        2 * both / (ours + theirs) if ours + theirs else 0,
        error,
        1 - ours / min(h, w),
    )


def loop_legacy(y, t):
    h, w = y.shape
    both = sum(float(y[i, j]) * float(t[i, j]) for i in range(h) for j in range(w))
    return both / min(h, w), both / max(h, w), 2 * both / (h + w)


@quick
@given(shapes)
def test_scores_equal_loops(s):
    h, w, seed = s
    r = np.random.default_rng(seed)
    for y in (r.random((h, w)) < 0.4, r.random((h, w)), np.zeros((h, w)), np.ones((h, w))):
        for t in (r.random((h, w)) < 0.3, optimum(r.random((h, w)))):
            np.testing.assert_allclose(agreement(y, t), loop_scores(y, t), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(legacy_scores(y, t), loop_legacy(y, t), rtol=1e-12, atol=1e-12)


@quick
@given(shapes)
def test_identities(s):
    h, w, seed = s
    r = np.random.default_rng(seed)
    k, t, y = min(h, w), optimum(r.random((h, w))), optimum(r.random((h, w)))
    both, legacy = agreement(y, t), legacy_scores(y, t)
    assert both.precision == both.recall == both.f1 and both.missed == 0
    assert both.error == pytest.approx(2 * k * (1 - both.f1) / (h * w))
    assert legacy.recall == pytest.approx(legacy.precision * k / max(h, w))
    assert agreement(t, t) == (1, 1, 1, 0, 0) and legacy_scores(t, t).f1 == pytest.approx(2 * k / (h + w))
    for z in (y, r.random((h, w)), r.random((h, w)) < 0.5):
        alpha, sigma = printed_scores(z, t)
        assert alpha == pytest.approx(sigma) and alpha == pytest.approx(agreement(z, t).recall)


def test_stated_normalizers():
    "The exact solver against itself under the thesis's normalizer."
    for h, w, says in ((11, 12, 0.957), (11, 84, 0.232), (66, 84, 0.88), (20, 20, 1)):
        t = optimum(np.random.default_rng(0).random((h, w)))
        assert float(legacy_scores(t, t).f1) == pytest.approx(says, abs=5e-4)


@quick
@given(shapes)
def test_validity_and_faults(s):
    h, w, seed = s
    r = np.random.default_rng(seed)
    y = r.random((h, w)) < 1.2 / max(h, w)
    rows, cols = y.sum(1), y.sum(0)
    assert is_valid(y) == (max(rows) <= 1 and max(cols) <= 1 and y.sum() == min(h, w))
    short = rows if h <= w else cols
    assert line_faults(y) == (sum(short == 0), sum(rows > 1) + sum(cols > 1))
    assert is_valid(optimum(r.random((h, w))))


def test_to_matrix():
    y = to_matrix(np.array([[0, 1], [1, -1]]), np.array([[2, 0], [1, -1]]), (2, 3))
    np.testing.assert_array_equal(y, [[[0, 0, 1], [1, 0, 0]], [[0, 0, 0], [0, 1, 0]]])
    assert isinstance(to_matrix(torch.tensor([0]), torch.tensor([0]), (1, 1)), torch.Tensor)
    for bad in ([2], [-2]):
        with pytest.raises(ValueError, match="inside a matrix of 2 x 3"):
            to_matrix(bad, [0], (2, 3))


def test_total_and_quality():
    r = np.random.default_rng(3)
    cost = r.random((5, 4, 6))
    truth, pred = np.stack([optimum(c) for c in cost]), np.stack([optimum(c) for c in r.random((5, 4, 6))])
    got = [sum(c[i, j] for i in range(4) for j in range(6) if y[i, j]) for c, y in zip(cost, pred)]
    best = [c[y].sum() for c, y in zip(cost, truth)]
    np.testing.assert_allclose(total_score(cost, pred), got)
    q = solution_quality(cost, pred, truth)
    np.testing.assert_allclose(q.error, [(g - b) / b for g, b in zip(got, best)])
    np.testing.assert_allclose(
        q.skill, [(g - 4 * c.mean()) / (b - 4 * c.mean()) for g, b, c in zip(got, best, cost)]
    )
    assert total_score(np.array([[math.inf, 1]]), np.array([[0, 1]])) == 1
    skills = []
    for _ in range(300):
        c = r.random((20, 20))
        skills.append(solution_quality(c, np.eye(20)[r.permutation(20)], optimum(c)).skill)
    assert abs(np.mean(skills)) < 0.02


def test_distributions():
    for kind in DISTRIBUTIONS:
        x = sample_matrices(kind, (3, 200, 200), seed=1)
        assert (
            x.dtype == torch.float32
            and x.shape == (3, 200, 200)
            and torch.equal(x, sample_matrices(kind, (3, 200, 200), seed=1))
        )
        assert not torch.equal(x, sample_matrices(kind, (3, 200, 200), seed=2))
    detr, half = sample_matrices("detr", (200, 1000)), sample_matrices("half_normal", (200, 1000))
    assert abs(detr.mean() - 5.5) < 0.02 and abs(detr.std() - 2.5) < 0.02
    assert abs(half.mean() - 0.2394) < 0.002 and abs((half > 0.9).double().mean() - 0.0027) < 0.0005
    with pytest.raises(ValueError, match="uniform, normal, detr"):
        sample_matrices("cauchy", (2, 2))


@pytest.mark.parametrize(
    "cost, says",
    [
        ([[math.nan, 1]], "NaN"),
        ([[-math.inf, 1]], "flip `maximize`"),
        ([1.0, 2], r"\(\.\.\., rows, columns\)"),
        (np.zeros((3, 0, 2)), "row and a column at least"),
        ([["a", "b"]], "real numbers"),
        ([[1j]], "real numbers"),
        ([[None]], "real numbers"),
        (torch.tensor([[math.nan]]).to(torch.float8_e4m3fn), "NaN"),
    ],
)
def test_bad_cost(cost, says):
    with pytest.raises(ValueError, match=says):
        check_cost(cost)


def test_good_costs():
    for dtype in (np.float16, np.float32, np.float64, ">f4", np.int8, np.uint16, bool):
        assert check_cost(np.ones((2, 3), dtype)).shape == (2, 3)
    check_cost([[-math.inf, 1]], maximize=True)
    check_cost(torch.ones(2, 2).to(torch.float8_e5m2))
    assert check_cost(np.zeros((3, 0, 2)), empty=True).shape == (3, 0, 2)
    with pytest.raises(ValueError, match=r"matrices \[\(0, 1\)\]"):
        check_cost(np.array([[[[0.0]], [[math.nan]]]]))


def test_bad_scores():
    with pytest.raises(ValueError, match="one shape"):
        agreement(np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="softmax"):
        agreement(2 * np.ones((2, 2)), np.ones((2, 2)))


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3)])
def test_counts_say_as_much_as_matrices(shape):
    r = np.random.default_rng(0)
    for density in (0, 0.1, 0.5, 1):
        y = r.random((20, *shape)) < density
        t = np.stack([to_matrix(*linear_sum_assignment(r.random(shape)), shape) for _ in range(20)])
        counts = (y & t).sum((-2, -1)), y.sum((-2, -1)), shape
        for a, b in zip(agreement_from_counts(*counts), agreement(y, t), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)
        for a, b in zip(legacy_scores_from_counts(*counts), legacy_scores(y, t), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)
    with pytest.raises(ValueError, match="Swap"):
        agreement_from_counts(3, 2, shape)


def test_reversed_views_are_read():
    "A row read backwards has a negative stride, which torch refuses."
    x = np.arange(6.0).reshape(1, 6)
    assert np.array_equal(check_cost(x[:, ::-1]).numpy(), x[:, ::-1]) and check_cost(x[::-1]).shape == (1, 6)
