"Limits, masks, sparse matrices, lists of shapes and prices; SciPy's own tests and lap's cases by an adapter."

import inspect
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.optimize.tests import test_linear_assignment as of_scipy
from scipy.sparse.csgraph.tests.test_matching import linear_sum_assignment_test_cases

from brace_nb.assignment import METHODS, assign, assign_many, priced_assignment
from brace_nb.assignment.exact_kernels import _begin, _dual_bound, forbid_cells, limit_costs

quick = settings(max_examples=60, deadline=None)
seeds, sides = st.integers(0, 10**6), st.integers(1, 6)


def matrix(seed, h, w, whole):
    rng = np.random.default_rng(seed)
    return rng.integers(-4, 8, (h, w)).astype(float) if whole else rng.standard_normal((h, w))


# --- a limit


def best_partial(cost, limit):
    "Least sum of cost - limit over all sets of pairs that share no line, by trying them."
    h, w = cost.shape
    best = 0.0
    for k in range(1, min(h, w) + 1):
        for rows in itertools.combinations(range(h), k):
            for cols in itertools.permutations(range(w), k):
                best = min(best, float((cost[rows, cols] - limit).sum()))
    return best


@quick
@given(seeds, st.integers(1, 4), st.integers(1, 4), st.booleans(), st.floats(-3, 6))
def test_a_limit_is_the_best_set_of_pairs(seed, h, w, whole, limit):
    cost = matrix(seed, h, w, whole)
    a = assign(cost, cost_limit=limit)
    kept = a.rows >= 0
    assert (kept == (a.cols >= 0)).all() and (np.diff(kept.astype(int)) <= 0).all()  # pairs first, then -1
    picked = cost[a.rows[kept], a.cols[kept]]
    assert (picked < limit).all() and a.total == pytest.approx(picked.sum())
    assert (picked - limit).sum() == pytest.approx(best_partial(cost, limit), abs=1e-9)
    assert len(set(a.rows[kept])) == len(set(a.cols[kept])) == kept.sum()
    assert 0 <= a.gap < 1e-9 and a.valid


@quick
@given(seeds, sides, sides, st.floats(-1, 1))
def test_a_limit_of_scores_is_that_of_costs(seed, h, w, limit):
    cost = matrix(seed, h, w, False)
    a, b = assign(cost, cost_limit=limit), assign(-cost, maximize=True, cost_limit=-limit)
    assert a.rows.tolist() == b.rows.tolist() and a.cols.tolist() == b.cols.tolist()
    assert a.total == pytest.approx(-b.total)


def test_a_limit_leaves_forbidden_cells_and_takes_batches_tensors_and_methods():
    cost = np.array([[[1.0, np.inf], [np.inf, np.inf]], [[1.0, 2.0], [0.0, 9.0]]])
    a = assign(cost, cost_limit=5.0)
    assert a.rows.tolist() == [[0, -1], [0, 1]] and a.cols.tolist() == [[0, -1], [1, 0]]
    assert a.total.tolist() == [1, 2] and a.valid.all()
    b = assign(torch.from_numpy(cost), cost_limit=5.0)
    assert isinstance(b.rows, torch.Tensor) and b.cols.tolist() == a.cols.tolist()
    assert all(type(x) is np.ndarray for x in a) and all(isinstance(x, torch.Tensor) for x in b)
    for method in METHODS:
        got = assign(cost, method=method, cost_limit=5.0)
        kept = got.rows >= 0
        assert all(cost[i][got.rows[i][kept[i]], got.cols[i][kept[i]]].max() < 5 for i in range(2))
    assert assign([[3, 4], [5, 1]], cost_limit=2).total == 1
    with pytest.raises(ValueError, match="cost_limit"):
        assign(cost, cost_limit=np.inf)


# --- masks and sparse matrices


def optimum_or_refused(full, given, message):
    "The optimum of the full matrix; where there is none, `given` is refused as well."
    try:
        return assign(full)
    except ValueError:
        with pytest.raises(ValueError, match=message):
            assign(given)
    return None


@quick
@given(seeds, sides, sides, st.booleans())
def test_a_masked_cell_is_forbidden(seed, h, w, whole):
    cost = matrix(seed, h, w, whole)
    hidden = np.random.default_rng(seed + 1).random((h, w)) < 0.3
    masked = np.ma.masked_array(cost.astype(int) if whole else cost, hidden)
    forbidden = np.where(hidden, np.inf, cost)
    if (wanted := optimum_or_refused(forbidden, masked, "no assignment")) is None:
        return
    got = assign(masked)
    assert got.total == wanted.total and not hidden[got.rows, got.cols].any()
    best = assign(-masked, maximize=True)
    assert best.total == -wanted.total and type(got.rows) is np.ndarray


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_limits_and_masks_are_what_numpy_makes_of_them(kind, sign):
    x = np.r_[np.arange(-12, 12), np.nan, np.inf, -np.inf, -0.0, 0.1].astype(kind)
    worth, hidden = (np.maximum if sign > 0 else np.minimum)(x - kind(0.1), 0), np.arange(x.size) % 5 == 0
    limited, forbidden = x.copy(), x.copy()
    limit_costs(limited, 0.1, sign, limited)
    forbid_cells(forbidden, hidden, -sign * np.inf, forbidden)
    np.testing.assert_array_equal(limited, worth)
    np.testing.assert_array_equal(forbidden, np.where(hidden, -sign * np.inf, x))


@settings(max_examples=200, deadline=None)
@given(seeds, st.integers(1, 6), st.integers(1, 21), st.booleans(), st.data())
def test_one_matrix_alone_is_answered_as_with_sizes(seed, h, w, maximize, data):
    kind = data.draw(st.sampled_from([np.float64, np.float32]))
    limit, hidden = data.draw(st.none() | st.floats(-1, 4)), data.draw(st.sampled_from([0, 0.3, 0.8]))
    cost = matrix(seed, h, w, data.draw(st.booleans())).astype(kind)
    cost = cost if data.draw(st.booleans()) else np.ascontiguousarray(cost.T)
    if hidden:
        cost = np.ma.array(cost, mask=np.random.default_rng(seed).random(cost.shape) < hidden)
    full, options = (
        np.ma.filled(cost, -np.inf if maximize else np.inf),
        dict(maximize=maximize, cost_limit=limit),
    )
    wanted = assign(full[None], sizes=[full.shape], **options)  # another kernel, another way to read
    given = torch.from_numpy(full) if data.draw(st.booleans()) else cost
    if not wanted.valid[0]:
        with pytest.raises(ValueError, match="no assignment without a forbidden cell"):
            assign(given, **options)
        return
    for found, field in zip(assign(given, **options), wanted):
        found = np.asarray(found)
        assert np.array_equal(found, field[0]) and found.dtype == field.dtype


@pytest.mark.parametrize("kind", ["<f8", "<f4", ">f8", "<f2", "<i4"])
def test_limits_and_masks_hold_on_any_layout_and_change_nothing(kind):
    x = np.random.default_rng(0).integers(0, 100, (4, 6)).astype(kind)
    fixed = x.copy()
    fixed.flags.writeable = False
    for a in (x, fixed, np.asfortranarray(x), x[::-1, ::-1], x.T, x[None], np.repeat(x, 2, 0)[::2]):
        mask, before = np.resize(np.arange(24) % 5 == 0, a.shape), a.copy()
        plain = np.ascontiguousarray(a, np.float64)
        pairs = [
            (assign(np.ma.masked_array(a, mask)), assign(np.where(mask, np.inf, plain))),
            (assign(np.ma.masked_array(a)), assign(plain)),
            (assign(a, cost_limit=20.0), assign(plain, cost_limit=20.0)),
        ]
        for got, wanted in pairs:
            assert all(np.array_equal(g, w) for g, w in zip(got, wanted))
        np.testing.assert_array_equal(a, before)


@quick
@given(seeds, sides, sides, st.booleans(), st.sampled_from(["csr", "csc", "coo"]))
def test_a_sparse_matrix_has_only_its_entries(seed, h, w, whole, form):
    cost = matrix(seed, h, w, whole)
    there = np.random.default_rng(seed + 1).random((h, w)) < 0.6
    entries = sparse.coo_array((cost[there], np.nonzero(there)), shape=(h, w)).asformat(form)
    full = np.where(there, cost, np.inf)
    if (wanted := optimum_or_refused(full, entries, "no full assignment")) is None:
        return
    got = assign(entries)
    assert got.total == pytest.approx(wanted.total) and (np.diff(got.rows) > 0).all()
    assert full[got.rows, got.cols].sum() == pytest.approx(got.total)
    assert 0 <= got.gap < 1e-9
    assert assign(-entries, maximize=True).total == pytest.approx(-wanted.total)
    assert assign(entries, method="greedy_best").valid in (True, False)


def test_a_large_sparse_matrix_is_not_made_full():
    n = 40_000
    rng = np.random.default_rng(0)
    own = sparse.coo_array((rng.random(n), (np.arange(n), rng.permutation(n))), shape=(n, n))
    found = assign(own.tocsr())
    assert found.total == pytest.approx(own.sum()) and found.gap < 1e-6
    assert assign(sparse.csr_array((0, 3))).rows.shape == (0,)
    with pytest.raises(ValueError, match="finite"):
        assign(sparse.csr_array(np.array([[np.nan, 1], [1, 2]])))


# --- lists of shapes, prices


@quick
@given(st.lists(st.tuples(sides, sides), max_size=8), seeds, st.booleans(), st.sampled_from(list(METHODS)))
def test_a_list_is_its_matrices_one_by_one(shapes, seed, maximize, method):
    costs = [matrix(seed + i, h, w, False) for i, (h, w) in enumerate(shapes)]
    if method == "gumbel":  # its noise depends on the place in the batch
        method = "exact"
    for form in (np.asarray, torch.from_numpy):
        got = assign_many([form(c) for c in costs], maximize, method)
        assert len(got) == len(costs)
        for a, c in zip(got, costs):
            b = assign(form(c), maximize, method)
            assert a.cols.tolist() == b.cols.tolist() and float(a.total) == pytest.approx(float(b.total))
            assert type(a.rows) is type(b.rows)


def test_a_list_takes_all_that_assign_takes():
    rng = np.random.default_rng(0)
    a = rng.random((3, 4))
    masked = np.ma.masked_array(a, a > 0.9)
    kinds = [a, a.tolist(), torch.from_numpy(a), a.astype(np.float32), sparse.csr_array(a), masked]
    totals = [float(x.total) for x in assign_many(kinds)]
    assert totals == pytest.approx([float(assign(k).total) for k in kinds], rel=1e-6)
    assert assign_many([a, a], cost_limit=0.1)[1].total == assign(a, cost_limit=0.1).total


@quick
@given(seeds, sides, sides, st.booleans(), st.booleans(), st.integers(1, 3))
def test_prices_prove_the_answer(seed, h, w, whole, maximize, count):
    cost = np.stack([matrix(seed + i, h, w, whole) for i in range(count)])
    answer, u, v = priced_assignment(cost, maximize)
    wanted = assign(cost, maximize)
    assert np.allclose(answer.total, wanted.total)
    assert np.allclose(u.sum(-1) + v.sum(-1), wanted.total)
    slack = (cost - u[:, :, None] - v[:, None]) * (-1 if maximize else 1)
    assert slack.min() > -1e-9
    for b in range(count):
        assert np.allclose(slack[b, answer.rows[b], answer.cols[b]], 0, atol=1e-9)
        free = np.setdiff1d(np.arange(max(h, w)), (answer.rows if h > w else answer.cols)[b])
        if h != w:
            assert np.allclose((u if h > w else v)[b, free], 0)
    x = priced_assignment(torch.from_numpy(cost[0]), maximize)
    assert isinstance(x.row_prices, torch.Tensor) and x.row_prices.shape == (h,)


@pytest.mark.parametrize("shape", [(13, 13), (40, 40), (30, 60), (60, 30), (100, 100), (20, 90), (9, 200)])
@pytest.mark.parametrize("kind", ["uniform", "whole", "few allowed"])
def test_prices_prove_answers_of_larger_matrices(shape, kind):
    rng = np.random.default_rng(0)
    for _ in range(8):
        cost = np.floor(9 * rng.random(shape)) if kind == "whole" else rng.random(shape)
        cost = np.where(rng.random(shape) < 0.5, np.inf, cost) if kind == "few allowed" else cost
        answer, u, v = priced_assignment(cost)
        assert (u[:, None] + v <= cost + 1e-12).all()
        assert np.isclose(u.sum() + v.sum(), cost[answer.rows, answer.cols].sum(), rtol=1e-12)
        assert answer.gap <= 1e-12 * min(shape)


@pytest.mark.parametrize("side", [5, 40])
def test_bids_leave_bounds_and_a_wrong_answer_is_not_proved(side):
    rng = np.random.default_rng(side)
    for _ in range(20):
        cost = rng.random((side, side))
        (x, y, before, free), (v, low) = np.full((4, side), -1), np.zeros((2, side))
        low[:] = -np.inf
        _begin(cost, x, y, v, low, before, free)
        assert (low <= (cost - v).min(1)).all()
        own = (cost - v)[np.arange(side), x][x >= 0]
        assert (low[x >= 0] == own).mean() > 0.5  # of most rows with a column nothing is read again
        best = linear_sum_assignment(cost)
        bound = _dual_bound(cost, np.roll(best[1], 1), v, low, np.empty(side))
        assert bound <= cost[best].sum() + 1e-12
        assert bound < cost[best[0], np.roll(best[1], 1)].sum() - 0.01


def test_prices_of_a_matrix_without_assignment_are_nan():
    cost = np.array([[[1.0, np.inf], [2.0, np.inf]], [[1.0, 2.0], [3.0, 4.0]]])
    found = priced_assignment(cost)
    assert found.answer.valid.tolist() == [False, True] and np.isnan(found.row_prices[0]).all()
    assert np.isfinite(found.col_prices[1]).all()


# --- SciPy's own tests


def as_scipy(cost_matrix, maximize=False):
    "`scipy.optimize.linear_sum_assignment` on top of `assign`, its errors translated."
    x = np.asarray(cost_matrix)
    if x.dtype.kind in "US":
        raise TypeError("Cannot cast array data")
    try:
        return assign(x, maximize)[:2]
    except ValueError as error:
        words = {
            "Add the missing axis": "expected a matrix",
            "no assignment without": "cost matrix is infeasible",
        }
        said = next((theirs for ours, theirs in words.items() if ours in str(error)), None)
        raise ValueError(said or "matrix contains invalid numeric entries") from error


PLAIN = [
    name
    for name, test in inspect.getmembers(of_scipy, inspect.isfunction)
    if name.startswith("test_") and not inspect.signature(test).parameters
]


@pytest.mark.parametrize("name", PLAIN)
def test_of_scipy(name, monkeypatch):
    monkeypatch.setattr(of_scipy, "linear_sum_assignment", as_scipy)
    getattr(of_scipy, name)()


@pytest.mark.parametrize("sign, case", list(linear_sum_assignment_test_cases))
def test_small_inputs_of_scipy(sign, case, monkeypatch):
    monkeypatch.setattr(of_scipy, "linear_sum_assignment", as_scipy)
    of_scipy.test_linear_sum_assignment_small_inputs(sign, case)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0), (0, 3)])
def test_trivial_costs_of_scipy(shape, monkeypatch):
    monkeypatch.setattr(of_scipy, "linear_sum_assignment", as_scipy)
    of_scipy.test_linear_sum_assignment_trivial_cost(*shape)


def test_sparse_inputs_of_scipy(monkeypatch):
    def as_matching(graph, maximize=False):
        a = assign(graph, maximize)
        return a.rows, a.cols

    monkeypatch.setattr(of_scipy, "min_weight_full_bipartite_matching", as_matching)
    of_scipy.test_two_methods_give_same_result_on_many_sparse_inputs()


# --- lap's cases: squares, extension, limits, infinities


def as_lap(cost, extend_cost=False, cost_limit=np.inf):
    "`lap.lapjv` on top of `assign`: total, column of every row, row of every column, -1 for none."
    cost = np.asarray(cost)
    if cost.ndim != 2 or not cost.size or (cost.shape[0] != cost.shape[1] and not extend_cost):
        raise ValueError("square cost array expected")
    x, y = np.full(cost.shape[0], -1), np.full(cost.shape[1], -1)
    try:
        a = assign(cost, cost_limit=cost_limit if cost_limit < np.inf else None)
    except ValueError:
        return np.inf, x, y
    made = a.rows >= 0
    x[a.rows[made]], y[a.cols[made]] = a.cols[made], a.rows[made]
    return a.total, x, y


@quick
@given(seeds, sides, sides, st.booleans(), st.one_of(st.none(), st.floats(0.1, 6)))
def test_answers_of_lap(seed, h, w, whole, limit):
    lap = pytest.importorskip("lap")
    cost = np.abs(matrix(seed, h, w, whole))
    options = dict(extend_cost=True) | (dict(cost_limit=limit) if limit else {})
    theirs, ours = lap.lapjv(cost, **options), as_lap(cost, **options)
    if not limit:
        assert ours[0] == pytest.approx(theirs[0])
    else:  # pairs that cost the limit may be made or not
        worth = [(t - limit * (x >= 0).sum()) for t, x, _ in (ours, theirs)]
        assert worth[0] == pytest.approx(worth[1], abs=1e-9)
    if not whole:
        assert ours[1].tolist() == list(theirs[1]) and ours[2].tolist() == list(theirs[2])


def test_edges_of_lap():
    with pytest.raises(ValueError):
        as_lap(np.ndarray([]))
    with pytest.raises(ValueError):
        as_lap(np.zeros((3, 2)))
    cost = np.random.default_rng(0).integers(0, 50, (8, 8))
    assert as_lap(cost[:3, :3])[0] == as_lap(cost[:3, :3].copy())[0]  # a view that is not contiguous
    blocked = np.full((5, 5), np.inf)
    assert as_lap(blocked)[0] == np.inf
    blocked[:2, :2], blocked[2:, 1:4] = 1, 2
    assert as_lap(blocked)[0] == np.inf  # a column without a finite cost
    blocked[4, 4] = 3
    assert as_lap(blocked)[0] == 1 + 1 + 2 + 2 + 3


@pytest.mark.parametrize("side, top", [(100, 1000), (300, 10), (300, 10_000)])
def test_large_whole_numbers_of_lap(side, top):
    cost = np.random.default_rng(side + top).integers(1, top, (side, side))
    total, x, y = as_lap(cost)
    assert total == cost[linear_sum_assignment(cost)].sum()
    assert cost[np.arange(side), x].sum() == cost[y, np.arange(side)].sum() == total


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["greedy_delta", "greedy_best", "recursive_top2"])
@pytest.mark.parametrize("shape", [(64, 100, 20), (64, 20, 20), (64, 7, 30)])
def test_batches_on_a_gpu_are_those_on_the_cpu(method, shape):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    here, there = (assign(c, maximize=True, method=method) for c in (x, x.cuda()))
    assert there.rows.is_cuda and torch.equal(there.rows.cpu(), here.rows)
    assert torch.equal(there.cols.cpu(), here.cols) and torch.allclose(there.gap.cpu(), here.gap)


@quick
@given(seeds, sides, sides, st.booleans())
def test_a_sparse_tensor_is_a_matrix_with_forbidden_cells(seed, h, w, maximize):
    full = torch.from_numpy(matrix(seed, h, w, True))
    stored = full.to_sparse()  # zeros are not stored
    cells = torch.where(full == 0, torch.tensor(-torch.inf if maximize else torch.inf), full)
    try:
        expected = assign(cells, maximize)
    except ValueError:
        with pytest.raises(ValueError, match="allowed cell of its own"):
            assign(stored, maximize)
        return
    found = assign(stored, maximize)
    assert found.total == expected.total and torch.equal(found.cols, expected.cols)


def test_a_list_does_not_lose_masks_or_shapes():
    cost = np.arange(6.0).reshape(2, 3)
    masked = np.ma.masked_array(cost, mask=[[True, False, False]] * 2)
    for several in ([masked, masked], [cost, cost.T], [sparse.csr_array(cost)] * 2):
        with pytest.raises(ValueError, match="Give them to `assign_many`"):
            assign(several)
        assert len(assign_many(several)) == 2
    assert assign([cost, cost]).cols.shape == (2, 2)
