"Codes without learning."

import math

import faiss
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from brace_nb.codes import quantizers
from brace_nb.codes import (
    ProductQuantizer,
    itq_rotation,
    random_directions,
    rotation_codes,
    sign_codes,
    topk_codes,
)

numbers = st.integers(1, 9).flatmap(
    lambda d: arrays(
        np.float32, st.tuples(st.integers(0, 5), st.just(d)), elements=st.integers(-4, 4).map(float)
    )
)


@given(numbers, st.integers(0, 10**6))
def test_sign_codes_equal_the_plain_loop(x, seed):
    random = np.random.default_rng(seed)
    mean = random.integers(-3, 3, x.shape[1]).astype(np.float32)
    rotation = random.integers(-2, 3, (x.shape[1], 4)).astype(np.float32)
    assert (
        sign_codes(x) == np.array([[v > 0 for v in row] for row in x], bool).reshape(x.shape)
    ).all() and sign_codes(x).dtype == bool
    assert (
        sign_codes(x, mean)
        == np.array([[v > m for v, m in zip(row, mean)] for row in x], bool).reshape(x.shape)
    ).all()
    turned = np.array(
        [
            [
                sum((float(v) - float(m)) * float(rotation[i, j]) for i, (v, m) in enumerate(zip(row, mean)))
                > 0
                for j in range(4)
            ]
            for row in x
        ],
        bool,
    ).reshape(len(x), 4)
    assert (sign_codes(x, mean, rotation) == turned).all()
    assert (
        sign_codes(torch.from_numpy(x), torch.from_numpy(mean), torch.from_numpy(rotation)).numpy() == turned
    ).all()


@given(numbers, st.data())
def test_topk_codes_equal_the_plain_loop(x, data):
    k = data.draw(st.integers(1, x.shape[1]))
    expected = np.zeros(x.shape, bool)
    for i, row in enumerate(x):
        for j in sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]:
            expected[i, j] = True
    assert (
        (topk_codes(x, k) == expected).all()
        and (topk_codes(torch.from_numpy(x), k).numpy() == expected).all()
        and (expected.sum(-1) == k).all()
    )


@pytest.mark.parametrize("dim, bits", [(16, 16), (16, 5), (8, 20), (1, 3)])
def test_random_rotations_are_orthonormal_and_repeat(dim, bits):
    R = random_directions(dim, bits, seed=4)
    assert R.shape == (dim, bits) and (R == random_directions(dim, bits, seed=4)).all()
    for start in range(0, bits, dim):
        part = R[:, start : start + dim]
        assert np.allclose(part.T @ part, np.eye(part.shape[1]), atol=1e-6)
    x = np.random.default_rng(0).normal(size=(7, dim)).astype(np.float32)
    assert (rotation_codes(x, bits, seed=4, mean=x.mean(0)) == ((x - x.mean(0)) @ R > 0)).all()


def test_rotation_codes_estimate_angles():
    "Random hyperplanes separate two vectors with probability angle/pi (Charikar 2002)."
    x, y = (v / np.linalg.norm(v) for v in np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32))
    y = x + 0.5 * y
    differ = np.mean([(rotation_codes(x, 64, s) != rotation_codes(y, 64, s)).mean() for s in range(60)])
    assert differ == pytest.approx(
        math.acos(x @ y / np.linalg.norm(y) / np.linalg.norm(x)) / math.pi, abs=0.02
    )


def test_itq_is_the_alternation_of_the_paper_and_lowers_its_error():
    random = np.random.default_rng(2)
    x = (random.normal(size=(400, 10)) * np.linspace(3, 0.5, 10)) @ random_directions(
        10, 10, 7
    ) + random.normal(size=10)
    v = x - x.mean(0)
    _, _, w = np.linalg.svd(v, full_matrices=False)
    best = []
    for iterations in (0, 1, 5, 50):
        P = itq_rotation(x, 6, iterations, seed=3).astype(float)
        assert np.allclose(P.T @ P, np.eye(6), atol=1e-5) and np.allclose(
            w[:6].T @ (w[:6] @ P), P, atol=1e-4
        )  # a rotation within the first principal components
        z = v @ P
        best.append(((np.sign(z) - z) ** 2).sum())
    assert best[0] > best[1] > best[2] >= best[3] * (1 - 1e-6)
    P = itq_rotation(x, 6, 500, seed=3).astype(float)
    z = v @ P
    B = np.sign(z)
    u, _, t = np.linalg.svd(z.T @ B)
    assert np.allclose(u @ t, np.eye(6), atol=0.02)  # fixed point: no better rotation for these codes
    codes = sign_codes(x, x.mean(0), itq_rotation(x, 6))
    assert codes.shape == (400, 6)
    assert (itq_rotation(torch.from_numpy(x), 6) == itq_rotation(x, 6)).all()


def test_lists_frames_and_foreign_bytes_give_the_same_codes():
    x = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    for same in x.tolist(), pd.DataFrame(x), x.astype(">f4"), x[::-1].copy()[::-1], x.astype(np.longdouble):
        for codes in (sign_codes, lambda v: topk_codes(v, 2), lambda v: rotation_codes(v, 8)):
            assert (codes(same) == codes(x)).all()
    assert (itq_rotation(x.tolist(), 3) == itq_rotation(x, 3)).all()


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda x: topk_codes(x, 0), "k must be in 1..5"),
        (lambda x: topk_codes(x, 6), "got 6"),
        (lambda x: sign_codes(x * np.nan), "rows [0, 1, 2] hold NaN"),
        (lambda x: random_directions(4, 0), "bits must be a whole number >= 1; got 0"),
        (lambda x: random_directions(4, 8, 2**63), "seed must be a whole number from 0 to 2^63 - 1"),
        (lambda x: itq_rotation(x, 6), "(3, 5) and bits=6"),
        (lambda x: itq_rotation(x, 4), "(3, 5) and bits=4"),
        (lambda x: itq_rotation(x[0], 1), "(5,)"),
    ],
)
def test_baselines_refuse(call, says):
    with pytest.raises(ValueError) as error:
        call(np.ones((3, 5), np.float32))
    assert says in str(error.value)


def test_directions_are_dealt_so_that_pieces_vary_alike():
    x = np.random.default_rng(0).normal(size=(2000, 6)) * [32.0, 16.0, 8.0, 4.0, 2.0, 1.0]
    directions = ProductQuantizer(3, steps=1).fit(x)._rotation
    assert np.allclose(directions.T @ directions, np.eye(6), atol=1e-5)
    spread = np.log2((x @ directions).std(0)).reshape(3, 2)  # 5 and 0, 4 and 1, 3 and 2, in some order
    assert np.abs(spread.sum(1) - 5).max() < 0.2 and np.ptp(spread[:, 0]) > 1.5


def test_a_rotation_lowers_the_error_of_product_quantization():
    x = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32) * [9, 7, 1, 1, 1, 1, 0.1, 0.1]

    def error(q):
        return np.square(q.restored(x) - q.turned(x)).sum(1).mean()

    assert error(ProductQuantizer(2).fit(x)) < 0.9 * error(ProductQuantizer(2, rotate=False).fit(x))


@pytest.mark.parametrize("pieces", [2, 16, 32])
def test_centers_are_those_of_faiss_in_one_call(pieces):
    x = np.random.default_rng(pieces).normal(size=(700, 32)).astype(np.float32)
    theirs = faiss.ProductQuantizer(32, pieces, 8)
    theirs.cp.seed, theirs.cp.niter, theirs.cp.min_points_per_centroid = 1239, 5, 1
    theirs.train(x)
    own = ProductQuantizer(pieces, rotate=False, seed=5, steps=5).fit(x)
    expected = theirs.decode(theirs.compute_codes(x))
    assert np.isclose(own.restored(x), expected, atol=1e-4).mean() > 0.99
    error, known = (np.square(y - x).mean() for y in (own.restored(x), expected))
    assert abs(error / known - 1) < 1e-3


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 2), (2100, 4, 6), (7, 1, 16)])
def test_nearest_centers_are_those_of_all_distances(shape):
    n, pieces, d = shape
    draw = np.random.default_rng(n)
    x = draw.integers(-3, 4, size=(n, pieces * d)).astype(np.float32)  # with ties
    centers = draw.integers(-3, 4, size=(pieces, 256, d)).astype(np.float32)
    found = quantizers.nearest_centers(x, centers)
    for i in range(0, n, 97):
        for p in range(pieces):
            away = [((x[i, p * d : (p + 1) * d].astype(float) - c) ** 2).sum() for c in centers[p]]
            assert found[i, p] == int(np.argmin(away))  # of equal ones the first
