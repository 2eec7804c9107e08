"Rounding against a search among all values, counts, bounds on what survives, ties against order."

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.as_printed.assignment import legacy_greedy_delta, legacy_match_batch
from brace_nb.assignment import (
    FLOAT_FORMATS,
    MATCHERS,
    agreement_from_counts,
    assign,
    break_ties,
    is_valid,
    kept_share,
    precision_study,
    quantize,
    representable,
    rounding_losses,
    sample_matrices,
    to_matrix,
    total_score,
)

quick = settings(max_examples=100, deadline=None)
SMALL = ["fp16", "bf16", "e4m3", "e5m2"]


def nearest(x, dtype):
    "Nearest value of a format by search, ties to the even significand."
    if math.isinf(x):
        return x
    values = representable(dtype).double().numpy()
    distance = abs(values - min(max(x, values[0]), values[-1]))
    best = np.flatnonzero(distance == distance.min())
    if len(best) == 1:
        return float(values[best[0]])
    step = abs(values[best[1]] - values[best[0]])
    return float(next(values[b] for b in best if round(values[b] / step) % 2 == 0))


@quick
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20), st.sampled_from(SMALL))
def test_quantize_is_the_nearest_value(x, dtype):
    np.testing.assert_array_equal(
        quantize(np.float32(x), dtype), [nearest(float(np.float32(a)), dtype) for a in x]
    )


@pytest.mark.parametrize("dtype", SMALL)
def test_midpoints_and_fixed_points(dtype):
    v = representable(dtype)
    assert torch.equal(quantize(v, dtype), v)
    some = v if len(v) < 300 else v[::37]
    mid = ((some[1:].double() + some[:-1].double()) / 2).float()
    np.testing.assert_array_equal(quantize(mid, dtype), [nearest(float(m), dtype) for m in mid])
    assert (
        (v[1:] > v[:-1]).all()
        and v[v > 0].min() == FLOAT_FORMATS[dtype].step
        and v.max() == torch.finfo(FLOAT_FORMATS[dtype].dtype).max
    )


def test_counts_and_stated_values():
    v = {d: representable(d) for d in ("e4m3", "e5m2")}
    assert [len(v[d]) for d in v] == [253, 247] and [int((v[d] > 0).sum()) for d in v] == [126, 123]
    assert [int((v[d] >= 0).sum()) for d in v] == [127, 124] and [
        int(((v[d] >= 0) & (v[d] <= 1)).sum()) for d in v
    ] == [57, 61]
    assert [int(((v[d] >= 0.25) & (v[d] < 1)).sum()) for d in v] == [16, 8] and [
        float(v[d].max()) for d in v
    ] == [448, 57344]
    assert [quantize(np.float32(5.5), d) for d in v] == [5.5, 6] and [
        quantize(np.float32(0.3), d) for d in v
    ] == [0.3125, 0.3125]


def test_kinds_and_extremes():
    x = np.array([1e300, -1e300, math.inf, -math.inf, 1e9])
    for d, f in FLOAT_FORMATS.items():
        top = torch.finfo(f.dtype).max
        q = quantize(x, d)
        assert q.dtype == np.float64 and q[:4].tolist() == [top, -top, math.inf, -math.inf] and q[4] <= top
        assert (
            quantize(torch.ones(2, dtype=torch.float16), d).dtype == torch.float32
            and np.isnan(quantize(np.float32([math.nan]), d)).all()
        )
    assert np.array_equal(quantize(np.arange(5), "e4m3"), np.arange(5)) and quantize(
        0.3, "fp32"
    ) == np.float32(0.3)


@pytest.mark.parametrize("dtype", ["bf16", "e4m3", "e5m2"])
def test_what_must_survive(dtype):
    for kind in ("uniform", "half_normal"):
        x = sample_matrices(kind, (100, 12, 9)).double() + 0.02
        a = assign(quantize(x, dtype), True)
        got, best = total_score(x, to_matrix(a.rows, a.cols, x.shape)), assign(x, True).total
        assert (got >= kept_share(dtype) * best - 1e-9).all()
        d = (quantize(x, dtype) - x).abs().amax((-2, -1))
        assert (best - got <= 2 * 9 * d + 1e-9).all()
    assert kept_share("e4m3") == 15 / 17 and kept_share("e5m2") == 7 / 9


@quick
@given(st.integers(0, 10**6), st.sampled_from(["e4m3", "e5m2"]), st.booleans())
def test_losses_by_enumeration(seed, dtype, maximize):
    r = np.random.default_rng(seed)
    x = r.random((4, 4)).astype(np.float32) if seed % 2 else r.normal(5.5, 2.5, (4, 4)).astype(np.float32)
    q, sign = quantize(x, dtype).astype(float), 1 if maximize else -1
    every = list(itertools.permutations(range(4)))
    true = [sign * sum(float(x[i, p[i]]) for i in range(4)) for p in every]
    cast = [sign * sum(q[i, p[i]] for i in range(4)) for p in every]
    tied = max(t for t, c in zip(true, cast) if c == max(cast))
    found = rounding_losses(x, dtype, maximize)
    a = assign(q, maximize)
    assert found.order == pytest.approx(max(true) - tied, abs=1e-9)
    assert (
        found.ties == pytest.approx(tied - sign * float(x[a.rows, a.cols].astype(float).sum()), abs=1e-9)
        and found.ties >= -1e-12
    )


def test_bad_input():
    with pytest.raises(ValueError, match="fp32, fp16, bf16, e4m3, e5m2"):
        quantize([1.0], "fp8")
    with pytest.raises(ValueError, match="too many"):
        representable("fp32")
    with pytest.raises(ValueError, match="real"):
        quantize([1j], "e4m3")
    with pytest.raises(ValueError, match="beyond float64"):
        rounding_losses([[1.0]], "fp16")
    with pytest.raises(ValueError, match="finite"):
        rounding_losses([[math.inf, 1.0]], "e4m3")


@pytest.mark.parametrize("shape", [(6, 9, 9), (4, 5, 8), (4, 8, 5)])
@pytest.mark.parametrize("maximize", [True, False])
def test_study_equals_a_plain_loop(shape, maximize):
    x = sample_matrices("uniform", shape, seed=3)
    formats, methods = ("fp32", "e4m3"), ("exact", "greedy_delta", "argbest", "v3", "v5")
    s = precision_study(x, maximize, formats, methods)
    for f, m in itertools.product(range(2), range(5)):
        for b in range(shape[0]):
            a, t = (
                assign(quantize(x[b], formats[f]), maximize, **MATCHERS[methods[m]]),
                assign(x[b], maximize),
            )
            y, z = ({(int(r), int(c)) for r, c in zip(p.rows, p.cols) if r >= 0} for p in (a, t))
            assert (s.shared[f, m, b], s.cells[f, m, b], s.valid[f, m, b]) == (
                len(y & z),
                len(y),
                bool(a.valid),
            )
            assert s.total[f, m, b] == pytest.approx(sum(float(x[b, r, c]) for r, c in y)) and s.best[
                b
            ] == pytest.approx(float(t.total))
    sign = 1 if maximize else -1
    assert (sign * s.bound >= sign * s.best - 1e-6).all()
    np.testing.assert_allclose(s.chance, [min(shape[1:]) * float(m.double().mean()) for m in x])
    counted, k = agreement_from_counts(s.shared, s.cells, shape), min(shape[1:])
    assert (counted.f1[0, 0] == 1).all() and (counted.missed == 1 - s.cells / k).all()


def plain_legacy(x):
    "Loops in the words of section 2.1 of the spec, on a square matrix of scores."
    n, s = len(x), x.astype(float) - x.min()
    y = np.zeros((n, n), bool)
    for _ in range(n):
        lead = [np.sort(s[:, c])[-1] - np.sort(s[:, c])[-2] for c in range(n)]
        c = int(np.argmax(lead))
        r = int(np.argmax(s[:, c]))
        y[r, c] = True
        s[r], s[:, c] = -1, -1
    return y


def test_legacy_greedy_loses_steps_to_ties():
    for seed in range(30):
        x = np.random.default_rng(seed).integers(0, 5, (7, 7)).astype(np.float32)
        y = legacy_greedy_delta(torch.from_numpy(x)[None], True)[0].numpy()
        assert np.array_equal(y, plain_legacy(x)) and y.sum() <= 7
    x = sample_matrices("normal", (20, 30, 20))
    for up in (True, False):
        a = assign(x, up, "greedy_delta")
        assert torch.equal(
            legacy_greedy_delta(x, up), to_matrix(a.rows, a.cols, x.shape)
        )  # without ties it is the method
        assert torch.equal(legacy_greedy_delta(x.mT, up).sum((-2, -1)), torch.full((20,), 20))
    lost = 20 - legacy_greedy_delta(torch.zeros(1, 20, 20)).sum()
    assert lost == 19
    with pytest.raises(ValueError, match="two cells"):
        legacy_greedy_delta(torch.zeros(1, 1, 1))


def plain_batch_matcher(x, lookup):
    "The loop of the published matcher on one matrix; `lookup` is what its integers or truth values select."
    s = x.astype(np.float64)
    for _ in range(x.shape[1]):
        best = np.sort(s, 0)
        j = int(np.argmax(best[-1] - best[-2]))
        i = int(np.argmax(s[:, j]))
        s[:, j] = 0
        s[i, lookup] = 0
        s[i, j] = -1e-7  # the mark
    return s < 0


@pytest.mark.parametrize("boolean, selected", [(False, [1]), (True, [0, 1, 2, 3, 4, 5])])
def test_legacy_batch_matcher_is_the_loop_with_its_lookup(boolean, selected):
    for seed in range(20):
        x = np.random.default_rng(seed).integers(1, 6, (3, 8, 6)).astype(np.float32)
        found = legacy_match_batch(torch.from_numpy(x), boolean).numpy()
        assert np.array_equal(found, np.stack([plain_batch_matcher(m, selected) for m in x]))
        signed = x - 3  # of negative scores all that are not cleared count
        counted = legacy_match_batch(torch.from_numpy(signed), boolean, negative=True).numpy()
        assert np.array_equal(counted, np.stack([plain_batch_matcher(m, selected) for m in signed]))
    with pytest.raises(ValueError, match="two cells"):
        legacy_match_batch(torch.zeros(1, 5, 1))


def test_legacy_batch_matcher_loses_the_columns_led_by_a_tie():
    q = quantize(sample_matrices("half_normal", (20, 40, 40)), "e5m2")
    tied = (q.topk(2, -2).values.diff(dim=-2)[:, 0] == 0).sum(-1)
    empty = (~legacy_match_batch(q).any(-2)).sum(-1)
    assert tied.min() > 2 and ((empty - tied).abs() <= 2).all()
    assert is_valid(legacy_match_batch(q, boolean=True)).double().mean() >= 0.9


def test_break_ties_is_exact_and_bounded():
    x = sample_matrices("half_normal", (10, 8, 8)).double()
    for d in ("e4m3", "e5m2"):
        q = quantize(x, d)
        assert ((break_ties(x, d) - q).abs().amax((-2, -1)) * 2 * 8 < FLOAT_FORMATS[d].step).all()
        tied = assign(break_ties(x, d), True)
        assert torch.equal(
            total_score(q, to_matrix(tied.rows, tied.cols, x.shape)), assign(q, True).total
        )  # still an optimum of the rounded matrix
    with pytest.raises(ValueError, match="a method must be one of exact"):
        precision_study(x, methods=("v9",))
    with pytest.raises(ValueError, match=r"\(matrices, h, w\)"):
        precision_study(x[0])
