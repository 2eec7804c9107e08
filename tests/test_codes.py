"Codes: packing, similarities, statistics, search, files."

import math
import subprocess
import sys
import tracemalloc
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.torch import save_file

from brace_nb.codes import codes as C
from brace_nb.codes.codes import (
    CodeIndex,
    MEASURES,
    active_bits,
    binarize_file,
    code_statistics,
    cosine_similarity,
    hamming_similarity,
    jaccard,
    nearest,
    pack,
    pack_ternary,
    ternary_jaccard,
    unpack,
    unpack_ternary,
)
from brace_nb.codes.projection import binarize, ternarize

SIMILARITY = dict(jaccard=jaccard, hamming=hamming_similarity, cosine=cosine_similarity)


def random_codes(*shape, density=0.1, seed=0):
    return np.random.default_rng(seed).random(shape) < density


def random_ternary(*shape, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1, 0, 1], np.int8), shape, p=[0.1, 0.8, 0.1])


def embeddings(rows, dim, seed=0):
    return np.log1p(np.exp(np.random.default_rng(seed).normal(-2, 2, (rows, dim)).astype(np.float32)))


def plain(x, y, measure):
    "One pair with Python integers and fractions."
    both, n, k = sum(int(p) and int(q) for p, q in zip(x, y)), sum(map(int, x)), sum(map(int, y))
    if measure == "jaccard":
        return float(Fraction(both, n + k - both)) if n + k - both else 1.0
    if measure == "hamming":
        return 1 - sum(bool(p) != bool(q) for p, q in zip(x, y)) / len(x)
    return both / math.sqrt(n * k) if n * k else float(n == k)


def plain_ternary(x, y):
    agree = sum(p == q != 0 for p, q in zip(x, y))
    disagree = sum(p == -q != 0 for p, q in zip(x, y))
    union = sum(p != 0 or q != 0 for p, q in zip(x, y))
    return (agree - disagree) / union if union else 1.0


two_sets = st.integers(1, 140).flatmap(
    lambda d: st.tuples(*[arrays(bool, st.tuples(st.integers(0, 5), st.just(d))) for _ in range(2)])
)
two_ternary = st.integers(1, 70).flatmap(
    lambda d: st.tuples(
        *[
            arrays(np.int8, st.tuples(st.integers(0, 4), st.just(d)), elements=st.integers(-1, 1))
            for _ in range(2)
        ]
    )
)


# ---------------------------------------------------------------- packing
@given(arrays(bool, array_shapes(min_dims=1, max_dims=3, max_side=21)))
def test_pack_is_the_plain_bit_order_and_comes_back(codes):
    packed, dim = pack(codes), codes.shape[-1]
    assert packed.dtype == np.uint8 and packed.shape == (*codes.shape[:-1], -(-dim // 8))
    for place in np.ndindex(codes.shape):
        assert codes[place] == bool(packed[place[:-1]][place[-1] // 8] >> place[-1] % 8 & 1)
    assert (unpack(packed, dim) == codes).all() and unpack(packed, dim).dtype == bool
    tensor = pack(torch.from_numpy(codes))
    assert (
        isinstance(tensor, torch.Tensor)
        and (tensor.numpy() == packed).all()
        and (unpack(tensor, dim).numpy() == codes).all()
    )


@given(arrays(np.int8, array_shapes(min_dims=1, max_dims=3, max_side=21), elements=st.integers(-1, 1)))
def test_pack_ternary_holds_two_halves_and_comes_back(codes):
    packed, dim = pack_ternary(codes), codes.shape[-1]
    half = packed.shape[-1] // 2
    assert (unpack(packed[..., :half], dim) == (codes == 1)).all() and (
        unpack(packed[..., half:], dim) == (codes == -1)
    ).all()
    assert (unpack_ternary(packed, dim) == codes).all() and unpack_ternary(packed, dim).dtype == np.int8
    assert (unpack_ternary(pack_ternary(torch.from_numpy(codes)), dim).numpy() == codes).all()


@given(arrays(bool, array_shapes(min_dims=1, max_dims=3, max_side=70)))
def test_active_bits_dense_packed_and_torch(codes):
    expected = codes.sum(-1)
    assert (active_bits(codes) == expected).all() and (active_bits(pack(codes)) == expected).all()
    assert (active_bits(pack(torch.from_numpy(codes))).numpy() == expected).all()


def test_counting_bits_without_numpy_2(monkeypatch):
    words = np.random.default_rng(0).integers(0, 2**63, (5, 3), dtype=np.int64).view(np.uint64)
    import importlib

    monkeypatch.delattr(np, "bitwise_count", raising=False)
    old = importlib.util.module_from_spec(C.__spec__)
    C.__spec__.loader.exec_module(old)
    assert (old._count_bits(words) == [[bin(int(x)).count("1") for x in row] for row in words]).all()


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: pack(np.zeros((2, 8))), "bool; float64 came"),
        (lambda: pack(torch.zeros(2, 8)), "bool; torch.float32 came"),
        (lambda: unpack(np.zeros((2, 2), bool), 9), "packed codes are uint8; bool came"),
        (lambda: unpack(np.zeros((2, 2), np.uint8), 17), "17 dimensions pack into 3 bytes; 2 came"),
        (lambda: unpack(np.full((2, 2), 255, np.uint8), 9), "bits after dimension 9 must be 0"),
        (lambda: pack_ternary(np.zeros((2, 8))), "int8; float64 came"),
        (lambda: pack_ternary(np.full((2, 8), 2, np.int8)), "from 2 to 2 came"),
        (lambda: unpack_ternary(np.zeros((2, 3), np.uint8), 9), "4 bytes; 3 came"),
        (lambda: unpack_ternary(np.full((2, 2), 1, np.uint8), 8), "+1 and -1 at once"),
        (lambda: active_bits(np.zeros((2, 8))), "float64 came"),
    ],
)
def test_packing_refuses(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value)


# ---------------------------------------------------------------- similarities
@settings(max_examples=60, deadline=None)
@given(two_sets, st.sampled_from(list(SIMILARITY)))
def test_similarity_of_all_pairs_equals_the_plain_loop(sets, measure):
    a, b = sets
    expected = np.array([[plain(x, y, measure) for y in b] for x in a]).reshape(len(a), len(b))
    found = SIMILARITY[measure](a, b)
    assert (
        found.dtype == np.float32
        and found.shape == expected.shape
        and np.allclose(found, expected, rtol=2e-7, atol=0)
    )
    if measure != "cosine":
        assert (found == expected.astype(np.float32)).all()
    options = dict(dim=a.shape[1]) if measure == "hamming" else {}
    assert (SIMILARITY[measure](pack(a), pack(b), **options) == found).all()
    tensor = SIMILARITY[measure](torch.from_numpy(a), torch.from_numpy(b))
    assert isinstance(tensor, torch.Tensor) and (tensor.numpy() == found).all()
    product = C._by_product(torch.from_numpy(a), torch.from_numpy(b), measure, a.shape[1])
    assert np.allclose(product.numpy(), found, rtol=2e-7, atol=0) and (
        measure == "cosine" or (product.numpy() == found).all()
    )


@settings(max_examples=60, deadline=None)
@given(two_ternary)
def test_ternary_jaccard_equals_the_plain_loop(sets):
    a, b = sets
    expected = (
        np.array([[plain_ternary(x.tolist(), y.tolist()) for y in b] for x in a])
        .reshape(len(a), len(b))
        .astype(np.float32)
    )
    found = ternary_jaccard(a, b)
    assert (found == expected).all() and (ternary_jaccard(pack_ternary(a), pack_ternary(b)) == found).all()
    assert (ternary_jaccard(torch.from_numpy(a), torch.from_numpy(b)).numpy() == found).all()
    assert (
        C._by_product(torch.from_numpy(a), torch.from_numpy(b), "jaccard", a.shape[1]).numpy() == found
    ).all()
    nonzero = a.any(-1)[:, None] | b.any(-1)
    assert (ternary_jaccard(a, -b)[nonzero] == -found[nonzero]).all()


@settings(max_examples=40, deadline=None)
@given(arrays(bool, st.tuples(st.integers(1, 6), st.integers(1, 100))), st.randoms(use_true_random=False))
def test_similarities_are_symmetric_bounded_and_ignore_the_order_of_dimensions(codes, random):
    order = list(range(codes.shape[1]))
    random.shuffle(order)
    for similarity in SIMILARITY.values():
        s = similarity(codes, codes)
        assert (s == s.T).all() and (s.diagonal() == 1).all() and (s >= 0).all() and (s <= 1).all()
        assert (similarity(codes[:, order], codes[:, order]) == s).all()
    equal = (codes[:, None] == codes).all(-1)
    assert ((jaccard(codes, codes) == 1) == equal).all() and (
        (hamming_similarity(codes, codes) == 1) == equal
    ).all()
    assert (ternary_jaccard(codes.astype(np.int8), codes.astype(np.int8)) == jaccard(codes, codes)).all()


@settings(max_examples=40, deadline=None)
@given(arrays(bool, st.tuples(st.just(3), st.integers(1, 40))), st.integers(1, 60))
def test_silent_dimensions_move_hamming_but_not_jaccard(codes, silent):
    longer = np.concatenate([codes, np.zeros((3, silent), bool)], -1)
    assert (jaccard(longer, longer) == jaccard(codes, codes)).all() and (
        hamming_similarity(longer, longer) >= hamming_similarity(codes, codes)
    ).all()


def test_empty_codes_and_empty_sets():
    none, one = np.zeros((1, 9), bool), np.eye(1, 9, dtype=bool)
    assert (
        jaccard(none, none) == 1
        and cosine_similarity(none, none) == 1
        and ternary_jaccard(none.view(np.int8), none.view(np.int8)) == 1
    )
    assert (
        jaccard(none, one) == 0
        and cosine_similarity(none, one) == 0
        and hamming_similarity(none, one) == np.float32(8 / 9)
    )
    assert (
        jaccard(one[:0], one).shape == (0, 1)
        and jaccard(one, one[:0]).shape == (1, 0)
        and jaccard(np.zeros((0, 3, 9), bool), one).shape == (0, 3, 1)
    )


def test_the_example_of_the_post():
    for dim, similar in (4, 0.5), (256, 0.9921875):
        a, b = np.zeros((2, 1, dim), bool)
        a[0, 0] = b[0, -1] = True
        assert hamming_similarity(a, b) == similar and jaccard(a, b) == 0


@pytest.mark.parametrize(
    "lead_a, lead_b", [((), ()), ((3,), (3,)), ((3,), ()), ((), (2, 3)), ((2, 1), (1, 3)), ((200,), (200,))]
)
def test_leading_axes_are_batches(lead_a, lead_b):
    a, b = random_codes(*lead_a, 5, 70, seed=1), random_codes(*lead_b, 4, 70, seed=2)
    s, lead = jaccard(a, b), np.broadcast_shapes(lead_a, lead_b)
    wide_a, wide_b = np.broadcast_to(a, (*lead, 5, 70)), np.broadcast_to(b, (*lead, 4, 70))
    assert s.shape == (*lead, 5, 4)
    for i in np.ndindex(lead):
        assert (s[i] == jaccard(wide_a[i], wide_b[i])).all()
    t = ternary_jaccard(a.astype(np.int8), b.astype(np.int8))
    assert (t == s).all()


def test_row_by_row():
    a, b = random_codes(300, 130, seed=1), random_codes(300, 130, seed=2)
    assert (jaccard(a[:, None], b[:, None])[:, 0, 0] == jaccard(a, b).diagonal()).all()


@pytest.mark.parametrize("dim", [64, 256, 1000, 4096])
def test_blocks_threads_and_layout_change_nothing(dim):
    a, b = random_codes(150, dim, seed=3), random_codes(1500, dim, seed=4)
    x, y = a.astype(np.int64), b.astype(np.int64)
    both = x @ y.T
    expected = (both / (x.sum(-1)[:, None] + y.sum(-1) - both)).astype(np.float32)
    threads = torch.get_num_threads()
    try:
        for n in 1, 3:
            torch.set_num_threads(n)
            assert (jaccard(a, b) == expected).all()
    finally:
        torch.set_num_threads(threads)
    fixed = np.asfortranarray(pack(b))
    fixed.flags.writeable = False
    assert (jaccard(pack(a)[::-1], fixed) == expected[::-1]).all()


def test_threads_share_all_rows_and_pass_errors_on():
    threads, seen = torch.get_num_threads(), []
    try:
        torch.set_num_threads(2)
        C._in_threads(lambda i, j: seen.extend(range(i, j)), 103, 10)
        assert sorted(seen) == list(range(103))
        with pytest.raises(ZeroDivisionError):
            C._in_threads(lambda i, j: 1 / (i - 50), 103, 10)
    finally:
        torch.set_num_threads(threads)


def test_different_fractions_stay_different_in_float32_up_to_4096():
    u = np.concatenate([np.full(n + 1, n) for n in (4093, 4094, 4095, 4096)])
    i = np.concatenate([np.arange(n + 1) for n in (4093, 4094, 4095, 4096)])
    different = len({Fraction(int(p), int(q)) for p, q in zip(i, u)})
    assert len(np.unique(i.astype(np.float32) / u.astype(np.float32))) == different
    assert np.float32(2895 / 4096) != np.float32(2894 / 4095)


def test_the_kernel_counts_with_the_instruction_of_the_machine():
    import numba
    import platform

    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("reads x86 assembly")
    kernel = numba.njit(nogil=True, error_model="numpy")(C._kernels()[0].py_func)
    one = np.ones((1, 1, 4), np.uint64)
    kernel(one, np.full((1, 1), 4, np.int32), one[None], 0, 256, np.empty((1, 1, 1), np.float32))
    assert "popcnt" in "".join(kernel.inspect_asm().values())


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda c: jaccard(c, pack(c)), "bool and uint8 came"),
        (lambda c: jaccard(c.astype(float), c.astype(float)), "float64 and float64 came"),
        (lambda c: jaccard(c, torch.from_numpy(c)), "one of each came"),
        (lambda c: jaccard(c[0], c), "Write `codes[None]`"),
        (lambda c: jaccard(c, c[:, :3]), "20 and 3 came"),
        (lambda c: jaccard(c[:, :0], c[:, :0]), "D > 0; 0 and 0 came"),
        (lambda c: hamming_similarity(c, c, dim=19), "19 dimensions were announced"),
        (lambda c: hamming_similarity(pack(c), pack(c), dim=16), "16 dimensions were announced"),
        (lambda c: hamming_similarity(pack(c), pack(c), dim=25), "25 dimensions were announced"),
        (lambda c: ternary_jaccard(c, c), "bool and bool came"),
        (lambda c: ternary_jaccard(c.astype(np.int8), c[:, :3].astype(np.int8)), "with one D > 0"),
        (lambda c: ternary_jaccard(c.astype(np.int8) * 2, c.astype(np.int8)), "hold -1, 0 and 1 only"),
        (lambda c: ternary_jaccard(pack(c), pack(c)), "even number of bytes"),
    ],
)
def test_similarities_refuse(call, says):
    with pytest.raises(ValueError) as error:
        call(random_codes(4, 20, density=0.5))
    assert says in str(error.value)


# ---------------------------------------------------------------- statistics
def plain_statistics(codes):
    n, d = codes.shape
    rows = [tuple(map(int, r)) for r in codes]
    count = {r: rows.count(r) for r in rows}
    f = [sum(r[j] for r in rows) / n for j in range(d)]
    h = [sum(-p * math.log2(p) for p in (q, 1 - q) if p) for q in f]
    vary = [j for j in range(d) if 0 < f[j] < 1]
    r = [
        abs(sum((x[i] - f[i]) * (x[j] - f[j]) for x in rows) / n)
        / math.sqrt(f[i] * (1 - f[i]) * f[j] * (1 - f[j]))
        for i in vary
        for j in vary
        if i < j
    ]
    collide = sum(rows[i] == rows[j] for i in range(n) for j in range(n) if i != j)
    return dict(
        rows=n,
        dim=d,
        dead_bits=sum(q == 0 for q in f),
        frequency_max=max(f),
        entropy_mean=sum(h) / d,
        entropy_min=min(h),
        correlation_mean=sum(r) / len(r) if r else math.nan,
        unique=len(count),
        duplicate_fraction=1 - len(count) / n,
        collision_probability=collide / max(n * (n - 1), 1),
        involved_fraction=sum(count[r] > 1 for r in rows) / n,
        code_entropy=sum(-c / n * math.log2(c / n) for c in count.values()),
        active_median=float(np.median([sum(r) for r in rows])),
        active_q90=float(np.quantile([sum(r) for r in rows], 0.9)),
    )


@settings(max_examples=50, deadline=None)
@given(arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 20)), elements=st.booleans()))
def test_statistics_equal_the_plain_loops(codes):
    found, expected = code_statistics(codes), plain_statistics(codes)
    for name, value in expected.items():
        assert found.as_dict()[name] == pytest.approx(value, abs=1e-12, nan_ok=True), name
    assert (found.active == codes.sum(-1)).all() and np.allclose(found.bit_frequency, codes.mean(0))
    packed = code_statistics(pack(codes), dim=codes.shape[1])
    assert all(np.array_equal(v, packed.as_dict()[k], equal_nan=True) for k, v in found.as_dict().items())


def test_statistics_of_many_rows_are_counted_in_pieces(monkeypatch):
    codes = random_codes(1000, 70)
    codes[::10] = codes[0]
    together = C._together(pack(codes), 70, rows=300)
    assert (together == codes.T.astype(int) @ codes.astype(int)).all()
    found = code_statistics(torch.from_numpy(codes))
    assert (
        found.unique == 901
        and found.involved_fraction == 0.1
        and found.collision_probability == 100 * 99 / (1000 * 999)
        and found.duplicate_fraction == pytest.approx(0.099)
    )
    off = np.abs(np.corrcoef(codes.T)[np.triu_indices(70, 1)])
    assert found.correlation_mean == pytest.approx(off.mean(), abs=1e-12)


@pytest.mark.parametrize(
    "codes, says",
    [
        (np.zeros((0, 8), bool), "n > 0"),
        (np.zeros(8, bool), "shape (n, D)"),
        (np.zeros((2, 3, 8), bool), "(2, 3, 8) came"),
        (np.zeros((2, 8)), "float64"),
    ],
)
def test_statistics_refuse(codes, says):
    with pytest.raises(ValueError) as error:
        code_statistics(codes)
    assert says in str(error.value)


# ---------------------------------------------------------------- search
@pytest.mark.parametrize("measure", list(MEASURES))
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
        (lambda c: nearest(c, c, 0), "k is 1..30"),
        (lambda c: nearest(c, c, 31), "31 came"),
        (lambda c: nearest(c, c, 3, "euclid"), "jaccard, hamming, cosine; 'euclid' came"),
        (lambda c: nearest(c, c[:, :8], 3), "Use the encoder"),
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
    build = lambda: CodeIndex(128, metric).add(np.arange(3000)[::-1], codes)
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
        (lambda i, c: CodeIndex(0), "dim=0 came"),
        (lambda i, c: CodeIndex(8, "cosine"), "'cosine' came"),
        (lambda i, c: i.add([1, 2], c[:2]), "[1, 2] came again"),
        (lambda i, c: i.add([90, 90], c[:2]), "[90] came again"),
        (lambda i, c: i.add([-1], c[:1]), "-1 came"),
        (lambda i, c: i.add([90], c[:2]), "one integer id"),
        (lambda i, c: i.add([0.5], c[:1]), "one integer id"),
        (lambda i, c: i.add([90], c[:1, :12]), "bool (1, 12) came"),
        (lambda i, c: i.add([90], c[0]), "bool (20,) came"),
        (lambda i, c: i.add([90], c[:1].astype(float)), "float64"),
        (lambda i, c: i.search(c, k=0), "0 came"),
        (lambda i, c: i.search(c, k=11), "k is 1..10"),
        (lambda i, c: i.search(c[:, :12]), "Use the encoder"),
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
    with pytest.raises(FileNotFoundError, match="there is none"):
        CodeIndex.load(tmp_path / "missing")
    (tmp_path / "text").write_text("no index")
    save_file(dict(x=torch.zeros(3)), tmp_path / "tensors")
    index = CodeIndex(20).add(np.arange(10), random_codes(10, 20))
    index.graph
    index.save(tmp_path / "good")
    (tmp_path / "short").write_bytes((tmp_path / "good").read_bytes()[:-40])
    for name in "text", "tensors", "short":
        with pytest.raises(ValueError, match="is not, or is damaged"):
            CodeIndex.load(tmp_path / name)


# ---------------------------------------------------------------- files
def write(path, x, kind):
    if kind == "npy":
        np.save(path := path / "in.npy", x)
    elif kind == "npy fortran":
        np.save(path := path / "in.npy", np.asfortranarray(x))
    elif kind == "npy float64":
        np.save(path := path / "in.npy", x.astype(">f8"))
    elif kind.startswith("safetensors"):
        save_file(
            {
                "e": torch.from_numpy(x).to(getattr(torch, kind.split()[1])),
                **({"other": torch.zeros(2)} if "two" in kind else {}),
            },
            path := path / "in.safetensors",
        )
    else:
        table = dict(
            list={"id": range(len(x)), "e": pa.array(list(x), pa.list_(pa.float32()))},
            large={"e": pa.array(list(x), pa.large_list(pa.float32()))},
            fixed={"e": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])},
            columns={"id": range(len(x)), **{f"d{i}": x[:, i] for i in range(x.shape[1])}},
        )[kind.split()[1]]
        pq.write_table(pa.table(table), path := path / "in.parquet", row_group_size=37)
    return path


KINDS = [
    "npy",
    "npy fortran",
    "npy float64",
    "safetensors float32",
    "safetensors bfloat16",
    "safetensors float16",
    "parquet list",
    "parquet large",
    "parquet fixed",
    "parquet columns",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ternary", [False, True])
def test_binarize_file_equals_binarize(tmp_path, kind, ternary):
    x = embeddings(101, 20)
    x = x - x.mean() if ternary else x
    if "float16" in kind:
        x = torch.from_numpy(x).to(getattr(torch, kind.split()[1])).float().numpy()
    source, expected = write(tmp_path, x, kind), (ternarize if ternary else binarize)(x)
    for packed in True, False:
        summary = binarize_file(source, tmp_path / "out.npy", packed=packed, ternary=ternary, chunk_rows=10)
        found = np.load(tmp_path / "out.npy")
        assert (
            found == ((pack_ternary if ternary else pack)(expected) if packed else expected)
        ).all() and found.dtype == (np.uint8 if packed else expected.dtype)
        active = np.sort((expected != 0).sum(-1))
        assert summary == dict(
            rows=101,
            dim=20,
            bytes_in=source.stat().st_size,
            bytes_out=(tmp_path / "out.npy").stat().st_size,
            active_median=active[50],
            active_q97=active[97],
        )
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([source.name, "out.npy"])


def test_binarize_file_takes_one_chunk_or_many_or_none(tmp_path):
    x = embeddings(50, 9)
    source = write(tmp_path, x, "npy")
    for chunk in 1, 7, 50, 500, None:
        binarize_file(source, tmp_path / "out.npy", chunk_rows=chunk)
        assert (np.load(tmp_path / "out.npy") == pack(binarize(x))).all()
    np.save(source, x[:0])
    assert binarize_file(source, tmp_path / "out.npy")["rows"] == 0 and np.load(
        tmp_path / "out.npy"
    ).shape == (0, 2)


def test_binarize_file_chooses_by_key(tmp_path):
    x = embeddings(30, 6)
    tensors = write(tmp_path, x, "safetensors float32 two")
    with pytest.raises(ValueError, match="holds the tensors e, other"):
        binarize_file(tensors, tmp_path / "out.npy")
    binarize_file(tensors, tmp_path / "out.npy", key="e")
    assert (np.load(tmp_path / "out.npy") == pack(binarize(x))).all()
    table = tmp_path / "two.parquet"
    pq.write_table(
        pa.table({"a": pa.array(list(x)), "b": pa.array(list(x[:, ::-1])), "c": x[:, 0], "d": x[:, 1]}), table
    )
    with pytest.raises(ValueError, match="Choose with `key`"):
        binarize_file(table, tmp_path / "out.npy")
    binarize_file(table, tmp_path / "out.npy", key="b")
    assert (np.load(tmp_path / "out.npy") == pack(binarize(x[:, ::-1]))).all()
    binarize_file(table, tmp_path / "out.npy", key=["d", "c"])
    assert (np.load(tmp_path / "out.npy") == pack(binarize(x[:, 1::-1]))).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value, says", [(-1.0, "negative"), (np.nan, "NaN"), (np.inf, "infinite"), (0.0, "only zeros")]
)
def test_binarize_file_names_the_row_of_the_file(tmp_path, kind, value, says):
    x = embeddings(101, 20)
    x[83, slice(None) if value == 0 else 4] = value
    source, target = write(tmp_path, x, kind), tmp_path / "out.npy"
    target.write_text("old")
    with pytest.raises(ValueError) as error:
        binarize_file(source, target, chunk_rows=10)
    assert (
        "rows [83] hold" in str(error.value)
        and says in str(error.value)
        and source.name in str(error.value)
        and target.read_text() == "old"
        and len(list(tmp_path.iterdir())) == 2
    )


def test_binarize_file_refuses_broken_parquet_rows(tmp_path):
    rows = [list(r) for r in embeddings(60, 4)]
    for bad, says in (
        (None, r"rows \[41\] hold none"),
        ([1.0, 2.0], r"differ"),
        ([1.0, None, 2.0, 3.0], r"rows \[41\] hold NaN"),
    ):
        rows[41] = bad
        pq.write_table(pa.table({"e": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "in.parquet")
        with pytest.raises(ValueError, match=says):
            binarize_file(tmp_path / "in.parquet", tmp_path / "out.npy", chunk_rows=7)
    assert not (tmp_path / "out.npy").exists()
    pq.write_table(pa.table({"e": pa.array([[1.0, 2.0]] * 3 + [[1.0]] * 3)}), tmp_path / "in.parquet")
    with pytest.raises(ValueError, match="same length"):
        binarize_file(tmp_path / "in.parquet", tmp_path / "out.npy", chunk_rows=3)
    pq.write_table(pa.table({"word": ["a"]}), tmp_path / "in.parquet")
    with pytest.raises(ValueError, match=r"columns \['word'\] came"):
        binarize_file(tmp_path / "in.parquet", tmp_path / "out.npy")
    with pytest.raises(ValueError, match=r"has no columns \['x'\]"):
        binarize_file(tmp_path / "in.parquet", tmp_path / "out.npy", key="x")


def test_binarize_file_refuses_what_is_no_file_of_embeddings(tmp_path):
    good = write(tmp_path, embeddings(5, 4), "npy")
    for suffix in ".npy", ".safetensors", ".parquet":
        (tmp_path / f"bad{suffix}").write_bytes(b"nothing of the kind")
        with pytest.raises(ValueError, match=f"bad{suffix}: "):
            binarize_file(tmp_path / f"bad{suffix}", tmp_path / "out.npy")
        with pytest.raises(FileNotFoundError, match="there is no file"):
            binarize_file(tmp_path / f"missing{suffix}", tmp_path / "out.npy")
    for array in np.zeros(3), np.array([["a"]]), np.zeros((2, 2), complex), np.array([[{}]], object):
        np.save(tmp_path / "bad.npy", array, allow_pickle=True)
        with pytest.raises(ValueError, match="bad.npy: "):
            binarize_file(tmp_path / "bad.npy", tmp_path / "out.npy")
    save_file(dict(x=torch.zeros(3)), tmp_path / "bad.safetensors")
    with pytest.raises(ValueError, match=r"x has the shape \(3,\)"):
        binarize_file(tmp_path / "bad.safetensors", tmp_path / "out.npy")
    with pytest.raises(ValueError, match="in.csv came"):
        binarize_file(tmp_path / "in.csv", tmp_path / "out.npy")
    with pytest.raises(ValueError, match="out.bin came"):
        binarize_file(good, tmp_path / "out.bin")
    with pytest.raises(ValueError, match="same file"):
        binarize_file(good, tmp_path / "." / "in.npy")
    with pytest.raises(ValueError, match="chunk_rows=0"):
        binarize_file(good, tmp_path / "out.npy", chunk_rows=0)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        binarize_file(good, tmp_path / "no" / "out.npy")
    assert not (tmp_path / "out.npy").exists()


def test_binarize_file_interrupted_leaves_the_old_file(tmp_path, monkeypatch):
    source, calls = write(tmp_path, embeddings(50, 9), "npy"), []

    def stops(x):
        calls.append(len(x))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return binarize(x)

    monkeypatch.setattr(C, "binarize", stops)
    (tmp_path / "out.npy").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        binarize_file(source, tmp_path / "out.npy", chunk_rows=10)
    assert (
        (tmp_path / "out.npy").read_text() == "old"
        and sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "out.npy"]
        and calls == [10] * 3
    )


def test_binarize_file_holds_one_chunk(tmp_path):
    rows = np.lib.format.open_memmap(tmp_path / "in.npy", "w+", np.float32, (40_000, 256))  # 41 MB
    for i in range(0, 40_000, 1000):
        rows[i : i + 1000] = embeddings(1000, 256, seed=i)
    rows.flush()
    binarize_file(tmp_path / "in.npy", tmp_path / "out.npy", chunk_rows=500)
    tracemalloc.start()
    binarize_file(tmp_path / "in.npy", tmp_path / "out.npy", chunk_rows=500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 500 * 256 * 4 < rows.nbytes / 10
    assert (np.load(tmp_path / "out.npy")[-100:] == pack(binarize(np.array(rows[-100:])))).all()


RESIDENT = """
from pathlib import Path
from brace_nb.codes.codes import binarize_file
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])/1024
for kind in ".npy", ".safetensors", ".parquet":
    binarize_file(f"tiny{kind}", "out.npy"); Path("/proc/self/clear_refs").write_text("5"); before = peak() # peak = now
    binarize_file(f"large{kind}", "out.npy", chunk_rows=1000)
    print(kind, peak()-before)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads the peak memory of a process from /proc"
)
def test_memory_of_the_process_stays_far_below_the_file(tmp_path):
    x = np.tile(embeddings(1000, 256), (150, 1))  # 154 MB
    for name, rows in ("tiny", x[:2000]), ("large", x):
        np.save(tmp_path / f"{name}.npy", rows)
        save_file(dict(e=torch.from_numpy(rows)), tmp_path / f"{name}.safetensors")
        pq.write_table(
            pa.table({"e": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 256)}),
            tmp_path / f"{name}.parquet",
            row_group_size=len(rows),
            use_dictionary=False,
        )
    found = subprocess.run([sys.executable, "-c", RESIDENT], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    megabytes = {kind: float(m) for kind, m in map(str.split, found.stdout.splitlines())}
    assert megabytes[".npy"] < 20 and megabytes[".safetensors"] < 20 and megabytes[".parquet"] < 77


# ---------------------------------------------------------------- other devices
def test_unpacking_on_a_device_is_unpacking():
    codes = random_codes(2, 7, 24, density=0.5)
    assert (C._unpack_on_device(torch.from_numpy(pack(codes))).numpy() == codes).all()


@pytest.mark.gpu
def test_cuda_equals_cpu():
    a, b, t = (
        random_codes(2, 60, 100, seed=13),
        random_codes(2, 50, 100, seed=14),
        random_ternary(40, 100, seed=15),
    )
    on = lambda x: torch.from_numpy(x).cuda()
    assert (
        pack(on(a)).is_cuda
        and (unpack(pack(on(a)), 100).cpu().numpy() == a).all()
        and (active_bits(pack(on(a))).cpu().numpy() == a.sum(-1)).all()
    )
    for name, f in SIMILARITY.items():
        expected = f(a, b)
        for x, y, options in (a, b, {}), (pack(a), pack(b), dict(dim=100) if name == "hamming" else {}):
            found = f(on(x), on(y), **options)
            assert found.is_cuda and np.allclose(found.cpu().numpy(), expected, rtol=3e-7, atol=0)
    assert ternary_jaccard(on(t), on(t)).is_cuda and np.allclose(
        ternary_jaccard(on(t), on(t)).cpu().numpy(), ternary_jaccard(t, t), rtol=3e-7
    )
    assert (nearest(on(a[0]), on(b[0]), 7)[0].cpu().numpy() == nearest(a[0], b[0], 7)[0]).all()
