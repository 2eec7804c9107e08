"Objectives on equal terms: what they share, what differs, and what must repeat."

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from brace_nb.core import Entry
from brace_nb.foundations import (
    OBJECTIVES,
    EncoderConfig,
    ObjectiveConfig,
    PrototypeObjective,
    TrainingConfig,
    TwoViews,
    batch_statistics,
    build_encoder,
    load_encoder,
    save_encoder,
    train_objective,
    with_statistics,
)


SMALL = EncoderConfig(embed_dim=16, image_model="test_resnet", text_width=32, text_heads=1, vocab_size=400)
RECIPE = TrainingConfig(steps=4, batch_size=16, warmup=1, languages=("en",), pictures=1, texts=1)
EXTRA = ObjectiveConfig(projector=32, clusters=(4, 8), cluster_every=2)


@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_training_repeats_and_keeps(tuples, objective, tmp_path):
    kept = {}
    runs = [
        train_objective(
            tuples,
            objective,
            SMALL,
            RECIPE,
            EXTRA,
            keep=(0, 2, 4),
            on_keep=lambda e, s: kept.setdefault(s, e.fingerprint()),
        )
        for _ in range(2)
    ]
    (encoder, history), (again, same) = runs
    assert (
        encoder.fingerprint() == again.fingerprint() == kept[4]
        and history == same
        and len(set(kept.values())) == 3
    )
    assert all(len(v) == 4 and np.isfinite(v).all() for v in history.values())
    assert all(
        -1 - 1e-5 <= c <= 1 + 1e-5
        for k in ("positive", "negative", "hardest", "similarity")
        for c in history[k]
    )
    save_encoder(encoder, tmp_path)
    assert load_encoder(tmp_path).fingerprint() == encoder.fingerprint()


def test_image_only_objectives_leave_the_text_tower(tuples):
    before, after = [], []

    def text(e):
        return e.encode_texts(["cat", "dog"])

    for objective, same in (("barlow", True), ("pcl", True), ("infonce", True), ("clip", False)):
        encoder, _ = train_objective(
            tuples, objective, SMALL, RECIPE, EXTRA, keep=(0,), on_keep=lambda e, s: before.append(text(e))
        )
        after.append(text(encoder))
        assert np.array_equal(before[-1], after[-1]) == same


def test_two_views_are_two_distortions_of_one_picture(tuples):
    still = TrainingConfig(
        batch_size=16,
        rotation=0.0,
        zoom=0.0,
        shift=0.0,
        color_mixing=0.0,
        brightness=0.0,
        grey_share=0.0,
        white_share=1.0,
        languages=("en",),
    )
    views = TwoViews(tuples, still, 32, 0)
    (a, b), rows = views(3)
    assert torch.allclose(a, b) and torch.allclose(a, views.clean()[rows], atol=0.02)
    (a, b), _ = TwoViews(tuples, RECIPE, 32, 0)(3)
    assert (a - b).abs().mean() > 0.1 and "twemoji" not in RECIPE.designers


def test_momentum_encoder_follows(tuples):
    encoder = build_encoder(SMALL)
    views = TwoViews(tuples, RECIPE, 32, 0)
    module = PrototypeObjective(encoder, RECIPE, ObjectiveConfig(momentum=0.75), views, 0)
    start = [p.clone() for p in module.momentum_tower.parameters()]
    with torch.no_grad():
        for p in encoder.model.visual.parameters():
            p += 1
    module.follow()
    assert all(
        torch.allclose(p, s + 0.25, atol=1e-5) for p, s in zip(module.momentum_tower.parameters(), start)
    )
    assert not any(p.requires_grad for p in module.momentum_tower.parameters())
    assert sum(p.numel() for p in module.parameters()) == sum(p.numel() for p in encoder.model.parameters())


def test_momentum_encoder_normalizes_by_its_batches_from_the_first_step(tuples):
    "An encoder is built in evaluation mode; its copy must not stay there until the first clustering."
    views = TwoViews(tuples, RECIPE, 32, 0)
    module = PrototypeObjective(build_encoder(SMALL), RECIPE, EXTRA, views, 0)
    norms = [m for m in module.momentum_tower.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    module(views(0), 0)
    assert norms and all(m.training and int(m.num_batches_tracked) == 1 for m in norms)


def test_an_untrained_encoder_learns_statistics_and_no_weight(tuples):
    encoder = build_encoder(SMALL)
    images = tuples.images("noto", tuples.available("noto")[:40], 32)
    before = {k: v.clone() for k, v in encoder.model.state_dict().items()}
    shown = with_statistics(encoder, images, batch_size=40)
    assert all(torch.equal(v, before[k]) for k, v in encoder.model.state_dict().items())
    after = shown.model.state_dict()
    moved = {k for k in before if not torch.equal(before[k], after[k])}
    assert moved and all(k.endswith(("running_mean", "running_var", "num_batches_tracked")) for k in moved)
    name = next(k for k in after if k.endswith("running_mean"))
    norm = shown.model.get_submodule(name.removesuffix(".running_mean"))
    met = []
    norm.register_forward_pre_hook(lambda module, inputs: met.append(inputs[0]))
    shown.encode_images(images)
    x = torch.cat(met).double()
    assert torch.allclose(norm.running_mean.double(), x.mean((0, 2, 3)), atol=1e-5)
    assert torch.allclose(norm.running_var.double(), x.var((0, 2, 3)), rtol=1e-4) and not shown.model.training
    z, raw = (e.encode_images(images) for e in (shown, encoder))
    assert (raw @ raw.T).mean() > 0.9 > (z @ z.T).mean()


def test_batch_statistics_are_the_loop():
    x, y = (F.normalize(torch.randn(7, 4, dtype=torch.float64), dim=-1) for _ in range(2))
    s = [[float(a @ b) for b in y] for a in x]
    got = batch_statistics(x, y)
    assert got["positive"] == pytest.approx(np.mean([s[i][i] for i in range(7)]))
    assert got["negative"] == pytest.approx(np.mean([s[i][j] for i in range(7) for j in range(7) if i != j]))
    assert got["hardest"] == pytest.approx(
        np.mean([max(s[i][j] for j in range(7) if j != i) for i in range(7)])
    )
    assert got["similarity"] == pytest.approx(
        np.mean([float(x[i] @ x[j]) for i in range(7) for j in range(7) if i != j])
    )


@pytest.mark.parametrize(
    "kwargs,words",
    [
        (dict(objective="simclr"), "objective must be one of"),
        (dict(objective="clip", config=TrainingConfig(steps=2)), "one picture with one text"),
        (dict(objective="barlow", config=RECIPE, keep=(9,)), "steps from 0 to 4"),
    ],
)
def test_bad_input(tuples, kwargs, words):
    with pytest.raises(ValueError, match=words):
        train_objective(tuples, **kwargs)


def test_a_new_encoder_is_one_entry(monkeypatch):
    from brace_nb.companion import PALETTE, style
    from brace_nb.foundations import DESIGNERS, ENCODERS, LANGUAGES, MODALITIES, load_emoji

    monkeypatch.setitem(ENCODERS, "mine", Entry(title="my encoder", color="red", marker="x", line=":"))
    assert style(ENCODERS["mine"]) == dict(color=PALETTE["red"], marker="x", linestyle=":")
    assert [style(ENCODERS[k])["marker"] for k in ("clip", "siglip", "clip_vit", "pixels")] == list("osvP")
    with pytest.raises(ValueError, match="encoder must be one of clip, siglip.*mine; got 'other'"):
        ENCODERS["other"]
    emoji = load_emoji()
    assert set(emoji.languages) == set(LANGUAGES) and emoji.designers == tuple(DESIGNERS)
    assert style(MODALITIES["image"])["color"] == PALETTE["blue"]


def test_a_new_objective_is_one_entry(tuples, monkeypatch):
    class Twice(OBJECTIVES["infonce"].make):
        def forward(self, batch, step):
            loss, x, y = super().forward(batch, step)
            return 2 * loss, x, y

    entry = dataclasses.replace(OBJECTIVES["infonce"], make=Twice, title="InfoNCE, twice")
    monkeypatch.setitem(OBJECTIVES, "twice", entry)
    losses = [train_objective(tuples, k, SMALL, RECIPE, EXTRA)[1]["loss"][0] for k in ("infonce", "twice")]
    assert losses[1] == pytest.approx(2 * losses[0])
    with pytest.raises(ValueError, match="objective must be one of clip.*twice; got 'thrice'"):
        train_objective(tuples, "thrice")
