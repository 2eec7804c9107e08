"Where the tower is read, what was written, and an honest head."

import numpy as np
import pytest
import torch
from made_tower import WORDS
from torch.nn import functional as F

from brace_nb.foundations import clip_loss
from brace_nb.grounding import (
    READS,
    LanguageHead,
    WholeModel,
    chosen_tokens,
    elbow,
    encode_inputs,
    read_tokens,
    train_whole_model,
    translations,
)

torch.set_num_threads(1)


def tower_states(model, ids):
    "States of the tower before its last norm, by its own parts."
    tower, x = model.tower[0], model.inputs(model.states(ids))
    length = x.shape[1]
    return tower.transformer(
        x + tower.positional_embedding[:length], attn_mask=tower.attn_mask[:length, :length]
    )


@torch.no_grad()
@pytest.mark.parametrize("read", ["similarity", "gumbel"])
def test_finders_read_the_row_most_like_the_end_token(text_tower, read):
    tower, tokenizer, ids = text_tower
    model = WholeModel(tower, 300, tokenizer.end, layers=1, heads=2, read=read).eval()
    states, end = tower_states(model, ids), tower.token_embedding.weight[-1]
    for row, tokens in enumerate(ids):
        used = int((tokens > 0).sum())
        best = int(np.argmax([float(states[row, s] @ end) for s in range(used)]))
        expected = encode_inputs(tower, model.inputs(model.states(ids[row : row + 1])), torch.tensor([best]))
        assert torch.allclose(model(ids)[row], F.normalize(expected[0], dim=-1), atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("read", READS)
def test_padding_is_never_read(text_tower, read):
    tower, tokenizer, ids = text_tower
    model = WholeModel(tower, 300, tokenizer.end, layers=1, heads=2, read=read).eval()
    short = ids[:, : int((ids > 0).sum(1).max())]
    assert torch.allclose(model(ids), model(short), atol=1e-5)


def test_the_gumbel_finder_has_a_gradient_for_every_place(text_tower):
    tower, tokenizer, ids = text_tower
    model = WholeModel(tower, 300, tokenizer.end, layers=1, heads=2, read="gumbel").eval()
    states = torch.randn(2, 5, 16, requires_grad=True)
    row = READS["gumbel"](model, states, torch.zeros(2, 5, dtype=torch.bool))
    row.square().sum().backward()
    assert (states.grad.abs().sum(-1) > 0).all()


def test_accumulated_batches_are_one_step(text_tower):
    tower, tokenizer, ids = text_tower
    target = F.normalize(torch.randn(6, 16, generator=torch.Generator().manual_seed(0)), dim=-1)

    def contrast(features):
        return clip_loss(features[0], features[1], 5.0)

    def first_losses(steps, accumulate):
        model = WholeModel(tower, 300, tokenizer.end, layers=1, heads=2)
        how = dict(steps=steps, batch_size=3, learning_rate=1e-12, accumulate=accumulate)
        return [h["loss"] for h in train_whole_model(model, ids, [target], contrast, **how)]

    alone = first_losses(4, 1)
    assert first_losses(2, 2) == pytest.approx([np.mean(alone[:2]), np.mean(alone[2:])], abs=1e-4)
    with pytest.raises(ValueError, match="accumulate"):
        first_losses(1, 0)


def test_tokens_of_a_bridge_that_copies_the_table(text_tower):
    tower, tokenizer, ids = text_tower
    model = WholeModel(tower, 300, tokenizer.end, "linear", layers=1, heads=2).eval()
    model.states = lambda tokens: model.table[tokens]
    with torch.no_grad():
        model.to_inputs.weight.copy_(torch.eye(16))
        model.to_inputs.bias.zero_()
    used = ids > 0
    assert torch.equal(chosen_tokens(model, ids)[used], ids[used])
    assert translations(model, tokenizer, ids) == WORDS


def test_reading_stops_at_an_end_and_leaves_special_tokens_out(text_tower):
    _, tokenizer, _ = text_tower
    cat, dog = (tokenizer.encode(w) for w in ("red cat", "blue dog"))
    source = tokenizer(["blue dog blue dog"])
    row = [tokenizer.start, *cat, tokenizer.start, tokenizer.end, *dog]
    tokens = torch.tensor([(row + [0] * source.shape[1])[: source.shape[1]]])
    assert read_tokens(tokens, source, tokenizer, tokenizer.end) == ["red cat"]


def test_a_head_learns_states_and_nothing_from_shuffled_ones():
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(0, 12, (500,), generator=draw)
    x = torch.randn(12, 8, generator=draw)[y] + 0.3 * torch.randn(500, 8, generator=draw)
    head = LanguageHead(x[:300], y[:300], 12)
    logits = head(x[300:]).detach().double().numpy()
    by_hand = np.mean(np.logaddexp.reduce(logits, 1) - logits[np.arange(200), y[300:].numpy()])
    assert head.loss(x[300:], y[300:]) == pytest.approx(by_hand, abs=1e-5) and by_hand < 0.5
    mixed = x[torch.randperm(500, generator=draw)]
    counts = torch.bincount(y[:300], minlength=12) + 1.0
    unigram = float(-(counts / counts.sum()).log()[y[300:]].mean())
    assert LanguageHead(mixed[:300], y[:300], 12).loss(mixed[300:], y[300:]) > unigram - 0.05


@pytest.mark.parametrize("at", [10, 25, 40])
def test_elbow_is_the_best_of_all_bends(at):
    t = torch.arange(50.0)
    losses = torch.where(t < at, 3 - 0.1 * t, 3 - 0.1 * at - 0.02 * (t - at))
    losses = losses + 0.01 * torch.randn(50, generator=torch.Generator().manual_seed(at))
    errors = {}
    for k in range(3, 47):
        columns = np.stack([np.ones(50), t.numpy(), np.maximum(t.numpy() - k, 0)], 1)
        errors[k] = np.linalg.lstsq(columns, losses.numpy(), rcond=None)[1][0]
    step, gone = elbow(losses)
    assert step == min(errors, key=errors.get) and abs(step - at) <= 2 and 0 < gone <= 1
