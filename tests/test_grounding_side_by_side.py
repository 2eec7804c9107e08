"Noisy encoders side by side: the loss of each is `cube_loss`, and each learns what it learns alone."

import inspect

import pytest

from brace_nb.grounding import train_noisy_encoders, train_noisy_side_by_side
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


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_trains_as_alone(options):
    "Four long steps: losses, gradients, and what a loss itself learns."
    how = dict(steps=4, batch_size=4, items=8, features=8, learning_rate=0.05, report=1)
    found = train_noisy_side_by_side([options, options | dict(scale=5.0)], [0, 1], 3, **how)
    for run, each in zip((options, options | dict(scale=5.0)), found):
        for seed, history in zip([0, 1], each):
            alone = [h["loss"] for h in train_noisy_encoders(3, seed=seed, **run, **how)]
            assert [h["loss"] for h in history] == pytest.approx(alone, rel=2e-3, abs=1e-4)


def test_cubes_that_are_too_large_go_one_by_one():
    how = dict(steps=2, batch_size=6, items=8, features=8, report=1)
    for kind in ("slice", "sigmoid"):
        found = train_noisy_side_by_side([dict(kind=kind)], [3], 6, **how)[0][0]
        alone = train_noisy_encoders(6, kind=kind, seed=3, **how)
        assert [h["loss"] for h in found] == pytest.approx([h["loss"] for h in alone], rel=1e-4)


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


MOVED = dict(
    measure="mean_norm",
    kind="axis",
    steps=3,
    batch_size=5,
    learning_rate=0.05,
    scale=3.0,
    report=1,
    projection="none",
    items=9,
    features=6,
    noise=0.5,
)


@pytest.mark.parametrize("name", MOVED)
def test_another_default_of_one_is_another_default_of_both(name, monkeypatch):
    function = train_noisy_encoders.__wrapped__
    names = list(inspect.signature(function).parameters)[1:]
    values = [MOVED[name] if k == name else v for k, v in zip(names, function.__defaults__)]
    how = {} if name == "steps" else dict(steps=2)
    before = train_noisy_side_by_side([{}], [0], 3, **how)
    monkeypatch.setattr(function, "__defaults__", tuple(values))
    alone, (((*found,),),) = train_noisy_encoders(3, **how), train_noisy_side_by_side([{}], [0], 3, **how)
    assert [list(row) for row in found] == [list(row) for row in alone] and [found] != before[0]
    for mine, other in zip(found, alone, strict=True):
        assert list(mine.values()) == pytest.approx(list(other.values()), rel=1e-3, abs=1e-4)


def test_bad_input():
    with pytest.raises(ValueError, match="batch_size must be"):
        train_noisy_side_by_side([{}], [0], 3, batch_size=1)
    with pytest.raises(ValueError, match="measure must be one of"):
        train_noisy_side_by_side([dict(measure="cosine", labels="exact")], [0], 3, steps=1)
