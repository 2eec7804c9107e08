"Contrastive losses against plain loops in float64, open_clip's ClipLoss, and finite differences."
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional as F

from brace_nb.foundations.contrastive import clip_loss, clip_score, pairwise_clip_loss


def unit(*shape, seed=0, dtype=torch.float64):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype), dim=-1)


def loop_clip_loss(x, y, scale):
    "Cross-entropy by hand, one query at a time."
    n, total = len(x), 0.
    for queries, items in ((x, y), (y, x)):
        for i in range(n):
            s = [scale * sum(float(a) * float(b) for a, b in zip(queries[i], items[j])) for j in range(n)]
            top = max(s)
            total += top + np.log(sum(np.exp(v - top) for v in s)) - s[i]
    return total / (2 * n)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 7), d=st.integers(1, 5), scale=st.floats(.01, 100), seed=st.integers(0, 10**6))
def test_clip_loss_is_the_loop(n, d, scale, seed):
    x, y = unit(n, d, seed=seed), unit(n, d, seed=seed + 1)
    assert float(clip_loss(x, y, scale)) == pytest.approx(loop_clip_loss(x, y, scale), rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(views=st.integers(2, 5), n=st.integers(1, 6), seed=st.integers(0, 10**6), weighted=st.booleans(), missing=st.booleans())
def test_pairwise_is_the_loop(views, n, seed, weighted, missing):
    rng, z = np.random.default_rng(seed), unit(views, n, 4, seed=seed)
    w = rng.random((views, views)) if weighted else np.ones((views, views))
    w = w + w.T
    present = rng.random((views, n)) < .6 if missing else np.ones((views, n), bool)
    total = weight = 0.
    for i in range(views):
        for j in range(i):
            both = present[i] & present[j]
            if both.any():
                total += w[i, j] * loop_clip_loss(z[i][both], z[j][both], 7.)
                weight += w[i, j]
    got = pairwise_clip_loss(z, 7., w if weighted else None, torch.from_numpy(present) if missing else None)
    assert float(got) == pytest.approx(total / weight if weight else 0., rel=1e-9, abs=1e-9)


def test_equals_open_clip():
    from brace_nb.foundations.encoders import import_open_clip
    loss = import_open_clip().ClipLoss()
    x, y, scale = unit(32, 16, dtype=torch.float32), unit(32, 16, seed=1, dtype=torch.float32), torch.tensor(14.3)
    assert torch.allclose(clip_loss(x, y, scale), loss(x, y, scale), atol=1e-6)
    assert torch.allclose(pairwise_clip_loss([x, y], scale), loss(x, y, scale), atol=1e-6)


def test_gradients():
    x, y, z = (unit(4, 3, seed=s).requires_grad_() for s in range(3))
    scale = torch.tensor(3., dtype=torch.float64, requires_grad=True)
    present = torch.tensor([[True] * 4, [True, False, True, True], [False, True, True, True]])
    assert torch.autograd.gradcheck(clip_loss, (x, y, scale))
    assert torch.autograd.gradcheck(lambda x, y, z, s: pairwise_clip_loss([x, y, z], s), (x, y, z, scale))
    assert torch.autograd.gradcheck(lambda x, y, z, s: pairwise_clip_loss([x, y, z], s, present=present), (x, y, z, scale))


def test_absent_views_get_no_gradient_even_when_nan():
    z = unit(3, 5, 4).clone()
    present = torch.ones(3, 5, dtype=torch.bool)
    present[1, 2] = False
    z[1, 2] = torch.nan
    z.requires_grad_()
    pairwise_clip_loss(z, 5., present=present).backward()
    assert torch.isfinite(z.grad).all() and not z.grad[1, 2].any() and z.grad[1, 3].any()


def test_permuting_concepts_or_views_changes_nothing():
    z, order = unit(3, 9, 4), torch.randperm(9, generator=torch.Generator().manual_seed(1))
    assert torch.isclose(pairwise_clip_loss(z, 9.), pairwise_clip_loss(z[:, order], 9.))
    assert torch.isclose(pairwise_clip_loss(z, 9.), pairwise_clip_loss(z[[2, 0, 1]], 9.))


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
def test_low_precision(dtype, tolerance):
    z = unit(3, 16, 32)
    got = pairwise_clip_loss(z.to(dtype), 10.)
    assert got.dtype == dtype
    assert float(got) == pytest.approx(float(pairwise_clip_loss(z, 10.)), rel=tolerance)


def test_large_scales_stay_finite():
    z = unit(2, 6, 3, dtype=torch.float32)
    assert torch.isfinite(pairwise_clip_loss(z, 1e4)) and torch.isfinite(clip_loss(z[0], z[1], 1e4))


@pytest.mark.parametrize("call,words", [
    (lambda: clip_loss(torch.ones(3, 2), torch.ones(4, 2), 1.), "as many rows"),
    (lambda: clip_loss(torch.ones(0, 2), torch.ones(0, 2), 1.), "at least one"),
    (lambda: clip_score(torch.ones(3, 2), torch.ones(3, 5)), "one width"),
    (lambda: pairwise_clip_loss([torch.ones(3, 2)], 1.), "at least two"),
    (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1., weights=torch.ones(3, 3)), "symmetric"),
    (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1., weights=[[0, 1], [2, 0]]), "symmetric"),
    (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1., weights=[[1, -1], [-1, 1]]), ">= 0"),
    (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1., weights=torch.eye(2)), "at least one pair"),
    (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1., present=torch.ones(2, 3)), "bool"),
])
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words): call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; torch sees none")
def test_cuda_matches_cpu():
    z = unit(3, 16, 8)
    assert float(pairwise_clip_loss(z.cuda(), 9.)) == pytest.approx(float(pairwise_clip_loss(z, 9.)), rel=1e-9)
