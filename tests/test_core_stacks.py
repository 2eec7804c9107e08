"Stacks of models against each model alone."

import pytest
import torch
from torch import nn

from brace_nb.core import Stack


def alike(seed):
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(8, 1, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(30, 8), layer, nn.LayerNorm(8), nn.Linear(8, 4), nn.PReLU()).double()


MODELS = [alike(seed) for seed in range(3)]
TOKENS = torch.randint(30, (3, 5, 7), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("how", [dict(), dict(joined=True), dict(apart=True)], ids=str)
def test_each_model_is_what_it_is_alone(how):
    stack = Stack(MODELS, **how)
    found, want = stack(TOKENS), torch.stack([m(t) for m, t in zip(MODELS, TOKENS)])
    torch.testing.assert_close(found, want)
    grads = torch.autograd.grad(found.sin().sum(), stack.parameters())
    own = torch.autograd.grad(want.sin().sum(), [p for m in MODELS for p in m.parameters()])
    assert sum(g.square().sum() for g in grads).item() == pytest.approx(
        sum(g.square().sum() for g in own).item()
    )


@pytest.mark.parametrize("joined", (False, True))
def test_what_is_learned_is_given_back_and_some_go_on(joined):
    models = [alike(seed) for seed in range(3)]
    stack = Stack(models, joined)
    optimizer = torch.optim.AdamW(stack.parameters(), 0.01)

    def step(stack, tokens):
        optimizer.zero_grad()
        stack(tokens).square().sum().backward()
        optimizer.step()

    step(stack, TOKENS)
    stack.give_back(models)
    torch.testing.assert_close(torch.stack([m(t) for m, t in zip(models, TOKENS)]), stack(TOKENS))
    twin = Stack(models, joined)
    kept = torch.tensor([True, False, True])
    some = stack.only(kept, optimizer)
    step(some, TOKENS[kept])
    optimizer = torch.optim.AdamW(twin.parameters(), 0.01)
    assert not torch.allclose(some(TOKENS[kept]), twin(TOKENS)[kept])


def test_models_of_two_shapes_are_no_stack():
    with pytest.raises(ValueError, match="one shape"):
        Stack([nn.Linear(2, 3), nn.Linear(3, 3)])
