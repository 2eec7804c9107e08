"Training of the heads, and what is kept."

import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from brace_nb.codes import (
    BinaryHead,
    CodeEncoder,
    RandomStart,
    TernaryHead,
    alignment_loss,
    binarize,
    head_training,
    jaccard,
    nearest_corner,
    pack,
    pack_ternary,
    ternarize,
    ternary_jaccard,
    uniformity_loss,
)
from brace_nb.foundations import clip_loss


def pairs_of_views(n=300, features=(24, 20), noise=0.1, seed=0):
    random = np.random.default_rng(seed)
    meaning = random.gamma(0.3, size=(n, 12))
    views = [meaning @ random.normal(size=(12, f)) for f in features]
    return [
        (v / np.linalg.norm(v, axis=-1, keepdims=True) + noise * random.normal(size=v.shape)).astype(
            np.float32
        )
        for v in views
    ]


def recall_at_1(s):
    return float(((s >= s.diagonal()[:, None]).sum(-1) == 1).mean())


SMALL = dict(dim=48, start=RandomStart(hidden=32))


def plain_fit(images, texts, dim, hidden, epochs, batch, seed, align=0.0, uniform=0.0, ternary=False):
    "The post's recipe without any of the short cuts."
    torch.manual_seed(seed)
    head = TernaryHead if ternary else BinaryHead
    f, g = head(images.shape[1], hidden, dim), head(texts.shape[1], hidden, dim)
    scale = torch.nn.Parameter(torch.tensor(math.log(1 / 0.07)))
    optimizer = torch.optim.AdamW(
        [dict(params=[*f.parameters(), *g.parameters()]), dict(params=[scale], weight_decay=0)],
        lr=1e-2,
        weight_decay=1e-2,
        fused=False,
    )
    schedule, shuffle, losses = (
        torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9),
        torch.Generator().manual_seed(seed),
        [],
    )
    for _ in range(epochs):
        total, order = [], torch.randperm(len(images), generator=shuffle)
        for i in range(0, len(images) - batch + 1, batch):
            x, y = f(torch.tensor(images)[order[i : i + batch]]), g(torch.tensor(texts)[order[i : i + batch]])
            loss = (
                clip_loss(x, y, scale.exp())
                + align * alignment_loss(x, y, ternary)
                + uniform * (uniformity_loss(x) + uniformity_loss(y)) / 2
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total.append(loss.item())
            scale.data.clamp_(0, math.log(100))
        schedule.step()
        losses.append(np.mean(total))
    return losses, f, scale.exp().item()


@pytest.mark.parametrize("options", [{}, dict(align=0.5, uniform=0.2), dict(ternary=True, align=0.5)])
def test_fit_is_the_recipe_of_the_post(options):
    images, texts = pairs_of_views(110)
    more = dict(options)
    ternary = more.pop("ternary", False)
    losses, f, scale = plain_fit(images, texts, 16, 8, epochs=3, batch=32, seed=5, **options)
    kept = "ternary" if ternary else "corner"
    encoder = CodeEncoder(16, kept, start=RandomStart(hidden=8)).fit(
        images, texts, epochs=3, batch_size=32, seed=5, **more
    )
    assert [r["train"] for r in encoder.history] == pytest.approx(losses, rel=1e-4) and encoder.history[-1][
        "scale"
    ] == pytest.approx(scale, rel=1e-4)
    assert [r["lr"] for r in encoder.history] == pytest.approx([1e-2, 9e-3, 8.1e-3])
    assert np.allclose(encoder.embed_images(images), f(torch.tensor(images)).detach().numpy(), atol=1e-3)


@pytest.mark.parametrize("ternary", [False, True])
def test_codes_of_held_out_partners_match(ternary):
    images, texts = pairs_of_views(700)
    train, held = slice(0, 600), slice(600, 700)
    e = CodeEncoder(**SMALL, container="ternary" if ternary else "corner").fit(
        images[train], texts[train], validation=(images[held], texts[held]), batch_size=64, epochs=12
    )
    a, b = e.encode_images(images[held]), e.encode_texts(texts[held])
    assert recall_at_1((ternary_jaccard if ternary else jaccard)(a, b)) > 0.3
    assert (
        (a == (ternarize if ternary else binarize)(e.embed_images(images[held]))).all()
        and a.dtype == (np.int8 if ternary else bool)
        and a.shape == (100, 48)
    )
    assert (e.encode_images(images[held], packed=True) == (pack_ternary if ternary else pack)(a)).all()
    if not ternary:
        assert np.median(a.sum(-1)) < 20 and (e.embed_images(images[held]) >= 0).all()
    assert (
        e.history[0]["validation"] > e.history[-1]["validation"]
        and e.history[-1]["train"] < e.history[0]["train"]
    )


def test_training_repeats_by_seed_and_leaves_the_global_generator_alone():
    images, texts = pairs_of_views()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    fits = [CodeEncoder(**SMALL).fit(images, texts, epochs=2, batch_size=64, seed=s) for s in (1, 1, 2)]
    assert (torch.get_rng_state() == state).all() and fits[0].history == fits[1].history != fits[2].history
    for k, v in fits[0].states["last"].items():
        assert (v == fits[1].states["last"][k]).all()
    again = fits[2].fit(images, texts, epochs=2, batch_size=64, seed=1)
    assert again.history == fits[0].history and (again.embed_texts(texts) == fits[0].embed_texts(texts)).all()


def test_numpy_and_torch_give_the_same():
    images, texts = pairs_of_views(100)
    tensors = torch.from_numpy(images), torch.from_numpy(texts)
    a, b = (
        CodeEncoder(**SMALL).fit(images, texts, epochs=1, batch_size=32),
        CodeEncoder(**SMALL).fit(*tensors, epochs=1, batch_size=32),
    )
    assert (
        a.history == b.history
        and isinstance(b.embed_images(tensors[0]), torch.Tensor)
        and isinstance(a.encode_images(images), np.ndarray)
    )
    assert (b.encode_images(tensors[0]).numpy() == a.encode_images(images)).all() and (
        b.encode_images(tensors[0], packed=True).numpy() == a.encode_images(images, packed=True)
    ).all()
    assert (
        a.embed_images(images.reshape(4, 25, -1)).shape == (4, 25, 48)
        and a.embed_images(images[:0]).shape == (0, 48)
        and a.embed_images(images[0]).shape == (48,)
    )
    assert (a.embed_images(images.reshape(4, 25, -1)).reshape(100, 48) == a.embed_images(images)).all()
    assert np.allclose(a.embed_images(images.astype(np.float64)), a.embed_images(images))


def test_index_pairs_equal_copies():
    images, texts = pairs_of_views(80)
    random = np.random.default_rng(1)
    pairs = np.stack([random.integers(0, 80, 200), random.integers(0, 80, 200)], -1)
    copied = CodeEncoder(**SMALL).fit(images[pairs[:, 0]], texts[pairs[:, 1]], epochs=2, batch_size=50)
    for kind in (pairs, pairs.astype(np.int32), torch.from_numpy(pairs), pairs.tolist()):
        indexed = CodeEncoder(**SMALL).fit(images, texts, pairs=kind, epochs=2, batch_size=50)
        assert indexed.history == copied.history
    held = (
        CodeEncoder(**SMALL)
        .fit(images, texts, validation=(images, texts, pairs), epochs=1)
        .history[0]["validation"]
    )
    assert (
        held
        == CodeEncoder(**SMALL)
        .fit(images, texts, validation=(images[pairs[:, 0]], texts[pairs[:, 1]]), epochs=1)
        .history[0]["validation"]
    )


def test_rows_without_a_pair_may_hold_nan():
    images, texts = pairs_of_views(80)
    holes = images.copy()
    holes[[4, 70]] = np.nan
    rows = np.setdiff1d(np.arange(80), [4, 70])
    pairs = np.stack([rows, rows], -1)
    fit = CodeEncoder(**SMALL).fit(holes, texts, pairs=pairs, epochs=2, batch_size=30)
    assert (
        fit.history == CodeEncoder(**SMALL).fit(images, texts, pairs=pairs, epochs=2, batch_size=30).history
    )
    with pytest.raises(ValueError, match=r"rows \[4, 70\] hold NaN"):
        CodeEncoder(**SMALL).fit(holes, texts, epochs=1)
    with pytest.raises(ValueError, match=r"rows \[4, 70\] hold NaN"):
        fit.encode_images(holes)


RESIDENT = """
from pathlib import Path
import numpy as np, torch
from brace_nb.codes import CodeEncoder

def peak(name="VmHWM:"):
    return int(Path("/proc/self/status").read_text().split(name)[1].split()[0]) * 1024

torch.set_num_threads(1)
x = np.random.default_rng(0).normal(size=(200_000, 64)).astype(np.float32)
y = x[:, ::-1] + x
for preset in "pq", "post":
    model = CodeEncoder.preset(preset, dim=32, epochs=0)
    model.fit(x[:2000], y[:2000])
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is in use now
    before = peak("VmRSS:")
    model.fit(x, y)
    print(preset, (peak() - before) / (x.nbytes + y.nbytes))
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads the peak memory of a process from /proc"
)
def test_fit_holds_one_copy_of_many_pairs_at_most():
    run = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True)
    found = {line.split()[0]: float(line.split()[1]) for line in run.stdout.splitlines()}
    assert found["pq"] < 2.5 and found["post"] < 0.5, (
        found
    )  # times both matrices; pq: with what it learns from


def test_best_epoch_is_kept_beside_the_last_and_patience_stops():
    images, texts = pairs_of_views(90, noise=1.0)
    split = (images[:60], texts[:60]), (images[60:], texts[60:])  # over-fits at once
    full = CodeEncoder(**SMALL).fit(*split[0], validation=split[1], epochs=15, batch_size=30)
    losses = [r["validation"] for r in full.history]
    assert len(losses) == 15 and full.using == "last" and full.best_epoch == 1 + int(np.argmin(losses)) < 15
    short = CodeEncoder(**SMALL).fit(*split[0], validation=split[1], epochs=full.best_epoch, batch_size=30)
    last = full.embed_images(images)
    assert (
        full.use("best").embed_images(images) == short.embed_images(images)
    ).all() and full.using == "best"
    assert (full.use("last").embed_images(images) == last).all() and not (
        last == short.embed_images(images)
    ).all()
    stopped = CodeEncoder(**SMALL).fit(*split[0], validation=split[1], epochs=15, batch_size=30, patience=2)
    assert [r["validation"] for r in stopped.history] == losses[: len(stopped.history)] and len(
        stopped.history
    ) == stopped.best_epoch + 2 < 15
    with pytest.raises(ValueError, match="`best` needs a validation set"):
        CodeEncoder(**SMALL).fit(*split[0], epochs=1).use("best")


def test_validation_does_not_change_the_training():
    images, texts = pairs_of_views(120)
    with_it, without = (
        CodeEncoder(**SMALL).fit(images, texts, epochs=2, batch_size=40, **o)
        for o in (dict(validation=(images[:50], texts[:50])), {})
    )
    assert [r["train"] for r in with_it.history] == [
        r["train"] for r in without.history
    ] and "validation" not in without.history[0]


def test_interrupt_leaves_the_last_finished_epoch(monkeypatch):
    images, texts = pairs_of_views(100)
    calls = []

    def stops(x, y, scale):
        calls.append(1)
        if len(calls) > 7:
            raise KeyboardInterrupt
        return clip_loss(x, y, scale)

    two = CodeEncoder(**SMALL).fit(images, texts, epochs=2, batch_size=33)
    monkeypatch.setattr(head_training, "clip_loss", stops)
    encoder = CodeEncoder(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        encoder.fit(images, texts, epochs=9, batch_size=33)
    assert encoder.history == two.history and (encoder.embed_images(images) == two.embed_images(images)).all()
    early = CodeEncoder(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        early.fit(images, texts, epochs=9, batch_size=33)
    with pytest.raises(ValueError, match="not trained"):
        early.encode_images(images)


def test_alignment_and_uniformity_do_what_they_say():
    images, texts = pairs_of_views(400)
    options = dict(epochs=8, batch_size=100)

    def cosine(e):
        return float(nearest_corner(torch.from_numpy(e.embed_images(images)))[1].mean())

    def spread(e):
        return uniformity_loss(torch.from_numpy(e.embed_images(images))).item()

    plain, aligned, uniform = (
        CodeEncoder(**SMALL).fit(images, texts, **options, **o)
        for o in ({}, dict(align=3.0), dict(uniform=3.0))
    )
    assert cosine(aligned) > cosine(plain) + 0.005 and spread(uniform) < spread(plain)


def test_small_batches_and_the_incomplete_last_one():
    images, texts = pairs_of_views(10)
    assert CodeEncoder(**SMALL).fit(images, texts, epochs=1).history[0]["train"] == pytest.approx(
        math.log(10), abs=0.3
    )  # all ten in one batch
    seen = CodeEncoder(**SMALL).fit(images, texts, epochs=1, batch_size=4)
    assert len(seen.history) == 1


@pytest.mark.parametrize(
    "change, says",
    [
        (dict(epochs=-1), "epochs must be a whole number >= 0; got -1"),
        (dict(batch_size=1), "batch_size must be a whole number >= 2; got 1"),
        (dict(learning_rate=0.0), "learning_rate must be a finite number > 0; got 0.0"),
        (dict(gamma=1.5), "gamma must be a number in (0, 1]; got 1.5"),
        (dict(patience=3), "Give `validation`"),
        (dict(patience=0, validation="same"), "patience must be a whole number >= 1; got 0"),
        (dict(epoch=3), "got epoch"),
        (dict(sharpness=1.0), "got sharpness"),  # an option of another start
        (dict(texts=np.ones((12, 20), np.float32)), "got 30 images and 12 texts"),
        (dict(texts=np.ones(30, np.float32)), "got 30 equal rows"),  # numbers are one feature
        (dict(texts=np.ones((30, 20), complex)), "complex"),
        (dict(pairs=[(0, 0), (0, 30)]), "pairs [1] do not, got [0, 30] first"),
        (dict(pairs=[(0, 0), (-1, 3)]), "[-1, 3]"),
        (dict(pairs=[(0.0, 0.0)]), "integers (P, 2)"),
        (dict(pairs=[0, 1]), "(2,)"),
        (dict(pairs=[(0, 0)]), "two training pairs; got 1"),
        (
            dict(validation=(np.ones((5, 3), np.float32), np.ones((5, 20), np.float32))),
            "validation image embeddings must have 24 features",
        ),
    ],
)
def test_fit_refuses(change, says):
    images, texts = pairs_of_views(30)
    options = dict(texts=texts) | change
    if options.get("validation") == "same":
        options["validation"] = images, texts
    with pytest.raises(ValueError) as error:
        CodeEncoder(**SMALL).fit(images, options.pop("texts"), **options)
    assert says in str(error.value)


def test_a_training_that_diverges_says_so():
    images, texts = pairs_of_views(30)
    with pytest.raises(FloatingPointError, match="Lower the learning rate"):
        CodeEncoder(**SMALL).fit(images, texts, learning_rate=1e30)


def test_rows_too_long_for_plain_heads_are_named_with_their_side():
    images, texts = pairs_of_views(30)
    encoder = CodeEncoder(**SMALL)
    for x, y, side in (
        (images * np.float32(1e20), texts, "image"),
        (images, texts * np.float32(1e37), "text"),
    ):
        with pytest.raises(ValueError, match=rf"training {side} embeddings must be shorter.*Divide images"):
            encoder.fit(x, y)
        with pytest.raises(ValueError, match=rf"validation {side} embeddings must be shorter"):
            encoder.fit(images, texts, validation=(x, y))
    encoder.fit(images, texts)
    images[3] *= np.float32(1e19)
    with pytest.raises(ValueError, match=r"image embeddings must be shorter than 1e18.*rows \[3\]"):
        encoder.encode_images(images)
    with pytest.raises(ValueError, match=r"text embeddings must be shorter than 1e18.*rows \[0, 1"):
        encoder.encode_texts(texts * np.float32(1e30))


def test_embeddings_of_any_kind_encode_alike():
    images, texts = (x[:40].astype(np.float64) for x in pairs_of_views(60))
    encoder = CodeEncoder(**SMALL).fit(images.astype(">f8"), texts[::-1].copy()[::-1], epochs=1)
    expected = encoder.encode_images(images)
    for same in images.tolist(), pd.DataFrame(images), images.astype(">f8"), images.astype(np.longdouble):
        assert (encoder.encode_images(same) == expected).all()


def test_a_refused_fit_leaves_the_trained_heads():
    images, texts = pairs_of_views(60)
    e = CodeEncoder(**SMALL).fit(images, texts, epochs=1)
    before = e.embed_images(images)
    with pytest.raises(ValueError):
        e.fit(images, texts[:3])
    assert (e.embed_images(images) == before).all()


def test_encoding_refuses():
    images, texts = pairs_of_views(60)
    e = CodeEncoder(**SMALL).fit(images, texts, epochs=1)
    with pytest.raises(ValueError, match="image embeddings must have 24 features, as in `fit`; got 20"):
        e.encode_images(texts)
    with pytest.raises(ValueError, match="text embeddings must have 20 features"):
        e.embed_texts(images)
    with pytest.raises(ValueError, match="not trained"):
        CodeEncoder().embed_texts(texts)
    with pytest.raises(ValueError, match="dim must be a whole number >= 1"):
        CodeEncoder(dim=0)
    with pytest.raises(ValueError, match="start must be a HeadStart"):
        CodeEncoder(start="rotation")


# ---------------------------------------------------------------- keeping
@pytest.mark.parametrize("config", [dict(), dict(container="ternary", layers=0), dict(layers=2)])
def test_heads_come_back_from_disk(tmp_path, config):
    images, texts = pairs_of_views(90, noise=1.0)
    e = (
        CodeEncoder.preset("post", **SMALL)
        .set_params(**config)
        .fit(images[:60], texts[:60], validation=(images[60:], texts[60:]), epochs=4, batch_size=30)
    )
    for which in "best", "last":
        e.use(which).save(tmp_path / "heads")
        again = CodeEncoder.load(tmp_path / "heads")
        assert again.get_params() == e.get_params()
        assert (again.using, again.features, again.history, again.best_epoch) == (
            which,
            e.features,
            e.history,
            e.best_epoch,
        )
        assert (again.embed_images(images) == e.embed_images(images)).all() and (
            again.encode_texts(texts) == e.encode_texts(texts)
        ).all()
    assert (again.use("best").embed_images(images) == e.use("best").embed_images(images)).all() and [
        p.name for p in tmp_path.iterdir()
    ] == ["heads"]


def test_loading_refuses_what_is_no_encoder(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        CodeEncoder.load(tmp_path / "missing")
    with pytest.raises(ValueError, match="not trained"):
        CodeEncoder().save(tmp_path / "never")
    images, texts = pairs_of_views(40)
    CodeEncoder(**SMALL).fit(images, texts, epochs=1).save(tmp_path / "good")
    (tmp_path / "text").write_text("no heads")
    save_file(dict(x=torch.zeros(3)), tmp_path / "tensors")
    (tmp_path / "short").write_bytes((tmp_path / "good").read_bytes()[:-4])
    save_file(
        {"last/image.net.0.weight": torch.zeros(3)},
        tmp_path / "strange",
        metadata=dict(
            format="brace_nb.CodeEncoder",
            about='{"config": {"dim": 4}, "features": [2, 2], "history": [], "using": "last",'
            ' "best_epoch": null}',
        ),
    )
    for name in "text", "tensors", "short", "strange":
        with pytest.raises(ValueError, match="is not what was expected"):
            CodeEncoder.load(tmp_path / name)
    old = dict(format="brace_nb.CodeEncoder", version="1", about="{}")
    save_file(dict(x=torch.zeros(3)), tmp_path / "old", metadata=old)
    with pytest.raises(ValueError, match="version 1 of the format; fit and `save` it again"):
        CodeEncoder.load(tmp_path / "old")
    assert not (tmp_path / "never").exists()


# ---------------------------------------------------------------- other devices
@pytest.mark.gpu
def test_training_on_cuda_follows_the_cpu(tmp_path):
    images, texts = pairs_of_views(200)
    options = dict(epochs=2, batch_size=50, align=0.5)
    cpu = CodeEncoder(**SMALL).fit(images, texts, **options)
    for x, y, device in (
        (images, texts, "cuda"),
        (torch.from_numpy(images).cuda(), torch.from_numpy(texts).cuda(), None),
    ):
        gpu = CodeEncoder(**SMALL).fit(x, y, device=device, **options)
        assert [r["train"] for r in gpu.history] == pytest.approx(
            [r["train"] for r in cpu.history], rel=1e-2
        ) and type(gpu.encode_images(x)) is type(x)
    assert gpu.encode_images(x).is_cuda
    gpu.save(tmp_path / "heads")
    assert np.allclose(
        CodeEncoder.load(tmp_path / "heads").embed_images(images),
        gpu.embed_images(x).cpu().numpy(),
        atol=1e-4,
    )


def test_callback_sees_each_epoch_and_its_notes_stay_in_the_history():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 8)).astype(np.float32), rng.normal(size=(64, 8)).astype(np.float32)
    held = x[:32], y[:32]

    def watch(encoder, row):
        row["again"] = encoder.loss(*held)

    watched = CodeEncoder(16, start=RandomStart(hidden=8)).fit(
        x, y, validation=held, epochs=3, batch_size=32, callback=watch
    )
    plain = CodeEncoder(16, start=RandomStart(hidden=8)).fit(x, y, validation=held, epochs=3, batch_size=32)
    assert [r["again"] for r in watched.history] == pytest.approx(
        [r["validation"] for r in watched.history], rel=1e-5
    )
    assert [r["train"] for r in watched.history] == [r["train"] for r in plain.history]


def test_encode_names_the_modality():
    x = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    encoder = CodeEncoder(16, start=RandomStart(hidden=8)).fit(x, x, epochs=1, batch_size=16)
    assert (encoder.encode(x, "text") == encoder.encode_texts(x)).all() and (
        encoder.encode(x) == encoder.encode_images(x)
    ).all()
    with pytest.raises(ValueError, match="one of image, text"):
        encoder.encode(x, "audio")


@pytest.mark.parametrize("dim, numbers", [(8, 8), (32, 16)])
def test_product_quantization_trains_as_many_numbers_as_bits_or_features(dim, numbers):
    x = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    pairs = np.repeat(np.arange(300)[:, None], 2, 1)
    model = CodeEncoder.preset("pq", dim=dim, epochs=1).fit(x, x, pairs)
    assert model.embed_images(x).shape == (300, numbers)
    assert model.encode_images(x).shape == (300, dim // 8)
    assert model.recall(x, x) > 0.05  # 1 / 300 by chance


def test_fewer_rows_than_bits_keep_their_numbers():
    x = np.random.default_rng(0).normal(size=(300, 512)).astype(np.float32)
    model = CodeEncoder.preset("pq", dim=512, epochs=0).fit(x, x, np.repeat(np.arange(300)[:, None], 2, 1))
    assert model.embed_images(x).shape == (300, 512)
