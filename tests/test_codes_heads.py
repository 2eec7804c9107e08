"Heads and their losses."

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from brace_nb.codes import (
    BinaryHead,
    TernaryHead,
    alignment_loss,
    binarize,
    nearest_corner,
    ternarize,
    uniformity_loss,
)
from brace_nb.evaluation import uniformity


def unit(*shape, seed=0, positive=True, dtype=torch.float64):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return F.normalize(F.softplus(3 * x) if positive else x, dim=-1)


@pytest.mark.parametrize("layers", [0, 1, 3])
@pytest.mark.parametrize("head", [BinaryHead, TernaryHead])
def test_heads_are_the_formula_of_the_post(head, layers):
    torch.manual_seed(0)
    f = head(7, 11, 5, layers).double()
    x = torch.randn(2, 3, 7, dtype=torch.float64)
    h, linear = x, [m for m in f.net if isinstance(m, torch.nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == list(
        zip([7] + [11] * layers, [11] * layers + [5])
    )
    for m in linear[:-1]:
        z = h @ m.weight.T + m.bias
        h = z / 2 * (1 + torch.erf(z / math.sqrt(2)))
    z = h @ linear[-1].weight.T + linear[-1].bias
    if head is BinaryHead:
        z = torch.log(1 + torch.exp(z))
    assert torch.allclose(f(x), z / (z * z).sum(-1, keepdim=True).sqrt(), atol=1e-12)
    assert ((f(x) > 0).all().item()) == (head is BinaryHead) and torch.allclose(
        f(x).norm(dim=-1), torch.ones(2, 3, dtype=torch.float64)
    )


def plain_alignment(x, y, ternary):
    total = 0.0
    for u, v in zip(x.tolist(), y.tolist()):
        best = (-2, None)
        for w in u, v:
            code = (ternarize if ternary else binarize)(np.array(w)).astype(float)
            corner = code / math.sqrt((code * code).sum())
            cosine = sum(p * q for p, q in zip(w, corner)) / math.sqrt(sum(p * p for p in w))
            if cosine > best[0]:
                best = cosine, corner
        total += sum((p - b) ** 2 + (q - b) ** 2 for p, q, b in zip(u, v, best[1])) / 2
    return total / len(x)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(2, 12), st.integers(0, 10**6), st.booleans())
def test_alignment_equals_the_plain_loop(n, dim, seed, ternary):
    x, y = unit(n, dim, seed=seed, positive=not ternary), unit(n, dim, seed=seed + 1, positive=not ternary)
    assert alignment_loss(x, y, ternary).item() == pytest.approx(
        plain_alignment(x, y, ternary), rel=1e-9, abs=1e-12
    )
    assert alignment_loss(y, x, ternary).item() == pytest.approx(
        alignment_loss(x, y, ternary).item(), rel=1e-12
    )


@pytest.mark.parametrize("ternary", [False, True])
def test_alignment_has_a_detached_target(ternary):
    x, y = (unit(20, 16, seed=s, positive=not ternary).requires_grad_() for s in (1, 2))
    alignment_loss(x, y, ternary).backward()
    (bx, cx), (by, cy) = nearest_corner(x, ternary), nearest_corner(y, ternary)
    b = torch.where(cx >= cy, bx, by)
    assert 0 < (cx >= cy).sum() < 20 and not b.requires_grad
    assert torch.allclose(x.grad, (x - b).detach() / 20) and torch.allclose(y.grad, (y - b).detach() / 20)
    assert torch.autograd.gradcheck(
        lambda u, v: alignment_loss(u, v, ternary), (x.detach().requires_grad_(), y.detach().requires_grad_())
    )


def test_alignment_vanishes_exactly_on_common_corners():
    corner = F.normalize(
        (
            (torch.rand(8, 30, generator=torch.Generator().manual_seed(0)) < 0.2) | torch.eye(8, 30).bool()
        ).double(),
        dim=-1,
    )
    assert (
        alignment_loss(corner, corner).item() == pytest.approx(0, abs=1e-12)
        and alignment_loss(corner, unit(8, 30)).item() > 0.01
    )


def test_a_step_along_the_alignment_gradient_brings_partners_closer_to_a_corner():
    x, y = (unit(50, 32, seed=s).requires_grad_() for s in (3, 4))
    before = alignment_loss(x, y)
    before.backward()
    assert alignment_loss(F.normalize(x - 5 * x.grad, dim=-1), F.normalize(y - 5 * y.grad, dim=-1)) < before


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 8), st.integers(1, 6), st.integers(0, 10**6))
def test_uniformity_equals_the_plain_loop(n, dim, seed):
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    total = sum(
        math.exp(-2 * sum((p - q) ** 2 for p, q in zip(x[i].tolist(), x[j].tolist())))
        for i in range(n)
        for j in range(i)
    )
    if total > 1e-200:
        assert uniformity_loss(x).item() == pytest.approx(
            math.log(total / (n * (n - 1) / 2)), rel=1e-9, abs=1e-9
        )


def test_uniformity_gradient_and_extremes():
    assert torch.autograd.gradcheck(uniformity_loss, unit(5, 4).requires_grad_())
    same = unit(1, 4).expand(6, 4).clone().requires_grad_()
    loss = uniformity_loss(same)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-12) and same.grad.isfinite().all()
    assert uniformity_loss(torch.eye(5)).item() == pytest.approx(-4, abs=1e-6)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: BinaryHead(0, 4, 4), "in_features must be"),
        (lambda: TernaryHead(4, 4, 4, layers=-1), "layers must be a whole number >= 0; got -1"),
        (lambda: alignment_loss(torch.ones(3, 4), torch.ones(2, 4)), "got shapes (3, 4) and (2, 4)"),
        (lambda: uniformity_loss(torch.ones(1, 4)), "got (1, 4)"),
        (lambda: uniformity_loss(torch.ones(4)), "got (4,)"),
    ],
)
def test_losses_refuse(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value)


def test_uniformity_is_the_measure_of_evaluation():
    x = unit(60, 9)
    assert uniformity_loss(x).item() == pytest.approx(uniformity(x).item(), rel=1e-12)
