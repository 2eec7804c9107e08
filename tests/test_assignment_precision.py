"Rounding against a search among all values, exact counts, bounds on what survives, and ties against order by enumeration."
import itertools, math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.assignment.precision import FORMATS, kept_share, quantize, representable, rounding_losses
from brace_nb.assignment.problem import sample, to_matrix, total
from brace_nb.assignment.solvers import assign

quick = settings(max_examples=100, deadline=None)
SMALL = ["fp16", "bf16", "e4m3", "e5m2"]

def nearest(x, dtype):
    "Nearest value of a format by search, ties to the even significand."
    if math.isinf(x): return x
    values = representable(dtype).double().numpy()
    distance = abs(values - min(max(x, values[0]), values[-1]))
    best = np.flatnonzero(distance == distance.min())
    if len(best) == 1: return float(values[best[0]])
    step = abs(values[best[1]] - values[best[0]])
    return float(next(values[b] for b in best if round(values[b] / step) % 2 == 0))

@quick
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20), st.sampled_from(SMALL))
def test_quantize_is_the_nearest_value(x, dtype):
    np.testing.assert_array_equal(quantize(np.float32(x), dtype), [nearest(float(np.float32(a)), dtype) for a in x])

@pytest.mark.parametrize("dtype", SMALL)
def test_midpoints_and_fixed_points(dtype):
    v = representable(dtype)
    assert torch.equal(quantize(v, dtype), v)
    some = v if len(v) < 300 else v[::37]
    mid = ((some[1:].double() + some[:-1].double()) / 2).float()
    np.testing.assert_array_equal(quantize(mid, dtype), [nearest(float(m), dtype) for m in mid])
    assert (v[1:] > v[:-1]).all() and v[v > 0].min() == FORMATS[dtype].step and v.max() == torch.finfo(FORMATS[dtype].dtype).max

def test_counts_and_stated_values():
    v = {d: representable(d) for d in ("e4m3", "e5m2")}
    assert [len(v[d]) for d in v] == [253, 247] and [int((v[d] > 0).sum()) for d in v] == [126, 123]
    assert [int((v[d] >= 0).sum()) for d in v] == [127, 124] and [int(((v[d] >= 0) & (v[d] <= 1)).sum()) for d in v] == [57, 61]
    assert [int(((v[d] >= .25) & (v[d] < 1)).sum()) for d in v] == [16, 8] and [float(v[d].max()) for d in v] == [448, 57344]
    assert [quantize(np.float32(5.5), d) for d in v] == [5.5, 6] and [quantize(np.float32(.3), d) for d in v] == [.3125, .3125]

def test_kinds_and_extremes():
    x = np.array([1e300, -1e300, math.inf, -math.inf, 1e9])
    for d, f in FORMATS.items():
        top = torch.finfo(f.dtype).max
        q = quantize(x, d)
        assert q.dtype == np.float64 and q[:4].tolist() == [top, -top, math.inf, -math.inf] and q[4] <= top
        assert quantize(torch.ones(2, dtype=torch.float16), d).dtype == torch.float32 and np.isnan(quantize(np.float32([math.nan]), d)).all()
    assert np.array_equal(quantize(np.arange(5), "e4m3"), np.arange(5)) and quantize(.3, "fp32") == np.float32(.3)

@pytest.mark.parametrize("dtype", ["bf16", "e4m3", "e5m2"])
def test_what_must_survive(dtype):
    for kind in ("uniform", "half_normal"):
        x = sample(kind, (100, 12, 9)).double() + .02
        a = assign(quantize(x, dtype), True)
        got, best = total(x, to_matrix(a.rows, a.cols, x.shape)), assign(x, True).total
        assert (got >= kept_share(dtype) * best - 1e-9).all()
        d = (quantize(x, dtype) - x).abs().amax((-2, -1))
        assert (best - got <= 2 * 9 * d + 1e-9).all()
    assert kept_share("e4m3") == 15/17 and kept_share("e5m2") == 7/9

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
    assert found.ties == pytest.approx(tied - sign * float(x[a.rows, a.cols].astype(float).sum()), abs=1e-9) and found.ties >= -1e-12

def test_bad_input():
    with pytest.raises(ValueError, match="fp32, fp16, bf16, e4m3, e5m2"): quantize([1.], "fp8")
    with pytest.raises(ValueError, match="too many"): representable("fp32")
    with pytest.raises(ValueError, match="real"): quantize([1j], "e4m3")
    with pytest.raises(ValueError, match="beyond float64"): rounding_losses([[1.]], "fp16")
    with pytest.raises(ValueError, match="finite"): rounding_losses([[math.inf, 1.]], "e4m3")
