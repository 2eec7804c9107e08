"Heads: losses, training, keeping, and the codes they are compared with."

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.torch import save_file

from brace_nb.codes import heads as H
from brace_nb.codes.codes import jaccard, pack, pack_ternary, ternary_jaccard
from brace_nb.codes.heads import (
    BinaryHead,
    CodeEncoder,
    TernaryHead,
    alignment_loss,
    itq_rotation,
    random_rotation,
    rotation_codes,
    sign_codes,
    topk_codes,
    uniformity_loss,
)
from brace_nb.codes.projection import binarize, ternarize
from brace_nb.foundations.contrastive import clip_loss


def unit(*shape, seed=0, positive=True, dtype=torch.float64):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return F.normalize(F.softplus(3 * x) if positive else x, dim=-1)


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


SMALL = dict(dim=48, hidden=32)


# ---------------------------------------------------------------- heads and losses
@pytest.mark.parametrize("layers", [0, 1, 3])
@pytest.mark.parametrize("head", [BinaryHead, TernaryHead])
def test_heads_are_the_formula_of_the_post(head, layers):
    torch.manual_seed(0)
    f = head(7, 11, 5, layers).double()
    x = torch.randn(2, 3, 7, dtype=torch.float64)
    h, linear = x, [m for m in f.net if isinstance(m, torch.nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == list(
        zip([7] + [11] * layers, [11] * layers + [5])
    )
    for m in linear[:-1]:
        z = h @ m.weight.T + m.bias
        h = z / 2 * (1 + torch.erf(z / math.sqrt(2)))
    z = h @ linear[-1].weight.T + linear[-1].bias
    if head is BinaryHead:
        z = torch.log(1 + torch.exp(z))
    assert torch.allclose(f(x), z / (z * z).sum(-1, keepdim=True).sqrt(), atol=1e-12)
    assert ((f(x) > 0).all().item()) == (head is BinaryHead) and torch.allclose(
        f(x).norm(dim=-1), torch.ones(2, 3, dtype=torch.float64)
    )


def plain_alignment(x, y, ternary):
    total = 0.0
    for u, v in zip(x.tolist(), y.tolist()):
        best = (-2, None)
        for w in u, v:
            code = (ternarize if ternary else binarize)(np.array(w)).astype(float)
            corner = code / math.sqrt((code * code).sum())
            cosine = sum(p * q for p, q in zip(w, corner)) / math.sqrt(sum(p * p for p in w))
            if cosine > best[0]:
                best = cosine, corner
        total += sum((p - b) ** 2 + (q - b) ** 2 for p, q, b in zip(u, v, best[1])) / 2
    return total / len(x)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(2, 12), st.integers(0, 10**6), st.booleans())
def test_alignment_equals_the_plain_loop(n, dim, seed, ternary):
    x, y = unit(n, dim, seed=seed, positive=not ternary), unit(n, dim, seed=seed + 1, positive=not ternary)
    assert alignment_loss(x, y, ternary).item() == pytest.approx(
        plain_alignment(x, y, ternary), rel=1e-9, abs=1e-12
    )
    assert alignment_loss(y, x, ternary).item() == pytest.approx(
        alignment_loss(x, y, ternary).item(), rel=1e-12
    )


@pytest.mark.parametrize("ternary", [False, True])
def test_alignment_has_a_detached_target(ternary):
    x, y = (unit(20, 16, seed=s, positive=not ternary).requires_grad_() for s in (1, 2))
    alignment_loss(x, y, ternary).backward()
    (bx, cx), (by, cy) = H._corner(x, ternary), H._corner(y, ternary)
    b = torch.where(cx >= cy, bx, by)
    assert 0 < (cx >= cy).sum() < 20 and not b.requires_grad
    assert torch.allclose(x.grad, (x - b).detach() / 20) and torch.allclose(y.grad, (y - b).detach() / 20)
    assert torch.autograd.gradcheck(
        lambda u, v: alignment_loss(u, v, ternary), (x.detach().requires_grad_(), y.detach().requires_grad_())
    )


def test_alignment_vanishes_exactly_on_common_corners():
    corner = F.normalize(
        (
            (torch.rand(8, 30, generator=torch.Generator().manual_seed(0)) < 0.2) | torch.eye(8, 30).bool()
        ).double(),
        dim=-1,
    )
    assert (
        alignment_loss(corner, corner).item() == pytest.approx(0, abs=1e-12)
        and alignment_loss(corner, unit(8, 30)).item() > 0.01
    )


def test_a_step_along_the_alignment_gradient_brings_partners_closer_to_a_corner():
    x, y = (unit(50, 32, seed=s).requires_grad_() for s in (3, 4))
    before = alignment_loss(x, y)
    before.backward()
    assert alignment_loss(F.normalize(x - 5 * x.grad, dim=-1), F.normalize(y - 5 * y.grad, dim=-1)) < before


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 8), st.integers(1, 6), st.integers(0, 10**6))
def test_uniformity_equals_the_plain_loop(n, dim, seed):
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    total = sum(
        math.exp(-2 * sum((p - q) ** 2 for p, q in zip(x[i].tolist(), x[j].tolist())))
        for i in range(n)
        for j in range(i)
    )
    if total > 1e-200:
        assert uniformity_loss(x).item() == pytest.approx(
            math.log(total / (n * (n - 1) / 2)), rel=1e-9, abs=1e-9
        )


def test_uniformity_gradient_and_extremes():
    assert torch.autograd.gradcheck(uniformity_loss, unit(5, 4).requires_grad_())
    same = unit(1, 4).expand(6, 4).clone().requires_grad_()
    loss = uniformity_loss(same)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-12) and same.grad.isfinite().all()
    assert uniformity_loss(torch.eye(5)).item() == pytest.approx(-4, abs=1e-6)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: BinaryHead(0, 4, 4), "in 0, hidden 4"),
        (lambda: TernaryHead(4, 4, 4, layers=-1), "layers -1"),
        (lambda: alignment_loss(torch.ones(3, 4), torch.ones(2, 4)), "(3, 4) and (2, 4) came"),
        (lambda: uniformity_loss(torch.ones(1, 4)), "(1, 4) came"),
        (lambda: uniformity_loss(torch.ones(4)), "(4,) came"),
    ],
)
def test_losses_refuse(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value)


# ---------------------------------------------------------------- training
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
    encoder = CodeEncoder(16, 8, ternary=ternary).fit(images, texts, epochs=3, batch_size=32, seed=5, **more)
    assert [r["train"] for r in encoder.history] == pytest.approx(losses, rel=1e-4) and encoder.history[-1][
        "scale"
    ] == pytest.approx(scale, rel=1e-4)
    assert [r["lr"] for r in encoder.history] == pytest.approx([1e-2, 9e-3, 8.1e-3])
    assert np.allclose(encoder.embed_images(images), f(torch.tensor(images)).detach().numpy(), atol=1e-3)


@pytest.mark.parametrize("ternary", [False, True])
def test_codes_of_held_out_partners_match(ternary):
    images, texts = pairs_of_views(700)
    train, held = slice(0, 600), slice(600, 700)
    e = CodeEncoder(**SMALL, ternary=ternary).fit(
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
    monkeypatch.setattr(H, "clip_loss", stops)
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
    cosine = lambda e: float(H._corner(torch.from_numpy(e.embed_images(images)), False)[1].mean())
    spread = lambda e: uniformity_loss(torch.from_numpy(e.embed_images(images))).item()
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
        (dict(epochs=0), "0, 256, 0.01 and 0.9 came"),
        (dict(batch_size=1), "20, 1,"),
        (dict(lr=0.0), "0.0 and"),
        (dict(gamma=1.5), "1.5 came"),
        (dict(patience=3), "Give `validation`"),
        (dict(patience=0, validation="same"), "patience=0"),
        (dict(texts=np.ones((12, 20), np.float32)), "30 images and 12 texts came"),
        (dict(texts=np.ones(30, np.float32)), "texts (30,) came"),
        (dict(texts=np.ones((30, 20), complex)), "complex"),
        (dict(pairs=[(0, 0), (0, 30)]), "pairs [1] do not, the first is [0, 30]"),
        (dict(pairs=[(0, 0), (-1, 3)]), "[-1, 3]"),
        (dict(pairs=[(0.0, 0.0)]), "integers (P, 2)"),
        (dict(pairs=[0, 1]), "(2,) came"),
        (dict(pairs=[(0, 0)]), "two training pairs; 1 came"),
        (
            dict(validation=(np.ones((5, 3), np.float32), np.ones((5, 20), np.float32))),
            "validation image embeddings have 24 features",
        ),
        (dict(lr=1e30), "Lower `lr`"),
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
    with pytest.raises(ValueError, match="image embeddings have 24 features, as in `fit`; 20 came"):
        e.encode_images(texts)
    with pytest.raises(ValueError, match="text embeddings have 20 features"):
        e.embed_texts(images)
    with pytest.raises(ValueError, match="not trained"):
        CodeEncoder().embed_texts(texts)
    with pytest.raises(ValueError, match="positive widths"):
        CodeEncoder(dim=0)


# ---------------------------------------------------------------- keeping
@pytest.mark.parametrize("config", [dict(), dict(ternary=True, layers=0), dict(layers=2)])
def test_heads_come_back_from_disk(tmp_path, config):
    images, texts = pairs_of_views(90, noise=1.0)
    e = CodeEncoder(**SMALL, **config).fit(
        images[:60], texts[:60], validation=(images[60:], texts[60:]), epochs=4, batch_size=30
    )
    for which in "best", "last":
        e.use(which).save(tmp_path / "heads")
        again = CodeEncoder.load(tmp_path / "heads")
        assert (again.using, again.config, again.features, again.history, again.best_epoch) == (
            which,
            e.config,
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
    with pytest.raises(FileNotFoundError, match="there is none"):
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
            about='{"config": {"dim": 4}, "features": [2, 2], "history": [], "using": "last", "best_epoch": null}',
        ),
    )
    for name in "text", "tensors", "short", "strange":
        with pytest.raises(ValueError, match="is not, or is damaged"):
            CodeEncoder.load(tmp_path / name)
    assert not (tmp_path / "never").exists()


# ---------------------------------------------------------------- codes without learning
numbers = st.integers(1, 9).flatmap(
    lambda d: arrays(
        np.float32, st.tuples(st.integers(0, 5), st.just(d)), elements=st.integers(-4, 4).map(float)
    )
)


@given(numbers, st.integers(0, 10**6))
def test_sign_codes_equal_the_plain_loop(x, seed):
    random = np.random.default_rng(seed)
    mean = random.integers(-3, 3, x.shape[1]).astype(np.float32)
    rotation = random.integers(-2, 3, (x.shape[1], 4)).astype(np.float32)
    assert (
        sign_codes(x) == np.array([[v > 0 for v in row] for row in x], bool).reshape(x.shape)
    ).all() and sign_codes(x).dtype == bool
    assert (
        sign_codes(x, mean)
        == np.array([[v > m for v, m in zip(row, mean)] for row in x], bool).reshape(x.shape)
    ).all()
    turned = np.array(
        [
            [
                sum((float(v) - float(m)) * float(rotation[i, j]) for i, (v, m) in enumerate(zip(row, mean)))
                > 0
                for j in range(4)
            ]
            for row in x
        ],
        bool,
    ).reshape(len(x), 4)
    assert (sign_codes(x, mean, rotation) == turned).all()
    assert (
        sign_codes(torch.from_numpy(x), torch.from_numpy(mean), torch.from_numpy(rotation)).numpy() == turned
    ).all()


@given(numbers, st.data())
def test_topk_codes_equal_the_plain_loop(x, data):
    k = data.draw(st.integers(1, x.shape[1]))
    expected = np.zeros(x.shape, bool)
    for i, row in enumerate(x):
        for j in sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]:
            expected[i, j] = True
    assert (
        (topk_codes(x, k) == expected).all()
        and (topk_codes(torch.from_numpy(x), k).numpy() == expected).all()
        and (expected.sum(-1) == k).all()
    )


@pytest.mark.parametrize("dim, bits", [(16, 16), (16, 5), (8, 20), (1, 3)])
def test_random_rotations_are_orthonormal_and_repeat(dim, bits):
    R = random_rotation(dim, bits, seed=4)
    assert R.shape == (dim, bits) and (R == random_rotation(dim, bits, seed=4)).all()
    for start in range(0, bits, dim):
        part = R[:, start : start + dim]
        assert np.allclose(part.T @ part, np.eye(part.shape[1]), atol=1e-6)
    x = np.random.default_rng(0).normal(size=(7, dim)).astype(np.float32)
    assert (rotation_codes(x, bits, seed=4, mean=x.mean(0)) == ((x - x.mean(0)) @ R > 0)).all()


def test_rotation_codes_estimate_angles():
    "Random hyperplanes separate two vectors with probability angle/pi (Charikar 2002)."
    x, y = (v / np.linalg.norm(v) for v in np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32))
    y = x + 0.5 * y
    differ = np.mean([(rotation_codes(x, 64, s) != rotation_codes(y, 64, s)).mean() for s in range(60)])
    assert differ == pytest.approx(
        math.acos(x @ y / np.linalg.norm(y) / np.linalg.norm(x)) / math.pi, abs=0.02
    )


def test_itq_is_the_alternation_of_the_paper_and_lowers_its_error():
    random = np.random.default_rng(2)
    x = (random.normal(size=(400, 10)) * np.linspace(3, 0.5, 10)) @ random_rotation(
        10, 10, 7
    ) + random.normal(size=10)
    v = x - x.mean(0)
    _, _, w = np.linalg.svd(v, full_matrices=False)
    best = []
    for iterations in (0, 1, 5, 50):
        P = itq_rotation(x, 6, iterations, seed=3).astype(float)
        assert np.allclose(P.T @ P, np.eye(6), atol=1e-5) and np.allclose(
            w[:6].T @ (w[:6] @ P), P, atol=1e-4
        )  # a rotation within the first principal components
        z = v @ P
        best.append(((np.sign(z) - z) ** 2).sum())
    assert best[0] > best[1] > best[2] >= best[3] * (1 - 1e-6)
    P = itq_rotation(x, 6, 500, seed=3).astype(float)
    z = v @ P
    B = np.sign(z)
    u, _, t = np.linalg.svd(z.T @ B)
    assert np.allclose(u @ t, np.eye(6), atol=0.02)  # fixed point: no better rotation for these codes
    codes = sign_codes(x, x.mean(0), itq_rotation(x, 6))
    assert codes.shape == (400, 6)
    assert (itq_rotation(torch.from_numpy(x), 6) == itq_rotation(x, 6)).all()


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda x: topk_codes(x, 0), "k is 1..5"),
        (lambda x: topk_codes(x, 6), "6 came"),
        (lambda x: sign_codes(x * np.nan), "rows [0, 1, 2] hold NaN"),
        (lambda x: random_rotation(4, 0), "4 and 0"),
        (lambda x: itq_rotation(x, 6), "(3, 5) and bits=6"),
        (lambda x: itq_rotation(x, 4), "(3, 5) and bits=4"),
        (lambda x: itq_rotation(x[0], 1), "(5,)"),
    ],
)
def test_baselines_refuse(call, says):
    with pytest.raises(ValueError) as error:
        call(np.ones((3, 5), np.float32))
    assert says in str(error.value)


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

    watched = CodeEncoder(16, 8).fit(x, y, validation=held, epochs=3, batch_size=32, callback=watch)
    plain = CodeEncoder(16, 8).fit(x, y, validation=held, epochs=3, batch_size=32)
    assert [r["again"] for r in watched.history] == pytest.approx(
        [r["validation"] for r in watched.history], rel=1e-5
    )
    assert [r["train"] for r in watched.history] == [r["train"] for r in plain.history]


def test_encode_names_the_modality():
    x = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    encoder = CodeEncoder(16, 8).fit(x, x, epochs=1, batch_size=16)
    assert (encoder.encode(x, "text") == encoder.encode_texts(x)).all() and (
        encoder.encode(x) == encoder.encode_images(x)
    ).all()
    with pytest.raises(ValueError, match="'image' or 'text'"):
        encoder.encode(x, "audio")
