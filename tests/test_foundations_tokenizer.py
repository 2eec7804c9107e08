"Byte-pair encoding against recounting; every text survives."

from collections import Counter

import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.foundations import ByteBPE, clean_text, split_words, train_bpe


@pytest.fixture(scope="module")
def tokenizer(tuples):
    return ByteBPE(train_bpe(tuples.captions(lang=["en", "sw"], ids=tuples.ids("val")).text, 512), 512, 12)


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
        (lambda: train_bpe(["a"], 100), ">= 259"),
        (lambda: ByteBPE([(1, 2)] * 50, 300), "do not fit"),
        (lambda: ByteBPE([(1, 999)], 300), "both exist"),
        (lambda: ByteBPE((), 300, 2), ">= 3"),
        (lambda: clean_text(3), "text must be a text"),
    ],
)
def test_bad_tokenizers(call, words):
    with pytest.raises(ValueError, match=words):
        call()
