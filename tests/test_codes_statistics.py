"Statistics of sets of codes against plain loops."

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from made_codes import random_codes

from brace_nb.codes import code_statistics, pack


def plain_statistics(codes):
    n, d = codes.shape
    rows = [tuple(map(int, r)) for r in codes]
    count = {r: rows.count(r) for r in rows}
    f = [sum(r[j] for r in rows) / n for j in range(d)]
    h = [sum(-p * math.log2(p) for p in (q, 1 - q) if p) for q in f]
    vary = [j for j in range(d) if 0 < f[j] < 1]
    r = [
        abs(sum((x[i] - f[i]) * (x[j] - f[j]) for x in rows) / n)
        / math.sqrt(f[i] * (1 - f[i]) * f[j] * (1 - f[j]))
        for i in vary
        for j in vary
        if i < j
    ]
    collide = sum(rows[i] == rows[j] for i in range(n) for j in range(n) if i != j)
    return dict(
        rows=n,
        dim=d,
        dead_bits=sum(q == 0 for q in f),
        frequency_max=max(f),
        entropy_mean=sum(h) / d,
        entropy_min=min(h),
        correlation_mean=sum(r) / len(r) if r else math.nan,
        unique=len(count),
        duplicate_fraction=1 - len(count) / n,
        collision_probability=collide / max(n * (n - 1), 1),
        involved_fraction=sum(count[r] > 1 for r in rows) / n,
        code_entropy=sum(-c / n * math.log2(c / n) for c in count.values()),
        active_median=float(np.median([sum(r) for r in rows])),
        active_q90=float(np.quantile([sum(r) for r in rows], 0.9)),
    )


@settings(max_examples=50, deadline=None)
@given(arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 20)), elements=st.booleans()))
def test_statistics_equal_the_plain_loops(codes):
    found, expected = code_statistics(codes), plain_statistics(codes)
    for name, value in expected.items():
        assert found.as_dict()[name] == pytest.approx(value, abs=1e-12, nan_ok=True), name
    assert (found.active == codes.sum(-1)).all() and np.allclose(found.bit_frequency, codes.mean(0))
    packed = code_statistics(pack(codes), dim=codes.shape[1])
    assert all(np.array_equal(v, packed.as_dict()[k], equal_nan=True) for k, v in found.as_dict().items())


def test_statistics_of_many_rows_are_counted_in_pieces():
    codes = random_codes(40_000, 70, density=0.4)
    codes[::10] = codes[0]
    found = code_statistics(torch.from_numpy(codes))
    assert (
        found.unique == 36_001
        and found.involved_fraction == 0.1
        and found.collision_probability == 4000 * 3999 / (40_000 * 39_999)
        and found.duplicate_fraction == pytest.approx(3999 / 40_000)
    )
    off = np.abs(np.corrcoef(codes.T)[np.triu_indices(70, 1)])
    assert found.correlation_mean == pytest.approx(off.mean(), abs=1e-12)


@pytest.mark.parametrize(
    "codes, says",
    [
        (np.zeros((0, 8), bool), "(n>0, D>0); got (0, 8)"),
        (np.zeros(8, bool), "(n>0, D>0); got (8,)"),
        (np.zeros((2, 3, 8), bool), "got (2, 3, 8)"),
        (np.zeros((2, 8)), "float64"),
    ],
)
def test_statistics_refuse(codes, says):
    with pytest.raises(ValueError) as error:
        code_statistics(codes)
    assert says in str(error.value)
