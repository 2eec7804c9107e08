"InfoNCE and its relatives, with and without negatives, against plain loops in float64."

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional as F

from brace_nb.foundations import (
    INFO_NCE_FORMS,
    barlow_score,
    barlow_twins_loss,
    clip_loss,
    gaussian_entropy,
    info_nce,
    info_nce_score,
    information_bottleneck,
    mil_nce_loss,
    purushwalkam_gupta_loss,
    siglip_loss,
    supcon_loss,
)


def unit(*shape, seed=0, dtype=torch.float64):
    return F.normalize(
        torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype), dim=-1
    )


sizes = dict(n=st.integers(2, 6), d=st.integers(1, 5), seed=st.integers(0, 10**6))
oracle = settings(max_examples=25, deadline=None)
SEVERAL = dict(supcon=supcon_loss, mil_nce=mil_nce_loss)


def dot(a, b):
    return sum(float(u) * float(v) for u, v in zip(a, b))


def log_sum(values):
    return max(values) + math.log(sum(math.exp(v - max(values)) for v in values))


def loop_info_nce(x, y, t, form, queue=None):
    n, total = len(x), 0.0
    for b in range(n):
        own = dot(x[b], y[b]) / t
        if form == "moco":
            total += log_sum([own] + [dot(x[b], q) / t for q in queue]) - own
        elif form == "barlow":
            total += log_sum([dot(x[b], y[c]) / t for c in range(n) if c != b]) - own
        else:
            one = log_sum([dot(x[b], y[c]) / t for c in range(n)]) - own
            total += (
                one
                if form == "one_way"
                else (one + log_sum([dot(x[c], y[b]) / t for c in range(n)]) - own) / 2
            )
    return total if form == "barlow" else total / n


@oracle
@given(**sizes, form=st.sampled_from(list(INFO_NCE_FORMS)), t=st.floats(0.02, 5))
def test_info_nce_is_the_loop(n, d, seed, form, t):
    x, y = unit(n, d, seed=seed), unit(n, d, seed=seed + 1)
    queue = unit(3, d, seed=seed + 2) if form == "moco" else None
    assert float(info_nce(x, y, t, form, queue)) == pytest.approx(
        loop_info_nce(x, y, t, form, queue), rel=1e-9, abs=1e-9
    )


def test_info_nce_forms_agree_where_they_must():
    x, y = unit(8, 4), unit(8, 4, seed=1)
    assert torch.isclose(info_nce(x, y, 0.1), clip_loss(x, y, 10.0))
    assert info_nce_score(x, y, 0.1, "moco", unit(5, 4)).shape == (8, 6)
    n = 64  # all logits equal: log N; the bound log N - L is 0
    assert float(info_nce(torch.ones(n, 1), torch.ones(n, 1))) == pytest.approx(math.log(n), rel=1e-6)


def test_keys_and_queue_of_moco_have_no_gradient():
    x, y, q = (unit(4, 3, seed=s).requires_grad_() for s in range(3))
    info_nce(x, y, 0.2, "moco", q).backward()
    assert x.grad.abs().max() > 0 and y.grad is None and q.grad is None


def loop_positives(x, y, positives, scale, form):
    total = 0.0
    for i in range(len(x)):
        s = [scale * dot(x[i], v) for v in y]
        own = [j for j in range(len(y)) if positives[i][j]]
        total += (
            sum(log_sum(s) - s[j] for j in own) / len(own)
            if form == "supcon"
            else log_sum(s) - log_sum([s[j] for j in own])
        )
    return total / len(x)


@oracle
@given(**sizes, m=st.integers(1, 6), form=st.sampled_from(list(SEVERAL)))
def test_several_positives_are_the_loop(n, d, seed, m, form):
    x, y = unit(n, d, seed=seed), unit(m, d, seed=seed + 1)
    positives = np.random.default_rng(seed).random((n, m)) < 0.5
    positives[np.arange(n), np.arange(n) % m] = True
    got = SEVERAL[form](x, y, torch.from_numpy(positives), 6.0)
    assert float(got) == pytest.approx(loop_positives(x, y, positives, 6.0, form), rel=1e-9, abs=1e-9)


def test_a_second_caption_is_no_negative():
    images, captions, mine = unit(3, 4), unit(6, 4, seed=1), torch.arange(6) // 2 == torch.arange(3)[:, None]
    others = torch.cat([captions, -images])  # candidates of which the captions' siblings are no part
    for form, loss in SEVERAL.items():
        one = loss(images, captions[::2], torch.eye(3, dtype=torch.bool), 5.0)
        assert torch.isclose(one, info_nce(images, captions[::2], 0.2, "one_way"))
        wide = torch.cat([mine, torch.zeros(3, 3, dtype=torch.bool)], 1)
        want = loop_positives(images, others, wide.tolist(), 5.0, form)
        assert float(loss(images, others, wide, 5.0)) == pytest.approx(want)


@oracle
@given(**sizes)
def test_purushwalkam_gupta_is_the_loop(n, d, seed):
    x, related = unit(n, d, seed=seed), np.random.default_rng(seed).random((n, n)) < 0.4
    total = 0.0
    for i in range(n):
        for j in range(n):
            if i == j or not related[i, j]:
                continue
            s = {k: math.exp(4 * dot(x[i], x[k])) for k in range(n)}
            total -= math.log(s[j] / (s[j] + sum(s[k] for k in range(n) if k != i and not related[i, k])))
    assert float(purushwalkam_gupta_loss(x, torch.from_numpy(related), 4.0)) == pytest.approx(
        total, rel=1e-9, abs=1e-9
    )


def test_both_views_stacked_give_nt_xent():
    "SimCLR counts the other samples of the same view among the negatives too."
    x, y = unit(5, 3), unit(5, 3, seed=1)
    z, partner = torch.cat([x, y]), torch.arange(10).roll(5)
    logits = (10 * z @ z.T).masked_fill(torch.eye(10, dtype=torch.bool), -torch.inf)
    got = purushwalkam_gupta_loss(z, partner[:, None] == torch.arange(10), 10.0) / 10
    assert torch.isclose(got, F.cross_entropy(logits, partner)) and got > info_nce(x, y, 0.1)


@oracle
@given(n=st.integers(3, 7), d=st.integers(1, 4), seed=st.integers(0, 10**6), weight=st.floats(0, 2))
def test_barlow_is_the_loop(n, d, seed, weight):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(3, 2, (n, d)), rng.normal(-1, 1, (n, d))
    c = [
        [
            sum((x[b, i] - x[:, i].mean()) * (y[b, j] - y[:, j].mean()) for b in range(n))
            / (
                math.sqrt(sum((x[b, i] - x[:, i].mean()) ** 2 for b in range(n)))
                * math.sqrt(sum((y[b, j] - y[:, j].mean()) ** 2 for b in range(n)))
            )
            for j in range(d)
        ]
        for i in range(d)
    ]
    loss = sum((1 - c[i][i]) ** 2 for i in range(d)) + weight * sum(
        c[i][j] ** 2 for i in range(d) for j in range(d) if i != j
    )
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    assert np.allclose(barlow_score(x, y, 0.0), c, atol=1e-12) and np.allclose(
        barlow_score(x, y, 0.0), np.corrcoef(x.T, y.T)[:d, d:], atol=1e-12
    )
    assert float(barlow_twins_loss(x, y, weight, 0.0)) == pytest.approx(loss, rel=1e-9, abs=1e-9)


def test_barlow_sees_no_shift_and_no_scale():
    x, y = torch.randn(32, 4, dtype=torch.float64), torch.randn(32, 4, dtype=torch.float64)
    factor = torch.tensor([0.1, 2.0, 3.0, 40.0], dtype=torch.float64)
    assert torch.isclose(barlow_twins_loss(x * factor + 5, y, eps=0.0), barlow_twins_loss(x, y, eps=0.0))
    constant = torch.cat([x[:, :3], torch.ones(32, 1)], 1)
    assert torch.isfinite(barlow_twins_loss(constant, y)) and torch.isnan(
        barlow_twins_loss(constant, y, eps=0.0)
    )


def test_gaussian_entropy_is_scipys():
    from scipy.stats import multivariate_normal

    a = np.random.default_rng(0).normal(size=(5, 5))
    c = a @ a.T + np.eye(5)
    assert float(gaussian_entropy(torch.from_numpy(c))) == pytest.approx(
        multivariate_normal(cov=c).entropy(), rel=1e-12
    )


def test_bottleneck_by_hand():
    rng = np.random.default_rng(0)
    views = rng.normal(size=(6, 9, 2)) + 4 * rng.normal(size=(6, 1, 2))

    def h(z):
        return 0.5 * np.log(np.linalg.det(2 * np.pi * np.e * np.cov(z.T, bias=True)))

    loop = np.mean([h(v) for v in views]) + (1 - 3.0) / 3.0 * h(views.reshape(-1, 2))
    assert float(information_bottleneck(torch.from_numpy(views), 3.0, 0.0)) == pytest.approx(loop, rel=1e-10)


def test_gradients():
    x, y = unit(4, 3).requires_grad_(), unit(4, 3, seed=1).requires_grad_()
    wide = [torch.randn(6, 3, dtype=torch.float64).requires_grad_() for _ in range(2)]
    views = torch.randn(2, 5, 2, dtype=torch.float64).requires_grad_()
    related = torch.eye(4, dtype=torch.bool)[[1, 0, 3, 2]]
    for form in ("symmetric", "one_way", "barlow"):
        assert torch.autograd.gradcheck(lambda a, b: info_nce(a, b, 0.3, form), (x, y))
    for loss in (supcon_loss, mil_nce_loss):
        assert torch.autograd.gradcheck(lambda a, b: loss(a, b, related, 4.0), (x, y))
    assert torch.autograd.gradcheck(lambda a: purushwalkam_gupta_loss(a, related, 4.0), (x,))
    assert torch.autograd.gradcheck(lambda a, b: barlow_twins_loss(a, b, 0.5), wide)
    assert torch.autograd.gradcheck(lambda v: information_bottleneck(v, 2.0), (views,))


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y: info_nce(x, y),
        siglip_loss,
        barlow_twins_loss,
        lambda x, y: supcon_loss(x, y, torch.eye(64, dtype=torch.bool), 10.0),
    ],
)
@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 8e-2)])
def test_low_precision(loss, dtype, tolerance):
    x = unit(64, 16)
    y = F.normalize(x + 0.2 * unit(64, 16, seed=1), dim=-1)
    got = loss(x.to(dtype), y.to(dtype))
    assert got.dtype == dtype and float(got) == pytest.approx(float(loss(x, y)), rel=tolerance, abs=tolerance)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: info_nce(torch.ones(3, 2), torch.ones(3, 2), form="simclr"), "form must be one of"),
        (lambda: info_nce(torch.ones(3, 2), torch.ones(3, 2), 0.0), "temperature"),
        (lambda: info_nce(torch.ones(3, 2), torch.ones(3, 2), form="moco"), "queue"),
        (lambda: info_nce(torch.ones(1, 2), torch.ones(1, 2), form="barlow"), "at least two"),
        (
            lambda: supcon_loss(
                torch.ones(2, 2), torch.ones(2, 2), torch.tensor([[True, False], [False, False]]), 1.0
            ),
            "needs a positive",
        ),
        (
            lambda: purushwalkam_gupta_loss(torch.ones(2, 2), torch.ones(2, 3, dtype=torch.bool), 1.0),
            "positives must have",
        ),
        (lambda: barlow_twins_loss(torch.ones(1, 2), torch.ones(1, 2)), "N>1"),
        (lambda: information_bottleneck(torch.ones(3, 1, 2), 2.0), "T>1"),
        (lambda: information_bottleneck(torch.ones(3, 4, 2), 0.0), "beta"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
