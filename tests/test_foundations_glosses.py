"The glosses: what they hold, how they are split and embedded, and their builder."

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from brace_nb.companion import root
from brace_nb.foundations import (
    data_folder,
    embed_glosses,
    load_glosses,
    static_embeddings,
    token_vectors,
    token_weights,
)


@pytest.fixture(scope="module")
def table():
    return load_glosses()


def test_what_they_hold(table):
    assert len(table) == 117_659 and table.synset.is_unique
    assert table.synset.str[0].value_counts().to_dict() == dict(n=82_115, a=18_156, v=13_767, r=3_621)
    assert table.split.value_counts().to_dict() == dict(train=110_659, test=5_000, val=2_000)
    assert table.words.str.len().min() > 0 and table.gloss.str.len().min() > 0
    assert not table.gloss.str.contains('; "').any() and not table.words.str.contains("_").any()


def test_no_word_is_on_two_sides(table):
    words = table.words.str.lower().str.split(", ").explode()
    sides = table.split[words.index].to_numpy()
    assert (pd.Series(sides).groupby(words.to_numpy()).nunique() == 1).all()
    held = table[table.split != "train"]
    assert table.gloss.isin(held.gloss).sum() == len(held) == table.words.isin(held.words).sum()


def builder():
    path = root() / "data/glosses/build.py"
    spec = importlib.util.spec_from_file_location("build_glosses", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(rows):
    return "  1 the licence\n" + "".join(
        f"{n:08} 00 n {len(words):02x} {' '.join(f'{w} 0' for w in words)} 000 | {gloss}  \n"
        for n, (words, gloss) in enumerate(rows)
    )


def test_the_builder_on_a_small_wordnet(tmp_path, monkeypatch):
    build = builder()
    rows = [([f"word_{i}", f"other{i}"], f'gloss {i}; "an example"') for i in range(40)]
    rows += [(["Word_0(p)"], "shares a word with the first"), (["alone"], "gloss 7"), (["x"], "y; (see z)")]
    for part in build.PARTS.values():
        (tmp_path / f"data.{part}").write_text(lines(rows) if part == "noun" else lines([]))
    monkeypatch.setattr(build, "HELD", dict(test=5, val=3))
    build.build(tmp_path, tmp_path)
    table = load_glosses(tmp_path)
    assert (
        table.words[0] == "word 0, other0" and table.gloss[0] == "gloss 0" and table.gloss[42] == "y; (see z)"
    )
    assert table.words[40] == "Word 0" and table.split[0] == table.split[40]
    assert table.split[[7, 41]].tolist() == ["train", "train"]  # their gloss is there twice
    assert table.split.value_counts().to_dict() == dict(train=35, test=5, val=3)
    parts = build.components([["a", "b"], ["c"], ["B", "d"], ["D"], ["e"]])
    assert parts[0] == parts[2] == parts[3] and len({*parts}) == 3


def test_what_the_reader_refuses(tmp_path, monkeypatch):
    monkeypatch.setenv("BRACE_NB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="glosses"):
        load_glosses()
    frame = pd.DataFrame(dict(synset=["n1"], words=["a"], gloss=["b"], split=["other"]))
    frame.to_parquet(tmp_path / "glosses.parquet")
    with pytest.raises(ValueError, match=r"split must be one of train, val, test; got \['other'\]"):
        load_glosses(tmp_path)
    frame.drop(columns="gloss").to_parquet(tmp_path / "glosses.parquet")
    with pytest.raises(ValueError, match="no columns"):
        load_glosses(tmp_path)


def test_static_embeddings_are_weighted_means():
    random = np.random.default_rng(0)
    vectors, weights = random.normal(size=(9, 5)), random.random(9)
    tokens = [random.integers(9, size=n).tolist() for n in (1, 3, 8, 2)]
    for row, own in zip(static_embeddings(tokens, vectors, weights), tokens):
        mean = sum(weights[k] * vectors[k] for k in own) / len(own)
        assert np.allclose(row, mean / np.linalg.norm(mean), atol=1e-6)
    assert np.allclose(token_weights([[0, 0], [1, 0]], 3, 0.25), [0.25, 0.5, 1.0])
    with pytest.raises(ValueError, match=r"tokens must be lists of whole numbers, at least one each"):
        static_embeddings([[0], []], vectors, weights)


class Tokenizer:
    cls_token_id, sep_token_id = 0, 1

    def __call__(self, texts, add_special_tokens, verbose):
        assert not add_special_tokens
        return dict(input_ids=[[2 + ord(c) - ord("a") for c in text if c.isalpha()] for text in texts])


def model(input_ids, attention_mask):
    "States that tell the token, its neighbours and its place."
    states = torch.stack([input_ids, input_ids.roll(1, 1), torch.arange(3).expand_as(input_ids)], -1)
    return SimpleNamespace(last_hidden_state=states.float())


def test_tokens_go_through_the_model_alone():
    assert token_vectors(model, Tokenizer(), [5, 9, 2], batch=2).tolist() == [[5, 0, 1], [9, 0, 1], [2, 0, 1]]
    frame = pd.DataFrame(dict(words=["a", "b, c"], gloss=["d e", "f"], split=["train", "test"]))
    words, glosses = embed_glosses(frame, model, Tokenizer())
    assert words.shape == glosses.shape == (2, 3) and np.allclose(np.linalg.norm(words, axis=1), 1)
    assert np.allclose(words[0], np.array([2, 0, 1]) / 5**0.5)


def test_the_committed_file_is_what_the_builder_makes(tmp_path):
    wordnet = Path("/usr/share/wordnet")
    if not (wordnet / "data.noun").exists():
        pytest.skip("needs Debian's package wordnet-base")
    builder().build(wordnet, tmp_path)
    made, there = (folder / "glosses.parquet" for folder in (tmp_path, data_folder("glosses")))
    assert made.read_bytes() == there.read_bytes()
