"Tokenizer, towers, checkpoints, pretrained weights from files, cache: oracles, properties, bad input."

import json
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional as F

from brace_nb.foundations import encoders as module
from brace_nb.foundations.data import load_emoji, on_background
from brace_nb.foundations.encoders import (
    ByteBPE,
    EncoderConfig,
    OpenClipPreprocess,
    Preprocess,
    atomic_path,
    build_encoder,
    cached_embeddings,
    clean_text,
    encode_tokens,
    import_open_clip,
    load_encoder,
    save_encoder,
    split_words,
    train_bpe,
    weights_hash,
)

SMALL = EncoderConfig(
    embed_dim=32, text_width=32, text_heads=2, text_layers=2, vocab_size=512, context_length=12
)


@pytest.fixture(scope="module")
def tuples():
    return load_emoji()


@pytest.fixture(scope="module")
def tokenizer(tuples):
    return ByteBPE(train_bpe(tuples.captions(lang=["en", "sw"], ids=tuples.ids("val")).text, 512), 512, 12)


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return build_encoder(SMALL, tokenizer)


# tokenizer


def loop_bpe(texts, size):
    "Byte-pair encoding by recounting everything before each merge."
    words = Counter(tuple(1 + b for b in w.encode()) for t in texts for w in split_words(t))
    merges = []
    while len(merges) < size - 259:
        pairs = Counter()
        for w, n in words.items():
            for p in zip(w, w[1:]):
                pairs[p] += n
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        after = Counter()
        for w, n in words.items():
            out, j = [], 0
            while j < len(w):
                if w[j : j + 2] == best:
                    out.append(256 + len(merges))
                    j += 2
                else:
                    out.append(w[j])
                    j += 1
            after[tuple(out)] += n
        words = after
    return merges


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab é猫1,", max_size=12), min_size=1, max_size=12), st.integers(259, 300))
def test_bpe_equals_recounting(texts, size):
    assert train_bpe(texts, size) == loop_bpe(texts, size)


def test_bpe_on_real_captions_equals_recounting(tuples):
    texts = tuples.captions(lang="sw", ids=tuples.ids("val")).text.tolist()
    assert train_bpe(texts, 400) == loop_bpe(texts, 400) == train_bpe(texts[::-1], 400)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40))
def test_any_text_survives(text):
    t = ByteBPE(train_bpe(["the cat sat on the mat"], 280), 280, 24)
    assert t.decode(t.encode(text)) == clean_text(text)
    assert clean_text(clean_text(text)) == clean_text(text)
    assert "".join(split_words(text)) == (f" {clean_text(text)}" if clean_text(text) else "")


def test_every_language_survives(tuples, tokenizer):
    texts = tuples.captions().text
    assert set(tuples.captions().lang) == set(tuples.languages) and len(tuples.languages) == 18
    assert all(tokenizer.decode(tokenizer.encode(t)) == clean_text(t) for t in texts)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=5))
def test_end_token_is_the_largest_and_last(texts):
    t = ByteBPE((), 300, 10)
    ids = t(texts)
    assert ids.shape == (len(texts), 10) and ids.dtype == torch.int64
    for row, text in zip(ids, texts):
        n = min(len(t.encode(text)), 8)
        assert (
            row.argmax() == n + 1
            and row[n + 1] == t.end == 299
            and row[0] == t.start
            and not row[n + 2 :].any()
        )
        assert row[1 : n + 1].tolist() == t.encode(text)[:8]


def test_words_repeat_their_tokens(tokenizer):
    assert tokenizer.encode("face cat face") == tokenizer.encode("face") + tokenizer.encode(
        "cat"
    ) + tokenizer.encode("face")


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: train_bpe(["a"], 100), "at least 259"),
        (lambda: ByteBPE([(1, 2)] * 50, 300), "do not fit"),
        (lambda: ByteBPE([(1, 999)], 300), "both exist"),
        (lambda: ByteBPE((), 300, 2), "at least 3"),
        (lambda: clean_text(3), "must be a string"),
    ],
)
def test_bad_tokenizers(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# towers


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
        (lambda: load_encoder("ViT-B-23/openai"), "ViT-B-32"),
        (lambda: load_encoder("ViT-B-32/nonsense"), "tags: openai"),
        (lambda: load_encoder("ViT-B-32"), "needs its weights"),
    ],
)
def test_bad_names_list_the_choices(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_nan_weights_are_noticed(tokenizer):
    e = build_encoder(SMALL, tokenizer)
    with torch.no_grad():
        e.model.visual.head.proj.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="non-finite embeddings for images"):
        e.encode_images(np.zeros((1, 32, 32, 3), np.uint8))


# checkpoints


def test_checkpoint_round_trip(encoder, tmp_path, tuples):
    save_encoder(encoder, tmp_path)
    again = load_encoder(tmp_path)
    assert again.fingerprint() == encoder.fingerprint() and again.config == encoder.config
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert np.array_equal(again.encode_texts(["paka"]), encoder.encode_texts(["paka"]))
    x = tuples.images("noto", [5])
    assert np.array_equal(again.encode_images(x), encoder.encode_images(x))


def spoil_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({k: v for k, v in (config | changes).items() if v is not None})
    )


def spoil_weights(folder, encoder, **changes):
    from safetensors.torch import save_file

    state = {k: v.clone().contiguous() for k, v in encoder.model.state_dict().items()} | changes
    save_file({k: v for k, v in state.items() if v is not None}, folder / "model.safetensors")


@pytest.mark.parametrize(
    "spoil,words",
    [
        (lambda f, e: (f / "tokenizer.json").unlink(), "lacks tokenizer.json"),
        (lambda f, e: (f / "config.json").write_text("{"), "not json"),
        (lambda f, e: (f / "config.json").write_text("[1]"), "json object"),
        (lambda f, e: spoil_config(f, embed_dim=None), "lacks"),
        (lambda f, e: spoil_config(f, color=3), "unknown fields"),
        (lambda f, e: spoil_config(f, embed_dim=64), "does not fit"),
        (lambda f, e: spoil_config(f, weights_sha256="0"), "not the file"),
        (lambda f, e: spoil_weights(f, e, logit_scale=torch.tensor(torch.nan)), "NaN"),
        (lambda f, e: spoil_weights(f, e, logit_scale=None), "missing"),
        (lambda f, e: spoil_weights(f, e, extra=torch.zeros(1)), "unknown"),
        (lambda f, e: spoil_weights(f, e, logit_scale=torch.tensor(1.0)), "not the file"),
        (
            lambda f, e: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:5000]),
            "not a readable",
        ),
    ],
)
def test_damaged_checkpoints(encoder, tmp_path, spoil, words):
    save_encoder(encoder, tmp_path)
    spoil(tmp_path, encoder)
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        load_encoder(tmp_path)


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_encoder(tmp_path / "nowhere")


def test_atomic_path_leaves_the_old_file_on_failure(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_path(tmp_path / "a") as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert [p.name for p in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_text() == "old"


# pretrained models: a file in the true format, made here


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    from safetensors.torch import save_file

    open_clip = import_open_clip()
    torch.manual_seed(0)
    model = open_clip.create_model("ViT-S-32-alt").eval()
    folder = tmp_path_factory.mktemp("weights")
    save_file(
        {k: v.contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors"
    )
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in model.state_dict().items()}}, folder / "epoch.pt"
    )  # as open_clip's training writes it
    return model, folder


@pytest.mark.parametrize("file", ["open_clip_model.safetensors", "epoch.pt"])
def test_local_weight_file(pretrained, file, tuples):
    from PIL import Image

    open_clip, (model, folder) = import_open_clip(), pretrained
    from open_clip.transform import PreprocessCfg, image_transform_v2

    e = load_encoder("ViT-S-32-alt", weights=folder / file)
    assert e.fingerprint() == load_encoder(f"ViT-S-32-alt/{folder / file}").fingerprint()
    assert weights_hash(e.model.state_dict()) == weights_hash(model.state_dict())
    rgba, transform = (
        tuples.images("noto", [0, 9], size=64),
        image_transform_v2(PreprocessCfg(size=(224, 224)), is_train=False),
    )
    with torch.inference_mode():
        want = F.normalize(
            model.encode_image(torch.stack([transform(Image.fromarray(x)) for x in on_background(rgba)])),
            dim=-1,
        )
        words = F.normalize(
            model.encode_text(open_clip.get_tokenizer("ViT-S-32-alt")(["a cat", "two dogs"])), dim=-1
        )
    assert np.allclose(e.encode_images(rgba), want, atol=1e-5) and np.allclose(
        e.encode_texts(["a cat", "two dogs"]), words, atol=1e-5
    )
    assert e.dim == 256 and np.isnan(e.encode_texts(["a", None])[1]).all()
    with pytest.raises(ValueError, match="loads by its name"):
        save_encoder(e, folder / "x")


def test_wrong_weight_files(pretrained, tmp_path):
    _, folder = pretrained
    with pytest.raises(ValueError, match="does not hold weights of ViT-S-32"):
        load_encoder("ViT-S-32", weights=folder / "open_clip_model.safetensors")
    (tmp_path / "noise.safetensors").write_bytes(b"not weights")
    with pytest.raises(ValueError, match="does not hold weights"):
        load_encoder("ViT-S-32", weights=tmp_path / "noise.safetensors")


def test_nan_in_a_weight_file(pretrained, tmp_path):
    from safetensors.torch import save_file

    state = {k: v.contiguous().clone() for k, v in pretrained[0].state_dict().items()}
    state["ln_final.weight"][0] = torch.nan
    save_file(state, tmp_path / "nan.safetensors")
    with pytest.raises(ValueError, match="NaN"):
        load_encoder("ViT-S-32-alt", weights=tmp_path / "nan.safetensors")


def test_offline_says_what_to_do(monkeypatch, tmp_path):
    import huggingface_hub
    import socket

    def nowhere(*_):
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    with pytest.raises(ConnectionError, match="copy the weight file here"):
        load_encoder("ViT-B-32/laion2b_s34b_b79k")
    assert huggingface_hub.constants.HF_HUB_OFFLINE == before


def test_the_shim_acts_only_when_the_operator_is_missing():
    import_open_clip()
    assert torch.ops.torchvision.nms is not None
    held = module._schemas
    import_open_clip()
    assert module._schemas is held


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


# cache


def test_cache(encoder, tuples, tmp_path):
    x, texts = tuples.images("noto", range(5)), ["paka", None, "cat"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a, b = cached_embeddings(encoder, x, tmp_path), cached_embeddings(encoder, texts, tmp_path)
        assert np.array_equal(a, encoder.encode_images(x)) and np.array_equal(
            b, encoder.encode_texts(texts), equal_nan=True
        )
        assert np.array_equal(cached_embeddings(encoder, torch.from_numpy(x), tmp_path), a)  # the same data
        assert len(list(tmp_path.iterdir())) == 2
        (
            cached_embeddings(encoder, x[::-1], tmp_path),
            cached_embeddings(encoder, texts[::-1], tmp_path),
        )  # other data
        cached_embeddings(build_encoder(SMALL, encoder.tokenizer, seed=5), x, tmp_path)  # other weights
        assert len(list(tmp_path.iterdir())) == 5


def test_cache_is_used(encoder, tmp_path, monkeypatch):
    first = cached_embeddings(encoder, ["paka"], tmp_path)
    monkeypatch.setattr(type(encoder), "encode_texts", lambda *a, **k: pytest.fail("computed again"))
    assert np.array_equal(cached_embeddings(encoder, ["paka"], tmp_path), first)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda b: b[: len(b) // 2],
        lambda b: b"",
        lambda b: b[:-1] + bytes([b[-1] ^ 1]),
        lambda b: b"x" * len(b),
    ],
)
def test_damaged_cache_is_made_again(encoder, tmp_path, spoil):
    first = cached_embeddings(encoder, ["paka", "mbwa"], tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.warns(UserWarning, match="damaged"):
        again = cached_embeddings(encoder, ["paka", "mbwa"], tmp_path)
    assert np.array_equal(first, again)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(cached_embeddings(encoder, ["paka", "mbwa"], tmp_path), first)


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("BRACE_NB_CACHE", str(tmp_path / "c"))
    assert module.cache_folder() == tmp_path / "c"
    monkeypatch.delenv("BRACE_NB_CACHE")
    assert module.cache_folder().parts[-2:] == ("derived", "cache")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; torch sees none")
def test_cuda_matches_cpu(encoder, tuples, tokenizer):
    e = build_encoder(SMALL, tokenizer, device="cuda")
    x = tuples.images("noto", range(4))
    assert np.allclose(e.encode_images(x), encoder.encode_images(x), atol=1e-3)
    assert np.allclose(e.encode_texts(["paka"]), encoder.encode_texts(["paka"]), atol=1e-3)
