"Towers and encoders: equal to open_clip, seeded, in any batch size; bad input."

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from brace_nb.foundations import (
    ByteBPE,
    EncoderConfig,
    OpenClipPreprocess,
    Preprocess,
    build_encoder,
    build_towers,
    encode_tokens,
    import_open_clip,
    on_background,
    train_bpe,
    weights_hash,
)

from made_encoders import SMALL


@pytest.fixture(scope="module")
def tokenizer(tuples):
    return ByteBPE(train_bpe(tuples.captions(lang=["en", "sw"], ids=tuples.ids("val")).text, 512), 512, 12)


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return build_encoder(SMALL, tokenizer)


def test_trimmed_text_equals_open_clip(encoder, tokenizer):
    texts = ["cat", "a rather long sentence about nothing in particular", "paka mweusi", "x"] * 3
    tokens = tokenizer(texts)
    with torch.inference_mode():
        for buckets in (1, 3, 20):
            assert torch.allclose(
                encode_tokens(encoder.model, tokens, buckets), encoder.model.encode_text(tokens), atol=1e-5
            )
        assert encode_tokens(encoder.model, tokens[:0]).shape == (0, 32)


def test_trimmed_gradients_equal_open_clip(encoder, tokenizer):
    tokens, grads = tokenizer(["cat", "a rather long sentence about nothing"]), []
    for f in (lambda: encode_tokens(encoder.model, tokens, 2), lambda: encoder.model.encode_text(tokens)):
        encoder.model.zero_grad()
        f().square().sum().backward()
        grads.append(
            torch.cat(
                [
                    p.grad.flatten()
                    for n, p in encoder.model.named_parameters()
                    if p.grad is not None and "positional" not in n
                ]
            )
        )
    encoder.model.zero_grad()
    assert torch.allclose(*grads, atol=1e-4)


def test_encode_images(encoder, tuples):
    rgba = tuples.images("noto", range(7))
    z = encoder.encode_images(rgba, batch_size=3)
    assert isinstance(z, np.ndarray) and z.dtype == np.float32 and z.shape == (7, 32)
    assert np.allclose(np.linalg.norm(z, axis=1), 1, atol=1e-5)
    with torch.inference_mode():
        direct = F.normalize(encoder.model.encode_image(encoder.preprocess(rgba)), dim=-1)
    assert np.allclose(z, direct, atol=1e-5)
    assert np.allclose(z, encoder.encode_images(on_background(rgba)), atol=1e-5)  # RGBA is shown on white
    t = encoder.encode_images(torch.from_numpy(rgba))
    assert isinstance(t, torch.Tensor) and np.allclose(t, z, atol=1e-5)
    assert np.allclose(encoder.encode_images(rgba.reshape(1, 7, 32, 32, 4))[0], z, atol=1e-5)
    assert encoder.encode_images(rgba[0]).shape == (32,) and encoder.encode_images(rgba[:0]).shape == (0, 32)
    assert encoder.encode_images(tuples.images("noto", [3], size=64)).shape == (1, 32)


def test_encode_texts(encoder):
    z = encoder.encode_texts(["cat", None, "paka", "cat"])
    assert (
        z.dtype == np.float32
        and np.isnan(z[1]).all()
        and np.allclose(np.linalg.norm(z[[0, 2]], axis=1), 1, atol=1e-5)
    )
    assert np.allclose(z[0], z[3], atol=1e-6) and not np.allclose(z[0], z[2], atol=1e-3)
    assert encoder.encode_texts([]).shape == (0, 32) and np.isnan(encoder.encode_texts([None])).all()


def test_encoding_leaves_the_mode_alone(encoder):
    encoder.model.train()
    before = weights_hash(encoder.model.state_dict())
    encoder.encode_images(np.zeros((4, 32, 32, 3), np.uint8))
    assert (
        encoder.model.training and weights_hash(encoder.model.state_dict()) == before
    )  # running statistics too
    encoder.model.eval()


def test_building_is_seeded_and_leaves_the_generator_alone(tokenizer):
    torch.manual_seed(3)
    want = torch.rand(1)
    torch.manual_seed(3)
    a, b, c = (
        build_encoder(SMALL, tokenizer),
        build_encoder(SMALL, tokenizer),
        build_encoder(SMALL, tokenizer, seed=1),
    )
    assert torch.equal(torch.rand(1), want)
    assert a.fingerprint() == b.fingerprint() != c.fingerprint()
    assert a.fingerprint() != build_encoder(SMALL, ByteBPE((), 512, 12)).fingerprint()  # the tokenizer counts


def test_default_shape():
    model = build_encoder().model
    assert type(model) is import_open_clip().CLIP
    assert sum(p.numel() for p in model.visual.parameters()) == 5_053_560


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((2, 32, 32, 3)),
        np.zeros((2, 3, 32, 32), np.uint8),
        np.zeros((32, 32), np.uint8),
        [[0]],
        "cat.png",
        np.zeros((2, 32, 32, 1), np.uint8),
    ],
)
def test_bad_images(encoder, images):
    with pytest.raises(ValueError, match="images must be uint8"):
        encoder.encode_images(images)


@pytest.mark.parametrize(
    "texts,words",
    [
        ("cat", "list of strings"),
        (["cat", ""], r"texts \[1\] are empty"),
        (["  \n"], "empty"),
        ([3], "must be strings"),
        (["a", float("nan")], "must be strings"),
    ],
)
def test_bad_texts(encoder, texts, words):
    with pytest.raises(ValueError, match=words):
        encoder.encode_texts(texts)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: EncoderConfig(embed_dim=0), "whole number"),
        (lambda: EncoderConfig(text_width=100, text_heads=3), "divide"),
        (lambda: build_encoder(EncoderConfig(image_model="resnet10")), "resnet10t"),
        (lambda: build_encoder(EncoderConfig(), ByteBPE((), 300, 24)), "must agree"),
    ],
)
def test_bad_shapes(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_nan_weights_are_noticed(tokenizer):
    e = build_encoder(SMALL, tokenizer)
    with torch.no_grad():
        e.model.visual.head.proj.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="non-finite embeddings for images"):
        e.encode_images(np.zeros((1, 32, 32, 3), np.uint8))


def test_open_clip_is_imported_once():
    first = import_open_clip()
    assert torch.ops.torchvision.nms is not None
    assert import_open_clip() is first


def test_preprocess_resizes_like_pillow(tuples):
    from PIL import Image

    rgb = on_background(tuples.images("twemoji", [3, 700], size=64))
    want = np.stack([np.asarray(Image.fromarray(x).resize((32, 32), Image.BICUBIC)) for x in rgb]) / 255
    open_clip_way = OpenClipPreprocess(dict(size=(32, 32), interpolation="bicubic", resize_mode="squash"))(
        rgb
    )
    got = Preprocess(32)(rgb)
    std = np.array([0.26862954, 0.26130258, 0.27577711])
    assert (
        np.abs((got - open_clip_way).permute(0, 2, 3, 1).numpy() * std).max() < 4 / 255
    )  # Pillow rounds to bytes after each direction
    assert (
        np.abs(
            got.permute(0, 2, 3, 1).numpy() * std + np.array([0.48145466, 0.4578275, 0.40821073]) - want
        ).max()
        < 4 / 255
    )


@pytest.mark.gpu
def test_cuda_matches_cpu(encoder, tuples, tokenizer):
    e = build_encoder(SMALL, tokenizer, device="cuda")
    x = tuples.images("noto", range(4))
    assert np.allclose(e.encode_images(x), encoder.encode_images(x), atol=1e-3)
    assert np.allclose(e.encode_texts(["paka"]), encoder.encode_texts(["paka"]), atol=1e-3)


@pytest.mark.parametrize("size", [(32, 32), (16, 16), (48, 64), (33, 32)])
def test_a_filter_that_fits_once_is_the_convolution(size):
    quick = build_towers(EncoderConfig()).visual.double().eval()
    plain, changed = copy.deepcopy(quick), 0
    for layer in plain.modules():
        if type(layer).__base__ is torch.nn.Conv2d:
            layer.__class__, changed = torch.nn.Conv2d, changed + 1
    assert changed > 5
    x = torch.randn(3, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for ours, theirs in zip(_answer_and_gradients(quick, x), _answer_and_gradients(plain, x)):
        torch.testing.assert_close(ours, theirs)


def _answer_and_gradients(tower, x):
    y = tower(x)
    return y, *torch.autograd.grad(y.sin().sum(), list(tower.parameters()))
