"Checkpoints: round trips, every kind of damage, pretrained weights from files."

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from brace_nb.foundations import (
    build_encoder,
    import_open_clip,
    load_encoder,
    on_background,
    save_encoder,
    weights_hash,
)

from made_encoders import SMALL


@pytest.fixture(scope="module")
def encoder():
    return build_encoder(SMALL)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: load_encoder("ViT-B-23/openai"), "ViT-B-32"),
        (lambda: load_encoder("ViT-B-32/nonsense"), "tags: openai"),
        (lambda: load_encoder("ViT-B-32"), "needs its weights"),
    ],
)
def test_bad_names_list_the_choices(call, words):
    with pytest.raises(ValueError, match=words):
        call()


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
