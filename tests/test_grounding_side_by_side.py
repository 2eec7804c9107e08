"Noisy encoders side by side: the loss of each is `cube_loss`, and each learns what it learns alone."

import inspect

import pytest

from brace_nb.grounding import train_noisy_encoders, train_noisy_side_by_side
from brace_nb.ndim import MEASURES

OPTIONS = [
    *(dict(kind="axis", measure=name) for name, m in MEASURES.items() if m.only in (None, 3)),
    dict(kind="pairs"),
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


def assert_same(found, alone):
    "Two histories, up to rounding."
    for mine, other in zip(found, alone, strict=True):
        assert list(mine) == list(other)
        assert list(mine.values()) == pytest.approx(list(other.values()), rel=2e-3, abs=1e-4)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_trains_as_alone(options):
    "Four long steps: losses, gradients, and what a loss itself learns."
    how = dict(steps=4, batch_size=4, items=8, features=8, learning_rate=0.05, report=1)
    runs = [options, options | dict(scale=5.0)]
    for run, each in zip(runs, train_noisy_side_by_side(runs, [0, 1], 3, **how)):
        for seed, history in zip([0, 1], each):
            assert_same(history, train_noisy_encoders(3, seed=seed, **run, **how))


def test_cubes_that_are_too_large_go_one_by_one():
    how = dict(steps=2, batch_size=6, items=8, features=8, report=1)
    for kind in ("slice", "sigmoid"):
        found = train_noisy_side_by_side([dict(kind=kind)], [3], 6, **how)[0][0]
        alone = train_noisy_encoders(6, kind=kind, seed=3, **how)
        assert [h["loss"] for h in found] == pytest.approx([h["loss"] for h in alone], rel=1e-4)


def test_the_same_again_and_no_influence_of_neighbors():
    how = dict(n=3, steps=4, batch_size=4, items=8)
    runs = [dict(kind="slice"), dict(kind="pairs", measure="mean_norm", scale=30.0)]
    both, again = (train_noisy_side_by_side(runs, [0, 1], **how) for _ in range(2))
    assert both == again
    assert_same(both[1][1], train_noisy_side_by_side(runs[1:], [1], **how)[0][0])


def test_other_defaults_of_one_are_other_defaults_of_both(monkeypatch):
    moved = dict(measure="mean_norm", kind="axis", steps=3, batch_size=5, learning_rate=0.05, scale=3.0)
    moved |= dict(report=1, projection="none", items=9, features=6, noise=0.5)
    names = list(inspect.signature(train_noisy_encoders).parameters)[1:]
    function = train_noisy_encoders.__wrapped__
    values = [moved.get(k, v) for k, v in zip(names, function.__defaults__)]
    monkeypatch.setattr(function, "__defaults__", tuple(values))
    found, told = train_noisy_side_by_side([{}], [0], 3), train_noisy_encoders(3, **moved)
    assert_same(found[0][0], told)


def test_bad_input():
    with pytest.raises(ValueError, match="batch_size must be"):
        train_noisy_side_by_side([{}], [0], 3, batch_size=1)
    with pytest.raises(ValueError, match="measure must be one of"):
        train_noisy_side_by_side([dict(measure="cosine", labels="exact")], [0], 3, steps=1)
