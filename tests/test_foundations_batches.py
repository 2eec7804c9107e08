"Recipe and batches: what a step sees, the learning rate, the update."

import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional as F

from brace_nb.foundations import (
    TRAINING_DESIGNERS,
    ByteBPE,
    CaptionSampler,
    PictureSampler,
    TrainingConfig,
    TupleBatches,
    batch_ids,
    build_encoder,
    clip_loss,
    learning_rate,
    make_optimizer,
    on_background,
    pair_weights,
    restyle,
    to_float,
    train_bpe,
    training_ids,
    tuple_loss,
)

from made_encoders import RECIPE, TINY


@pytest.fixture(scope="module")
def tokenizer(tuples):
    return ByteBPE(train_bpe(tuples.captions(lang="en", ids=tuples.ids("val")).text, 300), 300, 16)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 60), st.integers(2, 10), st.integers(0, 5), st.integers(0, 40))
def test_batches_never_repeat_within_an_epoch(n, size, seed, epoch):
    ids = np.arange(n) * 3
    if size > n:
        with pytest.raises(ValueError, match="batch_size must be <="):
            batch_ids(ids, size, seed, 0)
        return
    per = n // size
    seen = np.concatenate([batch_ids(ids, size, seed, epoch * per + k) for k in range(per)])
    assert len(set(seen)) == len(seen) == per * size and set(seen) <= set(ids)
    assert np.array_equal(seen[:size], batch_ids(ids, size, seed, epoch * per))


def test_a_step_depends_on_seed_and_number_only(tuples, tokenizer):
    encoder = build_encoder(TINY, tokenizer)
    a, b, other = (
        TupleBatches(tuples, dataclasses.replace(RECIPE, languages=("en", "sw")), encoder, seed=s)
        for s in (1, 1, 2)
    )
    for step in (0, 7):
        b(step)
    for x, y, z in zip(a(5)[:2], b(5)[:2], other(5)[:2]):
        assert torch.equal(x, y)
        assert x.shape != z.shape or not torch.equal(x, z)


def test_held_out_concepts_and_designer_stay_out(tuples):
    config = TrainingConfig()
    ids = training_ids(tuples, config)
    assert (
        "twemoji" not in config.designers
        and set(ids) == set(tuples.ids("train", flags=False))
        and len(ids) == 1277
    )
    pictures = PictureSampler(tuples, ids, config.designers, 32)
    assert len(pictures.images) == 3 and pictures.images.shape[1] == 1277
    with pytest.raises(ValueError, match="no picture"):
        PictureSampler(tuples, tuples.ids("train"), ["fluent"], 32)


def test_drawn_pictures_are_of_the_concept_by_different_designers(tuples):
    ids, rng = training_ids(tuples, TrainingConfig()), np.random.default_rng(0)
    pictures, batch = (
        PictureSampler(tuples, ids, TRAINING_DESIGNERS, 32),
        np.random.default_rng(1).permutation(ids)[:40],
    )
    drawn = pictures.draw(rng, batch, 3)
    for b, i in enumerate(batch):
        own = {d: tuples.images(d, [i])[0] for d in TRAINING_DESIGNERS if i in tuples.available(d)}
        by = [{d for d, x in own.items() if np.array_equal(x, v)} for v in drawn[:, b]]
        assert all(by) and set.union(*by) == set(own)  # each view is one of them, and all appear
    counts = np.zeros(3)
    for _ in range(60):
        counts += [
            (pictures.draw(rng, batch, 1)[0] == pictures.images[d, np.searchsorted(ids, batch)])
            .all((1, 2, 3))
            .sum()
            for d in range(3)
        ]
    assert (counts > 400).all()  # of 2400: nobody is left out


def test_captions_are_what_they_say(tuples, tokenizer):
    ids, rng = tuples.ids("val"), np.random.default_rng(0)
    texts = {
        i: {k: set(g.text.str.lower()) for k, g in f.groupby("kind")}
        for i, f in tuples.captions(lang="en", ids=ids).groupby("id")
    }
    kinds = {"name": 0, "keywords": 0, "both": 0}
    captions = CaptionSampler(
        tuples,
        ids,
        TrainingConfig(
            languages=["en"], name_share=0.4, keyword_share=0.2, max_keywords=3, token_dropout=0.0
        ),
        tokenizer,
    )
    for i in np.tile(ids, 3):
        parts, own = tokenizer.decode(captions.draw(rng, "en", i)).split(", "), texts[i]
        names, keywords = (
            own["name"] | own["unicode_name"] | own.get("shortcode", set()),
            own.get("keyword", set()),
        )
        if any("," in t for t in names | keywords):
            continue
        assert (
            1 <= len(parts) <= 4
            and all(p in names | keywords for p in parts)
            and parts[0] in names | keywords
            and set(parts[1:]) <= keywords
        )
        if keywords.isdisjoint(names) and keywords:
            kinds[
                "name"
                if parts[0] in names and len(parts) == 1
                else "both"
                if parts[0] in names
                else "keywords"
            ] += 1
    share = np.array(list(kinds.values())) / sum(kinds.values())
    assert np.allclose(share, [0.4, 0.2, 0.4], atol=0.08)


def test_captions_that_do_not_exist_are_absent(tuples, tokenizer):
    ids = tuples.ids("val")
    captions, rng = CaptionSampler(tuples, ids, RECIPE, tokenizer), np.random.default_rng(0)
    silent = {int(i) for i, t in zip(ids, tuples.names("ig", ids)) if t is None}
    assert silent and all((captions.draw(rng, "ig", i) is None) == (i in silent) for i in ids)
    batches = TupleBatches(tuples, RECIPE, build_encoder(TINY, tokenizer), 0)
    for step in range(6):
        images, tokens, present = batches(step)
        ids = set(batch_ids(batches.ids, 8, 0, step))
        assert images.shape == (16, 3, 32, 32) and len(tokens) == 24
        assert (present is None and not ids & silent) or (~present).sum(1).max() == len(ids & silent)
    with pytest.raises(ValueError, match="name none"):
        CaptionSampler(tuples, [next(iter(silent))], RECIPE, tokenizer)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(0, 1000))
def test_every_step_has_the_first_language(tuples, tokenizer, texts, seed):
    config = TrainingConfig(texts=texts)
    captions = CaptionSampler(tuples, tuples.ids("val")[:2], config, tokenizer)
    langs = captions.languages(np.random.default_rng(seed))
    assert len(langs) == texts and langs[0] == "en" and set(langs) <= set(config.languages)
    if texts >= 5:
        assert set(langs[1:5]) == set(config.languages)  # drawn without repetition


def test_token_dropout(tuples, tokenizer):
    ids = tuples.ids("val")
    whole, part = (
        CaptionSampler(tuples, ids, TrainingConfig(languages=["en"], token_dropout=p), tokenizer)
        for p in (0.0, 0.5)
    )
    lengths = [
        np.mean([len(c.draw(np.random.default_rng(int(i)), "en", i)) for i in ids]) for c in (whole, part)
    ]
    assert 0.45 < lengths[1] / lengths[0] < 0.7 and all(
        part.draw(np.random.default_rng(0), "en", i) for i in ids
    )


PLAIN = TrainingConfig(rotation=0, zoom=0, shift=0, color_mixing=0, brightness=0, grey_share=0, white_share=1)


def test_restyle_with_nothing_to_do_is_white_background(tuples):
    rgba = tuples.images("noto", range(0, 1900, 50))
    assert (restyle(rgba, 0, PLAIN) - to_float(on_background(rgba))).abs().max() < 1 / 255


def test_restyle_parts(tuples):
    rgba = tuples.images("noto", range(0, 1900, 10))
    grey = restyle(rgba, 0, dataclasses.replace(PLAIN, grey_share=1))
    assert (grey.amax(1) - grey.amin(1)).max() < 1e-6 and torch.allclose(
        grey[:, 0],
        torch.einsum("nchw,c->nhw", to_float(on_background(rgba)), torch.tensor([0.299, 0.587, 0.114])),
        atol=2 / 255,
    )
    half = restyle(rgba, 0, dataclasses.replace(PLAIN, white_share=0.5))
    clear = torch.from_numpy(rgba[..., 3] == 0)
    white = torch.tensor([bool((p[:, c] > 0.999).all()) for p, c in zip(half, clear) if c.any()])
    assert 0.35 < white.float().mean() < 0.65
    assert all(
        p[:, c].std(-1).max() < 1e-6 for p, c in zip(half, clear) if c.sum() > 1
    )  # a background is one color
    moved = restyle(rgba, 0, dataclasses.replace(PLAIN, shift=0.2, rotation=20, zoom=0.3))
    assert ((moved - restyle(rgba, 0, PLAIN)).abs().amax((1, 2, 3)) > 0.1).float().mean() > 0.9
    assert torch.equal(
        moved,
        restyle(
            torch.from_numpy(rgba),
            torch.Generator().manual_seed(0),
            dataclasses.replace(PLAIN, shift=0.2, rotation=20, zoom=0.3),
        ),
    )
    assert restyle(rgba[:0], 0, TrainingConfig()).shape == (0, 3, 32, 32)
    mixed = restyle(rgba, 1, TrainingConfig())
    assert (
        0 <= mixed.min() and mixed.max() <= 1 and not torch.equal(mixed, restyle(rgba, 2, TrainingConfig()))
    )


def test_learning_rate():
    c = TrainingConfig(steps=100, warmup=10, learning_rate=2.0, final_rate=0.1)
    rates = np.array([learning_rate(t, c) for t in range(100)])
    assert (
        np.allclose(rates[:10], np.arange(1, 11) * 0.2)
        and rates[-1] == pytest.approx(0.2)
        and (np.diff(rates[9:]) < 0).all()
    )
    assert rates[54] == pytest.approx(2 * (0.1 + 0.9 * 0.5))  # half way down the cosine
    assert learning_rate(0, TrainingConfig(steps=1, warmup=0)) > 0


def test_weight_decay_only_where_it_belongs(tokenizer):
    model = build_encoder(TINY, tokenizer).model
    optimizer = make_optimizer(model, TrainingConfig(weight_decay=0.3))
    names = {id(p): n for n, p in model.named_parameters()}
    decayed, free = ({names[id(p)] for p in g["params"]} for g in optimizer.param_groups)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.3, 0.0] and len(decayed) + len(
        free
    ) == len(names)
    assert {"logit_scale", "positional_embedding", "ln_final.weight"} <= free and {
        "text_projection",
        "token_embedding.weight",
        "visual.head.proj.weight",
    } <= decayed


def test_tuple_loss_is_the_weighted_mean_of_pairs(tuples, tokenizer):
    config = dataclasses.replace(
        RECIPE, languages=("en",), texts=2, precision="float32", picture_weight=0.25, text_weight=2.0
    )
    encoder = build_encoder(TINY, tokenizer)
    images, tokens, present = TupleBatches(tuples, config, encoder, 0)(0)
    assert present is None
    with torch.no_grad():
        got = tuple_loss(encoder.model, images, tokens, present, config)
        z = [
            F.normalize(v, dim=-1)
            for v in (
                *encoder.model.encode_image(images).chunk(2),
                *encoder.model.encode_text(F.pad(tokens, (0, 16 - tokens.shape[1]))).chunk(2),
            )
        ]
        w, scale = pair_weights(config), encoder.model.logit_scale.exp()
        each = {(i, j): clip_loss(z[i], z[j], scale) for i in range(4) for j in range(i)}
    assert w[0, 1] == 0.25 and w[2, 3] == 2 and w[0, 2] == 1
    assert float(got) == pytest.approx(
        float(sum(w[p] * v for p, v in each.items()) / sum(w[p] for p in each)), rel=1e-5
    )


def test_mixed_precision_is_close(tuples, tokenizer):
    encoder = build_encoder(TINY, tokenizer)
    batch = TupleBatches(tuples, RECIPE, encoder, 0)(0)
    with torch.no_grad():
        half, full = (
            float(tuple_loss(encoder.model, *batch, dataclasses.replace(RECIPE, precision=p)))
            for p in ("bfloat16", "float32")
        )
    assert half == pytest.approx(full, rel=0.03) and half != full


@pytest.mark.parametrize(
    "values,words",
    [
        (dict(steps=0), "steps"),
        (dict(batch_size=1), "batch_size must be a whole number >= 2"),
        (dict(learning_rate=0), "learning_rate"),
        (dict(name_share=0.8, keyword_share=0.4), "at most 1"),
        (dict(token_dropout=1.0), "token_dropout"),
        (dict(initial_scale=0), "initial_scale"),
        (dict(zoom=-1), "zoom"),
        (dict(grey_share=2), "grey_share"),
        (dict(languages=()), "at least one"),
        (dict(warmup=-1), "warmup"),
        (dict(texts=2.5), "texts"),
    ],
)
def test_bad_recipes(values, words):
    with pytest.raises(ValueError, match=words):
        TrainingConfig(**values)


def test_recipes_are_json():
    config = TrainingConfig(languages=["en"])
    assert TrainingConfig(**json.loads(json.dumps(dataclasses.asdict(config)))) == config
