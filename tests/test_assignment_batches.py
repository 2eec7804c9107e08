"Batches of different sizes, padding and forbidden cells: each equals a loop over SciPy."

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import linear_sum_assignment

from brace_nb.assignment import METHODS, assign, assign_many, match_batch

quick = settings(max_examples=80, deadline=None)
seeds, sides, batches = st.integers(0, 10**6), st.integers(0, 6), st.integers(0, 5)
kinds = st.sampled_from([np.float64, np.float32, np.int64, torch.float64, torch.float32, torch.int64])


def of_kind(cost, kind):
    return torch.from_numpy(cost).to(kind) if isinstance(kind, torch.dtype) else cost.astype(kind)


def numbers(rng, shape, whole):
    return rng.integers(-4, 8, shape).astype(float) if whole else rng.standard_normal(shape).round(3)


def by_scipy(cost, maximize=False):
    "Least total of one matrix, None when it has no assignment."
    try:
        pairs = linear_sum_assignment(cost, maximize)
    except ValueError:
        return None
    return float(cost[pairs].sum())


def check(cost, rows, cols, maximize=False):
    "Are these pairs, without what fills them up, a best assignment? `cost` has one."
    rows, cols = np.asarray(rows), np.asarray(cols)
    assert (rows[min(cost.shape) :] == -1).all() and (cols[min(cost.shape) :] == -1).all()
    rows, cols = rows[: min(cost.shape)], cols[: min(cost.shape)]
    assert (np.diff(rows) > 0).all() and len(set(cols.tolist())) == len(cols)
    assert (rows >= 0).all() and (cols >= 0).all()
    assert float(cost[rows, cols].sum()) == pytest.approx(by_scipy(cost, maximize), abs=1e-5)


# --- sizes


@quick
@given(seeds, batches, sides, sides, st.booleans(), st.booleans(), kinds)
def test_sizes_leave_padding_out(seed, B, h, w, whole, maximize, kind):
    rng = np.random.default_rng(seed)
    cost, sizes = numbers(rng, (B, h, w), whole), np.stack([rng.integers(0, n + 1, B) for n in (h, w)], -1)
    given_cost = of_kind(cost, kind)
    cost = np.asarray(given_cost).astype(float)
    if given_cost.dtype in (np.float64, np.float32, torch.float64, torch.float32):
        for c, (n, m) in zip(given_cost, sizes):  # what stands in the padding is not read
            c[n:], c[:, m:] = rng.choice([np.nan, np.inf, -np.inf, 7]), rng.choice([np.nan, np.inf, -np.inf])
    for form in (sizes, sizes.tolist() if B else sizes, torch.from_numpy(sizes)):
        found = assign(given_cost, maximize, sizes=form)
        assert found.rows.shape == (B, min(h, w)) and type(found.rows) is type(given_cost)
        assert np.asarray(found.valid).all() and (np.asarray(found.gap) < 1e-5).all()
        for c, (n, m), rows, cols, total in zip(cost, sizes, found.rows, found.cols, found.total):
            check(c[:n, :m], rows, cols, maximize)
            assert float(total) == pytest.approx(by_scipy(c[:n, :m], maximize), abs=1e-5)


@quick
@given(
    seeds,
    batches,
    sides,
    sides,
    st.sampled_from([0.1, 0.4, 0.8]),
    st.sampled_from([np.asarray, torch.tensor]),
)
def test_forbidden_cells_beside_padding(seed, B, h, w, share, form):
    rng = np.random.default_rng(seed)
    cost, sizes = numbers(rng, (B, h, w), True), np.stack([rng.integers(0, n + 1, B) for n in (h, w)], -1)
    cost[rng.random(cost.shape) < share] = np.inf
    found = assign(form(cost), sizes=sizes)
    for c, (n, m), rows, cols, valid, total, gap in zip(cost, sizes, *found):
        best = by_scipy(c[:n, :m])
        assert bool(valid) == (best is not None) == (not np.isnan(float(gap)))
        if valid:
            check(c[:n, :m], rows, cols)
        else:
            assert (
                np.isnan(float(total)) and (np.asarray(rows) == -1).all() and (np.asarray(cols) == -1).all()
            )


@quick
@given(seeds, st.integers(1, 5), st.integers(1, 6), st.integers(1, 6), st.sampled_from(list(METHODS)))
def test_forbidden_lines_at_the_end_of_a_batch_are_padding(seed, B, h, w, method):
    rng = np.random.default_rng(seed)
    cost, sizes = rng.standard_normal((B, h, w)), np.stack([rng.integers(1, n + 1, B) for n in (h, w)], -1)
    for c, (n, m) in zip(cost, sizes):
        c[n:], c[:, m:] = np.inf, np.inf
    if method in (
        "gumbel",
        "argbest",
    ):  # noise depends on the place in a batch; argbest has no pairs to compare
        method = "exact"
    for form in (np.asarray, torch.from_numpy):
        found = assign(form(cost), method=method)
        for c, (n, m), rows, cols, valid, total in zip(cost, sizes, *found[:4]):
            if not valid:
                continue
            alone = assign(form(c[:n, :m].copy()), method=method)
            assert bool(alone.valid)
            k = (np.asarray(rows) >= 0).sum()
            assert k == min(n, m) or method != "exact" or min(n, m) == min(h, w)
            if method == "exact":
                check(c[:n, :m], rows, cols)
                assert float(total) == pytest.approx(float(alone.total))
        if method == "exact":
            assert np.asarray(found.valid).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", [np.asarray, torch.from_numpy])
def test_sizes_for_every_method(method, form):
    rng = np.random.default_rng(3)
    cost, sizes = rng.random((2, 3, 5, 6)), rng.integers(1, 6, (2, 3, 2))
    found = assign(form(cost), method=method, sizes=sizes, noise=0)
    assert found.rows.shape[:2] == (2, 3) == found.total.shape
    for at in np.ndindex(2, 3):
        n, m = sizes[at]
        alone = assign(form(cost[at][:n, :m].copy()), method=method, noise=0)
        k = len(alone.cols)
        assert np.array_equal(found.cols[at][:k], alone.cols) and (np.asarray(found.cols[at][k:]) == -1).all()
        assert float(found.total[at]) == pytest.approx(float(alone.total))
        assert bool(found.valid[at]) == bool(alone.valid)


def test_columns_alone_are_sizes_too():
    cost = np.random.default_rng(0).random((4, 7, 5))
    found, same = assign(cost, sizes=[5, 0, 2, 3]), assign(cost, sizes=[[7, 5], [7, 0], [7, 2], [7, 3]])
    assert all(np.array_equal(a, b) for a, b in zip(found, same))
    assert (found.cols >= 0).sum(-1).tolist() == [5, 0, 2, 3] and found.total[1] == 0


@pytest.mark.parametrize("sizes", [[1.0, 2.0], [1, 2, 3], [-1, 2], [1, 9], [[1, 2], [3, 9]], 2, [[1], [2]]])
def test_wrong_sizes_have_a_name(sizes):
    with pytest.raises(ValueError, match="sizes must be"):
        assign(np.zeros((2, 3, 4)), sizes=sizes)


def test_a_bad_cell_outside_the_padding_is_named():
    cost = np.zeros((3, 4, 5))
    cost[1, 2, 2] = cost[2, 3, 3] = np.nan
    for form in (np.asarray, torch.from_numpy):
        assert assign(form(cost), sizes=[[4, 5], [2, 5], [3, 3]]).valid.all()
        with pytest.raises(ValueError, match=r"NaN; got matrices \[1\]"):
            assign(form(cost), sizes=[[4, 5], [3, 5], [3, 3]])


# --- lists and pictures


@quick
@given(st.lists(st.tuples(sides, sides), max_size=8), seeds, st.sampled_from([0, 0.2, 0.6]), st.booleans())
def test_a_list_with_forbidden_cells_is_a_loop_over_scipy(shapes, seed, share, maximize):
    rng = np.random.default_rng(seed)
    costs = [numbers(rng, shape, bool(rng.integers(2))) for shape in shapes]
    for c in costs:
        c[rng.random(c.shape) < share] = -np.inf if maximize else np.inf
    for form in (np.asarray, torch.from_numpy, np.asfortranarray):
        for a, c in zip(assign_many([form(c) for c in costs], maximize), costs):
            assert bool(a.valid) == (by_scipy(c, maximize) is not None)
            if a.valid:
                check(c, a.rows, a.cols, maximize)
            else:
                assert np.isnan(float(a.total))


@quick
@given(st.lists(st.integers(0, 6), max_size=6), st.integers(0, 7), seeds, st.sampled_from([0, 0.3]), kinds)
def test_matching_is_a_loop_over_scipy(sizes, Q, seed, share, kind):
    rng = np.random.default_rng(seed)
    cost = numbers(rng, (len(sizes), Q, sum(sizes)), bool(rng.integers(2)))
    real = kind not in (np.int64, torch.int64)
    if real:
        cost[rng.random(cost.shape) < share] = np.inf
    given_cost = of_kind(cost, kind)
    cost, starts = np.asarray(given_cost).astype(float), np.cumsum([0, *sizes])
    own = [cost[b, :, starts[b] : starts[b + 1]] for b in range(len(sizes))]
    none = [b for b, c in enumerate(own) if by_scipy(c) is None]
    if none:
        with pytest.raises(ValueError, match=rf"got images \[{', '.join(map(str, none[:5]))}\] without"):
            match_batch(given_cost, sizes)
        return
    found = match_batch(given_cost, sizes)
    assert len(found) == len(sizes)
    for (queries, objects), c in zip(found, own):
        assert type(queries) is type(given_cost) and len(queries) == len(objects) == min(c.shape)
        check(c, queries, objects)


def test_threads_change_no_matching():
    rng, before = np.random.default_rng(0), torch.get_num_threads()
    sizes = rng.integers(0, 30, 16).tolist()
    cost = torch.from_numpy(rng.random((16, 100, sum(sizes))))
    try:
        found = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append([pair for image in match_batch(cost, sizes) for pair in image])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))


def test_what_a_picture_does_not_own_is_not_read():
    cost = np.full((2, 3, 4), np.nan)
    cost[0, :, :1] = cost[1, :, 1:] = np.arange(3.0)[:, None]
    assert [q.tolist() for q, _ in match_batch(cost, [1, 3])] == [[0], [0, 1, 2]]
    with pytest.raises(ValueError, match=r"NaN; got matrices \[1\]"):
        match_batch(cost, [0, 4])


# --- a limit is the same in every form


@quick
@given(
    seeds,
    batches,
    st.integers(1, 5),
    st.integers(1, 5),
    st.booleans(),
    st.floats(-2, 3),
    st.sampled_from(list(METHODS)),
)
def test_a_limit_of_an_array_is_that_of_a_tensor(seed, B, h, w, maximize, limit, method):
    cost = numbers(np.random.default_rng(seed), (B, h, w), False)
    if seed % 3 == 0:
        cost[np.random.default_rng(seed).random(cost.shape) < 0.2] = -np.inf if maximize else np.inf
    for kind in (np.float64, np.float32, np.float16):
        a, t = cost.astype(kind), torch.from_numpy(cost.astype(kind))
        asked = dict(maximize=maximize, method=method, cost_limit=limit, noise=0)
        for x, y in zip(assign(a, **asked), assign(t, **asked)):
            assert isinstance(x, np.ndarray) and np.array_equal(x, y.numpy(), equal_nan=x.dtype.kind == "f")
        if B:
            assert all(isinstance(f, np.ndarray | np.generic) for f in assign(a[0], **asked))
