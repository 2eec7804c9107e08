"The whole model of section 3.2 in small: what the tower reads, what learns, what is refused."

import numpy as np
import pytest
import torch
from made_tower import WORDS
from torch.nn import functional as F

from brace_nb.foundations import clip_loss
from brace_nb.grounding import (
    BRIDGES,
    WholeModel,
    cosines_with_frozen,
    prequential_losses,
    train_whole_model,
    trim_padding,
)

torch.set_num_threads(1)


@pytest.mark.parametrize("bridge", BRIDGES)
def test_gradient_reaches_the_source_and_never_the_tower(text_tower, bridge):
    tower, tokenizer, ids = text_tower
    tower.requires_grad_(False)
    model = WholeModel(tower, 300, tokenizer.end, bridge, layers=1, heads=2)
    out = model(ids)
    assert out.shape == (len(WORDS), 16) and torch.allclose(
        out.norm(dim=-1), torch.ones(len(WORDS)), atol=1e-5
    )
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    assert model.embedding.weight.grad.abs().sum() > 0 and all(p.grad is None for p in tower.parameters())
    assert not {id(p) for p in tower.parameters()} & {id(p) for p in model.parameters()}


def test_chosen_tokens_are_read_as_the_tower_reads_them(text_tower):
    "Without noise the Gumbel bridge is the tower's own reading of the chosen tokens."
    tower, tokenizer, ids = text_tower
    model = WholeModel(tower, 300, tokenizer.end, "gumbel one-hot", layers=1, heads=2).eval()
    with torch.no_grad():
        states = model.states(ids)
        chosen = model.to_inputs(states).argmax(-1)
        assert torch.allclose(model.inputs(states), tower.token_embedding(chosen), atol=1e-6)
        x = tower.token_embedding(chosen) + tower.positional_embedding[: ids.shape[1]]
        x = tower.ln_final(tower.transformer(x, attn_mask=tower.attn_mask[: ids.shape[1], : ids.shape[1]]))
        own = (
            torch.stack([x[i, (row == tokenizer.end).nonzero()[0, 0]] for i, row in enumerate(ids)])
            @ tower.text_projection
        )
        assert torch.allclose(model(ids), F.normalize(own, dim=-1), atol=1e-5)


@pytest.mark.parametrize("how", [dict(bridge="gumbel one-hot"), dict(bridge="linear", read="gumbel")])
def test_a_choice_without_noise_is_the_same_in_training(text_tower, how):
    tower, tokenizer, ids = text_tower
    for noisy in (False, True):
        model = WholeModel(tower, 300, tokenizer.end, layers=1, heads=2, noisy=noisy, **how)
        model.translator.eval()  # no dropout
        with torch.no_grad():
            first, again, asked = model(ids), model(ids), model.eval()(ids)
        assert torch.equal(first, asked) != noisy and torch.equal(first, again) != noisy


def test_padding_does_not_matter(text_tower):
    tower, tokenizer, ids = text_tower
    model = WholeModel(tower, 300, tokenizer.end, "linear", layers=2, heads=2).eval()
    with torch.no_grad():
        assert torch.allclose(model(ids), model(trim_padding(ids)), atol=1e-5)
    assert trim_padding(ids).shape[1] == max((row != 0).sum() for row in ids) and trim_padding(
        torch.zeros(2, 5, dtype=torch.long)
    ).shape == (2, 1)


def test_training_repeats_lowers_the_loss_and_counts_cosines(text_tower):
    tower, tokenizer, ids = text_tower
    with torch.no_grad():
        target = F.normalize(tower.encode_text(ids.roll(1, 0)), dim=-1)
    runs = []
    for _ in range(2):
        model = WholeModel(tower, 300, tokenizer.end, "identity", layers=1, heads=2, seed=3)
        runs.append(
            train_whole_model(
                model,
                ids,
                [target, target],
                lambda f: (clip_loss(f[0], f[-1], 10.0) + clip_loss(f[1], f[-1], 10.0)) / 2,
                steps=25,
                batch_size=6,
                learning_rate=3e-3,
            )
        )
    assert runs[0] == runs[1] and runs[0][-1]["loss"] < runs[0][0]["loss"]
    model = WholeModel(tower, 300, tokenizer.end, "identity", layers=1, heads=2, seed=3)
    with torch.no_grad():
        S = (model(ids) @ target.T).numpy()
    assert np.isclose(runs[0][0]["positive"], np.trace(S) / 6, atol=1e-5) and np.isclose(
        runs[0][0]["negative"], (S.sum() - np.trace(S)) / 30, atol=1e-5
    )


def test_bad_input_is_refused(text_tower):
    tower, tokenizer, ids = text_tower
    model = WholeModel(tower, 300, tokenizer.end, layers=1, heads=2)
    with pytest.raises(ValueError, match="identity, linear, soft tokens, gumbel one-hot"):
        WholeModel(tower, 300, tokenizer.end, "beam")
    for frozen, size, message in (
        ([], 2, "one modality"),
        ([torch.zeros(2, 16)], 2, "features of the 6 items"),
        ([torch.zeros(6, 16)], 7, "from 2 to the number of items"),
        ([torch.zeros(6, 16)], 1, "from 2"),
    ):
        with pytest.raises(ValueError, match=message):
            train_whole_model(model, ids, frozen, lambda f: f[0].sum(), 1, size)


def test_cosines_with_frozen_equal_a_loop():
    features = [
        F.normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(i)), dim=-1) for i in range(3)
    ]
    own = [float(features[-1][i] @ f[i]) for f in features[:2] for i in range(5)]
    others = [
        float(features[-1][i] @ f[j]) for f in features[:2] for i in range(5) for j in range(5) if i != j
    ]
    got = cosines_with_frozen(features)
    assert np.isclose(got["positive"], np.mean(own), atol=1e-6)
    assert np.isclose(got["negative"], np.mean(others), atol=1e-6)


def test_prequential_loss_is_a_code_length_and_the_other_is_not():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(400, 20, generator=g), torch.randint(0, 50, (400,), generator=g)
    before, after = prequential_losses(x, y, 50, updates=30, learning_rate=0.05)
    assert len(before) == len(after) == 13 and before.mean() > np.log(50) > 1 > after.mean()
    learnable = torch.nn.functional.one_hot(y, 50).float() @ torch.randn(50, 20, generator=g)
    before, _ = prequential_losses(learnable, y, 50, updates=5, learning_rate=0.05)
    assert (
        before[-3:].mean() < before[0]
        and (prequential_losses(x, y, 50)[0] == prequential_losses(x, y, 50)[0]).all()
    )


@pytest.mark.parametrize(
    "features, targets, updates, message",
    [
        (torch.zeros(3, 2), torch.tensor([0, 1, 5]), 1, "from 0 to 3"),
        (torch.zeros(3, 2), torch.tensor([0]), 1, "targets must have the shape"),
        (torch.zeros(1, 2), torch.tensor([0]), 0, "updates must be a whole number >= 1"),
    ],
)
def test_streams_that_do_not_fit_are_refused(features, targets, updates, message):
    with pytest.raises(ValueError, match=message):
        prequential_losses(features, targets, 4, updates=updates)
