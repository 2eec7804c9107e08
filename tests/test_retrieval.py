"Retrieval: ranks, recall, chance, duplicates, blocks."

import subprocess
import sys
from math import comb, log2

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from brace_nb.evaluation import (
    chance_recall,
    embedding_ranks,
    item_recall_at_k,
    mean_average_precision,
    ndcg_at_k,
    precision_at_k,
    ranks,
    recall_at_k,
    retrieval_report,
    same_text,
    summarize_ranks,
)


def slow_ranks(similarity, relevant):
    "Sort each row with irrelevant items first among equals; the place of the first relevant item."
    out = []
    for row, own in zip(similarity, relevant):
        order = sorted(range(len(row)), key=lambda j: (-row[j], j in own))
        out.append(
            1
            + next(place - sum(o in own for o in order[:place]) for place, j in enumerate(order) if j in own)
        )
    return out


@st.composite
def problems(draw, dtype=np.float64):
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    similarity = draw(arrays(dtype, (n, m), elements=st.integers(0, 4)))  # few levels: many ties
    return similarity, [sorted(draw(st.sets(st.integers(0, m - 1), min_size=1))) for _ in range(n)]


def matrix(relevant, m):
    return np.array([[j in own for j in range(m)] for own in relevant])


@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(1, 20))
def test_ranks_equal_a_stable_sort_in_every_form(problem, chunk):
    similarity, relevant = problem
    want = slow_ranks(similarity, relevant)
    got = ranks(similarity, relevant)
    assert got.dtype == np.int64 and got.tolist() == want
    assert ranks(similarity, relevant, chunk=chunk).tolist() == want
    assert ranks(similarity, matrix(relevant, similarity.shape[1])).tolist() == want
    assert ranks(similarity, [own + own for own in relevant]).tolist() == want  # repeats do not count twice
    on_torch = ranks(
        torch.from_numpy(similarity), torch.from_numpy(matrix(relevant, similarity.shape[1])), chunk=chunk
    )
    assert isinstance(on_torch, torch.Tensor) and on_torch.dtype == torch.int64 and on_torch.tolist() == want


@settings(max_examples=60, deadline=None)
@given(problems())
def test_ranks_do_not_depend_on_order_or_monotone_rescaling(problem):
    similarity, relevant = problem
    perm = np.random.default_rng(0).permutation(similarity.shape[1])
    back = np.argsort(perm)
    want = ranks(similarity, relevant).tolist()
    assert ranks(similarity[:, perm], [[back[j] for j in own] for own in relevant]).tolist() == want
    assert ranks(np.exp(similarity / 3) - 7, relevant).tolist() == want


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.int8, np.int64, np.uint8, np.uint16, np.uint32, bool]
)
def test_every_number_type(dtype):
    x = np.array([[1, 0, 1], [0, 1, 0]]).astype(dtype)
    assert ranks(x).tolist() == [2, 1]
    if dtype not in (np.uint16, np.uint32):
        assert ranks(torch.from_numpy(x)).tolist() == [2, 1]


def test_bfloat16_infinities_strides_read_only_and_gradients():
    assert ranks(torch.tensor([[1.0, 0], [0, 1]], dtype=torch.bfloat16, requires_grad=True)).tolist() == [
        1,
        1,
    ]
    assert ranks(np.array([[-np.inf, np.inf], [np.inf, np.inf]])).tolist() == [2, 2]
    x = np.arange(20.0).reshape(4, 5)
    assert ranks(x[::-1, ::-1]).tolist() == ranks(x[::-1, ::-1].copy()).tolist()
    x.setflags(write=False)
    assert ranks(x).tolist() == [5, 4, 3, 2]


def test_owner_numbers_and_empty_query_sets():
    assert ranks(np.eye(3)[[2, 0, 0]], [2, 0, 1]).tolist() == [1, 1, 3]
    assert ranks(np.zeros((0, 4))).shape == (0,) and ranks(np.zeros((0, 0))).shape == (0,)


@pytest.mark.parametrize(
    "similarity, relevant, message",
    [
        (np.full((2, 2), np.nan), None, r"queries \[0, 1\] hold NaN"),
        (np.zeros((3, 2)), None, "at least as many items as queries"),
        (np.zeros(3), None, "must have the shape"),
        (np.array([["a"]]), None, "real numbers"),
        (np.zeros((2, 2), complex), None, "real numbers"),
        (np.zeros((2, 2)), [[0], []], r"1 queries that have none, the first are \[1\]"),
        (np.zeros((2, 2)), [0], "one entry for each of 2"),
        (np.zeros((2, 2)), [0, 2], r"got items \[2\]"),
        (np.zeros((2, 2)), [0, -1], r"got items \[-1\]"),
        (np.zeros((2, 2)), [0.0, 1.0], "item number"),
        (np.zeros((2, 2)), np.eye(2), "must be boolean"),
        (np.zeros((2, 2)), np.ones((2, 3), bool), "must be boolean of shape"),
        (np.zeros((2, 2)), np.zeros((2, 2), bool), "2 queries that have none"),
    ],
)
def test_bad_input(similarity, relevant, message):
    with pytest.raises(ValueError, match=message):
        ranks(similarity, relevant)


def test_nan_is_found_in_later_blocks_with_the_right_number():
    x = np.zeros((5, 5))
    x[4, 2] = np.nan
    with pytest.raises(ValueError, match=r"queries \[4\]"):
        ranks(x, chunk=5)


def test_summary():
    got = summarize_ranks([1, 2, 6, 20], ks=(1, 5))
    assert got == {
        "R@1": 0.25,
        "R@5": 0.5,
        "MedR": 4.0,
        "MRR": pytest.approx((1 + 1 / 2 + 1 / 6 + 1 / 20) / 4),
    }
    assert summarize_ranks(torch.tensor([1, 3]))["MedR"] == 2.0
    for bad in ([], [0, 1], [[1]]):
        with pytest.raises(ValueError, match="rank must"):
            summarize_ranks(bad)
    for ks in ((), (0,), (1.5,)):
        with pytest.raises(ValueError, match="ks must be"):
            summarize_ranks([1], ks)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_chance_is_the_binomial_formula(items, k, data):
    counts = data.draw(st.lists(st.integers(1, items), min_size=1, max_size=4))
    want = np.mean([1 - comb(items - c, k) / comb(items, k) if k <= items else 1.0 for c in counts])
    assert chance_recall(k, items, np.array(counts)) == pytest.approx(want, abs=1e-12)


def test_chance_is_what_random_scores_reach():
    rng = np.random.default_rng(0)
    relevant = [[0, 1, 2]] * 20000
    got = recall_at_k(rng.random((20000, 12)), (1, 3, 6), relevant)
    for k in got:
        assert got[k] == pytest.approx(chance_recall(k, 12, 3), abs=0.015)
    for bad in (0, 13, 1.5):
        with pytest.raises(ValueError, match="relevant must"):
            chance_recall(1, 12, bad)


def test_recall_at_k():
    x = np.array([[0.9, 0.1, 0.2], [0.5, 0.5, 0.1], [0.3, 0.3, 0.3]])
    assert recall_at_k(x, (1, 2, 3)) == {1: pytest.approx(1 / 3), 2: pytest.approx(2 / 3), 3: 1.0}
    with pytest.raises(ValueError, match="N>0"):
        recall_at_k(np.zeros((0, 3)))


def slow_metrics(similarity, gains, k):
    "Four metrics of the list whose ties are broken against the query, by plain loops."
    precision = recall = average = gain = 0.0
    for row, worth in zip(similarity.tolist(), gains.tolist()):
        worth_in_order = [worth[j] for j in sorted(range(len(row)), key=lambda j: (-row[j], worth[j]))]
        right = sum(w > 0 for w in worth)
        precision += sum(w > 0 for w in worth_in_order[:k]) / k
        recall += sum(w > 0 for w in worth_in_order[:k]) / right
        places = [place for place, w in enumerate(worth_in_order, 1) if w > 0]
        average += sum(number / place for number, place in enumerate(places, 1)) / right
        sums = [
            sum(w / log2(1 + place) for place, w in enumerate(some[:k], 1))
            for some in (worth_in_order, sorted(worth, reverse=True))
        ]
        gain += sums[0] / sums[1]
    return np.array([precision, recall, average, gain]) / len(similarity)


@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(1, 9), st.data())
def test_several_right_answers_equal_plain_loops(problem, k, data):
    similarity, relevant = problem
    own = matrix(relevant, similarity.shape[1])
    worth = data.draw(arrays(np.float64, own.shape, elements=st.sampled_from([0.25, 1, 3])))
    for gains in (own.astype(float), own * worth):
        want = slow_metrics(similarity, gains, k)
        for dtype in (np.float64, np.float16, np.uint8):
            x = similarity.astype(dtype)
            for x in (x, torch.from_numpy(x), np.asfortranarray(x)):
                got = (
                    precision_at_k(x, (k,), relevant)[k],
                    item_recall_at_k(x, (k,), own)[k],
                    mean_average_precision(x, relevant),
                    ndcg_at_k(x, (k,), gains=gains)[k],
                )
                assert got == pytest.approx(want, abs=1e-12)
    assert ndcg_at_k(similarity, (k,), relevant) == ndcg_at_k(similarity, (k,), gains=own)


def test_several_right_answers_equal_trec_eval():
    "`ir_measures` (trec_eval) on scores without ties, with items that are worth 0 to 3."
    ir = pytest.importorskip("ir_measures")
    rng = np.random.default_rng(3)
    scores = rng.permutation(40 * 60).reshape(40, 60).astype(np.float64)
    gains = rng.integers(0, 4, scores.shape) * (rng.random(scores.shape) < 0.2)
    gains[:, 0] = 1
    judged = {str(i): {str(j): int(g) for j, g in enumerate(row) if g} for i, row in enumerate(gains)}
    run = {str(i): {str(j): float(s) for j, s in enumerate(row)} for i, row in enumerate(scores)}
    ks = (1, 5, 10, 60)
    measures = [ir.AP, *(m @ k for k in ks for m in (ir.P, ir.R, ir.nDCG))]
    want = ir.calc_aggregate(measures, judged, run)
    assert mean_average_precision(scores, gains > 0) == pytest.approx(want[ir.AP], abs=1e-12)
    for k in ks:
        assert precision_at_k(scores, (k,), gains > 0)[k] == pytest.approx(want[ir.P @ k], abs=1e-12)
        assert item_recall_at_k(scores, (k,), gains > 0)[k] == pytest.approx(want[ir.R @ k], abs=1e-12)
        assert ndcg_at_k(scores, (k,), gains=gains)[k] == pytest.approx(want[ir.nDCG @ k], abs=1e-12)


def test_several_right_answers_of_one_each_are_the_ranks():
    x = np.random.default_rng(2).integers(0, 40, (50, 60)).astype(np.float32)
    rank, hits = ranks(x), recall_at_k(x, (1, 7))
    assert item_recall_at_k(x, (1, 7)) == pytest.approx(hits)
    assert precision_at_k(x, (1, 7)) == pytest.approx({1: hits[1], 7: hits[7] / 7})
    assert mean_average_precision(x) == pytest.approx((1 / rank).mean())
    assert ndcg_at_k(x, (7,))[7] == pytest.approx(((rank <= 7) / np.log2(1 + rank)).mean())


def test_gains_of_any_size_and_wrong_ones():
    x, gains = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), np.array([[0, 1.0, 3.0], [2.0, 0, 0]])
    want = ndcg_at_k(x, (1, 3), gains=gains)
    for scale in (1e-300, 1e307, np.array([[1e-300], [1e307]])):
        assert ndcg_at_k(x, (1, 3), gains=gains * scale) == pytest.approx(want)
    for worst in (-1, np.nan, np.inf):
        with pytest.raises(ValueError, match="gains must be finite"):
            ndcg_at_k(x, gains=np.where(gains > 1, worst, gains))
    with pytest.raises(ValueError, match="in place of `relevant`"):
        ndcg_at_k(x, (1,), [0, 1], gains)
    with pytest.raises(ValueError, match="gains must have the shape"):
        ndcg_at_k(x, (1,), gains=gains[:, :2])
    for function in (precision_at_k, item_recall_at_k, mean_average_precision, ndcg_at_k):
        with pytest.raises(ValueError, match=r"queries \[1\] hold NaN"):
            function(np.array([[0.0, 1.0], [np.nan, 1.0]]))
        with pytest.raises(ValueError, match="have none"):
            function(x, relevant=[[0], []])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8])
def test_ranks_of_long_rows_are_counted_without_an_error(dtype):
    items = 2**24 + 10  # float32 cannot count that far
    x = torch.zeros(1, items, dtype=dtype)
    assert ranks(x).tolist() == [items]
    x[0, 0] = 1
    assert ranks(x, [items - 1]).tolist() == [items]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 10**6))
def test_report_is_both_directions(images, captions, seed):
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(images), captions)
    x = rng.integers(0, 4, (images, len(owner))).astype(np.float32)
    own = [np.flatnonzero(owner == i).tolist() for i in range(images)]
    report = retrieval_report(x, own, ks=(1, 2))
    assert {k: report["i2t"][k] for k in ("R@1", "R@2", "MedR", "MRR")} == summarize_ranks(
        slow_ranks(x, own), (1, 2)
    )
    assert {k: report["t2i"][k] for k in ("R@1", "R@2", "MedR", "MRR")} == summarize_ranks(
        slow_ranks(x.T, [[o] for o in owner]), (1, 2)
    )
    assert report["t2i"]["chance R@1"] == pytest.approx(1 / images) and report["i2t"][
        "chance R@1"
    ] == pytest.approx(1 / images)
    assert (
        (report["i2t"]["queries"], report["i2t"]["gallery"])
        == x.shape
        == (report["t2i"]["gallery"], report["t2i"]["queries"])
    )
    assert report == retrieval_report(torch.from_numpy(x), matrix(own, len(owner)), ks=(1, 2))


def test_report_names_columns_without_an_owner():
    with pytest.raises(ValueError, match=r"t2i: 3 queries, of which \[2\] have no relevant"):
        retrieval_report(np.zeros((2, 3)))


def test_same_text_marks_every_owner():
    texts, owner = ["a", "b", "a", "c", "b", "d"], [0, 0, 1, 1, 2, 3]
    assert same_text(texts, owner) == [[0, 1, 2, 4], [0, 2, 3], [1, 4], [5]] and same_text([]) == []
    assert ranks(np.array([[0.1, 0.9], [0.9, 0.1]]), same_text(["x", "x"])).tolist() == [1, 1]
    for bad in (["a", None], [1]):
        with pytest.raises(ValueError, match="texts must be strings"):
            same_text(bad)
    for bad in ([0], [0, -1], [0.5, 1]):
        with pytest.raises(ValueError, match="owner must hold"):
            same_text(["a", "b"], bad)


@pytest.mark.parametrize("chunk", [1, 7, 10**6])
def test_embedding_ranks_equal_ranks_of_the_matrix(chunk):
    rng = np.random.default_rng(1)
    x, y, relevant = (
        rng.integers(-2, 3, (9, 4)).astype(np.float32),
        rng.integers(-2, 3, (11, 4)).astype(np.float32),
        [[i, (i + 3) % 11] for i in range(9)],
    )
    want = ranks(x @ y.T, relevant)
    assert (embedding_ranks(x, y, relevant, chunk) == want).all() and (
        embedding_ranks(torch.from_numpy(x), torch.from_numpy(y), relevant, chunk).numpy() == want
    ).all()
    assert embedding_ranks(x[:0], y).shape == (0,)
    with pytest.raises(ValueError, match=r"\(M, D\) with D = 4"):
        embedding_ranks(x, y[:, :3])


def test_memory_beyond_the_matrix_is_a_block():
    code = """
import numpy as np
from brace_nb.evaluation import ranks
x = np.random.default_rng(0).random((6000, 6000), dtype=np.float32)
ranks(x[:10, :10]); before = int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])
ranks(x, chunk=2**20)
print((int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) - before)/1024)"""
    grown = float(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    )
    assert grown < 60, f"{grown} MiB beyond a matrix of 137 MiB"  # code pages of torch are counted as well


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_equals_cpu():
    x = torch.randint(0, 5, (50, 60)).float()
    got = ranks(x.cuda(), [[i, 59] for i in range(50)])
    assert got.is_cuda and (got.cpu() == ranks(x, [[i, 59] for i in range(50)])).all()
