"Probes: class directions, zero-shot, accuracies, calibration."

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics

from brace_nb.evaluation import (
    STRENGTHS,
    class_embeddings,
    classify,
    expected_calibration_error,
    linear_probe,
    multilabel_probe,
    pixel_features,
    probe_controls,
    reliability,
    word_features,
    zero_shot,
)


def slow_classes(prompts, groups, classes):
    out = np.zeros((classes, prompts.shape[1]))
    for c in range(classes):
        for p, g in zip(prompts.astype(np.float64), groups):
            if g == c:
                out[c] += p / np.sqrt((p**2).sum())
        out[c] /= np.sqrt((out[c] ** 2).sum())
    return out


def random_prompts(seed=0, p=12, d=5, classes=3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((p, d)).astype(np.float32) * rng.uniform(0.1, 9, (p, 1)).astype(
        np.float32
    ), rng.permutation(np.arange(p) % classes)


@pytest.mark.parametrize("seed", range(5))
def test_class_embeddings_equal_a_plain_loop_and_ignore_lengths(seed):
    prompts, groups = random_prompts(seed)
    want = slow_classes(prompts, groups, 3)
    got = class_embeddings(prompts, groups)
    assert got.dtype == np.float32 and np.abs(got - want).max() < 1e-6
    assert np.abs(class_embeddings(prompts.astype(np.float64), groups) - want).max() < 1e-12
    on_torch = class_embeddings(torch.from_numpy(prompts), torch.from_numpy(groups), 3)
    assert isinstance(on_torch, torch.Tensor) and torch.equal(on_torch, torch.from_numpy(got))


@pytest.mark.parametrize(
    "prompts, groups, classes, message",
    [
        (np.ones((2, 3)), [0, 2], None, r"classes \[1\] that have none"),
        (np.ones((1, 3)), [0], 2, r"classes \[1\] that have none"),
        (np.array([[1.0, 0], [-1, 0]]), [0, 0], None, "mean prompt.*rows \\[0\\]"),
        (np.array([[1.0, 0], [0, 0]]), [0, 1], None, r"rows \[1\] of zeros"),
        (np.array([[np.nan, 0]]), [0], None, r"rows \[0\]"),
        (np.ones(3), [0], None, "must have the shape"),
        (np.ones((2, 3)), [0], None, "2 class numbers"),
        (np.ones((2, 3)), [0, -1], None, "from 0"),
        (np.ones((2, 3)), [0, 3], 3, "from 0 to 2"),
        (np.ones((2, 3)), [0.0, 1.0], None, "class numbers"),
    ],
)
def test_bad_prompts(prompts, groups, classes, message):
    with pytest.raises(ValueError, match=message):
        class_embeddings(prompts, groups, classes)


@st.composite
def problems(draw):
    n, classes = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return rng.permuted(np.tile(np.arange(classes, dtype=np.float64), (n, 1)), axis=1), rng.integers(
        0, classes, n
    )  # no ties


@settings(max_examples=100, deadline=None)
@given(problems())
@pytest.mark.filterwarnings("ignore:A single label")
def test_classify_equals_scikit_learn(problem):
    scores, labels = problem
    classes, everything = scores.shape[1], range(scores.shape[1])
    report, predicted = classify(scores, labels, ks=(1, 2)), scores.argmax(1)
    assert (report["predictions"] == predicted).all() and (
        report["confusion"] == metrics.confusion_matrix(labels, predicted, labels=everything)
    ).all()
    assert report["top1"] == pytest.approx(metrics.accuracy_score(labels, predicted)) and report[
        "top1"
    ] == np.trace(report["confusion"]) / len(labels)
    assert report["top2"] == pytest.approx(np.mean([y in np.argsort(-s)[:2] for s, y in zip(scores, labels)]))
    assert report["macro_f1"] == pytest.approx(
        metrics.f1_score(labels, predicted, labels=everything, average="macro", zero_division=0)
    )
    assert report["balanced_accuracy"] == pytest.approx(
        np.mean([np.mean(predicted[labels == c] == c) for c in set(labels.tolist())])
    )
    assert report["majority"] == pytest.approx(max(np.mean(labels == c) for c in range(classes)))
    assert (report["images"], report["classes"]) == scores.shape
    on_torch = classify(torch.from_numpy(scores), torch.from_numpy(labels), ks=(1, 2))
    assert (on_torch.pop("confusion") == report["confusion"]).all() and (
        on_torch.pop("predictions") == report["predictions"]
    ).all()
    assert on_torch == {k: v for k, v in report.items() if k not in ("confusion", "predictions")}


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.uint8, st.tuples(st.integers(1, 8), st.integers(2, 5)), elements=st.integers(0, 2)),
    st.integers(0, 10**6),
)
def test_ties_lose(scores, seed):
    labels = np.random.default_rng(seed).integers(0, scores.shape[1], len(scores))
    report = classify(scores, labels)
    for row, y, guess in zip(scores, labels, report["predictions"]):
        wins = all(row[y] > s for j, s in enumerate(row) if j != y)
        assert (guess == y) == wins and (wins or row[guess] == np.delete(row, y).max())
    assert report["top1"] == np.trace(report["confusion"]) / len(labels)


def test_one_class_and_absent_classes():
    assert classify(np.zeros((3, 1)), [0, 0, 0])["top1"] == 1.0
    report = classify(np.eye(4)[:2], [0, 1])
    assert report["balanced_accuracy"] == 1.0 and report["macro_f1"] == 0.5 and report["majority"] == 0.5


@pytest.mark.parametrize(
    "scores, labels, message",
    [
        (np.eye(2), [0, 2], "from 0 to 1"),
        (np.eye(2), [0], "2 class numbers"),
        (np.zeros((0, 2)), [], "images>0"),
        (np.zeros(2), [0, 0], "images>0"),
        (np.full((1, 2), np.nan), [0], "NaN"),
        (np.eye(2), [0.0, 1.0], "class numbers"),
        (np.eye(2) * 1j, [0, 1], "scores must be real numbers"),
    ],
)
def test_bad_scores(scores, labels, message):
    with pytest.raises(ValueError, match=message):
        classify(scores, labels)


def test_zero_shot_is_the_nearest_direction():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((40, 6)).astype(np.float32), rng.standard_normal((4, 6)).astype(np.float32)
    cosine = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ (w / np.linalg.norm(w, axis=1, keepdims=True)).T
    labels = rng.integers(0, 4, 40)
    report = zero_shot(x, w, labels)
    assert (report["predictions"] == cosine.argmax(1)).all() and "ece" not in report
    assert (zero_shot(x * 7, w * rng.uniform(1, 5, (4, 1)), labels)["confusion"] == report["confusion"]).all()
    p = torch.from_numpy(10 * cosine).softmax(1)
    assert zero_shot(torch.from_numpy(x), torch.from_numpy(w), labels, scale=10)["ece"] == pytest.approx(
        expected_calibration_error(p, labels), abs=1e-6
    )


@pytest.mark.parametrize(
    "x, w, message",
    [
        (np.full((1, 2), np.nan), np.eye(2), "image_embeddings must be finite"),
        (np.eye(2)[:1], np.zeros((2, 2)), "class_embeddings: a zero row"),
        (np.ones((1, 3)), np.eye(2), "with D = 3; got"),
    ],
)
def test_bad_zero_shot(x, w, message):
    with pytest.raises(ValueError, match=message):
        zero_shot(x, w, [0])


def slow_ece(p, labels, bins):
    total = 0
    for b in range(bins):
        inside = [
            (row.max(), row.argmax() == y)
            for row, y in zip(p, labels)
            if b / bins < row.max() <= (b + 1) / bins
        ]
        if inside:
            total += abs(sum(c for c, _ in inside) - sum(r for _, r in inside))
    return total / len(p)


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_calibration_error_equals_a_plain_loop(bins):
    rng = np.random.default_rng(bins)
    p, labels = rng.dirichlet(np.full(5, 0.5), 300), rng.integers(0, 5, 300)
    assert expected_calibration_error(p, labels, bins) == pytest.approx(slow_ece(p, labels, bins), abs=1e-12)
    r = reliability(p, labels, bins)
    assert (
        r["count"].sum() == 300
        and len(r["accuracy"]) == bins
        and (np.isnan(r["accuracy"]) == (r["count"] == 0)).all()
    )


def test_calibrated_predictions_have_no_error():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 100000)
    labels = (rng.random((100000, 1)) > p.cumsum(1)).sum(1).clip(max=2)
    assert expected_calibration_error(p, labels) < 0.01
    assert (
        expected_calibration_error(np.eye(3), [0, 1, 2]) == 0
        and expected_calibration_error(np.eye(3), [1, 2, 0]) == 1
    )


@pytest.mark.parametrize(
    "p, bins, message",
    [
        (np.eye(2) * 2, 15, "sum to 1"),
        (np.array([[1.5, -0.5]]), 15, ">= 0"),
        (np.full((1, 2), np.nan), 15, ">= 0"),
        (np.zeros((0, 2)), 15, "images>0"),
        (np.eye(2), 0, "bins must"),
        (np.eye(2), 2.5, "bins must"),
    ],
)
def test_bad_probabilities(p, bins, message):
    with pytest.raises(ValueError, match=message):
        expected_calibration_error(p, [0] * len(p), bins)


def clusters(seed=0, n=90, d=6, classes=3, spread=1.5):
    "Three splits of noisy clusters, labels as whole numbers."
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((classes, d))

    def part(m):
        y = np.arange(m) % classes
        return centers[y] + spread * rng.standard_normal((m, d)), y

    return part(n), part(n), part(n)


@pytest.mark.parametrize("classes", [2, 3])
def test_linear_probe_equals_the_minimum_of_its_objective(classes):
    "Cross-entropy summed over rows plus |W|^2/(2C), by another optimizer in float64; intercept free."
    train, val, test = clusters(1, classes=classes)
    report = linear_probe(train, val, test, strengths=[0.1])
    mean, sd = train[0].mean(0), train[0].std(0)
    x, y = (
        torch.from_numpy((np.concatenate([train[0], val[0]]) - mean) / sd),
        torch.from_numpy(np.concatenate([train[1], val[1]])),
    )
    w = torch.zeros(x.shape[1] + 1, classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def logits(x):
        return x @ w[:-1] + w[-1]

    def objective():
        optimizer.zero_grad()
        weights = (
            w[:-1] if classes > 2 else w[:-1] * 2**0.5
        )  # two classes: one plane w1 - w0 = 2 w1 with |w|^2 in all
        loss = torch.nn.functional.cross_entropy(logits(x), y, reduction="sum") + (weights**2).sum() / (
            2 * 0.1
        )
        loss.backward()
        return loss

    optimizer.step(objective)
    p = logits(torch.from_numpy((test[0] - mean) / sd)).softmax(1).detach().numpy()
    assert report["predictions"].tolist() == p.argmax(1).tolist()
    assert report["ece"] == pytest.approx(expected_calibration_error(p, test[1]), abs=2e-3)
    assert (
        report["top1"] == np.mean(p.argmax(1) == test[1]) and report["C"] == 0.1 and report["iterations"] > 0
    )


def test_linear_probe_ignores_units_and_the_test_split_decides_nothing():
    train, val, test = clusters(2)
    report = linear_probe(train, val, test)
    rng = np.random.default_rng(0)
    scale, shift = rng.uniform(0.01, 100, 6), rng.standard_normal(6) * 50
    other = linear_probe(*((x * scale + shift, y) for x, y in (train, val, test)))
    assert (other["confusion"] == report["confusion"]).all() and other["C"] == report["C"]
    wild = linear_probe(train, val, (test[0] * 1e6, test[1]))
    assert (
        wild["C"] == report["C"]
        and wild["path"] == report["path"]
        and wild["train_accuracy"] == report["train_accuracy"]
    )
    assert tuple(report["path"]) == STRENGTHS and report["val_accuracy"] == max(report["path"].values())
    assert report["C"] == min(
        c for c, a in report["path"].items() if a == report["val_accuracy"]
    )  # the simplest of equals


def test_other_tests_of_one_fit_are_those_of_a_fit_of_its_own():
    train, val, test = clusters(1)
    later = (test[0] + 0.5, test[1])
    report = linear_probe(train, val, test, strengths=[0.1, 1.0], others=[later, test])
    alone = linear_probe(train, val, later, strengths=[0.1, 1.0])
    assert [r["top1"] for r in report["others"]] == [alone["top1"], report["top1"]]
    assert np.array_equal(report["others"][0]["predictions"], alone["predictions"])
    assert not np.array_equal(alone["predictions"], report["predictions"]) and alone["others"] == []
    with pytest.raises(ValueError, match=r"others\[0\] holds labels \[99\]"):
        linear_probe(train, val, test, others=[(test[0], test[1] * 0 + 99)])


def test_linear_probe_takes_names_torch_and_constant_features():
    train, val, test = clusters(3)
    names = np.array(["b", "a", "c"])
    report, named = (
        linear_probe(train, val, test, strengths=[1.0]),
        linear_probe(
            *((torch.from_numpy(np.c_[x, np.full(len(x), 7.0)]), names[y]) for x, y in (train, val, test)),
            strengths=[1.0],
        ),
    )
    assert named["labels"].tolist() == ["a", "b", "c"] and named["top1"] == report["top1"]
    assert (named["confusion"] == report["confusion"][np.ix_([1, 0, 2], [1, 0, 2])]).all()


def test_linear_probe_separates_what_is_separable_and_overfits_noise():
    train, val, test = clusters(4, spread=0.01)
    assert linear_probe(train, val, test)["top1"] == 1
    rng = np.random.default_rng(0)
    noise = [(rng.standard_normal((60, 80)), rng.integers(0, 3, 60)) for _ in range(3)]
    report = linear_probe(*noise, strengths=[100.0])
    assert report["train_accuracy"] == 1 and report["top1"] < 0.55


def test_absent_in_val_or_test_is_fine_absent_in_training_is_not():
    train, val, test = clusters(5)
    keep = test[1] != 2
    report = linear_probe(train, val, (test[0][keep], test[1][keep]), strengths=[1.0])
    assert report["classes"] == 3 and report["confusion"][2].sum() == 0


E, Y = np.eye(3), np.array([0, 1, 0])


@pytest.mark.parametrize(
    "train, val, test, message",
    [
        ((E, Y), (E, Y), (E, Y + 1), r"test holds labels \[2\] that do not occur in training"),
        ((E, Y), (E, Y * 5), (E, Y), r"val holds labels \[5\]"),
        ((E, Y * 0), (E, Y * 0), (E, Y * 0), "at least two classes"),
        (
            (E, Y[:2]),
            (E, Y),
            (E, Y),
            "train: features and labels must have as many rows; got 3 and 2",
        ),
        ((E, Y), (E[:, :2], Y), (E, Y), "same number of dimensions"),
        (
            (E, Y),
            (E, Y),
            (E * np.nan, Y),
            r"test: features must be finite; rows \[0, 1, 2\]",
        ),
        ((E, Y), (E, Y), (E[0], Y), "test: features must have the shape"),
        ((E, Y), (E[:0], Y[:0]), (E, Y), "val: features must have the shape .N>0"),
        ((E, np.eye(3) > 0), (E, Y), (E, Y), "multilabel_probe"),
        (E, (E, Y), (E, Y), "pair"),
    ],
)
def test_bad_linear_probes(train, val, test, message):
    with pytest.raises(ValueError, match=message):
        linear_probe(train, val, test, strengths=[1.0])


def test_a_fit_that_does_not_converge_is_an_error_or_left_out():
    train, val, test = clusters(6)
    with pytest.raises(ValueError, match="no fit converged in 1 iterations"):
        linear_probe(train, val, test, max_iter=1)
    few = linear_probe(*clusters(6), max_iter=8)
    assert np.isnan(few["path"][1.0]) and np.isfinite(few["path"][few["C"]])


def test_controls():
    train, val, test = clusters(7, n=150)
    controls = probe_controls(train, val, test, seed=1)
    assert (
        controls["majority"] == np.mean(test[1] == 0)
        and controls["random_labels"] < 0.5 < linear_probe(train, val, test)["top1"]
    )
    assert controls == probe_controls(train, val, test, seed=1)


def test_pixel_and_word_features():
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    x = pixel_features(images, 2)
    assert x.shape == (3, 12) and x[1, 3:6] == pytest.approx(
        images[1, :2, 2:].reshape(4, 3).mean(0) / 255, abs=1e-6
    )
    clear = np.concatenate([images, np.zeros((3, 4, 4, 1), np.uint8)], -1)
    assert (pixel_features(clear, 4) == 1).all() and (pixel_features(torch.from_numpy(images), 2) == x).all()
    with pytest.raises(ValueError, match="side that 3 divides"):
        pixel_features(images, 3)
    a, b = word_features(["red cat", "cat"], ["dog", "red red"])
    assert a.tolist() == [[1, 1], [1, 0]] and b.tolist() == [[0, 0], [0, 1]]
    with pytest.raises(ValueError, match=r"entries \[1\]"):
        word_features(["a", None])


def test_multilabel_probe_equals_one_probe_for_each_label():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    planes = rng.standard_normal((5, 3))
    parts = [
        (x, x @ planes + 0.5 * rng.standard_normal((80, 3)) > 0.4) for x in rng.standard_normal((3, 80, 5))
    ]
    report = multilabel_probe(*parts, strengths=[0.1, 1.0])
    mean, sd = parts[0][0].mean(0), parts[0][0].std(0)
    (x, y), (xv, yv), (xt, yt) = (((x - mean) / sd, y) for x, y in parts)
    want = [
        metrics.average_precision_score(
            yt[:, j],
            LogisticRegression(C=report["C"], max_iter=500)
            .fit(np.r_[x, xv], np.r_[y, yv][:, j])
            .decision_function(xt),
        )
        for j in range(3)
    ]
    assert report["average_precision"] == pytest.approx(want, abs=1e-6) and report[
        "mean_average_precision"
    ] == pytest.approx(np.mean(want), abs=1e-6)
    assert (
        report["chance"] == pytest.approx(yt.mean()) and report["mean_average_precision"] > report["chance"]
    )
    absent = multilabel_probe(
        parts[0], parts[1], (parts[2][0], parts[2][1] & [True, True, False]), strengths=[1.0]
    )
    assert np.isnan(absent["average_precision"][2]) and np.isfinite(absent["mean_average_precision"])
    with pytest.raises(ValueError, match=r"labels \[1\] do not"):
        multilabel_probe((x, y & [True, False, True]), (xv, yv), (xt, yt))
    with pytest.raises(ValueError, match="must be boolean"):
        multilabel_probe((x, y[:, 0]), (xv, yv), (xt, yt))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_equals_cpu():
    x, w = torch.randn(40, 6), torch.randn(4, 6)
    groups = torch.arange(4)
    assert class_embeddings(w.cuda(), groups.cuda()).is_cuda
    assert (
        zero_shot(x.cuda(), class_embeddings(w.cuda(), groups.cuda()), groups.repeat(10).cuda())["confusion"]
        == zero_shot(x, class_embeddings(w, groups), groups.repeat(10))["confusion"]
    ).all()
