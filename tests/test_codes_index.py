"Exact search, and the index that lasts."

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from made_codes import random_codes
from safetensors.torch import save_file

from brace_nb.codes import (
    CODE_MEASURES,
    CodeIndex,
    InvertedIndex,
    cosine_similarity,
    hamming_similarity,
    jaccard,
    nearest,
    pack,
)

SIMILARITY = dict(jaccard=jaccard, hamming=hamming_similarity, cosine=cosine_similarity)


@pytest.mark.parametrize("measure", list(CODE_MEASURES))
@pytest.mark.parametrize(
    "n, dim, k",
    [(50, 8, 50), (3000, 24, 7), (5000, 70, 100), (2500, 33, 1500), (9000, 16, 1), (6000, 5000, 3)],
)
def test_nearest_is_the_stable_sort_of_all_pairs(measure, n, dim, k):
    codes = random_codes(n, dim, density=0.2, seed=5)
    queries = codes[:: max(1, n // 67)][:70]
    x, y = queries.astype(np.float64), codes.astype(np.float64)
    both, p, q = x @ y.T, x.sum(-1)[:, None], y.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        s = dict(
            jaccard=np.where(p + q > both, both / (p + q - both), 1),
            hamming=(dim - p - q + 2 * both) / dim,
            cosine=np.where(p * q > 0, np.sqrt(both * both / (p * q)), p == q),
        )[measure]
    expected = np.argsort(-s, axis=-1, kind="stable")[:, :k]
    rows, similarity = nearest(queries, codes, k, measure)
    assert (rows == expected).all() and (
        similarity == np.take_along_axis(s, expected, -1).astype(np.float32)
    ).all()
    assert (nearest(pack(queries), pack(codes), k, measure, dim=dim)[0] == rows).all()


def square(x, y, measure):
    "Similarity of two codes as a fraction; of cosine the square."
    s, n, k = int((x & y).sum()), int(x.sum()), int(y.sum())
    if measure == "hamming":
        return Fraction(len(x) - n - k + 2 * s, len(x))
    if measure == "jaccard":
        return Fraction(s, n + k - s) if n + k else Fraction(1)
    return Fraction(s * s, n * k) if n * k else Fraction(n == k)


sets = st.sampled_from([1, 3, 40, 64, 65, 130, 200]).flatmap(
    lambda d: st.tuples(
        *[arrays(bool, st.tuples(st.integers(1, n), st.just(d)), fill=st.booleans()) for n in (5, 90)]
    )
)


@settings(max_examples=50, deadline=None)
@given(sets, st.sampled_from(list(CODE_MEASURES)), st.integers(1, 12))
def test_nearest_is_the_order_of_exact_fractions(sets, measure, k):
    "No rounding, ties by row: one query, few and several take different ways through the kernels."
    queries, codes = sets
    k, exact = min(k, len(codes)), [[square(x, y, measure) for y in codes] for x in queries]
    expected = np.array([sorted(range(len(codes)), key=lambda j: (-row[j], j))[:k] for row in exact])
    rows, similarity = nearest(queries, codes, k, measure)
    assert (rows == expected).all()
    values = np.array(exact, float) ** (0.5 if measure == "cosine" else 1)
    assert (similarity == np.take_along_axis(values, rows, -1).astype(np.float32)).all()
    for i in range(len(queries)):
        one = nearest(queries[i : i + 1], codes, k, measure)
        assert (one[0] == rows[i]).all() and (one[1] == similarity[i]).all()
    if measure == "jaccard":
        listed = InvertedIndex(codes).search(queries, k)
        assert (listed[0] == rows).all() and (listed[1] == similarity).all()


@pytest.mark.parametrize("measure", list(CODE_MEASURES))
def test_codes_shared_between_threads_give_the_same_neighbors(measure):
    codes = random_codes(150_000, 20, density=0.2, seed=3)  # many ties
    queries, threads = codes[::30_000], torch.get_num_threads()
    s = SIMILARITY[measure](queries, codes)
    expected = np.argsort(-s, axis=-1, kind="stable")[:, :40]
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            for few in (1, 2, 5):
                assert (nearest(queries[:few], codes, 40, measure)[0] == expected[:few]).all()
            if measure == "jaccard":
                assert (InvertedIndex(codes).search(queries, 40)[0] == expected).all()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("measure", list(CODE_MEASURES))
def test_wide_codes_whose_similarities_nearly_tie(measure):
    "Fractions that differ by less than float32 can tell."
    codes = np.zeros((40, 20_000), bool)
    for i, row in enumerate(codes):
        row[: 9_000 + i] = True
    query = np.ones((1, 20_000), bool)
    rows = nearest(query, codes, 5, measure)[0]
    assert (rows == [[39, 38, 37, 36, 35]]).all() and (
        nearest(query.repeat(4, 0), codes, 5, measure)[0] == rows
    ).all()


@pytest.mark.parametrize(
    "n, dim, active, k", [(70_001, 3000, 3, 12), (40_000, 500, 9, 300), (900, 50, 2, 900)]
)
def test_short_lists_give_the_stable_sort_of_all_pairs(n, dim, active, k):
    rng = np.random.default_rng(n)
    codes = np.zeros((n, dim), bool)
    np.put_along_axis(codes, rng.integers(0, dim, (n, active)), True, 1)
    codes[:: n // 20] = False  # like an empty query, and like nothing else
    queries = np.concatenate([codes[1::9000], codes[:1], ~codes[:1], codes[5:6] | codes[n - 1 :]])
    expected = np.argsort(-jaccard(queries, codes), axis=-1, kind="stable")[:, :k]
    rows, similar = InvertedIndex(codes).search(queries, k)
    assert (rows == expected).all()
    assert (similar == np.take_along_axis(jaccard(queries, codes), expected, -1).astype(np.float32)).all()
    alone = [InvertedIndex(codes).search(q[None], k)[0][0] for q in queries[:3]]
    assert (alone == expected[:3]).all()


def test_inverted_lists_refuse_what_is_no_code():
    from scipy import sparse

    with pytest.raises(ValueError, match="hold ones"):
        InvertedIndex(sparse.csr_array(np.array([[0.5, 1]])))
    index = InvertedIndex(sparse.csr_array(np.array([[0, 1, 1], [1, 0, 0]])))
    with pytest.raises(ValueError, match=r"\(n, 3\)"):
        index.search(sparse.csr_array(np.ones((1, 4))), 1)
    assert (index.search(sparse.csr_array(np.array([[0, 0, 1]])), 2)[0] == [[0, 1]]).all()


def test_a_graph_built_by_threads_holds_the_same_codes():
    codes = random_codes(3000, 128, density=0.3, seed=4)
    index = CodeIndex(128, threads=2).add(np.arange(3000), codes)
    found, similar = index.search(codes[:200], 5, exact=False)
    assert len(index.graph) == 3000 and (found[:, 0] == np.arange(200)).mean() > 0.97
    assert (similar == np.take_along_axis(jaccard(codes[:200], codes), found, -1)).all()
    with pytest.raises(ValueError, match="threads must be"):
        CodeIndex(128, threads=0)


def test_nearest_with_threads_torch_and_no_queries():
    codes = random_codes(500, 40, seed=6)
    rows, similarity = nearest(codes, codes, 5)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = nearest(torch.from_numpy(codes), torch.from_numpy(codes), 5)
    finally:
        torch.set_num_threads(threads)
    assert (
        isinstance(again[0], torch.Tensor)
        and (again[0].numpy() == rows).all()
        and (again[1].numpy() == similarity).all()
    )
    assert nearest(codes[:0], codes, 5)[0].shape == (0, 5)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda c: nearest(c, c, 0), "k must be a whole number >= 1"),
        (lambda c: nearest(c, c, 31), "got 31"),
        (lambda c: nearest(c, c, 3, "euclid"), "jaccard, hamming, cosine; got 'euclid'"),
        (lambda c: nearest(c, c[:, :8], 3), "Use one encoder"),
        (lambda c: nearest(np.full((1, 2), 255, np.uint8), pack(c), 3, dim=12), "bits after dimension 12"),
    ],
)
def test_nearest_refuses(call, says):
    with pytest.raises(ValueError) as error:
        call(random_codes(30, 12))
    assert says in str(error.value)


@pytest.mark.parametrize("metric", ["jaccard", "hamming"])
@pytest.mark.parametrize("dim", [12, 64, 100])
def test_index_equals_all_pairs_with_ties_by_id(metric, dim):
    codes = random_codes(400, dim, density=0.2, seed=7)
    ids = np.random.default_rng(8).permutation(4000)[:400]
    index = (
        CodeIndex(dim, metric).add(ids[:150], codes[:150]).add(torch.from_numpy(ids[150:]), pack(codes[150:]))
    )
    s = SIMILARITY[metric](codes[:40], codes)
    order = np.array([np.lexsort((ids, -row))[:25] for row in s])
    found, similarity = index.search(codes[:40], k=25)
    assert (
        (found == ids[order]).all()
        and (similarity == np.take_along_axis(s, order, -1)).all()
        and found.dtype == np.int64
    )
    assert (index.search(torch.from_numpy(pack(codes[:40])), k=25)[0].numpy() == found).all()


def test_usearch_reads_our_bits_and_measures_the_same():
    codes = random_codes(300, 96, density=0.1, seed=9)
    codes[5] = False
    for metric, similarity in ("jaccard", jaccard), ("hamming", hamming_similarity):
        index = CodeIndex(96, metric).add(np.arange(300), codes)
        found = index.graph.search(pack(codes[:20]), 300, exact=True)
        s = np.take_along_axis(similarity(codes[:20], codes), found.keys.astype(int), -1)
        assert np.allclose(1 - found.distances / (96 if metric == "hamming" else 1), s, atol=1e-6)


@pytest.mark.parametrize("metric", ["jaccard", "hamming"])
def test_approximate_search_finds_clusters_repeats_and_reports_exact_similarities(metric):
    random = np.random.default_rng(10)
    codes = random_codes(200, 128, seed=11)[random.integers(0, 200, 3000)] ^ (
        random.random((3000, 128)) < 0.005
    )

    def build():
        return CodeIndex(128, metric).add(np.arange(3000)[::-1], codes)

    found, similarity = build().search(codes[:100], k=5, exact=False)
    exact, best = build().search(codes[:100], k=5)
    assert (np.abs(similarity - best) < 1e-6).mean() > 0.95 and (
        build().search(codes[:100], k=5, exact=False)[0] == found
    ).all()
    s = SIMILARITY[metric](codes[:100], codes[::-1])
    assert (np.take_along_axis(s, found, -1) == similarity).all() and (np.diff(similarity) <= 0).all()
    tied = np.diff(similarity) == 0
    assert (np.diff(found)[tied] > 0).all()
    single = build()
    one = single.search(codes[:1], k=5, exact=False)
    assert one[0].shape == (1, 5) and (one[0] == found[:1]).all()


def test_index_keeps_its_graph_up_to_date_and_comes_back_from_disk(tmp_path):
    codes = random_codes(1000, 60, seed=12)
    index = CodeIndex(60).add(np.arange(600), codes[:600])
    index.search(codes[:3], k=2, exact=False)
    index.add(np.arange(600, 1000), codes[600:])
    assert (index.search(codes[600:], k=1, exact=False)[0][:, 0] == np.arange(600, 1000)).mean() > 0.97
    index.save(tmp_path / "index")
    again = CodeIndex.load(tmp_path / "index")
    assert len(again) == 1000 and (again.dim, again.metric, again.graph_options) == (
        index.dim,
        index.metric,
        index.graph_options,
    )
    for exact in True, False:
        assert all(
            (x == y).all()
            for x, y in zip(index.search(codes[:50], 9, exact), again.search(codes[:50], 9, exact))
        )
    again.add([5000], codes[:1])
    assert 5000 in again.search(codes[:1], 2, exact=False)[0]
    assert [p.name for p in tmp_path.iterdir()] == ["index"]


def test_index_without_graph_and_empty_index_come_back(tmp_path):
    CodeIndex(60, "hamming", connectivity=8).save(tmp_path / "empty")
    again = CodeIndex.load(tmp_path / "empty")
    assert (
        len(again) == 0
        and again.metric == "hamming"
        and again.graph_options["connectivity"] == 8
        and again._graph is None
    )
    again.add([3], random_codes(1, 60))
    assert again.search(random_codes(1, 60), k=1)[0] == 3 and "1 codes" in repr(again)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda i, c: CodeIndex(0), "dim must be a whole number >= 1; got 0"),
        (lambda i, c: CodeIndex(c), "dim must be a whole number"),
        (lambda i, c: CodeIndex(8, "cosine"), "got 'cosine'"),
        (lambda i, c: i.add([1, 2], c[:2]), "got [1, 2] again"),
        (lambda i, c: i.add([90, 90], c[:2]), "got [90] again"),
        (lambda i, c: i.add([-1], c[:1]), "got -1"),
        (lambda i, c: i.add([90], c[:2]), "one integer id"),
        (lambda i, c: i.add([0.5], c[:1]), "ids must hold whole numbers"),
        (lambda i, c: i.add([90], c[:1, :12]), "got bool (1, 12)"),
        (lambda i, c: i.add([90], c[0]), "got bool (20,)"),
        (lambda i, c: i.add([90], c[:1].astype(float)), "float64"),
        (lambda i, c: i.search(c, k=0), "got 0"),
        (lambda i, c: i.search(c, k=11), "k must be in 1..10"),
        (lambda i, c: i.search(c[:, :12]), "Use one encoder"),
        (lambda i, c: CodeIndex(20).search(c), "index is empty"),
        (lambda i, c: i.search(np.full((1, 3), 255, np.uint8)), "bits after dimension 20"),
    ],
)
def test_index_refuses_and_stays_as_it_was(call, says):
    codes = random_codes(10, 20)
    index = CodeIndex(20).add(range(10), codes)
    with pytest.raises(ValueError) as error:
        call(index, codes)
    assert says in str(error.value) and len(index) == 10 and (index.codes == pack(codes)).all()


def test_loading_refuses_what_is_no_index(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        CodeIndex.load(tmp_path / "missing")
    (tmp_path / "text").write_text("no index")
    save_file(dict(x=torch.zeros(3)), tmp_path / "tensors")
    index = CodeIndex(20).add(np.arange(10), random_codes(10, 20))
    index.graph
    index.save(tmp_path / "good")
    (tmp_path / "short").write_bytes((tmp_path / "good").read_bytes()[:-40])
    for name in "text", "tensors", "short":
        with pytest.raises(ValueError, match="is not what was expected"):
            CodeIndex.load(tmp_path / name)
