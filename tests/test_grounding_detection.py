"Boxes, scenes, costs, matchers and the training of a small detector against loops and libraries."

import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import linear_sum_assignment

from brace_nb.grounding import (
    DETECTION_MATCHERS,
    SetPredictor,
    average_precision,
    box_overlap,
    detect,
    detection_costs,
    detection_losses,
    detection_scores,
    detector_study,
    generalized_overlap,
    match_detections,
    objects_of,
    own_costs,
    render_object_scenes,
    to_centers,
    to_corners,
    train_detector,
    weighted_loss,
)

quick = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 10**6)


def torchvision_can_load():
    "Skip where it is not installed; beside a CPU build of torch its operators must be declared first."
    if find_spec("open_clip") is None:
        pytest.skip("needs open_clip and torchvision")
    from brace_nb.foundations import import_open_clip

    import_open_clip()


def some_boxes(seed, *shape):
    g = torch.Generator().manual_seed(seed)
    low = torch.rand(*shape, 2, generator=g, dtype=torch.float64)
    return torch.cat([low, low + torch.rand(*shape, 2, generator=g, dtype=torch.float64)], -1)


def squares(count=4, side=32):
    rgba = np.zeros((count, side, side, 4), np.uint8)
    rgba[..., 3] = 255
    rgba[..., 0] = np.linspace(50, 250, count)[:, None, None]
    return rgba


def overlaps_by_hand(a, b):
    "Overlap and generalized overlap of two boxes in plain arithmetic."
    wide = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    high = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - wide * high
    frame = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return wide * high / union, wide * high / union - (frame - union) / frame


@quick
@given(seeds)
def test_overlaps_are_those_by_hand(seed):
    a, b = some_boxes(seed, 5, 1), some_boxes(seed + 1, 4)
    iou, giou = box_overlap(a, b), generalized_overlap(a, b)
    for i in range(5):
        for j in range(4):
            wanted = overlaps_by_hand(a[i, 0].tolist(), b[j].tolist())
            assert (float(iou[i, j]), float(giou[i, j])) == pytest.approx(wanted)
    assert torch.allclose(to_corners(to_centers(a)), a)
    assert ((giou <= iou + 1e-12) & (giou >= -1)).all()


def test_overlaps_are_those_of_torchvision():
    torchvision_can_load()
    from torchvision.ops import box_iou, generalized_box_iou

    a, b = some_boxes(0, 30), some_boxes(1, 20)
    assert torch.allclose(box_overlap(a[:, None], b), box_iou(a, b))
    assert torch.allclose(generalized_overlap(a[:, None], b), generalized_box_iou(a, b))


def test_a_box_without_area_has_no_overlap_and_a_finite_gradient():
    point = torch.zeros(4, requires_grad=True)
    value = generalized_overlap(point, torch.zeros(4)) + box_overlap(point, torch.ones(4))
    value.sum().backward()
    assert float(value.detach()) == 0 and point.grad.isfinite().all()


def precision_by_loops(likely, boxes, classes, truth, threshold):
    "COCO's average precision in plain loops."
    found = []
    for kind in sorted({int(k) for k in classes.flatten() if k >= 0}):
        answers = [
            (-float(likely[n, q, kind]), n * likely.shape[1] + q, n, q)
            for n in range(len(likely))
            for q in range(likely.shape[1])
        ]
        taken, right = set(), []
        for _, _, n, q in sorted(answers):
            best, at = -1.0, None
            for k in range(classes.shape[1]):
                if classes[n, k] == kind and (n, k) not in taken:
                    overlap = float(box_overlap(boxes[n, q], truth[n, k]))
                    best, at = (overlap, k) if overlap > best else (best, at)
            right.append(best >= threshold)
            if right[-1]:
                taken.add((n, at))
        objects, points = int((classes == kind).sum()), []
        for r in range(101):
            reached = [
                sum(right[: i + 1]) / (i + 1)
                for i in range(len(right))
                if sum(right[: i + 1]) * 100 >= r * objects
            ]
            points.append(max(reached, default=0.0))
        found.append(np.mean(points))
    return np.mean(found)


@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from([0.1, 0.3, 0.5]))
def test_average_precision_is_that_of_loops(seed, threshold):
    g = torch.Generator().manual_seed(seed)
    classes = torch.randint(-1, 2, (4, 3), generator=g)
    truth, boxes = some_boxes(seed, 4, 3), some_boxes(seed + 7, 4, 5)
    boxes[:, :2] = truth[:, :2] + 0.05
    likely = torch.rand(4, 5, 2, generator=g)
    got = average_precision(likely, boxes, classes, truth, (threshold,))
    if (classes < 0).all():
        assert np.isnan(got).all()
    else:
        assert got[0] == pytest.approx(precision_by_loops(likely, boxes, classes, truth, threshold))


def test_scenes_hold_what_they_say():
    s = render_object_scenes(squares(), 20, seed=3, objects=(1, 1), sides=(10, 20))
    for image, box, kind in zip(s.images, s.boxes, s.classes):
        left, top, right, bottom = (64 * box[0]).long().tolist()
        inside = image[:, top:bottom, left:right]
        red = round(float(np.linspace(50, 250, 4)[kind[0]]))
        assert (inside[0].int() - red).abs().max() <= 1 and inside[1:].max() == 0
        outside = image.clone().float()
        outside[:, top:bottom, left:right] = float("nan")
        rest = outside.flatten(1)[:, ~outside[0].flatten().isnan()]
        assert (rest == rest[:, :1]).all() and 10 <= right - left <= 20
    again, other = (render_object_scenes(squares(), 20, seed=i) for i in (3, 4))
    assert not torch.equal(again.images, other.images) and (again.counts <= 3).all()
    assert (again.boxes[again.classes < 0] == 0).all() and (
        again.boxes[again.classes >= 0].diff(dim=-1).abs().sum(-1) > 0
    ).all()
    assert len(render_object_scenes(squares(), 0)) == 0
    for bad in (dict(objects=(3, 2)), dict(sides=(5, 90)), dict(sides=(9, 5))):
        with pytest.raises(ValueError, match="least and most"):
            render_object_scenes(squares(), 2, **bad)


@quick
@given(seeds)
def test_costs_and_losses_are_those_of_loops(seed):
    g = torch.Generator().manual_seed(seed)
    logits, boxes = torch.randn(3, 6, 5, generator=g, dtype=torch.float64), to_centers(some_boxes(seed, 3, 6))
    sizes, kinds, truth = [2, 0, 1], torch.randint(0, 4, (3,), generator=g), some_boxes(seed + 1, 3)
    cost, likely = detection_costs(logits, boxes, kinds, truth), logits.softmax(-1)
    for b in range(3):
        for q in range(6):
            for a in range(3):
                far = (boxes[b, q] - to_centers(truth[a])).abs().sum()
                over = overlaps_by_hand(to_corners(boxes[b, q]).tolist(), truth[a].tolist())[1]
                assert float(cost[b, q, a]) == pytest.approx(
                    float(5 * far - likely[b, q, kinds[a]] - 2 * over)
                )
    pairs = match_detections(cost, sizes)
    assert pairs[0][0].tolist() == linear_sum_assignment(cost[0, :, :2])[0].tolist() and len(pairs[1][0]) == 0
    losses = detection_losses(logits, boxes, kinds, truth, pairs, sizes)
    wanted, weights, far, over = 0.0, 0.0, 0.0, 0.0
    starts = [0, 2, 2]
    for b in range(3):
        own = {int(q): starts[b] + int(a) for q, a in zip(*pairs[b])}
        for q in range(6):
            target, weight = (int(kinds[own[q]]), 1.0) if q in own else (4, 0.1)
            wanted -= weight * float(logits[b, q].log_softmax(-1)[target])
            weights += weight
            if q in own:
                far += float((boxes[b, q] - to_centers(truth[own[q]])).abs().sum()) / 3
                over += (
                    1 - overlaps_by_hand(to_corners(boxes[b, q]).tolist(), truth[own[q]].tolist())[1]
                ) / 3
    assert [float(losses[k]) for k in ("kind", "distance", "overlap")] == pytest.approx(
        [wanted / weights, far, over]
    )
    assert float(weighted_loss(losses)) == pytest.approx(wanted / weights + 5 * far + 2 * over)


def test_costs_are_those_of_the_packaged_matcher():
    torchvision_can_load()
    loss = pytest.importorskip("transformers.loss.loss_for_object_detection")
    g = torch.Generator().manual_seed(0)
    logits, boxes = torch.randn(2, 10, 5, generator=g), torch.rand(2, 10, 4, generator=g)
    kinds, truth, sizes = torch.tensor([0, 3, 1]), some_boxes(5, 3).float(), [1, 2]
    targets = [
        dict(class_labels=k, boxes=to_centers(t)) for k, t in zip(kinds.split(sizes), truth.split(sizes))
    ]
    matcher = loss.HungarianMatcher(class_cost=1, bbox_cost=5, giou_cost=2)
    theirs = matcher(dict(logits=logits, pred_boxes=boxes), targets)
    ours = match_detections(detection_costs(logits, boxes, kinds, truth), sizes)
    assert [[x.tolist() for x in p] for p in ours] == [[x.tolist() for x in p] for p in theirs]


@pytest.mark.parametrize("matcher", DETECTION_MATCHERS)
@pytest.mark.parametrize("mask", ["image", "batch"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "e4m3", "e5m2"])
def test_every_matcher_gives_every_object_an_answer(matcher, mask, dtype):
    g, sizes = torch.Generator().manual_seed(0), [3, 0, 1, 2, 3]
    cost = 5.5 + 2.5 * torch.randn(5, 8, 9, generator=g)
    pairs = match_detections(cost, sizes, matcher, dtype, mask, seed=1)
    valid = matcher not in ("argmin", "resampled")
    for (q, a), n in zip(pairs, sizes):
        assert sorted(a.tolist()) == list(range(n)) and (q >= 0).all() and (q < 8).all()
        assert not valid or len(set(q.tolist())) == n
    if mask == "batch" and valid and matcher != "random":  # 3 + 0 + 1 + 2 fit 8 queries, 3 more do not
        used = [q.tolist() for q, _ in pairs[:4]]
        assert len(set(sum(used, []))) == 6
    again = match_detections(cost, sizes, matcher, dtype, mask, seed=1)
    assert all(torch.equal(p[0], r[0]) for p, r in zip(pairs, again))


def test_resampled_without_rounding_is_argmin_and_noise_needs_a_seed():
    cost, sizes = (
        5.5 + 2.5 * torch.randn(20, 10, 60, generator=torch.Generator().manual_seed(0)).double(),
        [3] * 20,
    )
    a, b = (match_detections(cost, sizes, m) for m in ("argmin", "resampled"))
    assert all(torch.equal(p[0], r[0]) for p, r in zip(a, b))
    draws = [match_detections(cost, sizes, "random", seed=s) for s in (0, 0, 1)]
    assert all(torch.equal(p[0], r[0]) for p, r in zip(*draws[:2]))
    assert any(not torch.equal(p[0], r[0]) for p, r in zip(*draws[1:]))
    for bad in (dict(matcher="hungarian"), dict(dtype="int8"), dict(mask="all")):
        with pytest.raises(ValueError, match="must be one of"):
            match_detections(cost, sizes, **bad)


def test_the_network_answers_every_picture_alone():
    model = SetPredictor(3, queries=7, seed=1)
    x = torch.randint(0, 256, (4, 3, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    logits, boxes = model(x)
    assert logits.shape == (4, 7, 4) and ((boxes > 0) & (boxes < 1)).all()
    assert torch.allclose(model(x[2:3])[0], logits[2:3], atol=1e-5)
    assert torch.equal(SetPredictor(3, queries=7, seed=1)(x)[0], logits)
    with pytest.raises(ValueError, match="must be 64 x 64, 8 times `grid`; got 32 x 32"):
        model(x[:, :, :32, :32])


def test_a_training_repeats_learns_and_keeps():
    train, few = (render_object_scenes(squares(), n, seed=i) for i, n in enumerate((80, 6)))
    how = dict(steps=40, batch_size=8, watch=few, keep=2)
    a, b, c = (train_detector(train, 4, seed=s, **how) for s in (0, 0, 1))
    assert np.array_equal(a.losses["total"], b.losses["total"])
    assert not np.array_equal(a.losses["total"], c.losses["total"])
    assert a.losses["total"][-8:].mean() < a.losses["total"][:8].mean()
    assert list(a.kept) == [0, 20, 40] and a.kept[0].boxes.shape == (6, 20, 4)
    final = detect(a.model, few.images)
    assert torch.allclose(final.logits, a.kept[40].logits)
    parts = sum(w * a.losses[k] for k, w in (("kind", 1), ("distance", 5), ("overlap", 2)))
    assert np.allclose(parts, a.losses["total"], rtol=1e-5)
    product = train_detector(train, 4, product=True, **how)
    assert math.isclose(product.losses["kind"][0], a.losses["kind"][0], rel_tol=1e-5)
    rest = a.losses["total"][0] - a.losses["kind"][0]
    assert math.isclose(product.losses["total"][0], a.losses["kind"][0] * rest, rel_tol=1e-5)


def test_scenes_of_another_side_train():
    scenes = render_object_scenes(squares(), 8, seed=0, side=32)
    run = train_detector(scenes, 4, steps=2, batch_size=4)
    assert run.model.token_place.shape[0] == 16 and np.isfinite(run.losses["total"]).all()
    assert detect(run.model, scenes.images).logits.shape == (8, 20, 5)


def test_perfect_answers_score_one():
    scenes = render_object_scenes(squares(), 10, seed=0)
    model = SetPredictor(4)
    answers = detect(model, scenes.images)
    for i in range(10):
        n = int(scenes.counts[i])
        answers.logits[i, :] = torch.tensor([0.0, 0, 0, 0, 20])
        answers.logits[i, torch.arange(n), scenes.classes[i, :n]] = 50.0
        answers.boxes[i, :n] = to_centers(scenes.boxes[i, :n])
    assert detection_scores(answers, scenes) == dict(ap50=1.0, ap=1.0, class_error=0.0)
    for cost, n in zip(own_costs(answers, scenes), scenes.counts.tolist()):
        assert cost.shape == (20, n) and torch.allclose(
            cost[range(n), range(n)], torch.tensor(-3.0), atol=1e-5
        )
    kinds, boxes, sizes = objects_of(scenes, torch.tensor([3, 0]))
    assert sizes == scenes.counts[[3, 0]].tolist() and len(kinds) == len(boxes) == sum(sizes)


def test_a_study_has_a_row_a_run():
    train, few = (render_object_scenes(squares(), n, seed=i) for i, n in enumerate((30, 5)))
    runs = [dict(matcher="exact"), dict(matcher="lead", dtype="e4m3"), dict(matcher="exact", mask="batch")]
    study = detector_study(train, few, few, runs, [0, 1], 4, steps=3, batch_size=6, keep=1)
    assert [(r["matcher"], r["seed"]) for r in study.rows] == [
        (r["matcher"], s) for r in runs for s in (0, 1)
    ] and study.steps == [0, 3]
    assert study.curves.shape == (6, 4, 3) and study.logits.shape == (6, 2, 5, 20, 5)
    assert np.allclose(study.boxes[0, 0], study.boxes[2, 0])  # one seed starts alike, whatever the matcher
