"Bridges: lookup and product, choices with a gradient, end-of-text finders, memory, against plain loops."

import numpy as np
import pytest
import torch

from brace_nb.foundations import EncoderConfig, build_encoder, encode_tokens
from brace_nb.grounding import (
    BRIDGES,
    as_linear,
    bridge_memory,
    encode_inputs,
    eot_by_id,
    eot_by_largest_id,
    eot_by_similarity,
    eot_gumbel,
    gumbel_noise,
    one_hot,
    rows_at,
    straight_through_choice,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lookup_product_and_linear_layer_agree_with_their_gradients(dtype):
    torch.manual_seed(0)
    table = torch.nn.Embedding(40, 6, dtype=dtype)
    layer, ids = as_linear(table), torch.randint(0, 40, (4, 9))
    p, target = one_hot(ids, 40, dtype).requires_grad_(), torch.randn(4, 9, 6, dtype=dtype)
    outs = [table(ids), p @ table.weight, layer(p)]
    grads = [
        torch.autograd.grad(((o - target) ** 3).sum(), w, retain_graph=True)[0]
        for o, w in zip(outs, (table.weight, table.weight, layer.weight))
    ]
    assert (
        all(torch.equal(outs[0], o) for o in outs)
        and torch.allclose(grads[0], grads[1], atol=1e-4)
        and torch.allclose(grads[0], grads[2].T, atol=1e-4)
    )
    assert layer.weight.data_ptr() != table.weight.data_ptr() and layer.bias is None
    toward = torch.autograd.grad(((outs[2] - target) ** 3).sum(), p)[0]
    assert torch.allclose(toward, 3 * (outs[0] - target).detach() ** 2 @ table.weight.detach().T, atol=1e-4)


def test_two_linear_layers_merge_only_without_a_choice_between():
    g = torch.Generator().manual_seed(0)
    x, a, b = (torch.randn(s, generator=g, dtype=torch.float64) for s in ((5, 4), (4, 7), (7, 3)))
    merged = x @ (a @ b)
    assert (
        torch.allclose((x @ a) @ b, merged)
        and not torch.allclose(straight_through_choice(x @ a) @ b, merged)
        and not torch.allclose((x @ a).softmax(-1) @ b, merged)
    )


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_straight_through_is_hard_forwards_and_soft_backwards(temperature):
    logits = torch.randn(
        6, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).requires_grad_()
    noise, weight = (
        gumbel_noise((6, 9), 2, torch.float64),
        torch.randn(6, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(3)),
    )
    hard, soft = (straight_through_choice(logits, temperature, noise, h) for h in (True, False))
    assert (
        (hard.argmax(-1) == (logits + noise).argmax(-1)).all()
        and torch.allclose(hard.max(-1).values, torch.ones(6, dtype=torch.float64))
        and torch.allclose(soft.sum(-1), torch.ones(6, dtype=torch.float64))
    )
    assert torch.allclose(soft, ((logits + noise) / temperature).softmax(-1))
    g_hard, g_soft = (
        torch.autograd.grad((y * weight).sum(), logits, retain_graph=True)[0] for y in (hard, soft)
    )
    assert torch.allclose(g_hard, g_soft, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda l: straight_through_choice(l, temperature, noise, hard=False), logits
    )


def test_gumbel_noise_repeats_and_has_its_mean():
    a = gumbel_noise((20000,), 5, torch.float64)
    assert (
        torch.equal(a, gumbel_noise((20000,), 5, torch.float64))
        and abs(a.mean() - np.euler_gamma) < 0.03
        and abs(a.var() - np.pi**2 / 6) < 0.06
    )


def test_eot_finders():
    ids = torch.tensor([[10, 1, 11, 0], [10, 11, 11, 0], [10, 2, 3, 11]])
    assert eot_by_id(ids, 11).tolist() == [2, 1, 3] == eot_by_largest_id(ids).tolist()
    with pytest.raises(ValueError, match=r"got none in rows \[0, 2\]"):
        eot_by_id(ids[:, :2], 11)
    assert eot_by_largest_id(ids[:1, :2]).tolist() == [0]
    E = torch.eye(12, dtype=torch.float64)
    x = (one_hot(ids, 12, torch.float64) @ E).requires_grad_()
    e = E[11].clone().requires_grad_()
    position = eot_by_similarity(x, e)
    assert position.tolist() == [2, 1, 3]
    (row_gradient,) = torch.autograd.grad(rows_at(x, position).pow(2).sum(), x)
    assert (row_gradient.abs().sum(-1) > 0).int().tolist() == one_hot(
        position, 4, torch.int64
    ).tolist()  # that row only
    rows, weights = eot_gumbel(x, e, 0.5, gumbel_noise((3, 4), 0, torch.float64) * 0)
    assert torch.allclose(rows, rows_at(x, position)) and (weights.argmax(-1) == position).all()
    soft, w = eot_gumbel(x, e, 0.5, hard=False)
    assert torch.allclose(soft, ((x @ e / 0.5).softmax(-1)[..., None] * x).sum(1))
    (everywhere,) = torch.autograd.grad((rows @ torch.arange(12.0).double()).sum(), x, retain_graph=True)
    assert (everywhere.abs().sum(-1) > 0).all()  # the choice hears every row
    assert (
        not torch.autograd.grad(rows.sum(), e, allow_unused=True)[0] is not None
    )  # the end token is a constant


def test_encode_inputs_equals_the_text_tower_and_reaches_the_choice():
    encoder = build_encoder(
        EncoderConfig(embed_dim=16, text_width=32, text_heads=2, text_layers=2, vocab_size=300)
    )
    ids = encoder.tokenizer(["abc de", "x", "a longer text"])
    for length in (encoder.config.context_length, int(ids.argmax(-1).max()) + 1):
        features = encode_inputs(
            encoder.model,
            encoder.model.token_embedding(ids[:, :length]),
            eot_by_id(ids[:, :length], encoder.tokenizer.end),
        )
        assert torch.allclose(features, encode_tokens(encoder.model, ids), atol=1e-5)
    assert torch.allclose(features, encoder.model.encode_text(ids), atol=1e-5)


def test_bridge_memory_is_the_arithmetic():
    one = bridge_memory("gumbel one-hot")
    assert (
        one["tensor"] == 10 * 80 * 60000 * 4 / 1e6 == 192
        and bridge_memory("gumbel one-hot", bytes_each=2)["tensor"] == 96
    )
    assert (
        bridge_memory("linear")["tensor"] == 10 * 80 * 512 * 4 / 1e6
        and bridge_memory("linear")["weights"] == pytest.approx((512 * 512 + 512) * 4 / 1e6)
        and bridge_memory("identity")["weights"] == 0
    )
    assert all(bridge_memory(b)["with_gradients"] < 1000 for b in BRIDGES)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: straight_through_choice(torch.zeros(3), -1), "temperature"),
        (lambda: bridge_memory("wire"), "name must be one of"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
