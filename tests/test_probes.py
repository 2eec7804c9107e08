"Probes: class directions, zero-shot, accuracies, calibration."
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics

from brace_nb.evaluation.probes import class_embeddings, classify, expected_calibration_error, reliability, zero_shot

def slow_classes(prompts, groups, classes):
    out = np.zeros((classes, prompts.shape[1]))
    for c in range(classes):
        for p, g in zip(prompts.astype(np.float64), groups):
            if g == c: out[c] += p/np.sqrt((p**2).sum())
        out[c] /= np.sqrt((out[c]**2).sum())
    return out

def random_prompts(seed=0, p=12, d=5, classes=3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((p, d)).astype(np.float32)*rng.uniform(.1, 9, (p, 1)).astype(np.float32), rng.permutation(np.arange(p) % classes)

@pytest.mark.parametrize("seed", range(5))
def test_class_embeddings_equal_a_plain_loop_and_ignore_lengths(seed):
    prompts, groups = random_prompts(seed)
    want = slow_classes(prompts, groups, 3)
    got = class_embeddings(prompts, groups)
    assert got.dtype == np.float32 and np.abs(got - want).max() < 1e-6
    assert np.abs(class_embeddings(prompts.astype(np.float64), groups) - want).max() < 1e-12
    on_torch = class_embeddings(torch.from_numpy(prompts), torch.from_numpy(groups), 3)
    assert isinstance(on_torch, torch.Tensor) and torch.equal(on_torch, torch.from_numpy(got))

@pytest.mark.parametrize("prompts, groups, classes, message", [
    (np.ones((2, 3)), [0, 2], None, r"classes \[1\] have none"), (np.ones((1, 3)), [0], 2, r"classes \[1\] have none"), (np.array([[1., 0], [-1, 0]]), [0, 0], None, "mean prompt.*rows \\[0\\]"),
    (np.array([[1., 0], [0, 0]]), [0, 1], None, r"rows \[1\] are not"), (np.array([[np.nan, 0]]), [0], None, r"rows \[0\]"), (np.ones(3), [0], None, "matrix"), (np.ones((2, 3)), [0], None, "2 class numbers"),
    (np.ones((2, 3)), [0, -1], None, "from 0"), (np.ones((2, 3)), [0, 3], 3, "from 0 to 2"), (np.ones((2, 3)), [0., 1.], None, "class numbers")])
def test_bad_prompts(prompts, groups, classes, message):
    with pytest.raises(ValueError, match=message): class_embeddings(prompts, groups, classes)

@st.composite
def problems(draw):
    n, classes = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return rng.permuted(np.tile(np.arange(classes, dtype=np.float64), (n, 1)), axis=1), rng.integers(0, classes, n)   # no ties

@settings(max_examples=100, deadline=None)
@given(problems())
@pytest.mark.filterwarnings("ignore:A single label")
def test_classify_equals_scikit_learn(problem):
    scores, labels = problem
    classes, everything = scores.shape[1], range(scores.shape[1])
    report, predicted = classify(scores, labels, ks=(1, 2)), scores.argmax(1)
    assert (report["predictions"] == predicted).all() and (report["confusion"] == metrics.confusion_matrix(labels, predicted, labels=everything)).all()
    assert report["top1"] == pytest.approx(metrics.accuracy_score(labels, predicted)) and report["top1"] == np.trace(report["confusion"])/len(labels)
    assert report["top2"] == pytest.approx(np.mean([y in np.argsort(-s)[:2] for s, y in zip(scores, labels)]))
    assert report["macro_f1"] == pytest.approx(metrics.f1_score(labels, predicted, labels=everything, average="macro", zero_division=0))
    assert report["balanced_accuracy"] == pytest.approx(np.mean([np.mean(predicted[labels == c] == c) for c in set(labels.tolist())]))
    assert report["majority"] == pytest.approx(max(np.mean(labels == c) for c in range(classes)))
    assert (report["images"], report["classes"]) == scores.shape
    on_torch = classify(torch.from_numpy(scores), torch.from_numpy(labels), ks=(1, 2))
    assert (on_torch.pop("confusion") == report["confusion"]).all() and (on_torch.pop("predictions") == report["predictions"]).all()
    assert on_torch == {k: v for k, v in report.items() if k not in ("confusion", "predictions")}

@settings(max_examples=60, deadline=None)
@given(arrays(np.uint8, st.tuples(st.integers(1, 8), st.integers(2, 5)), elements=st.integers(0, 2)), st.integers(0, 10**6))
def test_ties_lose(scores, seed):
    labels = np.random.default_rng(seed).integers(0, scores.shape[1], len(scores))
    report = classify(scores, labels)
    for row, y, guess in zip(scores, labels, report["predictions"]):
        wins = all(row[y] > s for j, s in enumerate(row) if j != y)
        assert (guess == y) == wins and (wins or row[guess] == np.delete(row, y).max())
    assert report["top1"] == np.trace(report["confusion"])/len(labels)

def test_one_class_and_absent_classes():
    assert classify(np.zeros((3, 1)), [0, 0, 0])["top1"] == 1.0
    report = classify(np.eye(4)[:2], [0, 1])
    assert report["balanced_accuracy"] == 1.0 and report["macro_f1"] == .5 and report["majority"] == .5

@pytest.mark.parametrize("scores, labels, message", [(np.eye(2), [0, 2], "from 0 to 1"), (np.eye(2), [0], "2 class numbers"), (np.zeros((0, 2)), [], "at least one image"), (np.zeros(2), [0, 0], "at least one image"),
    (np.full((1, 2), np.nan), [0], "NaN"), (np.eye(2), [0., 1.], "class numbers"), (np.eye(2)*1j, [0, 1], "scores must have shape")])
def test_bad_scores(scores, labels, message):
    with pytest.raises(ValueError, match=message): classify(scores, labels)

def test_zero_shot_is_the_nearest_direction():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((40, 6)).astype(np.float32), rng.standard_normal((4, 6)).astype(np.float32)
    cosine = (x/np.linalg.norm(x, axis=1, keepdims=True)) @ (w/np.linalg.norm(w, axis=1, keepdims=True)).T
    labels = rng.integers(0, 4, 40)
    report = zero_shot(x, w, labels)
    assert (report["predictions"] == cosine.argmax(1)).all() and "ece" not in report
    assert (zero_shot(x*7, w*rng.uniform(1, 5, (4, 1)), labels)["confusion"] == report["confusion"]).all()
    p = torch.from_numpy(10*cosine).softmax(1)
    assert zero_shot(torch.from_numpy(x), torch.from_numpy(w), labels, scale=10)["ece"] == pytest.approx(expected_calibration_error(p, labels), abs=1e-6)

@pytest.mark.parametrize("x, w, message", [(np.full((1, 2), np.nan), np.eye(2), "image_embeddings must be finite"), (np.eye(2)[:1], np.zeros((2, 2)), "class_embeddings must be finite"), (np.ones((1, 3)), np.eye(2), "same number of dimensions; got 3 and 2")])
def test_bad_zero_shot(x, w, message):
    with pytest.raises(ValueError, match=message): zero_shot(x, w, [0])

def slow_ece(p, labels, bins):
    total = 0
    for b in range(bins):
        inside = [(row.max(), row.argmax() == y) for row, y in zip(p, labels) if b/bins < row.max() <= (b + 1)/bins]
        if inside: total += abs(sum(c for c, _ in inside) - sum(r for _, r in inside))
    return total/len(p)

@pytest.mark.parametrize("bins", [1, 4, 15])
def test_calibration_error_equals_a_plain_loop(bins):
    rng = np.random.default_rng(bins)
    p, labels = rng.dirichlet(np.full(5, .5), 300), rng.integers(0, 5, 300)
    assert expected_calibration_error(p, labels, bins) == pytest.approx(slow_ece(p, labels, bins), abs=1e-12)
    r = reliability(p, labels, bins)
    assert r["count"].sum() == 300 and len(r["accuracy"]) == bins and (np.isnan(r["accuracy"]) == (r["count"] == 0)).all()

def test_calibrated_predictions_have_no_error():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 100000)
    labels = (rng.random((100000, 1)) > p.cumsum(1)).sum(1).clip(max=2)
    assert expected_calibration_error(p, labels) < .01
    assert expected_calibration_error(np.eye(3), [0, 1, 2]) == 0 and expected_calibration_error(np.eye(3), [1, 2, 0]) == 1

@pytest.mark.parametrize("p, bins, message", [(np.eye(2)*2, 15, "sum to 1"), (np.array([[1.5, -.5]]), 15, ">= 0"), (np.full((1, 2), np.nan), 15, ">= 0"), (np.zeros((0, 2)), 15, "shape"), (np.eye(2), 0, "bins must"), (np.eye(2), 2.5, "bins must")])
def test_bad_probabilities(p, bins, message):
    with pytest.raises(ValueError, match=message): expected_calibration_error(p, [0]*len(p), bins)

@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_equals_cpu():
    x, w = torch.randn(40, 6), torch.randn(4, 6)
    groups = torch.arange(4)
    assert class_embeddings(w.cuda(), groups.cuda()).is_cuda
    assert (zero_shot(x.cuda(), class_embeddings(w.cuda(), groups.cuda()), groups.repeat(10).cuda())["confusion"] == zero_shot(x, class_embeddings(w, groups), groups.repeat(10))["confusion"]).all()
