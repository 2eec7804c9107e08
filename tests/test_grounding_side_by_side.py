"Noisy encoders side by side: the loss of each is `cube_loss`, and each learns what it learns alone."

import pytest
import torch

from brace_nb.grounding import train_noisy_encoders, train_noisy_side_by_side
from brace_nb.grounding import TupleLoss
from brace_nb.grounding.side_by_side import _losses_of, _OneByOne, _StackLoss
from brace_nb.ndim import MEASURES

OPTIONS = [
    dict(kind="pairs"),
    dict(kind="axis", measure="mean_norm"),
    dict(kind="axis", measure="gram_volume"),
    dict(kind="axis", measure="einsum"),
    dict(kind="slice"),
    dict(kind="slice", measure="leave_one_out"),
    dict(kind="slice", weights="learned"),
    dict(kind="slice", weights="density"),
    dict(kind="slice", regions=[[3], [1, 1, 1]]),
    dict(kind="slice", label_smoothing=0.1),
    dict(kind="slice", labels="exact"),
    dict(kind="slice", measure="mean_norm", shrink="positive"),
    dict(kind="sigmoid"),
    dict(kind="slice", projection="none"),
    dict(kind="axis", projection="inv"),
    dict(kind="slice", projection="iinv"),
]


def batches(n=3, models=2, rows=4, features=8):
    return torch.randn(models, n, rows, features, generator=torch.Generator().manual_seed(0))


def moved(loss):
    "Each model's parameters, and a `TupleLoss` with the same numbers."
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in loss.parameters():
            p += 0.1 * torch.randn(p.shape, generator=draw)
    return loss


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_losses_are_those_of_cube_loss(options):
    xs, loss = batches(), moved(_losses_of(2, 3, 4, 8, scale=5.0, **options))
    found = loss(xs.requires_grad_())
    given = dict(measure="pairwise", kind="slice", projection=None) | options
    named = [given.pop(k) for k in ("measure", "kind", "projection")]
    for k in range(2):
        one = TupleLoss(3, named[0], named[1], 4, 5.0, named[2], 8, given)
        source = loss.losses[k].state_dict() if isinstance(loss, _OneByOne) else None
        one.load_state_dict(source or {name: p.detach()[k] for name, p in loss.named_parameters()})
        torch.testing.assert_close(found[k], one(list(xs[k])), rtol=2e-5, atol=2e-5)
    slopes = torch.autograd.grad(found.sum(), xs)[0]
    alone = torch.autograd.grad(one(list(xs[1])), xs)[0]
    torch.testing.assert_close(slopes[1], alone[1], rtol=2e-4, atol=2e-5)


def test_what_is_stacked_and_what_is_not():
    assert isinstance(_losses_of(2, 3, 4, 8), _StackLoss)
    assert isinstance(_losses_of(2, 6, 8, 8), _OneByOne)
    assert isinstance(_losses_of(2, 6, 8, 8, kind="axis"), _StackLoss)
    assert isinstance(_losses_of(2, 3, 4, 8, kind="axis", labels="exact"), _OneByOne)


@pytest.mark.parametrize("measure", [m for m in MEASURES if MEASURES[m].only in (None, 3)])
def test_every_measure_trains_as_alone(measure):
    how = dict(steps=3, batch_size=4, items=8, features=8)
    runs = [dict(measure=measure, kind="axis"), dict(measure=measure, kind="axis", scale=3.0)]
    found = train_noisy_side_by_side(runs, [0, 1], 3, **how, report=2)
    for run, each in zip(runs, found):
        for seed, history in zip([0, 1], each):
            alone = train_noisy_encoders(3, seed=seed, **run, **how, report=2)
            assert [h["step"] for h in history] == [2, 3]
            for name in ("loss", "positive", "negative"):
                want = [h[name] for h in alone]
                assert [h[name] for h in history] == pytest.approx(want, rel=1e-3, abs=1e-4)


def test_the_same_again_and_no_influence_of_neighbors():
    how = dict(n=3, steps=4, batch_size=4, items=8)
    runs = [dict(kind="slice"), dict(kind="pairs", scale=30.0)]
    both, again = (train_noisy_side_by_side(runs, [0, 1], **how) for _ in range(2))
    assert both == again
    one = train_noisy_side_by_side(runs[:1], [1], **how)
    assert one[0][0][0]["loss"] == pytest.approx(both[0][1][0]["loss"], rel=1e-4)


def test_bad_input():
    with pytest.raises(ValueError, match="2 <= batch_size"):
        train_noisy_side_by_side([{}], [0], 3, batch_size=1)
    with pytest.raises(ValueError, match="measure must be one of"):
        train_noisy_side_by_side([dict(measure="cosine", labels="exact")], [0], 3, steps=1)
