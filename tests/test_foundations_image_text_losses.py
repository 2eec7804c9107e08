"CLIP's and SigLIP's losses against plain loops in float64 and against open_clip."

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from test_foundations_contrastive_losses import unit

from brace_nb.foundations import (
    clip_loss,
    clip_score,
    import_open_clip,
    pairwise_clip_loss,
    siglip_loss,
    siglip_score,
)


def loop_clip_loss(x, y, scale):
    "Cross-entropy by hand, one query at a time."
    n, total = len(x), 0.0
    for queries, items in ((x, y), (y, x)):
        for i in range(n):
            s = [scale * sum(float(a) * float(b) for a, b in zip(queries[i], items[j])) for j in range(n)]
            top = max(s)
            total += top + np.log(sum(np.exp(v - top) for v in s)) - s[i]
    return total / (2 * n)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 7), d=st.integers(1, 5), scale=st.floats(0.01, 100), seed=st.integers(0, 10**6))
def test_clip_loss_is_the_loop(n, d, scale, seed):
    x, y = unit(n, d, seed=seed), unit(n, d, seed=seed + 1)
    assert float(clip_loss(x, y, scale)) == pytest.approx(loop_clip_loss(x, y, scale), rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    views=st.integers(2, 5),
    n=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    weighted=st.booleans(),
    missing=st.booleans(),
)
def test_pairwise_is_the_loop(views, n, seed, weighted, missing):
    rng, z = np.random.default_rng(seed), unit(views, n, 4, seed=seed)
    w = rng.random((views, views)) if weighted else np.ones((views, views))
    w = w + w.T
    present = rng.random((views, n)) < 0.6 if missing else np.ones((views, n), bool)
    total = weight = 0.0
    for i in range(views):
        for j in range(i):
            both = present[i] & present[j]
            if both.any():
                total += w[i, j] * loop_clip_loss(z[i][both], z[j][both], 7.0)
                weight += w[i, j]
    got = pairwise_clip_loss(z, 7.0, w if weighted else None, torch.from_numpy(present) if missing else None)
    assert float(got) == pytest.approx(total / weight if weight else 0.0, rel=1e-9, abs=1e-9)


def test_equals_open_clip():
    loss = import_open_clip().ClipLoss()
    x, y, scale = (
        unit(32, 16, dtype=torch.float32),
        unit(32, 16, seed=1, dtype=torch.float32),
        torch.tensor(14.3),
    )
    assert torch.allclose(clip_loss(x, y, scale), loss(x, y, scale), atol=1e-6)
    assert torch.allclose(pairwise_clip_loss([x, y], scale), loss(x, y, scale), atol=1e-6)


def test_gradients():
    x, y, z = (unit(4, 3, seed=s).requires_grad_() for s in range(3))
    scale = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    present = torch.tensor([[True] * 4, [True, False, True, True], [False, True, True, True]])
    assert torch.autograd.gradcheck(lambda a, b: siglip_loss(a, b, 3.0, -2.0), (x, y))
    assert torch.autograd.gradcheck(clip_loss, (x, y, scale))
    assert torch.autograd.gradcheck(lambda x, y, z, s: pairwise_clip_loss([x, y, z], s), (x, y, z, scale))
    assert torch.autograd.gradcheck(
        lambda x, y, z, s: pairwise_clip_loss([x, y, z], s, present=present), (x, y, z, scale)
    )


def test_absent_views_get_no_gradient_even_when_nan():
    z = unit(3, 5, 4).clone()
    present = torch.ones(3, 5, dtype=torch.bool)
    present[1, 2] = False
    z[1, 2] = torch.nan
    z.requires_grad_()
    pairwise_clip_loss(z, 5.0, present=present).backward()
    assert torch.isfinite(z.grad).all() and not z.grad[1, 2].any() and z.grad[1, 3].any()


def test_permuting_concepts_or_views_changes_nothing():
    z, order = unit(3, 9, 4), torch.randperm(9, generator=torch.Generator().manual_seed(1))
    assert torch.isclose(pairwise_clip_loss(z, 9.0), pairwise_clip_loss(z[:, order], 9.0))
    assert torch.isclose(pairwise_clip_loss(z, 9.0), pairwise_clip_loss(z[[2, 0, 1]], 9.0))


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
def test_low_precision(dtype, tolerance):
    z = unit(3, 16, 32)
    got = pairwise_clip_loss(z.to(dtype), 10.0)
    assert got.dtype == dtype
    assert float(got) == pytest.approx(float(pairwise_clip_loss(z, 10.0)), rel=tolerance)


def test_large_scales_stay_finite():
    z = unit(2, 6, 3, dtype=torch.float32)
    assert torch.isfinite(pairwise_clip_loss(z, 1e4)) and torch.isfinite(clip_loss(z[0], z[1], 1e4))


def dot(a, b):
    return sum(float(u) * float(v) for u, v in zip(a, b))


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(2, 6),
    d=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    m=st.integers(1, 6),
    scale=st.floats(0.1, 30),
    bias=st.floats(-12, 3),
)
def test_siglip_is_the_loop(n, d, seed, m, scale, bias):
    x, y, z = (
        unit(n, d, seed=seed),
        unit(m, d, seed=seed + 1),
        np.random.default_rng(seed).random((n, m)) < 0.4,
    )
    loop = (
        -sum(
            -math.log1p(math.exp(-(1 if z[i, j] else -1) * (scale * dot(x[i], y[j]) + bias)))
            for i in range(n)
            for j in range(m)
        )
        / n
    )
    assert float(siglip_loss(x, y, scale, bias, torch.from_numpy(z))) == pytest.approx(
        loop, rel=1e-9, abs=1e-9
    )


def test_siglip_equals_open_clip():
    import_open_clip()
    from open_clip.loss import SigLipLoss

    loss = SigLipLoss()
    x, y = unit(16, 8, dtype=torch.float32), unit(16, 8, seed=1, dtype=torch.float32)
    assert torch.allclose(
        siglip_loss(x, y, 12.0, -9.0), loss(x, y, torch.tensor(12.0), torch.tensor(-9.0)), rtol=1e-5
    )
    assert torch.allclose(siglip_score(x, y), 10 * clip_score(x, y) - 10)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: clip_loss(torch.ones(3, 2), torch.ones(4, 2), 1.0), "y must have the shape"),
        (lambda: clip_loss(torch.ones(0, 2), torch.ones(0, 2), 1.0), "N>0"),
        (lambda: clip_score(torch.ones(3, 2), torch.ones(3, 5)), "with D = 2"),
        (lambda: pairwise_clip_loss([torch.ones(3, 2)], 1.0), "at least two"),
        (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1.0, weights=torch.ones(3, 3)), "symmetric"),
        (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1.0, weights=[[0, 1], [2, 0]]), "symmetric"),
        (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1.0, weights=[[1, -1], [-1, 1]]), ">= 0"),
        (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1.0, weights=torch.eye(2)), "at least one pair"),
        (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1.0, present=torch.ones(2, 3)), "bool"),
        (lambda: siglip_loss(torch.ones(3, 2), torch.ones(4, 2)), "matches"),
        (lambda: siglip_loss(torch.ones(3, 2), torch.ones(4, 2), matches=torch.ones(3, 4)), "bool"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.gpu
def test_cuda_matches_cpu():
    z = unit(3, 16, 8)
    assert float(pairwise_clip_loss(z.cuda(), 9.0)) == pytest.approx(
        float(pairwise_clip_loss(z, 9.0)), rel=1e-9
    )
