"The proof of concept: same bits again, what validation counts, options that pass through, bad input."

import pytest
import torch

from brace_nb.grounding import NoisyEncoders, train_noisy_encoders, validate_noisy_encoders
from brace_nb.ndim import KINDS


def test_noisy_encoders():
    model = NoisyEncoders(3, 10, 8, noise=0.5, seed=1)
    items = torch.tensor([4, 4, 7])
    clean = model(items, noise=0.0)
    assert (
        clean.shape == (3, 3, 8)
        and torch.equal(clean[:, 0], clean[:, 1])
        and not torch.equal(clean[0], clean[1])
    )
    row = model.table[4] / model.table[4].norm()
    for a in range(3):
        torch.testing.assert_close(
            clean[a, 0], torch.nn.functional.gelu(row @ model.first[a]) @ model.second[a]
        )
    noisy = model(items)
    assert not torch.equal(noisy[:, 0], noisy[:, 1])  # the noise is drawn for each view
    with torch.no_grad():
        model.table *= 100  # a larger table does not drown the noise
    torch.testing.assert_close(model(items, noise=0.0), clean)


def test_validation_by_loops():
    "One modality at a time, one view at a time; the same draws by the same generator."
    model = NoisyEncoders(3, 6, 8, seed=2)
    with torch.no_grad():
        model.first[1:], model.second[1:] = model.first[0].clone(), model.second[0].clone()
    state = model.generator.get_state()
    found = validate_noisy_encoders(model, "mean_norm", repeats=2)
    model.generator.set_state(state)
    with torch.no_grad():
        clean, noisy = model(torch.arange(6), noise=0.0), model(torch.arange(6).repeat(2))
    right = [
        max(range(6), key=lambda c: torch.cosine_similarity(noisy[a, i], clean[b, c], dim=0).item()) == i % 6
        for a in range(3)
        for b in range(3)
        if a != b
        for i in range(12)
    ]
    assert found["accuracy"] == pytest.approx(sum(right) / len(right))
    either = [
        max(range(6), key=lambda c: abs(torch.cosine_similarity(noisy[a, i], clean[b, c], dim=0).item()))
        == i % 6
        for a in range(3)
        for b in range(3)
        if a != b
        for i in range(12)
    ]
    assert found["either_sign"] == pytest.approx(sum(either) / len(either))
    unit = noisy / noisy.norm(dim=-1, keepdim=True)
    assert found["positive"] == pytest.approx(unit.mean(0).norm(dim=-1).mean().item(), rel=1e-5)
    orders = [torch.randperm(12, generator=model.generator) for _ in range(3)]
    tuples = [
        [unit[a, orders[a][k]] for a in range(3)]
        for k in range(12)
        if len({int(o[k]) % 6 for o in orders}) > 1
    ]
    assert found["negative"] == pytest.approx(
        sum((sum(t) / 3).norm().item() for t in tuples) / len(tuples), rel=1e-5
    )
    assert validate_noisy_encoders(NoisyEncoders(2, 6, 8, noise=0.0, seed=0))["accuracy"] < 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns_and_repeats(kind):
    options = dict(kind=kind, steps=150, batch_size=8, items=16, noise=0.1)
    first = train_noisy_encoders(3, **options, report=75)
    assert [h["step"] for h in first] == [75, 150] and first == train_noisy_encoders(
        3, **options, report=75
    ) != train_noisy_encoders(3, **options, seed=1, report=75)
    assert first[-1]["accuracy"] > 0.5 and first[-1]["positive"] > first[-1]["negative"]


@pytest.mark.parametrize(
    "options",
    [
        dict(weights="learned"),
        dict(weights="density"),
        dict(regions=[(3,), (1, 1, 1)]),
        dict(labels="exact"),
        dict(label_smoothing=0.1),
        dict(measure="mean_norm", shrink="positive"),
        dict(projection="none"),
        dict(projection="inv"),
        dict(projection="iinv"),
    ],
)
def test_options_change_the_result(options):
    fixed = dict(steps=3, batch_size=4, items=8)
    changed, plain = (train_noisy_encoders(3, **fixed, **o)[-1]["loss"] for o in (options, {}))
    assert torch.isfinite(torch.tensor(changed))
    assert (changed == pytest.approx(plain)) == (
        options.get("projection") == "inv"
    )  # the inverse undoes the projection of the repeated modalities


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: NoisyEncoders(1), "n must be a whole number >= 2"),
        (lambda: NoisyEncoders(2, noise=-1.0), "noise"),
        (lambda: train_noisy_encoders(2, batch_size=1), "batch_size must be"),
        (lambda: train_noisy_encoders(2, steps=0), "steps must be a whole number >= 1"),
        (lambda: train_noisy_encoders(2, kind="lines"), "kind must be one of"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_a_change_of_the_batch_acts_in_training_only():
    seen = []

    def doubled(xs):
        seen.append(tuple(xs.shape))
        return 2 * xs

    plain = train_noisy_encoders(3, steps=5)
    changed = train_noisy_encoders(3, steps=5, change=doubled)
    assert seen == [(3, 8, 16)] * 5  # not in validation
    assert abs(plain[-1]["loss"] - changed[-1]["loss"]) < 1e-4  # a cosine has no length
