"Regions against counting cell by cell."

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.ndim import (
    collision_probability,
    mask_value,
    partitions,
    region_mask,
    region_of,
    region_sizes,
    safe_exponent,
)

quick = settings(max_examples=60, deadline=None)
small = st.tuples(st.integers(1, 6), st.integers(1, 5))


def counts(index):
    "Multiplicities by comparing each coordinate with all others."
    left, out = list(index), []
    while left:
        out.append(left.count(left[0]))
        left = [i for i in left if i != left[0]]
    return tuple(sorted(out, reverse=True))


@quick
@given(small)
def test_sizes_and_masks_by_counting(nb):
    n, batch = nb
    cells = list(itertools.product(range(batch), repeat=n))
    want = Counter(map(counts, cells))
    assert region_sizes(n, batch) == want and sum(want.values()) == batch**n
    assert set(partitions(n, batch)) == set(want)
    assert collision_probability(n, batch) == pytest.approx(sum(len(set(c)) < n for c in cells) / len(cells))
    assert [partitions(n)[k] for k in region_mask(n, batch).flatten()] == [counts(c) for c in cells]


@quick
@given(st.lists(st.integers(-3, 9), min_size=1, max_size=9))
def test_region_of(index):
    assert region_of(index) == counts(index) == region_of(index[::-1]) and sum(region_of(index)) == len(index)


@quick
@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_rectangular_masks_and_blocks(shape, random):
    mask = region_mask(len(shape), shape)
    assert mask.shape == torch.Size(shape)
    for index in itertools.product(*map(range, shape)):
        assert partitions(len(shape))[mask[index]] == counts(index)
    starts = [random.randrange(b) for b in shape]
    block = [slice(s, random.randrange(s, b) + 1) for s, b in zip(starts, shape)]
    assert torch.equal(region_mask(len(shape), shape, block), mask[tuple(block)])


def test_number_of_partitions():
    "p(n) by Euler's pentagonal recurrence."
    p = [1]
    for n in range(1, 31):
        pentagonal = [(k * (3 * k - 1) // 2, k) for k in range(-n, n + 1) if k]
        p.append(sum((-1) ** (k + 1) * p[n - g] for g, k in pentagonal if g <= n))
    assert [len(partitions(n)) for n in range(1, 31)] == p[1:]
    assert (
        all(sum(q) == 9 and list(q) == sorted(q, reverse=True) for q in partitions(9))
        and len(set(partitions(9))) == 30
    )
    assert [len(partitions(6, b)) for b in range(1, 7)] == [1, 4, 7, 9, 10, 11]


def test_sizes_far_beyond_memory():
    for n, batch in ((6, 2**15), (12, 1000), (9, 3), (20, 20)):
        assert sum(region_sizes(n, batch).values()) == batch**n
    assert (
        region_sizes(6, 8)[6,] == 8
        and region_sizes(6, 8)[1, 1, 1, 1, 1, 1] == 20160
        and region_sizes(2, 64) == {(2,): 64, (1, 1): 4032}
    )


def test_safe_exponents():
    for n in range(1, 13):
        m, regions = safe_exponent(n), partitions(n)
        assert len({mask_value(p, m) for p in regions}) == len(regions)
        assert m == 1 or len({mask_value(p, m - 1) for p in regions}) < len(regions)
        assert mask_value((n,), m) == n**m
    assert [safe_exponent(n) for n in range(6, 13)] == [3, 3, 4, 4, 4, 4, 4]


def test_stated_numbers():
    assert round(collision_probability(6, 8), 4) == 0.9231 and collision_probability(3, 2) == 1
    assert (
        mask_value((2, 2, 2), 2) == mask_value((3, 1, 1, 1), 2) == 12
        and mask_value((3, 3), 2) == mask_value((4, 1, 1), 2) == 18
    )
    assert sorted(mask_value(p, 4) for p in partitions(6)) == [
        6,
        20,
        34,
        48,
        84,
        98,
        162,
        258,
        272,
        626,
        1296,
    ]


def test_eight_modalities():
    mask = region_mask(8, 3)
    assert Counter(partitions(8)[k] for k in mask.flatten().tolist()) == region_sizes(8, 3)
    assert math.prod(mask.shape) == 3**8


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: partitions(0), "n must be a whole number >= 1; got 0"),
        (lambda: partitions(2.0), "whole number"),
        (lambda: partitions(3, 0), "batch_size must be a whole number"),
        (lambda: region_sizes(3, -1), "batch"),
        (lambda: region_mask(3, (2, 2)), "one per modality: 3; got 2"),
        (lambda: region_mask(2, (2, 0)), "batch"),
        (lambda: region_of(()), "at least one coordinate"),
        (lambda: collision_probability(1.5, 2), "n must be a whole number"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()
