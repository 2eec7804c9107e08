"Every array that holds real numbers is taken: layouts, byte orders and number types."

import numpy as np
import pandas as pd
import pytest
import torch

from brace_nb.evaluation import (
    StreamingCKA,
    alignment,
    cka,
    cka_matrix,
    class_embeddings,
    classify,
    embedding_ranks,
    hsic,
    invariance_score,
    knn_overlap,
    linear_probe,
    modality_gap,
    multilabel_probe,
    permuted_cka,
    ranks,
    retrieval_report,
    token_distances,
    tuple_auc,
    uniformity,
    zero_shot,
)


def features(seed=0):
    return np.random.default_rng(seed).normal(size=(50, 8))


def read_only(x):
    x = x.copy()
    x.setflags(write=False)
    return x


LAYOUTS = {
    "reversed view": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "big endian": lambda x: x.astype(">f8"),
    "long double": lambda x: x.astype(np.longdouble),
    "strided": lambda x: np.repeat(x, 2, 0)[::2],
    "columns first": np.asfortranarray,
    "read-only": read_only,
    "lists": lambda x: x.tolist(),
    "data frame": pd.DataFrame,
    "tensor": torch.from_numpy,
}
NUMBERS = np.arange(50) % 3
CALLS = {
    "cka": lambda x: cka(x, x),
    "cka of two": lambda x: cka(x, features(1)),
    "hsic": lambda x: hsic(x, features(1)),
    "cka_matrix": lambda x: cka_matrix([x], [features(1), x]),
    "permuted_cka": lambda x: permuted_cka(x, features(1), 3),
    "StreamingCKA": lambda x: StreamingCKA().update(x, features(1)).compute(),
    "ranks": lambda x: ranks(x, np.arange(50) % 8),
    "embedding_ranks": lambda x: embedding_ranks(x, features(1)),
    "retrieval_report": lambda x: retrieval_report(x, [[i % 8] for i in range(50)])["i2t"]["MRR"],
    "classify": lambda x: classify(x, np.arange(50) % 8)["top1"],
    "zero_shot": lambda x: zero_shot(x, features(1)[:8], np.arange(50) % 8)["top1"],
    "class_embeddings": lambda x: class_embeddings(x, NUMBERS),
    "linear_probe": lambda x: linear_probe((x, NUMBERS), (x, NUMBERS), (x, NUMBERS), (0.1,))["top1"],
    "alignment": lambda x: alignment(x, features(1)),
    "uniformity": lambda x: uniformity(x),
    "modality_gap": lambda x: modality_gap(x, features(1)),
    "knn_overlap": lambda x: knn_overlap(x, features(1)),
    "tuple_auc": lambda x: tuple_auc(x, np.arange(50) // 5),
    "token_distances": lambda x: token_distances(x),
    "invariance_score": lambda x: invariance_score(x, NUMBERS, np.arange(50), ks=[2])[2]["ris"],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", CALLS)
def test_layouts_change_nothing(call, layout):
    want = np.asarray(CALLS[call](features()))
    assert np.allclose(np.asarray(CALLS[call](LAYOUTS[layout](features()))), want, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, bool])
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_small_numbers_do_not_wrap_in_products(dtype, kind):
    q = np.random.default_rng(0).integers(-127, 128, (50, 8))
    q = q > 0 if dtype is bool else q.astype(dtype)
    wide = q.astype(np.float64)
    if kind is torch.as_tensor and dtype == np.uint16:
        return  # torch has hardly any operation on uint16
    assert np.array_equal(np.asarray(embedding_ranks(kind(q), kind(q))), embedding_ranks(wide, wide))
    assert abs(float(cka(kind(q), kind(q[:, ::-1].copy()))) - cka(wide, wide[:, ::-1])) < 1e-5
    classes = np.eye(3, 8).astype(dtype)
    found = [
        embedding_ranks(kind(q), kind(classes), NUMBERS) for q, classes in ((q, classes), (wide, classes))
    ]
    assert np.array_equal(*map(np.asarray, found))


def test_half_precision_does_not_overflow():
    q = np.full((2, 4), 300, np.float16)
    q[1] = -300
    assert embedding_ranks(q, q).tolist() == [1, 1]


def test_streaming_promotes():
    x = features()
    mixed = StreamingCKA().update(x.astype("f4"), x).compute()
    assert mixed.dtype == np.float64 and abs(mixed - 1) < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8])
def test_probes_take_narrow_tensors(dtype):
    x = (4 * torch.from_numpy(features())).to(dtype)
    report, wide = (linear_probe(*[(v, torch.arange(50) % 2)] * 3, strengths=(0.1,)) for v in (x, x.double()))
    assert report["top1"] == wide["top1"]
    tags = torch.arange(50)[:, None] % torch.tensor([2, 3]) == 0
    found = multilabel_probe(*[(x, tags)] * 3, strengths=(0.1,))
    assert 0 < found["mean_average_precision"] <= 1


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64, bool])
def test_classify_takes_unsigned_scores(dtype):
    assert classify(np.array([[1, 0], [0, 1], [1, 0]]).astype(dtype), [0, 1, 1])["top1"] == 2 / 3
