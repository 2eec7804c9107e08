"Every solver against a plain-loop oracle of its definition, SciPy, its certificate and promises."

import inspect
import itertools
import math
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import linear_sum_assignment

from brace_nb.assignment import (
    METHODS,
    PRESETS,
    AssignmentMethod,
    Parameter,
    SELECTIONS,
    assign,
    cost_of_picking,
    costs_to_scores,
    gumbel_rounds,
    is_valid,
    match_batch,
    priced_assignment,
    recurse,
    sample_matrices,
    sinkhorn_plan,
    straight_through_assignment,
    to_matrix,
    upper_bound,
)
from brace_nb.companion import PALETTE, style
from brace_nb.core import count

quick = settings(max_examples=80, deadline=None)
VALID = [
    m for m in METHODS if METHODS[m].valid or m.startswith("recursive")
]  # the default selection of the recursive ones is valid


@st.composite
def costs(draw, least=1, most=8, ties=True):
    h, w, seed = draw(st.integers(least, most)), draw(st.integers(least, most)), draw(st.integers(0, 10**6))
    r = np.random.default_rng(seed)
    return (
        r.integers(-3, 6, (h, w)).astype(float) if ties and draw(st.booleans()) else r.standard_normal((h, w))
    )


def pairs(a):
    return [(int(i), int(j)) for i, j in zip(a.rows, a.cols) if i >= 0]


def mask(a, shape):
    return to_matrix(a.rows, a.cols, shape)


def on_any_device(scores, method, **options):
    "Pairs of the form in torch, which tensors elsewhere than on the CPU take."
    rows, cols, _ = METHODS[method].solve(torch.from_numpy(scores)[None], 1.0, options)
    return list(zip(rows[0].tolist(), cols[0].tolist()))


# ---------------------------------------------------------------- oracles: plain loops over scores


def slow_delta(C, q):
    h, w = C.shape
    S = C.T if h >= w else C
    slices, cells, out = list(range(len(S))), list(range(S.shape[1])), []
    while slices:
        best = None
        for i in slices:
            x = sorted((S[i, j] for j in cells), reverse=True)[:q]
            key = 0 if len(x) == 1 else abs(np.diff(x, n=len(x) - 1)[0])
            if best is None or key > best[0]:
                best = key, i
        i = best[1]
        j = max(cells, key=lambda j: (S[i, j], -j))
        slices.remove(i)
        cells.remove(j)
        out.append((j, i) if h >= w else (i, j))
    return sorted(out)


def slow_best(C):
    rows, cols, out = list(range(C.shape[0])), list(range(C.shape[1])), []
    while rows and cols:
        i, j = max(((i, j) for i in rows for j in cols), key=lambda p: (C[p], -p[0], -p[1]))
        rows.remove(i)
        cols.remove(j)
        out.append((i, j))
    return sorted(out)


def slow_argbest(C):
    h, w = C.shape
    if h >= w:
        return sorted((max(range(h), key=lambda i: (C[i, j], -i)), j) for j in range(w))
    return [(i, max(range(w), key=lambda j: (C[i, j], -j))) for i in range(h)]


def slow_picking(X):
    h, w = X.shape
    return np.array(
        [
            [
                max(X[i, a] for a in range(w) if a != j) + max(X[a, j] for a in range(h) if a != i)
                for j in range(w)
            ]
            for i in range(h)
        ]
    )


def slow_select(X, select):
    h, w = X.shape
    if select == "argmax":
        return slow_argbest(X)
    if select == "stepped":
        return slow_best(X)
    if select == "topk":
        return sorted(sorted(itertools.product(range(h), range(w)), key=lambda p: (-X[p], p))[: min(h, w)])
    return sorted(
        {(i, int(X[i].argmax())) for i in range(h)} | {(int(X[:, j].argmax()), j) for j in range(w)}
    )


def slow_gumbel_without_noise(C):
    h, w = C.shape
    S = C.T if h >= w else C
    rows, cols, out = set(range(len(S))), set(range(S.shape[1])), []
    while rows:
        wish = {i: max(cols, key=lambda j: (S[i, j], -j)) for i in rows}
        for j in set(wish.values()):
            i = max((i for i in rows if wish[i] == j), key=lambda i: (S[i, j], -i))
            out.append((i, j))
        rows -= {i for i, j in out}
        cols -= {j for i, j in out}
    return sorted((j, i) if h >= w else (i, j) for i, j in out)


# ---------------------------------------------------------------- exact


@quick
@given(costs(most=10), st.booleans())
def test_exact_equals_scipy_and_proves_itself(C, maximize):
    a = assign(C, maximize)
    assert a.total == pytest.approx(C[linear_sum_assignment(C, maximize)].sum(), abs=1e-9)
    assert a.valid and is_valid(mask(a, C.shape)) and a.gap < 1e-9 and list(a.rows) == sorted(a.rows)


@pytest.mark.parametrize(
    "shape", [(40, 30, 30), (10, 90, 90), (10, 20, 70), (10, 70, 20), (3, 1, 9), (3, 9, 1), (2, 257, 257)]
)
@pytest.mark.parametrize("kind", ["uniform", "detr", "integers", "equal", "e4m3"])
def test_exact_on_larger_ones(shape, kind):
    r = np.random.default_rng(1)
    C = {
        "uniform": lambda: r.random(shape),
        "detr": lambda: r.normal(5.5, 2.5, shape).astype(np.float32),
        "integers": lambda: r.integers(0, 9, shape),
        "equal": lambda: np.ones(shape),
        "e4m3": lambda: torch.rand(shape).to(torch.float8_e4m3fn).float().numpy(),
    }[kind]()
    a = assign(C)
    np.testing.assert_allclose(
        a.total, [c[linear_sum_assignment(c)].sum() for c in C.astype(float)], rtol=1e-12
    )
    assert a.valid.all() and is_valid(mask(a, C.shape)).all() and (a.gap <= 1e-9 * abs(a.total) + 1e-9).all()


@quick
@given(st.integers(1, 12), st.integers(3, 9), st.integers(0, 70), st.integers(0, 10**6), st.floats(0, 0.7))
def test_wide_matrices_are_proved_by_their_prices(h, times, more, seed, share):
    "Three times as many columns as rows and more are searched over the columns with owners alone."
    r, shape = np.random.default_rng(seed), (h, h * times + more)
    kinds = r.random(shape), r.integers(0, 3, shape) / 1.0, np.outer(r.random(h), r.random(shape[1]))
    for C in (*kinds, 1 + 1e-9 * r.random(shape), 1e150 * r.normal(size=shape)):
        C[r.random(shape) < share] = math.inf
        C[np.arange(h), r.permutation(shape[1])[:h]] = C[C < math.inf].max(initial=1)
        a = assign(C)
        best = C[linear_sum_assignment(C)].sum()
        size = abs(C[C < math.inf]).max() * h
        assert a.valid and is_valid(mask(a, C.shape)) and abs(a.total - best) <= 1e-14 * size
        assert a.gap <= 1e-14 * size
        (rows, cols, *_), u, v = priced_assignment(C)
        assert (v <= 0).all() and (u[:, None] + v <= C + 1e-14 * size).all()
        assert (abs((u[:, None] + v - C)[rows, cols]) <= 1e-14 * size).all()
        for x, maximize, sign in ((C.T, False, 1), (-C, True, -1), (torch.from_numpy(C), False, 1)):
            assert abs(sign * float(assign(x, maximize).total) - best) <= 1e-14 * size


@quick
@given(costs(most=7), st.integers(0, 10**6), st.floats(0.1, 0.8))
def test_forbidden_cells(C, seed, share):
    C = np.where(np.random.default_rng(seed).random(C.shape) < share, math.inf, C)
    try:
        best = C[linear_sum_assignment(C)].sum()
    except ValueError:
        best = None
    for method in METHODS:
        if best is None:
            with pytest.raises(ValueError, match="no assignment without a forbidden cell"):
                assign(C, method=method)
            continue
        a = assign(C, method=method)
        if method == "exact":
            assert a.valid and a.total == pytest.approx(best)
        if a.valid:
            assert np.isfinite(a.total) and a.gap >= a.total - best - 1e-9
        else:
            assert np.isnan(a.gap)
        b = assign(-C, True, method=method)
        assert np.array_equal(a.rows, b.rows) and np.array_equal(a.cols, b.cols) and a.valid == b.valid


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(5, 4, 4), (5, 3, 6), (5, 6, 3), (5, 1, 4), (5, 4, 1), (1, 3, 3)])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_a_matrix_without_an_assignment_in_a_batch_is_marked(method, shape, kind):
    C = np.random.default_rng(0).random(shape)
    possible = assign(C, method=method, noise=0)
    C[-1] = math.inf
    a = assign(kind(C), method=method, noise=0)
    assert not a.valid[-1] and np.isnan(float(a.gap[-1]))
    for field, want in zip(a, possible):
        assert np.array_equal(np.asarray(field)[:-1], want[:-1], equal_nan=want.dtype.kind == "f")
    with pytest.raises(ValueError, match="no assignment without a forbidden cell"):
        assign(kind(C)[-1], method=method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("select", SELECTIONS)
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1), (3, 1, 6), (3, 6, 1)])
def test_one_row_or_column_takes_its_best_cell(method, select, shape):
    C = np.random.default_rng(1).random(shape)
    for cost in (C, C.astype(np.float32), torch.from_numpy(C)):
        a = assign(cost, True, method, select=select, noise=0)
        assert a.rows.shape == (*shape[:-2], 1) and np.asarray(a.valid).all()
        assert np.allclose(np.asarray(a.total), C.max((-2, -1))) and np.allclose(np.asarray(a.gap), 0)


@pytest.mark.parametrize("method", [*METHODS, lambda scores: scores])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3), (2, 3, 0), (0, 3, 4), (2, 0, 3, 4)])
def test_empty_matrices_have_the_empty_assignment(method, shape):
    for cost in (np.zeros(shape), np.zeros(shape, np.float32), torch.zeros(shape), np.zeros(shape, int)):
        a, lead, k = assign(cost, method=method, steps=None), shape[:-2], min(shape[-2:])
        assert a.rows.shape == a.cols.shape == (*lead, k) and a.valid.shape == a.total.shape == lead
        assert a.rows.dtype in (np.int64, torch.int64) and np.asarray(a.valid).all()
        assert not np.asarray(a.total).any() and not np.asarray(a.gap).any()
        assert isinstance(a.rows, type(cost))
    if len(shape) == 2:
        assert [i.shape for i in linear_sum_assignment(np.zeros(shape))] == [a.rows.shape, a.cols.shape]


# ---------------------------------------------------------------- approximate methods against loops


@quick
@given(costs(), st.integers(2, 5))
def test_greedy_delta_equals_loops(C, q):
    assert pairs(assign(C, True, "greedy_delta", lookahead=q)) == slow_delta(C, q)
    assert on_any_device(C, "greedy_delta", lookahead=q) == slow_delta(C, q)


@quick
@given(costs())
def test_greedy_best_equals_loops(C):
    assert pairs(assign(C, True, "greedy_best")) == slow_best(C)
    assert on_any_device(C, "greedy_best") == slow_best(C)


@pytest.mark.parametrize("shape", [(6, 40, 40), (6, 60, 17), (6, 17, 60)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_greedy_on_larger_ones(shape, dtype):
    for C in (torch.rand(shape, dtype=dtype), torch.randint(0, 9, shape).to(dtype)):
        for q in (2, 3):
            a = assign(C, True, "greedy_delta", lookahead=q)
            assert [list(zip(r.tolist(), c.tolist())) for r, c in zip(a.rows, a.cols)] == [
                slow_delta(c, q) for c in C.numpy()
            ]
        a = assign(C, True, "greedy_best")
        assert [list(zip(r.tolist(), c.tolist())) for r, c in zip(a.rows, a.cols)] == [
            slow_best(c) for c in C.numpy()
        ]


@quick
@given(costs())
def test_argbest_and_quiet_gumbel_equal_loops(C):
    a = assign(C, True, "argbest")
    assert pairs(a) == slow_argbest(C) and a.valid == is_valid(mask(a, C.shape))
    assert pairs(assign(C, True, "gumbel", noise=0)) == slow_gumbel_without_noise(C)


@quick
@given(costs(least=2))
def test_cost_of_picking_equals_loops(C):
    x = torch.from_numpy(C)
    np.testing.assert_array_equal(cost_of_picking(x), slow_picking(C))
    assert torch.equal(cost_of_picking(x), cost_of_picking(x, extend=True))
    assert torch.equal(cost_of_picking(4 * x), 4 * cost_of_picking(x))


@quick
@given(
    costs(least=2),
    st.integers(0, 6),
    st.sampled_from([0.8, 1.0, 2.0, 10.0]),
    st.sampled_from(sorted(SELECTIONS)),
)
def test_recursive_equals_loops(C, steps, factor, select):
    X = C.copy()
    for _ in range(steps):
        X = (X - slow_picking(X) * (1 / factor)) * 2.0 ** -math.frexp(abs(X).max())[1]
    for method in ("recursive_top2", "recursive_extend"):
        a = assign(C, True, method, steps=steps, factor=factor, select=select)
        assert pairs(a) == slow_select(X, select) and a.valid == is_valid(mask(a, C.shape))
    np.testing.assert_array_equal(recurse(torch.from_numpy(C), steps, factor), X)


@pytest.mark.parametrize("preset", PRESETS)
def test_methods_one_and_two_are_equal(preset):
    for shape in ((20, 12, 12), (20, 5, 11), (20, 11, 5)):
        for x in (
            sample_matrices("uniform", shape),
            sample_matrices("normal", shape),
            torch.randint(0, 4, shape),
        ):
            a, b = (assign(x, True, m, **PRESETS[preset]) for m in ("recursive_extend", "recursive_top2"))
            assert torch.equal(a.rows, b.rows) and torch.equal(a.cols, b.cols)


def test_recursion_does_not_overflow():
    "Unscaled float32 with factor 1 overflows after 110 steps."
    a = assign(sample_matrices("uniform", (2, 150, 150)), True, "recursive_top2", **PRESETS["v2"])
    assert a.cols.unique().numel() > 50 and a.total.isfinite().all()


def test_recursion_memory_is_that_of_the_matrix():
    x = sample_matrices("uniform", (1, 1200, 900)).numpy()
    assign(x, True, "recursive_top2", steps=2)
    tracemalloc.start()
    assign(x, True, "recursive_top2", steps=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * x.nbytes  # the extension alone would take 2100 times as much


def test_sinkhorn_plan():
    s = sample_matrices("uniform", (5, 8, 12))
    plan = sinkhorn_plan(s, 200, 0.05)
    assert torch.allclose(plan.sum(-1), torch.ones(5, 8), atol=1e-3) and (plan.sum(-2) < 1.001).all()
    x = sample_matrices("uniform", (50, 15, 15))
    best = assign(x, True).total
    assert (assign(x, True, "sinkhorn").total / best).mean() > 0.99


# ---------------------------------------------------------------- promises


@quick
@given(costs(least=2), st.sampled_from(VALID), st.booleans())
def test_valid_and_certified(C, method, maximize):
    a, best, sign = assign(C, maximize, method), assign(C, maximize).total, 1 if maximize else -1
    loss = sign * (best - a.total)
    assert a.valid and is_valid(mask(a, C.shape)) and -1e-9 <= loss <= a.gap + 1e-9
    assert a.total == pytest.approx(C[mask(a, C.shape)].sum())
    gaps = [assign(C, maximize, method, sweeps=n).gap for n in (0, 1, 3, 9)]
    assert sorted(gaps, reverse=True) == gaps and gaps[-1] >= loss - 1e-9


@quick
@given(costs())
def test_sweeps_prove_an_optimum(C):
    a = assign(C, True)
    rows, cols = (torch.from_numpy(i) for i in a[:2])
    assert upper_bound(torch.from_numpy(C), rows, cols, sweeps=40) == pytest.approx(a.total, abs=1e-9)


@quick
@given(costs(most=2), st.integers(0, 10**6))
def test_greedy_delta_is_exact_with_two_slices(C, seed):
    wide = np.random.default_rng(seed).standard_normal((min(C.shape), 9))
    for c in (C, wide, wide.T):
        assert assign(c, True, "greedy_delta").total == pytest.approx(assign(c, True).total)


@quick
@given(costs(ties=False))
def test_greedy_best_is_half_and_ordinal(C):
    C = abs(C)
    a = assign(C, True, "greedy_best")
    assert 2 * a.total >= assign(C, True).total - 1e-9
    assert (
        pairs(a)
        == pairs(assign(C**3, True, "greedy_best"))
        == pairs(assign(np.log(C + 0.1), True, "greedy_best"))
    )


@quick
@given(costs(ties=False))
def test_transposition(C):
    for method in ("exact", "greedy_best"):
        assert pairs(assign(C.T, True, method)) == sorted((j, i) for i, j in pairs(assign(C, True, method)))


@pytest.mark.parametrize("shape", [(8, 8), (40, 40), (3, 9), (9, 3), (2, 8, 8)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_a_constant_matrix_has_the_identity(shape, dtype):
    "SciPy promises it among equal assignments."
    for maximize in (False, True):
        a = assign(np.ones(shape, dtype), maximize)
        assert (a.rows == np.arange(min(shape[-2:]))).all() and (a.cols == a.rows).all()


def test_greedy_delta_depends_on_the_side_of_a_square():
    C = np.array([[6, 3, 0], [5, 0, 0], [5.5, 2, 0]])
    found = [np.random.default_rng(s).random((6, 6)) for s in range(50)]
    assert any(
        pairs(assign(c.T, True, "greedy_delta"))
        != sorted((j, i) for i, j in pairs(assign(c, True, "greedy_delta")))
        for c in [C, *found]
    )


def test_no_guarantee_for_greedy_delta():
    for k in (2, 5, 20):
        C = np.zeros((2 * k, 2 * k))
        C[:k, :k] = 1e4
        C[range(k), range(k, 2 * k)] = 2
        assert assign(C, True, "greedy_delta").total == 1e4 + 2 * (k - 1) and assign(C, True).total == 1e4 * k


def test_half_is_attained_by_stepped_argmax():
    assert assign(np.array([[1, 1 - 1e-6], [1 - 1e-6, 0]]), True, "greedy_best").total == 1


@quick
@given(costs(least=2, most=6), st.integers(0, 1000))
def test_gumbel_ends_and_its_value_is_hard(C, seed):
    a = assign(C, True, "gumbel", temperature=1.0, seed=seed)
    assert a.valid and pairs(a) == pairs(assign(C, True, "gumbel", temperature=1.0, seed=seed))
    y = straight_through_assignment(torch.from_numpy(C), True, temperature=1.0, seed=seed)
    assert ((y == 0) | (y == 1)).all() and np.array_equal(y.bool().numpy(), mask(a, C.shape))


def test_gumbel_noise_is_fresh_and_exponential_race():
    "With one row the winner is a softmax sample."
    x = torch.tensor([0.0, 1, 2]).expand(20000, 1, 3)
    share = assign(x, True, "gumbel", temperature=1.0).cols.flatten().bincount() / 20000
    assert torch.allclose(share, torch.tensor([0.0, 1, 2]).softmax(-1), atol=0.015)


@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m].gradient])
@pytest.mark.parametrize("shape", [(4, 4), (3, 6), (6, 3)])
def test_straight_through_gradient(method, shape):
    "The gradient is that of the soft matrix, by finite differences with the noise and the rounds held fixed."
    x = sample_matrices("uniform", (1, *shape)).double()
    weight = torch.randn(1, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def soft(x):
        s = x.mT if x.shape[-2] >= x.shape[-1] else x
        if method == "gumbel":
            z = gumbel_rounds(s, 0.5, 1.0, torch.Generator().manual_seed(3))[1]
        else:
            z = sinkhorn_plan(s, 5, 0.25)
        return ((z.mT if s is not x else z) * weight).sum()

    z = x.clone().requires_grad_()
    (
        straight_through_assignment(
            z, True, method, temperature=0.5 if method == "gumbel" else 0.25, steps=5, seed=3
        )
        * weight
    ).sum().backward()
    if method == "gumbel":
        numeric = torch.zeros_like(x)
        for i in range(x.numel()):
            e = torch.zeros(x.numel(), dtype=torch.float64)
            e[i] = 1e-6
            e = e.view(x.shape)
            numeric.view(-1)[i] = (soft(x + e) - soft(x - e)) / 2e-6
    else:
        z2 = x.clone().requires_grad_()
        soft(z2).backward()
        numeric = z2.grad
    assert torch.allclose(z.grad, numeric, atol=1e-6) and z.grad.abs().sum() > 0


# ---------------------------------------------------------------- batches and kinds of arrays


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(3, 2, 6, 6), (5, 4, 7), (5, 7, 4)])
def test_batch_equals_loop(method, shape):
    C = np.random.default_rng(0).random(shape)
    a = assign(C, method=method, noise=0)
    assert (
        a.rows.shape == (*shape[:-2], min(shape[-2:]))
        and a.total.shape == a.gap.shape == a.valid.shape == shape[:-2]
    )
    for at in np.ndindex(*shape[:-2]):
        b = assign(C[at], method=method, noise=0)
        assert (
            np.array_equal(a.rows[at], b.rows)
            and np.array_equal(a.cols[at], b.cols)
            and a.valid[at] == b.valid
        )
        assert a.total[at] == pytest.approx(b.total) and a.gap[at] == pytest.approx(
            b.gap, abs=1e-9, nan_ok=True
        )


def test_union_is_filled_with_minus_one():
    C = np.random.default_rng(0).random((6, 5, 5))
    a = assign(C, True, "recursive_top2", select="union", steps=0)
    for c, r, k in zip(C, a.rows, a.cols):
        assert [(i, j) for i, j in zip(r, k) if i >= 0] == slow_select(c, "union")
    assert (a.rows == -1).any() and not a.valid.all()


def test_kinds():
    C = np.random.default_rng(0).integers(0, 100, (7, 7))
    want = pairs(assign(C, method="greedy_delta"))
    for kind in (np.int8, np.uint8, np.uint16, np.int32, np.float16, np.float32, ">f4", np.longdouble):
        assert pairs(assign(C.astype(kind), method="greedy_delta")) == want
    for kind in (torch.bfloat16, torch.float16, torch.float32, torch.int16, torch.float64):
        a = assign(torch.from_numpy(C).to(kind), method="greedy_delta")
        assert pairs(a) == want and isinstance(a.gap, torch.Tensor) and a.total.dtype == torch.float64
    assert (
        pairs(assign(C.T.copy().T, method="greedy_delta")) == want
        and pairs(assign(C.tolist(), method="greedy_delta")) == want
    )
    assert (
        isinstance(assign(C).total, np.float64)
        and assign(np.zeros((0, 3, 4))).cols.shape == (0, 3)
        and assign([[2.0]]).total == 2
    )
    before = C.astype(np.float64)
    kept = before.copy()
    for method in METHODS:
        assign(before, True, method)
    assert np.array_equal(before, kept)


def test_thread_count_changes_nothing():
    C, threads, found = np.random.default_rng(0).random((100, 30, 30)), torch.get_num_threads(), []
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            found.append([assign(C, method=m).cols for m in METHODS])
    finally:
        torch.set_num_threads(threads)
    for a, b in zip(*found):
        assert np.array_equal(a, b)


ANSWERS = """
import numpy as np
from brace_nb.assignment import METHODS, assign
C = np.random.default_rng(0).random((2, 5, 7))
S = np.random.default_rng(1).random((2, 14, 14))
for m in METHODS:
    for c in (C, C.transpose(0, 2, 1), C[:, :, :5], S, S[:, :4]):
        print(m, assign(c, method=m).cols.tolist())
"""


def test_interpreted_kernels_agree():
    found = [
        subprocess.run(
            [sys.executable, "-c", ANSWERS],
            env={**os.environ, "NUMBA_DISABLE_JIT": flag},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for flag in ("0", "1")
    ]
    assert found[0] == found[1] != ""


def vectorized(x, method, sweeps):
    "The answer to costs x by the form in torch, judged in plain words."
    options = dict(select="stepped", steps=10, factor=2.0, lookahead=2)
    rows, cols, bound = METHODS[method].solve(x, -1.0, options)
    there, own = rows >= 0, torch.arange(len(x))[:, None]
    total = torch.where(there, x[own, rows, cols].double(), 0.0).sum(-1)
    valid = is_valid(to_matrix(rows, cols, x.shape)) & total.isfinite()
    gap = ((upper_bound(-x) if bound is None else bound) + total).clamp(min=0)
    for b in valid.nonzero()[:, 0] if method != "exact" else ():
        gap[b] = min(gap[b], (upper_bound(-x[b], rows[b], cols[b], sweeps) + total[b]).clamp(min=0))
    return rows, cols, valid, total, torch.where(valid, gap, math.nan)


@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m].kernel])
@pytest.mark.parametrize("shape", [(30, 6, 6), (30, 4, 9), (30, 9, 4)])
@pytest.mark.parametrize("forbidden", [0, 0.2])
def test_kernels_equal_the_tensor_form(method, shape, forbidden):
    "What a kernel does in one pass (reading, certificate, total, validity) is what the vectorized form says."
    g = torch.Generator().manual_seed(3)
    x = torch.rand(shape, generator=g, dtype=torch.float64)
    x = x.masked_fill(torch.rand(shape, generator=g) < forbidden, math.inf)
    x[:, range(min(shape[1:])), range(min(shape[1:]))] = 0.9
    for x in (x, x.float()):
        for sweeps in (0, 2):
            a = assign(x, method=method, sweeps=sweeps)
            for name, got, want in zip(a._fields, a, vectorized(x, method, sweeps)):
                close = 1e-5 if x.itemsize == 4 else 1e-12
                assert torch.allclose(got, want, rtol=0, atol=close, equal_nan=True), name


@pytest.mark.parametrize("method", METHODS)
def test_a_bad_matrix_in_a_batch_is_named(method):
    for bad, says in ((math.nan, r"NaN; got matrices \[3\]"), (-math.inf, r"matrices \[3\] that hold it")):
        for dtype in (np.float32, np.float64):
            C = np.ones((5, 3, 4), dtype)
            C[3, 1, 2] = bad
            with pytest.raises(ValueError, match=says):
                assign(C, method=method)
            with pytest.raises(ValueError, match=says):
                assign(torch.from_numpy(C), method=method)


def test_what_is_not_read_in_place():
    C = np.random.default_rng(0).random((4, 6, 10))
    want = assign(C, method="greedy_delta").cols
    frozen = C.copy()
    frozen.flags.writeable = False
    for other in (
        frozen,
        np.asfortranarray(C),
        np.repeat(C, 2, 2)[..., ::2],
        torch.from_numpy(C).requires_grad_(),
        torch.from_numpy(C).mT.contiguous().mT,
    ):
        assert np.array_equal(assign(other, method="greedy_delta").cols, want)
    for method in METHODS:
        a = assign(np.zeros((2, 0, 3, 4), np.float32), method=method)
        assert a.rows.shape == a.cols.shape == (
            2,
            0,
            3,
        ) and a.total.shape == a.gap.shape == a.valid.shape == (2, 0)


def test_a_forked_process_has_its_own_threads():
    import multiprocessing

    C = np.random.default_rng(0).random((400, 20, 20))
    assign(C)
    child = multiprocessing.get_context("fork").Process(target=assign, args=(C,))
    child.start()
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    for shape in ((20, 9, 9), (20, 5, 8), (20, 8, 5)):
        C = torch.rand(shape)
        for method in METHODS:
            a, b = assign(C.cuda(), True, method), assign(C, True, method)
            assert a.cols.is_cuda and (
                torch.equal(a.cols.cpu(), b.cols)
                or method == "sinkhorn"
                and torch.allclose(a.total.cpu(), b.total, rtol=0.05)
            )


# ---------------------------------------------------------------- detections


def slow_masked_greedy(C, sizes, mask):
    "The thesis's greedy over all columns of a batch at once; lookahead 2."
    B, Q, A = C.shape
    image = np.repeat(np.arange(B), sizes)
    S = np.array([[-C[image[a], q, a] for q in range(Q)] for a in range(A)])
    live, cols, out = np.ones((A, Q), bool), list(range(A)), []
    while cols:
        best = None
        for a in cols:
            x = sorted(S[a][live[a]], reverse=True)[:2]
            key = -1 if not x else 0 if len(x) == 1 else x[0] - x[1]
            if key >= 0 and (best is None or key > best[0]):
                best = key, a
        if best is None:
            break
        a = best[1]
        q = max(np.flatnonzero(live[a]), key=lambda q: (S[a, q], -q))
        cols.remove(a)
        out.append((a, int(q)))
        for other in cols:
            if mask == "batch" or image[other] == image[a]:
                live[other, q] = False
    starts = np.cumsum([0, *sizes])
    return [sorted((q, int(a - starts[b])) for a, q in out if image[a] == b) for b in range(B)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.integers(0, 10**6),
    st.sampled_from(["image", "batch"]),
)
def test_matching_equals_the_masked_greedy(sizes, seed, mask):
    Q = max(1, sum(sizes)) + (mask == "batch")
    C = np.random.default_rng(seed).normal(5.5, 2.5, (len(sizes), Q, sum(sizes)))
    got = match_batch(C, sizes, mask, "greedy_delta")
    assert [list(zip(q.tolist(), a.tolist())) for q, a in got] == slow_masked_greedy(C, sizes, mask)


def test_exact_matching_is_that_of_detr():
    C, sizes = sample_matrices("detr", (4, 10, 17)), [3, 0, 12, 2]
    got = match_batch(C, sizes)
    for b, part in enumerate(C.split(sizes, -1)):
        rows, cols = linear_sum_assignment(part[b])
        assert got[b][0].tolist() == rows.tolist() and got[b][1].tolist() == cols.tolist()
    assert isinstance(match_batch(C.numpy(), sizes)[0][0], np.ndarray)
    used = torch.cat([q for q, _ in match_batch(sample_matrices("detr", (4, 20, 17)), sizes, "batch")])
    assert used.unique().numel() == 17


def test_resample():
    x = np.linspace(-5, 16, 500)
    from scipy.stats import norm

    np.testing.assert_allclose(costs_to_scores(x), 0.3 * norm.isf(norm.cdf((x - 5.5) / 2.5) / 2), rtol=1e-9)
    assert (np.diff(costs_to_scores(x)) < 0).all() and costs_to_scores(5.5) == pytest.approx(
        0.2023469, abs=1e-7
    )
    assert (
        np.isfinite(costs_to_scores(np.array([-1e6, 1e6]))).all()
        and costs_to_scores(np.float32([5.5])).dtype == np.float32
    )
    y = costs_to_scores(sample_matrices("detr", (100000,)))
    assert y.std().item() == pytest.approx(0.3 * math.sqrt(1 - 2 / math.pi), rel=0.02) and y.min() >= 0


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: assign([[math.nan, 1], [0, 1]]), "NaN"),
        (lambda: assign([1.0, 2]), r"\(\.\.\., rows, columns\)"),
        (lambda: assign([["a"]]), "real numbers"),
        (lambda: assign([[1.0]], method="hungarian"), "must be one of exact, greedy_delta, greedy_best"),
        (lambda: assign([[1.0]], select="best"), "must be one of argmax, union, topk, stepped"),
        (lambda: assign([[math.inf, math.inf], [1, 1]]), "no assignment without a forbidden cell"),
        (lambda: match_batch(np.full((2, 3, 2), math.inf), [1, 1]), r"got images \[0, 1\] without"),
        (lambda: assign([[-math.inf, 1]]), "flip `maximize`"),
        (lambda: assign([[1.0]], lookahead=1), "whole number >= 2"),
        (lambda: assign([[1.0]], factor=0), "factor must be a finite number > 0"),
        (lambda: assign([[1.0]], steps=-1), "whole number >= 0"),
        (lambda: assign([[1.0]], temperature=-1.0), "temperature must be a finite number > 0"),
        (
            lambda: straight_through_assignment(torch.ones(2, 2), method="greedy_best"),
            "method 'greedy_best' has no straight-through gradient. Choose one of gumbel, sinkhorn",
        ),
        (lambda: straight_through_assignment(torch.ones(2, 2).int()), "floating point"),
        (lambda: match_batch(np.zeros((2, 3, 4)), [1, 1]), "sum to the annotations"),
        (lambda: match_batch(np.zeros((2, 3, 4)), [1, 3], "images"), "image, batch"),
        (lambda: match_batch(np.zeros((2, 3, 4)), [1, 3], "batch"), "4 queries; got 3"),
        (lambda: costs_to_scores([1.0], std=0), "std must be a finite number > 0"),
        (lambda: cost_of_picking(torch.ones(1, 3)), "another in its row and column"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_options_are_checked_every_time():
    assert assign([[1.0]], steps=10).valid
    for bad in (dict(steps=10.0), dict(lookahead=2.0), dict(coldest=math.inf), dict(seed=None)):
        with pytest.raises(ValueError, match="got"):
            assign([[1.0]], **bad)
    with pytest.raises(ValueError, match="sweeps must be a whole number"):
        assign([[1.0]], method="greedy_best", sweeps=-1)
    with pytest.raises(TypeError, match="no option 'stesp'"):
        assign([[1.0]], stesp=10)


def test_every_method_documents_itself():
    for name, m in METHODS.items():
        assert m.title and m.says and m.source and callable(m.solve), name
    told = inspect.signature(assign).parameters
    for name, p in ((name, p) for m in METHODS.values() for name, p in m.parameters.items()):
        assert told[name].default == p.default and p.says


def test_a_method_is_added_in_one_place(monkeypatch):
    "An entry is known to the call, with its own option, to the lists of these tests and to the figures."

    def diagonal(x, sign, o):
        rows = torch.arange(min(x.shape[-2:])).expand(len(x), -1)
        return rows, (rows + o["shift"]) % x.shape[-1], None

    shift = Parameter(0, lambda value, name: count(value, name), "columns further right")
    facts = dict(says="cells of a diagonal", source="these tests", parameters=dict(shift=shift), valid=True)
    monkeypatch.setitem(
        METHODS, "diagonal", AssignmentMethod(diagonal, title="diagonal", color="red", marker="<", **facts)
    )
    C = np.arange(9.0).reshape(3, 3)
    a = assign(C, method="diagonal", shift=1)
    assert (
        a.valid
        and a.cols.tolist() == [1, 2, 0]
        and a.total == 12
        and assign(C, method="diagonal").total == 12
    )
    with pytest.raises(ValueError, match="shift must be"):
        assign(C, method="diagonal", shift=-1)
    test_batch_equals_loop("diagonal", (5, 4, 7))
    test_a_matrix_without_an_assignment_in_a_batch_is_marked("diagonal", (5, 4, 4), np.asarray)
    assert style(METHODS["diagonal"]) == dict(color=PALETTE["red"], marker="<", linestyle="-")
