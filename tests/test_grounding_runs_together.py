"Trainings side by side: each is what `train_encoders` makes alone."

import numpy as np
import pytest
import torch

from brace_nb.grounding import (
    AlignedTuples,
    FeatureEncoder,
    train_encoders,
    train_together,
)


def items(n=3, count=24, missing=False, seed=1):
    "Tuples of n views of 5 features, with classes; maybe a third of the last view is missing."
    draw = torch.Generator().manual_seed(seed)
    views = {f"v{k}": torch.randn(count, 5, generator=draw) for k in range(n)}
    if missing:
        views[f"v{n - 1}"][::3] = torch.nan
    return AlignedTuples(views, labels=np.arange(count) % 3)


def encoders(n, width=8, layers=1, seed=0):
    "One encoder for the first view, one that all others share."
    first, rest = FeatureEncoder(5, 4, layers, width, seed), FeatureEncoder(5, 4, layers, width, seed + 50)
    return {f"v{k}": rest if k else first for k in range(n)}


def run_of(n=3, width=8, layers=1, missing=False, **more):
    "Arguments of a short training, made anew at each call."
    made = encoders(n, width, layers, more.get("seed", 0))
    held = items(n, 12, seed=2)
    plain = dict(measure="sum_norm", steps=4, batch_size=4, embed_dim=4, learning_rate=0.01, held=held)
    return dict(tuples=items(n, missing=missing), encoders=made) | plain | more


VARIANTS = {
    "plain": [dict(), dict(seed=3), dict(measure="pairwise"), dict(measure="einsum", n=4)],
    "sizes": [dict(batch_size=3), dict(batch_size=6), dict(batch_size=5, label_smoothing=0.01)],
    "masks": [
        dict(weights="density"),
        dict(weights="learned"),
        dict(normlogits=True),
        dict(weights={(3,): 2.0}),
    ],
    "labels": [dict(labels="exact"), dict(labels="exact", streaming=False, weights="density"), dict()],
    "projections": [dict(projection="inv"), dict(projection="iinv", n=4), dict(projection="inv", n=2)],
    "shapes": [dict(width=6), dict(layers=2), dict(width=6, learning_rate=0.001), dict(n=2, loss="pairs")],
    "lengths": [dict(steps=2), dict(steps=5, look_every=2, log_every=3), dict(weight_decay=0.5)],
    "incomplete": [dict(missing=True), dict(missing=True, seed=4), dict(reduction="sum"), dict(loss="slice")],
}


def assert_same(together, alone):
    "Logs and looks of two trainings, up to rounding."
    for mine, other in zip(together.history + together.looks, alone.history + alone.looks, strict=True):
        assert list(mine) == list(other)
        a, b = (np.array(list(r.values()), float) for r in (mine, other))
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_training_is_what_it_is_alone(variant):
    options = VARIANTS[variant]
    together = train_together([run_of(**o) for o in options])
    for o, run in zip(options, together):
        alone = train_encoders(**run_of(**o))
        assert_same(run, alone)
        for mine, other in zip(run.encoders.values(), alone.encoders.values()):
            for p, q in zip(mine.parameters(), other.parameters()):
                torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(run.objective.scale, alone.objective.scale, rtol=1e-4, atol=1e-4)


def test_who_diverges_ends_alone():
    runs = [run_of(), run_of(seed=1, learning_rate=1e25, steps=8), run_of(seed=2)]
    found = train_together(runs)
    assert isinstance(found[1], FloatingPointError) and "diverged" in str(found[1])
    for k in (0, 2):
        alone = train_encoders(**run_of(seed=k))
        assert found[k].history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"], rel=1e-3)


def test_defaults_come_from_train_encoders(monkeypatch):
    "Other defaults of `train_encoders` are other defaults of `train_together`."
    moved = dict(
        steps=3, batch_size=5, learning_rate=0.05, weight_decay=0.5, log_every=2, look_every=1, seed=7
    )
    moved |= dict(errors="exact", log_variance=True)
    own = dict(loss="slice", measure="sum_norm")

    def told(**more):
        return dict(tuples=items(), encoders=encoders(3), held=items(3, 12, seed=2), embed_dim=4, **more)

    function = train_encoders.__wrapped__
    for name, value in moved.items():
        monkeypatch.setitem(function.__kwdefaults__, name, value)
    monkeypatch.setattr(function, "__defaults__", (None, *own.values()))
    (together,) = train_together([told()])
    assert_same(together, train_encoders(**told(**own, **moved)))


def test_what_cannot_be_trained_together_is_refused():
    with pytest.raises(ValueError, match="use `train_encoders`"):
        train_together([run_of(chunk=2)])
    with pytest.raises(ValueError, match="encoders of its own"):
        run = run_of()
        train_together([run, run])
    with pytest.raises(ValueError, match="a run needs"):
        train_together([dict(tuples=items())])
    with pytest.raises(ValueError, match="with a layer"):
        train_together([run_of() | dict(encoders={f"v{k}": torch.nn.Linear(5, 4) for k in range(3)})])
