"Geometry of embeddings against plain loops, closed forms and invariances."

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.as_printed.evaluation import thesis_similarity
from brace_nb.core import random_rotation
from brace_nb.evaluation import (
    alignment,
    coordinate_share,
    effective_rank,
    knn_overlap,
    mean_similarity,
    modality_accuracy,
    modality_gap,
    movement,
    participation_ratio,
    procrustes,
    separation,
    simplex_uniformity,
    sphere_uniformity,
    tuple_auc,
    tuple_similarity,
    uniformity,
)

quick = settings(max_examples=30, deadline=None)
shapes = st.tuples(st.integers(2, 12), st.integers(2, 9), st.integers(0, 10**6))


def noise(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def unit(x):
    return [[v / math.sqrt(sum(w * w for w in row)) for v in row] for row in x.tolist()]


def dot(u, v):
    return sum(a * b for a, b in zip(u, v))


def distance(u, v):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(u, v)))


def mean(values):
    return sum(values) / len(values)


def spread(values):
    return math.sqrt(mean([(w - mean(values)) ** 2 for w in values]))


@quick
@given(shapes, st.sampled_from([1, 2, 3.5]), st.sampled_from([0.5, 2, 8]))
def test_alignment_uniformity_gap(case, power, t):
    n, d, seed = case
    x, y = noise(n, d, seed), noise(n, d, seed + 1)
    a, b = unit(x), unit(y)
    assert math.isclose(
        alignment(x, y, power), mean([distance(u, v) ** power for u, v in zip(a, b)]), rel_tol=1e-9
    )
    assert math.isclose(
        uniformity(x, t),
        math.log(mean([math.exp(-t * distance(u, v) ** 2) for u, v in itertools.combinations(a, 2)])),
        rel_tol=1e-9,
        abs_tol=1e-9,
    )
    assert math.isclose(uniformity(x, t, chunk=1), uniformity(x, t), rel_tol=1e-12) and math.isclose(
        uniformity(x, t, chunk=2 * n), uniformity(x, t), rel_tol=1e-12
    )
    assert math.isclose(
        modality_gap(x, y),
        distance([mean(c) for c in zip(*a)], [mean(c) for c in zip(*b)]),
        rel_tol=1e-9,
        abs_tol=1e-12,
    )


def test_references_of_uniformity():
    assert (
        math.isclose(sphere_uniformity(512), -4 + 2 * 4 / 512, abs_tol=1e-4)
        and round(sphere_uniformity(512), 2) == -3.98
    )
    from scipy.special import hyp0f1

    for d, t in ((2, 2), (3, 0.5), (64, 10)):
        assert math.isclose(sphere_uniformity(d, t), math.log(hyp0f1(d / 2, t * t)) - 2 * t, rel_tol=1e-12)
    assert abs(uniformity(noise(3000, 16)) - sphere_uniformity(16)) < 0.01
    corners = np.eye(9) - 1 / 9
    assert math.isclose(uniformity(corners), simplex_uniformity(9), rel_tol=1e-9) and simplex_uniformity(
        9
    ) < sphere_uniformity(8)
    assert abs(uniformity(np.ones((4, 3)))) < 1e-12


@quick
@given(shapes)
def test_separation_is_the_full_matrix(case):
    n, d, seed = case
    n += 1
    x, y = noise(n, d, seed), noise(n, d, seed + 1)
    a, b = unit(x), unit(y)
    match, other = (
        [dot(u, v) for u, v in zip(a, b)],
        [dot(a[i], b[j]) for i in range(n) for j in range(n) if i != j],
    )
    got = separation(x, y)
    assert np.allclose(
        [got[k] for k in ("match", "other", "match_sd", "other_sd")],
        [mean(match), mean(other), spread(match), spread(other)],
        atol=1e-7,
    )
    assert math.isclose(
        got["d_prime"],
        (mean(match) - mean(other)) / math.sqrt((spread(match) ** 2 + spread(other) ** 2) / 2),
        rel_tol=1e-5,
    )


def test_modality_accuracy_finds_a_gap_and_no_other():
    x = noise(200, 16)
    y = x + 0.5 * noise(200, 16, 1)
    assert (
        modality_accuracy(x, y) < 0.65
        and modality_accuracy(x, y + 3) > 0.99
        and modality_accuracy(x, y, 3) == modality_accuracy(x, y, 3)
    )


@quick
@given(shapes)
def test_ranks(case):
    n, d, seed = case
    n += 1
    x = noise(n, d, seed)
    sigma = np.linalg.svd(x - x.mean(0), compute_uv=False)
    p = sigma / sigma.sum()
    p = p[p > 1e-15]
    assert math.isclose(effective_rank(x), math.exp(-(p * np.log(p)).sum()), rel_tol=1e-6)
    assert math.isclose(participation_ratio(x), (sigma**2).sum() ** 2 / (sigma**4).sum(), rel_tol=1e-9)
    for rank in (effective_rank, participation_ratio):
        assert 1 - 1e-9 <= rank(x) <= min(n - 1, d) + 1e-6
        assert math.isclose(rank(x), rank(5 * x @ random_rotation(d, seed) + 3), rel_tol=1e-6)


def test_the_mean_counts_as_a_direction_when_it_is_not_taken_out():
    x = noise(40, 6)
    assert effective_rank(x + 50, center=False) < 2 < 5 < effective_rank(x + 50)


@quick
@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.integers(0, 999))
def test_tuples_are_the_full_matrix(sizes, seed):
    sizes = [2, *sizes]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    x = noise(len(owner), 5, seed) + 1
    a, order = unit(x), np.random.default_rng(seed).permutation(len(owner))
    within = mean(
        [
            mean([dot(a[i], a[j]) for i in rows for j in rows if i != j])
            for k in range(len(sizes))
            if len(rows := np.flatnonzero(owner == k)) > 1
        ]
    )
    pairs = list(itertools.combinations(range(len(a)), 2))
    same, other = ([dot(a[i], a[j]) for i, j in pairs if (owner[i] == owner[j]) == s] for s in (True, False))
    got = tuple_similarity(x[order], np.array(list("abcdefgh"))[owner][order])
    assert (
        math.isclose(got["within"], within, abs_tol=1e-9)
        and math.isclose(got["between"], mean(other), abs_tol=1e-9)
        and math.isclose(got["gap"], within - mean(other), abs_tol=1e-9)
    )
    want = mean([(u > v) + 0.5 * (u == v) for u in same for v in other])
    assert math.isclose(tuple_auc(x, owner), want, abs_tol=1e-9) and math.isclose(
        tuple_auc(x, owner, chunk=7), want, abs_tol=1e-9
    )
    assert math.isclose(mean_similarity(x), mean([dot(a[i], a[j]) for i, j in pairs]), abs_tol=1e-9)
    assert math.isclose(thesis_similarity(x), (len(a) - 1) / len(a) * mean_similarity(x), abs_tol=1e-9)


def test_ties_count_half():
    x = np.repeat(np.eye(3), 2, 0)
    assert tuple_auc(x, [0, 0, 1, 1, 2, 2]) == 1 and tuple_auc(np.ones((6, 2)), [0, 0, 1, 1, 2, 2]) == 0.5


@quick
@given(shapes)
def test_rotations_leave_no_trace(case):
    n, d, seed = case
    x, R = noise(n, d, seed), random_rotation(d, seed)
    assert np.allclose(R @ R.T, np.eye(d)) and np.allclose(movement(x, x @ R, rigid=True), 0, atol=1e-7)
    y = noise(n, d, seed + 1)
    Q = procrustes(x, y)
    assert np.allclose(Q @ Q.T, np.eye(d), atol=1e-9)
    residual = (x**2).sum() + (y**2).sum() - 2 * np.linalg.svd(x.T @ y, compute_uv=False).sum()
    assert math.isclose((movement(x, y, rigid=True) ** 2).sum(), residual, rel_tol=1e-7, abs_tol=1e-9)
    assert (movement(x, y, rigid=True) ** 2).sum() <= (movement(x, y) ** 2).sum() + 1e-9
    assert np.allclose(movement(x, y), [distance(u, v) for u, v in zip(x.tolist(), y.tolist())])


@quick
@given(shapes, st.integers(1, 5))
def test_neighbors(case, k):
    n, d, seed = case
    n += 6
    x, y = noise(n, d, seed), noise(n, d + 2, seed + 1)

    def near(v):
        a = unit(v)
        return [
            set(sorted((j for j in range(n) if j != i), key=lambda j: -dot(a[i], a[j]))[:k]) for i in range(n)
        ]

    want = mean([len(p & q) / k for p, q in zip(near(x), near(y))])
    assert math.isclose(knn_overlap(x, y, k), want, abs_tol=1e-9) and knn_overlap(
        x, y, k, chunk=n
    ) == knn_overlap(x, y, k)
    assert knn_overlap(x, 3 * x @ random_rotation(d, seed), k) > 0.95


def test_coordinates_of_a_random_direction():
    x = noise(4000, 24)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for bound in (0.05, 24**-0.5, 0.5):
        assert abs((np.abs(x) > bound).mean() - coordinate_share(24, bound)) < 0.005
    assert coordinate_share(5, 1.0) == 0 and abs(coordinate_share(512, 512**-0.5) - 0.317) < 0.002


def test_kinds_dtypes_and_gradients():
    x, y = torch.randn(9, 4, requires_grad=True), torch.randn(9, 4)
    (alignment(x, y) + uniformity(x) + modality_gap(x, y) + mean_similarity(x)).backward()
    assert torch.isfinite(x.grad).all() and x.grad.norm() > 0
    a, b = (torch.tensor(noise(6, 3, s), requires_grad=True) for s in (0, 1))
    assert torch.autograd.gradcheck(
        lambda u, v: (alignment(u, v, 3), uniformity(u, chunk=12), modality_gap(u, v), mean_similarity(u)),
        (a, b),
    )
    assert (
        uniformity(y).dtype == torch.float32
        and isinstance(movement(y, y), torch.Tensor)
        and movement(y.half(), y.half()).dtype == torch.float32
    )
    assert isinstance(movement(y.numpy(), y.numpy()), np.ndarray) and isinstance(
        float(alignment(y.numpy(), y.numpy())), float
    )


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda x: uniformity(x[:1]), "at least 2 rows; got 1"),
        (lambda x: uniformity(x[0]), "must have the shape"),
        (lambda x: alignment(x, x[:3]), "pair row with row"),
        (lambda x: alignment(x * np.nan, x), r"x must be finite; rows \[0, 1, 2, 3, 4\]"),
        (lambda x: modality_gap(x, x[:, :2]), "with D = "),
        (lambda x: uniformity(np.vstack([x, x[:1] * 0])), r"rows \[8\] of zeros"),
        (lambda x: effective_rank(x[:1].repeat(4, 0)), "all equal"),
        (lambda x: tuple_similarity(x), "with `owner`"),
        (lambda x: tuple_similarity(x, np.arange(8)), "two members"),
        (lambda x: tuple_similarity(x, [0, 0, 1]), "one entry for each of 8"),
        (lambda x: knn_overlap(x, x, 8), "below the number of rows"),
        (lambda x: modality_accuracy(x[:3], x[:3]), "N>3"),
        (lambda x: coordinate_share(1, 0.5), "whole number >= 2"),
        (lambda x: movement(x, x[:, :2]), "one space"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call(noise(8, 4))
