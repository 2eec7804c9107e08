"Scenes, Dice, decoders and the runaway weight against hand counts."

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from test_grounding_detection import squares

from brace_nb.grounding import (
    MASK_DECODERS,
    MaskDecoder,
    best_constant,
    dice_loss,
    learn_weight,
    mask_scores,
    render_scenes,
    train_decoder,
)


def test_one_opaque_square_fills_its_box():
    s = render_scenes(squares(5), 30, 0, objects=(1, 1), scale=(0.5, 0.5), grid=32)
    for mask, (left, top, right, bottom) in zip(s.masks, s.boxes):
        rows, columns = mask.nonzero().T
        assert (left, top, right, bottom) == pytest.approx(
            [
                float(columns.min()) / 32,
                float(rows.min()) / 32,
                float(columns.max() + 1) / 32,
                float(rows.max() + 1) / 32,
            ]
        )
        assert (
            0 <= (rows.max() - rows.min() + 1) * (columns.max() - columns.min() + 1) - mask.sum() <= 4
        )  # a rectangle; bilinear corners may miss
        assert 0.45 < right - left < 0.55 and 0.45 < bottom - top < 0.55
    assert all(len(m) == 1 for m in s.members)


def test_scenes_repeat_and_differ_by_seed():
    a, b, c = (render_scenes(squares(5), 6, seed) for seed in (1, 1, 2))
    assert np.array_equal(a.images, b.images) and torch.equal(a.masks, b.masks) and a.members == b.members
    assert (
        not np.array_equal(a.images, c.images) and a.masks.shape == (6, 8, 8) and a.images.dtype == np.uint8
    )
    assert all(1 <= len(set(m)) == len(m) <= 3 for m in a.members)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 4), squared=st.booleans())
def test_dice_and_scores_are_the_loop(seed, n, squared):
    rng = np.random.default_rng(seed)
    p, g = rng.random((n, 3, 3)), (rng.random((n, 3, 3)) < 0.4).astype(float)
    got, s = (
        dice_loss(torch.from_numpy(p), torch.from_numpy(g), squared=squared),
        mask_scores(torch.from_numpy(p > 0.5), torch.from_numpy(g)),
    )
    for i in range(n):
        a, b = p[i].ravel(), g[i].ravel()
        below = sum(a**2) + sum(b**2) if squared else sum(a) + sum(b)
        assert float(got[i]) == pytest.approx(1 - (2 * sum(a * b) + 1) / (below + 1))
        tp, fp, fn = sum((a > 0.5) & (b > 0)), sum((a > 0.5) & (b == 0)), sum((a <= 0.5) & (b > 0))
        assert s["f1"][i] == pytest.approx(2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 1)
        assert s["iou"][i] == pytest.approx(tp / (tp + fp + fn) if tp + fp + fn else 1)
        assert s["pixel_error"][i] == pytest.approx((fp + fn) / 9)


@settings(max_examples=15, deadline=None)
@given(covered=st.integers(1, 99))
def test_best_constants(covered):
    g = torch.zeros(1, 100)
    g[:, :covered] = 1
    f = covered / 100
    assert best_constant(g, lambda p, q: dice_loss(p, q, eps=0.0).nan_to_num(1.0)) == 1
    assert best_constant(g, lambda p, q: dice_loss(p, q, eps=0.0, squared=True)) == pytest.approx(
        math.sqrt(f), abs=0.006
    )
    full = mask_scores(torch.ones_like(g), g)
    assert (
        full["f1"][0] == pytest.approx(2 * f / (1 + f))
        and full["iou"][0] == pytest.approx(f)
        and full["pixel_error"][0] == pytest.approx(1 - f)
    )


@pytest.mark.parametrize("kind", list(MASK_DECODERS))
def test_decoders(kind):
    z, g = torch.eye(4), torch.zeros(4, 8, 8)
    for i in range(4):
        g[i, 2 * i : 2 * i + 2] = 1
    d = MaskDecoder(kind, 4, seed=1)
    before = d(z).detach()
    assert before.shape == (4, 8, 8) and torch.equal(before, MaskDecoder(kind, 4, seed=1)(z).detach())
    rate = 3e-3 if kind == "transformer" else 1e-2
    losses = train_decoder(d, z, g, lambda o, t: dice_loss(o.sigmoid(), t), 200, 4, rate)
    assert len(losses) == 200 and losses[-1] < losses[0]
    out = d(z).detach()
    if kind == "same":
        assert (out == out[:, :1, :1]).all()
    elif kind == "transformer":
        assert out.std((1, 2)).min() > 0  # slow to learn, but cells differ
    else:
        assert mask_scores(out > 0, g)["f1"].mean() > 0.9


def test_training_a_decoder_is_adam_on_half_a_cosine():
    "Five steps against a plain loop; the order of sums in Adam may differ in the last digit."
    z = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    target = torch.randn(20, generator=torch.Generator().manual_seed(1))
    with torch.random.fork_rng():
        torch.manual_seed(2)
        one, two = (torch.nn.Linear(4, 1) for _ in range(2))
    two.load_state_dict(one.state_dict())

    def loss(outputs, wanted):
        return (outputs[:, 0] - wanted).square()

    got = train_decoder(one, z, target, loss, 5, batch_size=6, learning_rate=0.1, seed=3)
    optimizer, draw, wanted = torch.optim.Adam(two.parameters()), torch.Generator().manual_seed(3), []
    for step in range(5):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 + math.cos(math.pi * step / 5)) / 2
        rows = torch.randint(20, (6,), generator=draw)
        value = loss(two(z[rows]), target[rows]).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        wanted.append(float(value.detach()))
    assert got == pytest.approx(wanted, rel=1e-5) and torch.allclose(one.weight, two.weight, atol=1e-6)


def test_free_weight_is_the_sum_of_differences():
    a, b = np.random.default_rng(0).random((2, 50))
    assert np.allclose(learn_weight(a, b, 0.3, 0.2), 0.2 - 0.3 * np.cumsum(a - b))
    assert np.allclose(learn_weight(a, b) + learn_weight(b, a), 1)
    assert 0 < learn_weight(a, b, form="variance").min() and learn_weight(a, b, form="variance").max() < 1


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: render_scenes(squares(5), 2, 0, grid=7), "divide"),
        (lambda: render_scenes(squares(2), 2, 0, objects=(1, 3)), "number of pictures"),
        (lambda: MaskDecoder("cnn", 4), "kind must be"),
        (lambda: dice_loss(torch.ones(1, 2), torch.ones(1, 3)), "one shape"),
        (lambda: mask_scores(torch.ones(1, 2), torch.ones(1, 3)), "one shape"),
        (lambda: learn_weight([1.0], [2.0], form="free"), "form must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
