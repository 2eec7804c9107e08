"Cycles against walks, enumeration, the recurrence as stated, simulation and known constants."

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.as_printed.assignment import legacy_cycle_count, printed_cycle_counts
from brace_nb.assignment import (
    GOLOMB_DICKMAN,
    cycle_lengths,
    cycle_sum,
    derangements,
    dickman,
    expected_cycle_sum,
    expected_longest,
    longest_cycle_counts,
    longest_cycle_probabilities,
    longest_density,
)

quick = settings(max_examples=100, deadline=None)


def walk(p):
    out = []
    for i in range(len(p)):
        j, n = p[i], 1
        while j != i:
            j = p[j]
            n += 1
        out.append(n)
    return out


@quick
@given(st.integers(1, 70).flatmap(lambda n: st.permutations(range(n))))
def test_lengths_equal_walks(p):
    L = cycle_lengths(np.array(p))
    assert L.tolist() == walk(p) and cycle_sum(np.array(p)) == sum(walk(p))
    P = np.eye(len(p), dtype=int)[p]
    assert (L == 1).sum() == np.trace(P) and (L == 2).sum() == np.trace(P @ P) - np.trace(P)
    assert np.array_equal(((P * P.T) - np.diag(np.diag(P))).sum(-1), L == 2)
    for d in (4, 6):  # Moebius inversion
        mu = {4: {1: 0, 2: -1, 4: 1}, 6: {1: 1, 2: -1, 3: -1, 6: 1}}[d]
        assert (L == d).sum() == sum(m * np.trace(np.linalg.matrix_power(P, e)) for e, m in mu.items())


def test_lengths_of_batches_and_extremes():
    r = np.random.default_rng(0)
    p = np.stack([r.permutation(33) for _ in range(12)]).reshape(3, 4, 33)
    L = cycle_lengths(p)
    for at in np.ndindex(3, 4):
        assert L[at].tolist() == walk(p[at])
    assert torch.equal(cycle_lengths(torch.from_numpy(p)), torch.from_numpy(L)) and cycle_sum(p).shape == (
        3,
        4,
    )
    for n in (1, 2, 3, 4, 5, 64, 65, 1000):
        ring = np.roll(np.arange(n), 1)
        assert (cycle_lengths(ring) == n).all() and cycle_sum(ring) == n * n and cycle_sum(np.arange(n)) == n


@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("shortest", [1, 2, 3])
def test_counts_by_enumeration(n, shortest):
    found = Counter(max(L) for p in itertools.permutations(range(n)) if min(L := walk(p)) >= shortest)
    assert longest_cycle_counts(n, shortest) == tuple(found[k] for k in range(n + 1))


def recurrence(n):
    "The formula as the spec states it, with t from 0."
    L = {(0, 0): 1}
    for m in range(1, n + 1):
        for k in range(1, m + 1):
            L[k, m] = sum(
                Fraction(math.factorial(m), math.factorial(m - k * j) * math.factorial(j) * k**j)
                * sum(L.get((t, m - k * j), 0) for t in range(min(k - 1, m - k * j) + 1))
                for j in range(1, m // k + 1)
            )
    return tuple(int(L.get((k, n), 0)) for k in range(n + 1))


def test_counts_equal_the_recurrence_and_its_totals():
    for n in (6, 9, 14, 20):
        assert longest_cycle_counts(n) == recurrence(n)
    assert longest_cycle_counts(6) == (0, 1, 75, 200, 180, 144, 120)
    for n in (1, 5, 40):
        c = longest_cycle_counts(n)
        assert sum(c) == math.factorial(n) and c[1] == 1 and c[n] == math.factorial(n - 1)
    assert [derangements(n) for n in range(8)] == [1, 0, 1, 2, 9, 44, 265, 1854]
    assert [sum(longest_cycle_counts(n, 3)) for n in range(8)] == [1, 0, 0, 2, 6, 24, 160, 1140]


def test_probabilities():
    for n in (7, 30):
        assert all(longest_cycle_probabilities(n)[k] == Fraction(1, k) for k in range(n // 2 + 1, n + 1))
    P = longest_cycle_probabilities(100)

    def H(k):
        return sum(Fraction(1, i) for i in range(1, k + 1))

    for k in (50, 61, 77, 100):
        assert sum(P[: k + 1]) == 1 - (H(100) - H(k))
    says = [1, 0.75, 0.7222, 0.6979, 0.685, 0.6738, 0.6679, 0.6620, 0.6583, 0.6548]
    assert [float(expected_longest(n)) / n for n in range(1, 11)] == pytest.approx(says, abs=5e-5)
    assert float(expected_longest(100)) / 100 == pytest.approx(0.627444, abs=5e-7)
    assert float(expected_longest(300)) / 300 == pytest.approx(GOLOMB_DICKMAN * (1 + 1 / 600), abs=1e-5)


@pytest.mark.parametrize("n", [4, 6, 7])
def test_given_fixed_points(n):
    every = [walk(p) for p in itertools.permutations(range(n))]
    for f in [*range(n - 1), n]:
        some = [L for L in every if L.count(1) == f]
        found = Counter(max(L) for L in some)
        assert longest_cycle_probabilities(n, f) == [Fraction(found[k], len(some)) for k in range(n + 1)]
        assert expected_longest(n, f) == Fraction(sum(max(L) for L in some), len(some))
        assert expected_cycle_sum(n, f) == Fraction(sum(map(sum, some)), len(some))
    assert expected_cycle_sum(n) == Fraction(sum(map(sum, every)), len(every)) == Fraction(n * (n + 1), 2)


def test_simulation():
    r = np.random.default_rng(0)
    L = cycle_lengths(np.argsort(r.random((20000, 40)), -1))
    assert L.max(-1).mean() == pytest.approx(float(expected_longest(40)), rel=0.01) and L.sum(
        -1
    ).mean() == pytest.approx(820, rel=0.02)
    assert (1 / L).sum(-1).mean() == pytest.approx(
        sum(1 / i for i in range(1, 41)), rel=0.01
    )  # number of cycles, H_n
    share = np.bincount(L[:, 0], minlength=41)[1:] / 20000
    assert abs(share - 1 / 40).max() < 0.006  # uniform through an item


def test_dickman():
    assert dickman(np.array([-1, 0, 0.5, 1])).tolist() == [0, 1, 1, 1] and dickman(1.7) == pytest.approx(
        1 - math.log(1.7), abs=1e-15
    )
    known = {
        2: 0.3068528194400547,
        3: 0.0486083882911316,
        4: 0.0049109256477608,
        5: 0.000354724700456,
        6: 1.96496963539e-5,
        10: 2.7701718377e-11,
    }
    for u, says in known.items():
        assert dickman(u) == pytest.approx(says, rel=1e-10)
    u = np.linspace(1.3, 12.7, 58)  # u rho'(u) = -rho(u - 1)
    inside = u[abs(u - u.round()) > 0.02]
    np.testing.assert_allclose(
        inside * (dickman(inside + 1e-4) - dickman(inside - 1e-4)) / 2e-4, -dickman(inside - 1), rtol=1e-5
    )
    assert longest_density(np.array([0.5, 0.8, 1])) == pytest.approx([2, 1.25, 1])
    n = 400
    P = longest_cycle_probabilities(n)
    for k in (90, 120, 160, 200):
        assert n * float(P[k]) == pytest.approx(float(longest_density(k / n)), rel=0.03)


def test_legacy_counter():
    "The thesis's loop, run on real cycles."
    for n, says in zip(range(1, 9), (1, 2, 1, 2, 3, 4, 5, 6)):
        p, at, t = np.roll(np.arange(n), 1), 0, 0
        for _ in range(2):
            at = p[at]
        while t == 0 or at != 0:
            at = p[at]
            t += 1
        assert legacy_cycle_count(n) == says == t


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: cycle_lengths([0, 0]), "must occur once"),
        (lambda: cycle_lengths([1, 2]), "must occur once"),
        (lambda: cycle_lengths([0.5]), "whole numbers"),
        (lambda: cycle_lengths(np.zeros((2, 0), int)), "n >= 1"),
        (lambda: longest_cycle_counts(-1), "n must be a whole number >= 0"),
        (lambda: longest_cycle_probabilities(0), "n must be a whole number >= 1"),
        (lambda: longest_cycle_probabilities(5, fixed=4), "but not 4"),
        (lambda: longest_cycle_probabilities(1, shortest=2), "no permutation"),
        (lambda: expected_cycle_sum(5, 4), "but not 4"),
        (lambda: longest_density([0.0]), r"\(0, 1\]"),
        (lambda: dickman(math.nan), "NaN"),
        (lambda: legacy_cycle_count(0), "one element"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_printed_recurrence_loses_permutations():
    assert [sum(printed_cycle_counts(n)) for n in (1, 2, 3, 4, 6, 7)] == [1, 2, 6, 21, 665, 4830]
    for n in (4, 6, 7, 8):  # n = 5 comes out right: no k < 5 divides it
        printed, true = printed_cycle_counts(n), longest_cycle_counts(n)
        assert (
            all(a <= b for a, b in zip(printed, true))
            and printed[n] == true[n]
            and sum(printed) < math.factorial(n)
        )
        assert printed_cycle_counts(n, False)[n] == 0  # as printed: a single cycle of all is never counted
