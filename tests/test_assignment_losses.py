"Assignment losses against plain loops, gradients, completion, attribution."

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from test_assignment_cycles import walk

from brace_nb.assignment import (
    LOSSES,
    LOSS_SOLVERS,
    assign,
    assignment_loss,
    attribution,
    best_permutation,
    complete_permutation,
    descent_direction,
    learning_rate_factor,
)

quick = settings(max_examples=60, deadline=None)


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def oracle(x, p, kind, size):
    "Every loss as its formula says, in plain loops; x is square (padded), size the real shape."
    n, L, (h, w) = len(x), walk(p), size
    A = sum(x[i][p[i]] for i in range(n))
    U = sum(x[i][j] for i in range(n) for j in range(n) if j != p[i])
    ce = 0
    for i in range(min(h, w)):
        ce += math.log(sum(math.exp(x[i][j]) for j in range(w))) - x[i][i]
        ce += math.log(sum(math.exp(x[j][i]) for j in range(h))) - x[i][i]
    ce /= min(h, w)
    v = {
        "base": sum(L[i] * x[i][p[i]] for i in range(n)),
        "v1": U - A,
        "v1_ratio": U / A,
        "v2": sum((L[i] - 1) * abs(x[i][p[i]]) for i in range(n)),
        "v2_literal": sum(L[i] * abs(x[i][p[i]]) for i in range(n)),
        "v3": sum(L[i] * abs(x[i][p[i]]) for i in range(n)) + U,
    }
    return ce if kind == "ce" else v[kind] if kind in v else v[kind.removeprefix("combined_")] + ce


def best(x):
    "The permutation of largest total, by trying all."
    return max(itertools.permutations(range(len(x))), key=lambda p: sum(x[i, p[i]] for i in range(len(x))))


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("size", [(1, 1), (2, 2), (5, 5), (3, 5), (5, 2)])
def test_losses_equal_plain_loops(kind, size):
    for seed in range(4):
        x = random(*size, seed=seed)
        if kind == "v1_ratio":
            x = abs(x)
        n = max(size)
        square = np.zeros((n, n))
        square[: size[0], : size[1]] = x
        p = best_permutation(x)
        if size[0] == size[1]:
            assert tuple(p) == best(x)
        assert assignment_loss(x, kind) == pytest.approx(
            oracle(square, list(p), kind, size), rel=1e-12, abs=1e-12
        )


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("method", [*LOSS_SOLVERS, "greedy_best", "argbest", "gumbel", "sinkhorn"])
def test_batches_kinds_and_types(kind, method):
    x = abs(random(2, 3, 6, 6, seed=1))
    found = assignment_loss(x, kind, method)
    assert found.shape == (2, 3) and found.dtype == np.float64
    if method != "gumbel":  # its noise depends on the place in the batch
        for at in np.ndindex(2, 3):
            assert found[at] == pytest.approx(assignment_loss(x[at], kind, method), rel=1e-12)
    t = assignment_loss(torch.from_numpy(x), kind, method)
    assert isinstance(t, torch.Tensor) and np.array_equal(t.numpy(), found)
    f = assignment_loss(
        torch.from_numpy(x).float(), kind, method, perm=best_permutation(torch.from_numpy(x), method)
    )
    assert f.dtype == torch.float32 and np.allclose(f.numpy(), found, rtol=1e-4)
    assert np.allclose(
        assignment_loss(x, kind, method, factor=True),
        found * learning_rate_factor(best_permutation(x, method)),
    )


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("factor", [False, True])
def test_gradients(kind, factor):
    x = torch.from_numpy(abs(random(2, 5, 5, seed=3)) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: assignment_loss(x, kind, factor=factor), x, eps=1e-7)
    assert torch.equal(descent_direction(x, kind), -torch.autograd.grad(assignment_loss(x, kind).sum(), x)[0])
    rectangle = torch.from_numpy(abs(random(3, 5, seed=4)) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: assignment_loss(x, kind), rectangle, eps=1e-7)


def test_straight_through():
    x = torch.from_numpy(random(4, 6, 6, seed=5)).requires_grad_()
    for method, o in (("gumbel", dict(temperature=0.5)), ("sinkhorn", dict(temperature=0.1))):
        soft = assignment_loss(x, "v2", method, straight_through=True, **o)
        p = best_permutation(x, method, **({"coldest": 0.1} if method == "sinkhorn" else o))
        hard = assignment_loss(x, "v2", perm=p)
        assert torch.allclose(soft, hard)
        g, h = (torch.autograd.grad(l.sum(), x)[0] for l in (soft, hard))
        assert g.isfinite().all() and not torch.allclose(g, h)
    wide = torch.from_numpy(random(3, 5, seed=6)).requires_grad_()
    soft = assignment_loss(wide, "v3", "sinkhorn", straight_through=True)
    assert (
        torch.isclose(soft, assignment_loss(wide, "v3", "sinkhorn"))
        and torch.autograd.grad(soft, wide)[0].isfinite().all()
    )
    for method in (m for m in ("exact", "greedy_delta", "greedy_best", "argbest", "recursive_top2")):
        with pytest.raises(ValueError, match="no straight-through gradient"):
            assignment_loss(x, "v2", method, straight_through=True)


@quick
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 10**6))
def test_completion(h, w, seed):
    r = np.random.default_rng(seed)
    x, y, n = np.round(r.normal(size=(h, w)), 1), r.random((h, w)) < 0.4, max(h, w)
    p = complete_permutation(x, y)
    assert sorted(p) == list(range(n))
    s, m, free, cols = np.zeros((n, n)), np.zeros((n, n), bool), set(range(n)), set(range(n))
    s[:h, :w], m[:h, :w] = x, y
    want = {}
    for chosen in (
        True,
        False,
    ):  # chosen cells first, then the rest; largest first, lowest row and column at ties
        for value, i, j in sorted((-s[i, j], i, j) for i in range(n) for j in range(n) if m[i, j] == chosen):
            if i in free and j in cols:
                want[i] = j
                free.remove(i)
                cols.remove(j)
    assert p.tolist() == [want[i] for i in range(n)]


@pytest.mark.parametrize("shape", [(4, 9, 9), (4, 5, 8), (4, 8, 5)])
@pytest.mark.parametrize("method", ["exact", "greedy_delta", "greedy_best", "sinkhorn", *LOSS_SOLVERS])
def test_permutation_keeps_valid_answers(method, shape):
    x = random(*shape, seed=7)
    p = best_permutation(x, method)
    assert (np.sort(p) == np.arange(max(shape[-2:]))).all()
    if method in ("v3", "v4"):
        return
    a = assign(x, True, method)
    assert np.take_along_axis(p, a.rows, -1).tolist() == a.cols.tolist()


@quick
@given(st.integers(2, 9), st.integers(0, 10**6))
def test_minima_and_symmetries(n, seed):
    r = np.random.default_rng(seed)
    x, q = r.random((n, n)) + 0.01, r.permutation(n)
    for kind in ("v1", "v1_ratio"):
        assert assignment_loss(x[:, q], kind) == pytest.approx(
            assignment_loss(x, kind)
        )  # blind to which permutation
    for kind in ("base", "v2", "v2_literal", "v3"):
        assert assignment_loss(x / 2, kind) <= assignment_loss(x, kind) and assignment_loss(0 * x, kind) == 0
    d = x + n * np.eye(n)  # the identity is optimal
    assert assignment_loss(d, "v2") == 0 and learning_rate_factor(best_permutation(d)) == 1
    assert assignment_loss(d, "base") == pytest.approx(np.trace(d)) and assignment_loss(
        d, "v3"
    ) == pytest.approx(d.sum())
    for kind in ("base", "v1", "v2", "v3", "ce"):
        assert assignment_loss(x.T, kind) == pytest.approx(
            assignment_loss(x, kind)
        )  # a valid permutation is symmetric
    assert 1 <= learning_rate_factor(best_permutation(x)) <= n and assignment_loss(x, "v1") < 2 * x.sum()


@quick
@given(st.integers(2, 9), st.integers(0, 10**6), st.floats(0, 5))
def test_silence_is_the_minimum_of_v3_even_with_cross_entropy(n, seed, scale):
    x = torch.from_numpy(np.random.default_rng(seed).random((n, n)) * scale + 1e-9)
    assert descent_direction(x, "ce").abs().max() < 2 / n and (descent_direction(x, "combined_v3") < 0).all()
    assert assignment_loss(x, "combined_v3") > assignment_loss(0 * x, "combined_v3") and assignment_loss(
        0 * x, "combined_v3"
    ) == pytest.approx(2 * math.log(n))


@pytest.mark.parametrize("kind", ["base", "v1", "v1_ratio", "v2", "v2_literal", "v3"])
def test_contributions_sum_to_the_loss(kind):
    x = abs(random(3, 4, 7, seed=8))
    for method in ("exact", "v3"):
        assert np.allclose(attribution(x, kind, method).sum((-2, -1)), assignment_loss(x, kind, method))
    p = best_permutation(x)
    assert np.array_equal(attribution(x, kind, perm=p), attribution(x, kind)) and attribution(
        x, kind
    ).shape == (3, 7, 7)


def test_attribution_of_cross_entropy():
    x = random(4, 4, seed=9)
    row = [math.log(sum(math.exp(v) for v in x[i])) - x[i, i] for i in range(4)]
    col = [math.log(sum(math.exp(v) for v in x[:, i])) - x[i, i] for i in range(4)]
    assert np.allclose(attribution(x, "ce"), np.outer(row, col))


def test_plateau():
    for missing in range(11):
        d = np.diag([0.0] * missing + [60.0] * (10 - missing))
        assert assignment_loss(d, "ce") / 2 == pytest.approx(missing * math.log(10) / 10)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: assignment_loss(x, "v7"), "kind must be one of ce, base, .*; got 'v7'"),
        (lambda x: attribution(x, "v7"), "kind must be one of"),
        (lambda x: assignment_loss(x, "v2", "hungarian"), "method must be one of"),
        (lambda x: assignment_loss(x[0], "v2"), "shape"),
        (lambda x: assignment_loss(x * np.nan, "ce"), "NaN"),
        (lambda x: assignment_loss(x - np.inf, "v1"), "must be finite"),
        (lambda x: assignment_loss(-abs(x), "v1_ratio"), "must be positive"),
        (lambda x: assignment_loss(x, "v2", perm=np.arange(3)), "one column per row"),
        (lambda x: assignment_loss(x, "v2", perm=np.zeros(4, int)), "must occur once"),
        (
            lambda x: assignment_loss(
                torch.from_numpy(x), "v2", "gumbel", perm=torch.arange(4), straight_through=True
            ),
            "has no gradient",
        ),
        (lambda x: assignment_loss(x, "v2", "gumbel", straight_through=True), "floating-point tensor"),
        (lambda x: complete_permutation(x, np.eye(3)), "matrix must have the shape"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(random(4, 4))


@pytest.mark.gpu
def test_losses_on_cuda():
    x = torch.from_numpy(abs(random(3, 6, 6, seed=11))).cuda().requires_grad_()
    for kind in LOSSES:
        for method in LOSS_SOLVERS:
            loss = assignment_loss(x, kind, method)
            assert loss.device == x.device and torch.allclose(
                loss.cpu(), assignment_loss(x.detach().cpu(), kind, method)
            )
            assert torch.autograd.grad(loss.sum(), x)[0].isfinite().all()
