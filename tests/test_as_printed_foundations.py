"The notes' losses as printed: where they are right, and where they are not."

import math

import pytest
import torch

from brace_nb.as_printed.foundations import (
    pair_share,
    printed_barlow_twins_loss,
    printed_bottleneck,
    single_root_correlation,
)
from brace_nb.foundations import barlow_score, barlow_twins_loss, information_bottleneck


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_opposites_score_below_independence_as_printed_and_above_it_with_the_square():
    a = normal(256, 1)
    opposite, independent = torch.cat([a, -a], 1), normal(256, 2, seed=1)
    assert printed_barlow_twins_loss(opposite, opposite) == pytest.approx(-2)
    assert printed_barlow_twins_loss(opposite, opposite) < printed_barlow_twins_loss(independent, independent)
    corrected = [barlow_twins_loss(z, z, 1.0, 0.0) for z in (opposite, independent)]
    assert corrected[0] > corrected[1]


def test_one_root_is_two_roots_only_when_centered():
    x, y = normal(64, 5) + 3, normal(64, 5, seed=1) + 3
    centered = single_root_correlation(x - x.mean(0), y - y.mean(0))
    assert torch.allclose(centered, barlow_score(x, y, 0.0), atol=1e-12)
    assert single_root_correlation(x, y).abs().mean() > 0.8 > barlow_score(x, y, 0.0).abs().max()


def test_the_share_is_a_softmax_of_two():
    s = torch.linspace(-1, 1, 9, dtype=torch.float64)
    two = torch.stack([10 * s, torch.full_like(s, 5.0)]).softmax(0)[0]
    assert torch.allclose(pair_share(s), two)


def test_the_printed_bottleneck_lacks_one_half_and_a_constant():
    views = normal(6, 40, 3)
    for beta in (0.5, 1.0, 4.0):
        constant = 3 / beta * math.log(2 * math.pi * math.e)
        twice = 2 * float(information_bottleneck(views, beta, 0.0))
        assert twice - float(printed_bottleneck(views, beta)) == pytest.approx(constant)
