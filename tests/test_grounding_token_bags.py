"Bags of tokens learn and repeat; a prequential loss is a code length."

import numpy as np
import pytest
import torch

from brace_nb.grounding.token_bags import prequential_losses, train_bags


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


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: prequential_losses(torch.zeros(3, 2), torch.tensor([0, 1, 5]), 4), "from 0 to 3"),
        (lambda: prequential_losses(torch.zeros(3, 2), torch.tensor([0]), 4), "same number of rows"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
