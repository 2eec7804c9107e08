"Float queries against stored bits, by tables, lists and graphs, and the second look."

import os
import stat

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from made_codes import random_codes

from brace_nb.codes import (
    CODE_MEASURES,
    CodeIndex,
    InvertedIndex,
    cosine_similarity,
    float_similarity,
    hamming_similarity,
    int8_rows,
    nearest,
    nearest_by_tables,
    pack,
    rescored,
)
from brace_nb.core import check_seal


def by_loops(query, codes, measure):
    "What the code stands for, multiplied entry by entry; -value, so that the best comes first, and the row."
    found = []
    for row, code in enumerate(codes):
        low = -1 if measure == "hamming" else 0
        vector = [1 if bit else low for bit in code]
        length = sum(v * v for v in vector) ** 0.5
        dot = sum(float(q) * v for q, v in zip(query, vector))
        found.append((-(dot / length if length else 0.0), row))
    return found


wide = st.sampled_from([1, 7, 8, 30, 64, 65, 130]).flatmap(
    lambda d: st.tuples(
        arrays(np.int8, st.tuples(st.integers(1, 4), st.just(d)), elements=st.integers(-9, 9)),
        arrays(bool, st.tuples(st.integers(1, 60), st.just(d)), fill=st.booleans()),
    )
)


@settings(max_examples=40, deadline=None)
@given(wide, st.sampled_from(list(CODE_MEASURES)), st.integers(1, 12))
def test_whole_numbers_are_ranked_as_by_loops(sets, measure, k):
    "Sums of whole numbers are exact, so ties are ties: the earlier row first, empty codes at 0."
    queries, codes = sets
    queries = queries[(queries != 0).any(1)].astype(np.float32)
    k = min(k, len(codes))
    expected = [sorted(by_loops(q, codes, measure))[:k] for q in queries]
    rows, best = nearest(queries, codes, k, measure)
    assert rows.tolist() == [[row for _, row in one] for one in expected]
    lengths = np.linalg.norm(queries.astype(float), axis=1)[:, None]
    values = -np.array([[v for v, _ in one] for one in expected]).reshape(rows.shape) / lengths
    assert np.allclose(best, values, atol=1e-6)
    if codes.any() and measure != "hamming" and len(queries):
        listed = InvertedIndex(codes).search(queries, k)
        assert (listed[0] == rows).all() and np.allclose(listed[1], values, atol=1e-6)


@pytest.mark.parametrize("measure", list(CODE_MEASURES))
@pytest.mark.parametrize("dim", [40, 256])
def test_a_large_search_is_the_sort_of_all_cosines(measure, dim):
    random = np.random.default_rng(dim)
    codes, queries = random_codes(30_000, dim, density=0.3, seed=2), random.standard_t(2, size=(30, dim))
    codes[[5, 700]] = False
    similar = float_similarity(queries, codes, measure)
    rows, best = nearest(queries, codes, 25, measure)
    assert np.abs(best - -np.sort(-similar, axis=1)[:, :25]).max() < 1e-6
    assert np.abs(np.take_along_axis(similar, rows, 1) - best).max() < 1e-6
    packed = nearest(torch.from_numpy(queries), torch.from_numpy(pack(codes)), 25, measure, dim=dim)
    assert isinstance(packed[0], torch.Tensor) and (packed[0].numpy() == rows).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_the_scale_of_a_query_changes_nothing(scale):
    codes, queries = random_codes(200, 48, seed=1), np.random.default_rng(0).normal(size=(4, 48))
    for measure in CODE_MEASURES:
        rows, best = nearest(queries, codes, 9, measure)
        again = nearest(queries * scale, codes, 9, measure)
        assert (again[0] == rows).all() and np.allclose(again[1], best, atol=1e-6)


def test_codes_that_ask_as_floats():
    codes = random_codes(60, 33, seed=8)
    own = codes.any(1)
    similar = float_similarity(codes[own].astype(float), codes)
    assert np.allclose(similar, cosine_similarity(codes[own], codes))
    signs = 2.0 * codes - 1
    similar = 2 * hamming_similarity(codes, codes) - 1
    assert np.allclose(float_similarity(signs, codes, "hamming"), similar, atol=1e-6)


def test_threads_change_nothing():
    codes, threads = random_codes(150_000, 24, density=0.4, seed=3), torch.get_num_threads()
    queries = np.random.default_rng(1).integers(-3, 4, (70, 24)).astype(np.float32)
    queries[:, 0] += 0.5
    try:
        found = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            found.append([nearest(q, codes, 30, "hamming")[0].tolist() for q in (queries[:2], queries)])
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


def test_tables_of_any_bytes():
    random = np.random.default_rng(4)
    tables, codes = random.normal(size=(6, 5, 256)), random.integers(0, 256, (900, 5), dtype=np.uint8)
    roots = random.choice([0, 1, 2.5], 900)
    sums = np.array([[sum(t[b, byte] for b, byte in enumerate(code)) for code in codes] for t in tables])
    with np.errstate(invalid="ignore", divide="ignore"):
        by_root = np.where(roots > 0, sums / roots, 0)
    for value, given_roots in ((sums, None), (by_root, roots)):
        rows, best = nearest_by_tables(tables, codes, 11, given_roots)
        assert (rows == np.argsort(-value, axis=1, kind="stable")[:, :11]).all()
        assert np.allclose(best, -np.sort(-value, axis=1)[:, :11])
    assert nearest_by_tables(0 * tables, codes, 3)[0].tolist() == [[0, 1, 2]] * 6


def test_a_second_look():
    random = np.random.default_rng(5)
    vectors = random.normal(size=(800, 64)).astype(np.float32)
    queries = (vectors[:40] + random.normal(size=(40, 64))).astype(np.float32)
    stored = pack(vectors > 0)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = queries @ unit.T / np.linalg.norm(queries, axis=1, keepdims=True)
    everything, _ = nearest(queries, stored, 800, "hamming")
    rows, best = rescored(queries, vectors, everything, 10)
    assert (rows == np.argsort(-cosines, axis=1)[:, :10]).all()
    assert np.allclose(best, -np.sort(-cosines, axis=1)[:, :10], atol=1e-6)
    for asked in (queries, pack(queries > 0)):
        found = nearest(asked, stored, 5, "hamming", rescore=(queries, vectors), shortlist=160)
        assert (found[0] == rows[:, :5]).all()
    few, _ = nearest(queries, stored, 1, "hamming", rescore=int8_rows(vectors), shortlist=20)
    assert (few[:, 0] == nearest(queries, stored, 1, "hamming")[0][:, 0]).mean() < 1
    assert (few[:, 0] == np.arange(40)).mean() >= 0.95
    assert rescored(queries[:1], vectors, [[3, -1, 3]], 3)[0].tolist() == [[3, 3, -1]]


def test_bytes_keep_the_direction():
    x = np.random.default_rng(6).standard_t(3, size=(50, 30)) * 10.0 ** np.arange(-25, 25)[:, None]
    x[7] = 0
    small = int8_rows(x)
    assert small.dtype == np.int8 and (np.abs(small).max(1)[np.arange(50) != 7] == 127).all()
    for row, byte in zip(x, small):
        largest = max(abs(v) for v in row) or 1
        assert all(abs(b - 127 * v / largest) <= 0.5 + 1e-9 for v, b in zip(row, byte))
    assert int8_rows(torch.from_numpy(x)).dtype == torch.int8


@pytest.mark.parametrize("metric", ["jaccard", "hamming"])
def test_an_index_asked_with_floats(metric):
    random = np.random.default_rng(7)
    codes, ids = random_codes(500, 64, density=0.4, seed=7), np.arange(500)[::-1] * 3
    queries = np.where(codes[:20], 1.0, 0 if metric == "jaccard" else -1.0)
    queries += 0.3 * random.normal(size=queries.shape)
    index, order = CodeIndex(64, metric).add(ids, codes), np.argsort(ids)
    rows, best = nearest(queries, codes[order], 6, metric)
    found = index.search(queries, 6)
    assert (found[0] == index.ids[rows]).all() and (found[1] == best).all()
    by_graph = index.search(queries, 6, exact=False, shortlist=50)
    assert (by_graph[0][:, 0] == ids[:20]).all() and (by_graph[0] == found[0]).mean() > 0.9
    half = index.search(queries, 6, among=index.ids % 2 == 0)[0]
    assert (half % 2 == 0).all()
    some = ids[:30]
    beside = np.append(some, ids.max() + 1)  # one of them is in no index
    rows, best = nearest(queries, codes[:30][np.argsort(some)], 6, metric)
    found = index.search(queries, 6, among=beside)
    assert (found[0] == np.sort(some)[rows]).all() and (found[1] == best).all()
    again = index.search(queries, 6, rescore=np.where(codes[order], 1.0, 0), shortlist=84)
    assert (again[0][:, 0] == ids[:20]).all() and again[0].shape == (20, 6)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda q, c: nearest(q[:, :9], c, 1), "an entry for each bit"),
        (lambda q, c: nearest(q[0], c, 1), "an entry for each bit"),
        (lambda q, c: nearest(0 * q, c, 1), "a query of zeros has no direction"),
        (lambda q, c: nearest(q * np.nan, c, 1), "must be finite"),
        (lambda q, c: nearest(q, c, 31), "k must be in 1..30"),
        (lambda q, c: nearest(q, c.astype(np.int64), 3), "codes must be bool"),
        (lambda q, c: nearest(q, q, 3), "codes must be bool"),
        (lambda q, c: nearest(c, c, 3, rescore=c.astype(float)), "needs queries of floats"),
        (lambda q, c: nearest(q, c, 3, rescore=np.ones((30, 3))), r"with F = "),
        (lambda q, c: nearest_by_tables(np.ones((2, 20, 256)), c, 3), "uint8"),
        (lambda q, c: nearest_by_tables(np.ones((2, 3, 255)), pack(c), 3), "256"),
        (lambda q, c: InvertedIndex(c).search(q[:, :4], 3), "an entry for each bit"),
        (lambda q, c: InvertedIndex(c).search(q, 0), "k must be"),
        (lambda q, c: CodeIndex(20).add(range(30), c).search(q, 3, shortlist=0), "shortlist must be"),
        (lambda q, c: CodeIndex(20).add(range(30), c).search(q, None), "k must be"),
        (lambda q, c: CodeIndex(20).add(range(30), c).within(c, float("nan")), "similarity must be"),
        (lambda q, c: CodeIndex(20).add(range(30), c).within(c, -5), "similarity must be"),
        (lambda q, c: CodeIndex(20, connectivity=-1), "connectivity must be"),
        (lambda q, c: CodeIndex(20).add(range(30), c).search(c, 3, among=[1.0, 2.7]), "among must be"),
        (lambda q, c: CodeIndex(20).add(range(30), c).remove(3), "ids"),
        (lambda q, c: CodeIndex(20).add(range(30), c).search(c, 2, among=[5000]), "none of its ids is in"),
        (lambda q, c: CodeIndex(20).add(range(30), c).search(c, 2, among=[]), "among is empty. Give ids"),
        (lambda q, c: CodeIndex(20).add(range(30), c).search(c, 2, among=np.arange(0)), "among is empty"),
        (
            lambda q, c: CodeIndex(20).add(range(30), c).search(c, 2, among=np.zeros(30, bool)),
            "its mask is False",
        ),
        (
            lambda q, c: nearest(q, c, 3, rescore=np.ones((29, 20))),
            r"rescore needs one vector.*30 codes.*\(29, 20",
        ),
        (
            lambda q, c: nearest(q, c, 3, rescore=(q, np.ones(30))),
            r"rescore needs one vector.*30 codes.*\(30,\)",
        ),
        (
            lambda q, c: CodeIndex(20).add(range(30), c).search(q, 3, rescore=np.ones((31, 20))),
            r"rescore needs one vector.*30 codes; got the shape \(31, 20\)",
        ),
    ],
)
def test_bad_calls_say_what_is_wrong(call, says):
    queries, codes = np.random.default_rng(0).normal(size=(5, 20)), random_codes(30, 20, seed=0)
    with pytest.raises(ValueError, match=says):
        call(queries, codes)


@pytest.mark.parametrize("mapped, graph", [(False, False), (True, False), (False, True)])
def test_every_flipped_bit_of_an_index_is_found(tmp_path, mapped, graph):
    codes, path = random_codes(40, 33, seed=9), tmp_path / "index.safetensors"
    index = CodeIndex(33).add(range(40), codes)
    if graph:
        index.search(codes[:2], 3, exact=False)
    index.save(path)
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), max(1, 8 * len(whole) // 2000)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError):
            check_seal(path)
        if bit % 11 == 0:
            with pytest.raises(ValueError, match="index.safetensors"):
                CodeIndex.load(path, mapped=mapped)
    path.write_bytes(whole)
    assert (CodeIndex.load(path, mapped=mapped).search(codes, 2)[0] == index.search(codes, 2)[0]).all()


def test_saved_files_are_as_open_as_the_umask_says(tmp_path):
    before = os.umask(0o027)
    try:
        CodeIndex(8).add([1], np.ones((1, 8), bool)).save(tmp_path / "a.safetensors")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.safetensors").stat().st_mode) == 0o640
