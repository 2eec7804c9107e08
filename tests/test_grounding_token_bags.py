"Bags of tokens learn, repeat, and equal a plain loop."

import numpy as np
import pytest
import torch

from brace_nb.foundations import pairwise_clip_loss
from brace_nb.grounding import TokenBags, train_bags


def test_bags_learn_repeat_and_leave_unseen_tokens_to_weight_decay():
    rng = np.random.default_rng(0)
    bags = [torch.from_numpy(rng.integers(1, 30, (90, 3))) for _ in range(2)]
    pictures = torch.from_numpy(rng.standard_normal((31, 8))).float()[bags[0]].mean(1)
    args = (pictures, bags, 40, np.arange(70), np.arange(70, 90))
    run, again, start = (
        train_bags(*args, steps=40, batch_size=32),
        train_bags(*args, steps=40, batch_size=32),
        train_bags(*args, steps=0),
    )
    assert (
        np.array_equal(run["tokens"], again["tokens"])
        and run["loss"][-5:].mean() < run["loss"][:5].mean() - 0.3
        and run["val_loss"] < start["val_loss"]
    )
    assert (
        run["tokens"].shape == (40, 8)
        and run["texts"].shape == run["images"].shape == (90, 8)
        and np.allclose(np.linalg.norm(run["texts"], axis=1), 1, atol=1e-5)
    )
    unseen, before = (
        run["tokens"][35],
        start["tokens"][35],
    )  # never in a text: shrinks along its own direction
    assert unseen @ before / np.linalg.norm(unseen) / np.linalg.norm(before) > 1 - 1e-6 and np.linalg.norm(
        unseen
    ) < np.linalg.norm(before)
    only = train_bags(pictures, bags[:1], 40, np.arange(70), np.arange(70, 90), steps=5)
    assert len(only["loss"]) == 5
    with pytest.raises(ValueError, match="same number of rows"):
        train_bags(pictures[:5], bags, 40, [0], [1])
    with pytest.raises(ValueError, match="at least one token"):
        train_bags(pictures, [bags[0] * 0], 40, [0], [1])
    with pytest.raises(ValueError, match="from 1 to 19"):
        train_bags(pictures, bags, 20, [0], [1])


def test_two_steps_equal_a_plain_loop():
    rng = np.random.default_rng(1)
    bags = [torch.from_numpy(rng.integers(1, 20, (30, 2))) for _ in range(2)]
    pictures = torch.from_numpy(rng.standard_normal((30, 6))).float()
    args = dict(learning_rate=0.1, scale=5.0, weight_decay=0.2, seed=4)
    run = train_bags(pictures, bags, 20, np.arange(25), np.arange(25, 30), steps=2, batch_size=8, **args)
    model, order = TokenBags(2, 20, 6, seed=4), np.random.default_rng([4, 2])
    unit = torch.nn.functional.normalize(pictures, dim=-1)
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, weight_decay=0.2)
    for step in range(2):
        rows = torch.from_numpy(order.permutation(25)[:8])
        loss = pairwise_clip_loss(model(unit[rows], [b[rows] for b in bags]), 5.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert run["loss"][step] == pytest.approx(float(loss.detach()), rel=1e-6)
    assert np.allclose(run["tokens"], model.tables[0].weight.detach(), atol=1e-6)


def test_tables_of_a_run_begin_as_different_tables():
    "Equal tokens of two languages are no translation that is there before training."
    tables = [t.weight.detach() for t in TokenBags(3, 400, 16, seed=5).tables]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        together = torch.nn.functional.cosine_similarity(tables[a], tables[b]).mean()
        assert abs(float(together)) < 0.1
    assert all(float(t.std()) == pytest.approx(0.02, rel=0.05) for t in tables)
