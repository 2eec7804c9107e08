"Losses against plain float64 loops over the cube; streaming against the whole cube; gradients, bad input."

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.as_printed.ndim import james_stein
from brace_nb.companion import PALETTE, style
from brace_nb.foundations import clip_loss
from brace_nb.grounding import (
    AlignedTuples,
    default_encoders,
    train_encoders,
    train_noisy_side_by_side,
    train_together,
)
from brace_nb.ndim import (
    KINDS,
    MEASURES,
    CubeScores,
    LossKind,
    cube,
    cube_blocks,
    cube_loss,
    exact_inputs,
    gradient_cells,
    partitions,
    project,
    region_of,
    region_sizes,
)
from brace_nb.ndim import losses


def batches(n, b=3, features=6, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(b, features, generator=g, dtype=dtype) for _ in range(n)]


# ---------------------------------------------------------------- oracle: loops over a finished cube


def log_sum(values):
    return math.log(sum(math.exp(v) for v in values)) if values else -math.inf


def entropy(logits, target, smoothing):
    "Dicts by cell: logits of the kept cells, target probabilities."
    lse = log_sum(list(logits.values()))
    return -sum(
        ((1 - smoothing) * target.get(c, 0) + smoothing / len(logits)) * (v - lse) for c, v in logits.items()
    )


def softmax(logits):
    lse = log_sum(list(logits.values()))
    return {c: math.exp(v - lse) for c, v in logits.items()}


def oracle(C, kind, scale, bias=0.0, weight=None, smoothing=0.0, labels=None):
    n, B = C.ndim, len(C)
    cells = list(itertools.product(range(B), repeat=n))
    w = {c: 1.0 if weight is None else weight.get(region_of(c), 0.0) for c in cells}
    if kind == "sigmoid":
        low, high = (labels.min().item(), labels.max().item()) if labels is not None else (0, 1)
        total = 0.0
        for c in cells:
            y = float(len(set(c)) == 1) if labels is None else (labels[c].item() - low) / (high - low)
            y, v = y * (1 - smoothing) + smoothing / 2, scale * C[c].item() + bias
            total -= w[c] * (y * math.log(1 / (1 + math.exp(-v))) + (1 - y) * math.log(1 / (1 + math.exp(v))))
        return total / B

    def logit(A):
        return {c: scale * A[c].item() + math.log(w[c]) for c in cells if w[c] > 0}

    mine, theirs = logit(C), None if labels is None else logit(labels)
    groups = {}
    for t in range(n):
        for c in mine:
            groups.setdefault((t, c[t] if kind == "slice" else c[:t] + c[t + 1 :]), []).append(c)
    if kind == "axis" and labels is None:
        groups = {k: v for k, v in groups.items() if len(set(k[1])) == 1}
    per_axis = {}
    for (t, _), group in groups.items():
        target = (
            {c: 1.0 for c in group if len(set(c)) == 1}
            if labels is None
            else softmax({c: theirs[c] for c in group})
        )
        per_axis.setdefault(t, []).append(entropy({c: mine[c] for c in group}, target, smoothing))
    return sum(sum(v) / len(v) for v in per_axis.values()) / n


def density(n, B):
    return {p: 1 / s for p, s in region_sizes(n, B).items()}


OPTIONS = [
    {},
    dict(label_smoothing=0.1),
    dict(labels="exact"),
    dict(labels="exact", label_smoothing=0.2),
    dict(weights="density"),
    dict(weights={"first": 2.0}),
    dict(regions="some"),
    dict(regions="some", labels="exact", label_smoothing=0.1),
]


def expand(options, n):
    out = dict(options)
    if isinstance(out.get("weights"), dict):
        out["weights"] = {partitions(n)[1]: 2.0}
    if out.get("regions"):
        out["regions"] = partitions(n)[:-1] if n > 2 else partitions(n)
    return out


def by_loops(
    xs,
    kind,
    scale,
    measure="pairwise",
    bias=0.0,
    label_smoothing=0.0,
    labels=None,
    weights=None,
    regions=None,
):
    n, B = len(xs), len(xs[0])
    weight = (
        density(n, B) if weights == "density" else {p: (weights or {}).get(p, 1.0) for p in partitions(n)}
    )
    if regions is not None:
        weight = {p: v for p, v in weight.items() if p in regions}
    return oracle(
        cube(xs, measure),
        kind,
        scale,
        bias,
        weight,
        label_smoothing,
        None if labels is None else cube([exact_inputs(B, xs[0].shape[1])] * n, measure),
    )


@pytest.mark.parametrize("kind", ("axis", "slice", "sigmoid"))
@pytest.mark.parametrize("n", range(2, 7))
def test_against_loops(n, kind):
    xs = batches(n, 3 if n < 6 else 2, seed=n)
    for measure in ("pairwise", "leave_one_out", "einsum", "delta_h"):
        for options in OPTIONS if measure == "pairwise" else OPTIONS[:3]:
            options = expand(options, n) | (dict(bias=-1.0) if kind == "sigmoid" else {})
            want = by_loops(xs, kind, 3.0, measure, **options)
            for streaming in (False, True):
                assert cube_loss(
                    xs, measure, kind, 3.0, streaming=streaming, entries=20, **options
                ).item() == pytest.approx(want, rel=1e-10), (measure, options, streaming)


def test_pairs():
    xs = batches(4, 5)
    unit = [x / x.norm(dim=-1, keepdim=True) for x in xs]
    want = sum(clip_loss(x, y, 7.0) for x, y in itertools.combinations(unit, 2)) / 6
    torch.testing.assert_close(cube_loss(xs, kind="pairs", scale=7.0), want)
    want = (
        sum(
            oracle(cube([x, y], "sum_norm"), "slice", 2.0, smoothing=0.1)
            for x, y in itertools.combinations(xs, 2)
        )
        / 6
    )
    assert cube_loss(xs, "sum_norm", "pairs", 2.0, label_smoothing=0.1).item() == pytest.approx(want)
    exact = cube([exact_inputs(5, 6)] * 2)
    want = sum(oracle(cube([x, y]), "slice", 2.0, labels=exact) for x, y in itertools.combinations(xs, 2)) / 6
    assert cube_loss(xs, kind="pairs", scale=2.0, labels="exact").item() == pytest.approx(want)


def test_lines_and_pairs_of_every_measure():
    "The batched forms of `axis` and `pairs` against the cube, measure by measure."
    for measure, m in MEASURES.items():
        xs = batches(3, 4)
        for shrink, scale in (
            ((None, 2.0), (james_stein, 1e-3), ("positive", 2.0)) if m.family == "norm" else ((None, 2.0),)
        ):
            C = cube(xs, measure, shrink=shrink)
            assert cube_loss(xs, measure, "axis", scale, shrink=shrink).item() == pytest.approx(
                oracle(C, "axis", scale), rel=1e-9
            )
            if m.only is None:
                want = (
                    sum(
                        oracle(cube([x, y], measure, shrink=shrink), "slice", scale)
                        for x, y in itertools.combinations(xs, 2)
                    )
                    / 3
                )
                assert cube_loss(xs, measure, "pairs", scale, shrink=shrink).item() == pytest.approx(
                    want, rel=1e-9
                )


def test_two_modalities_are_clip():
    xs = batches(2, 6)
    found = [cube_loss(xs, kind=k, scale=9.0).item() for k in ("pairs", "axis", "slice")]
    assert found == pytest.approx([found[0]] * 3)


# ---------------------------------------------------------------- streaming and gradients


def value_and_grads(xs, extra=(), **options):
    xs = [x.detach().clone().requires_grad_() for x in xs]
    extra = {k: v.detach().clone().requires_grad_() for k, v in dict(extra).items()}
    loss = cube_loss(xs, **options, **extra)
    used = xs + list(extra.values())
    return [
        loss.detach(),
        *[
            torch.zeros_like(t) if g is None else g
            for t, g in zip(used, torch.autograd.grad(loss, used, allow_unused=True))
        ],
    ]


@pytest.mark.parametrize("kind", ("axis", "slice", "sigmoid"))
@pytest.mark.parametrize("n", range(2, 7))
def test_streaming_equals_the_whole_cube(n, kind):
    xs = batches(n, 3 if n < 6 else 2, seed=n)
    for options in OPTIONS:
        if kind == "axis" and "labels" not in options:
            continue
        options = expand(options, n)
        extra = dict(
            scale=torch.tensor(4.0, dtype=torch.float64), bias=torch.tensor(-0.5, dtype=torch.float64)
        )
        if "weights" not in options:
            extra["weights"] = torch.linspace(0.5, 1.5, len(partitions(n)), dtype=torch.float64)
        for more in (extra, {k: v for k, v in extra.items() if k != "weights"}):
            whole = value_and_grads(xs, more, kind=kind, streaming=False, **options)
            for entries in (1, 10, 10**6):
                if entries == 1 and n > 3:
                    continue
                for a, b in zip(
                    whole, value_and_grads(xs, more, kind=kind, streaming=True, entries=entries, **options)
                ):
                    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_streams(measure):
    n = 3
    xs = batches(n, 4)
    for kind in ("slice", "sigmoid"):
        for a, b in zip(
            value_and_grads(xs, measure=measure, kind=kind, scale=3.0, streaming=False),
            value_and_grads(xs, measure=measure, kind=kind, scale=3.0, streaming=True, entries=9),
        ):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scale", (1.0, 30.0, 100.0, 3000.0))
def test_streaming_in_float32_and_far_apart(scale):
    "Also where no common reference holds all exponentials."
    xs = batches(4, 5, 8, dtype=torch.float32)
    spread = [x.clone() for x in xs]
    for x in spread:
        x[1:] = x[1:] * 0.05 + x[0] * torch.linspace(-1, 1, 4)[:, None].sign()
    for ys in (xs, spread):
        for a, b in zip(
            value_and_grads(ys, kind="slice", scale=scale, streaming=False),
            value_and_grads(ys, kind="slice", scale=scale, streaming=True, entries=30),
        ):
            torch.testing.assert_close(a / scale, b / scale, rtol=1e-5, atol=1e-5)
    wide, masked = (
        value_and_grads(spread, kind="slice", scale=scale, streaming=s, entries=30, regions=[(4,), (2, 2)])
        for s in (False, True)
    )
    for a, b in zip(wide, masked):
        torch.testing.assert_close(a / scale, b / scale, rtol=1e-5, atol=1e-5)


def hold_any(monkeypatch):
    "Products of any size are held, in blocks of about `entries` cells."
    monkeypatch.setattr(losses, "can_hold", lambda problem, w: problem.scores.measure.family == "product")


@pytest.mark.parametrize("n", range(2, 7))
@pytest.mark.parametrize("normalize", (True, False))
def test_a_held_product_equals_the_whole_cube(n, normalize, monkeypatch):
    hold_any(monkeypatch)
    for b, entries in ((1, 1), (2, 1), (3, 7), (4, 10**6)):
        xs = batches(n, b, seed=n)
        options = dict(measure="einsum", extra=dict(scale=torch.tensor(4.0, dtype=torch.float64)))
        whole = value_and_grads(xs, streaming=False, normalize=normalize, **options)
        held = value_and_grads(xs, streaming="auto", normalize=normalize, entries=entries, **options)
        for a, c in zip(whole, held):
            torch.testing.assert_close(a, c, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("scale", (1.0, 30.0, 1000.0, 30000.0))
def test_held_products_far_apart(scale, dtype, monkeypatch):
    "Also where no reference holds all exponentials, and two walks take over."
    hold_any(monkeypatch)
    xs = batches(3, 30, 4, dtype=dtype)
    for x in xs:
        x[20:] = torch.eye(4, dtype=dtype)[torch.arange(10) % 4] + 0.01 * x[20:]
    wanted = value_and_grads([x.double() for x in xs], measure="symile", scale=scale, streaming=False)
    for a, b in zip(wanted, value_and_grads(xs, measure="symile", scale=scale, entries=900)):
        torch.testing.assert_close(a / scale, b.double() / scale, rtol=1e-4, atol=1e-5)


def test_some_leaves_of_a_held_product(monkeypatch):
    hold_any(monkeypatch)
    xs, scale = batches(3, 30), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    cube_loss(xs, "einsum", scale=scale).backward()
    alone = scale.grad.clone()
    xs[1].requires_grad_()
    cube_loss(xs, "einsum", scale=scale).backward()
    torch.testing.assert_close(scale.grad, 2 * alone)
    assert xs[1].grad.abs().sum() > 0 and not cube_loss(batches(3, 30), "einsum").requires_grad
    for leaf in (scale, xs[1]):
        leaf.grad = None
    cube_loss(xs, "einsum", scale=scale, streaming=False).backward()
    torch.testing.assert_close(scale.grad, alone)


def test_products_are_held_where_they_fit_and_walked_where_they_do_not(monkeypatch):
    xs, asked = batches(3, 51, 4, dtype=torch.float32), []

    def fits(self, part=1.0):
        asked.append(part)
        return len(asked) == 1

    monkeypatch.setattr(CubeScores, "fits", fits)
    found = [value_and_grads(xs, measure="einsum", scale=5.0) for _ in range(2)]
    assert asked == [1 / 4] * 2
    found += [value_and_grads(xs, measure="einsum", scale=5.0, streaming=s) for s in (True, False)]
    for options in (dict(label_smoothing=0.1), dict(regions=[(3,), (1, 1, 1)]), dict(measure="pairwise")):
        cube_loss(xs, **(dict(measure="einsum") | options))
    assert len(asked) == 2
    for a, b, c, d in zip(*found):
        for other in (b, c, d):
            torch.testing.assert_close(a, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("streaming", (True, False))
def test_gradcheck(kind, streaming):
    xs = [x.requires_grad_() for x in batches(3, 2, 4)]
    scale, bias, w = (
        torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (3.0, -0.5, [1.0, 2.0, 0.5])
    )
    for options in (
        ({}, dict(label_smoothing=0.1), dict(weights=w))
        if KINDS[kind].cube
        else ({}, dict(label_smoothing=0.1))
    ):
        assert torch.autograd.gradcheck(
            lambda s, b, v, *ys: cube_loss(
                ys,
                kind=kind,
                scale=s,
                bias=b,
                streaming=streaming,
                entries=3,
                **(options | (dict(weights=v) if "weights" in options else {})),
            ),
            [scale, bias, w, *xs],
            fast_mode=True,
        )
    for measure in (
        ("sst_root", "leave_one_out", "l2norm", "einsum", "pmrl") if kind != "pairs" else ("sum_norm",)
    ):
        assert torch.autograd.gradcheck(
            lambda *ys: cube_loss(ys, measure, kind, 2.0, streaming=streaming, entries=3),
            xs,
            rtol=1e-3,
            atol=1e-6,
            fast_mode=True,
        )


@pytest.mark.parametrize("shrink", (james_stein, "positive"))
def test_james_stein_streams(shrink):
    xs = batches(3, 3, 5)
    for kind in ("axis", "slice"):
        want = oracle(cube(xs, "mean_norm", shrink=shrink), kind, 0.5)
        for streaming in (False, True):
            assert cube_loss(
                xs, "mean_norm", kind, 0.5, shrink=shrink, streaming=streaming, entries=5
            ).item() == pytest.approx(want, rel=1e-9)


def by_cube(xs, scale, measure, shrink=None):
    "The slice loss of a finished cube, in float64."
    C = scale * cube([x.double() for x in xs], measure, shrink=shrink)
    anchors = C[(torch.arange(len(C)),) * C.ndim]
    return sum((C.movedim(t, 0).flatten(1).logsumexp(1) - anchors).mean() for t in range(C.ndim)) / C.ndim


@pytest.mark.parametrize("shrink", (None, "positive"))
@pytest.mark.parametrize("measure", ("pairwise", "sst", "sst_root", "sst_feature", "mean_norm"))
def test_one_walk_over_several_blocks(measure, shrink):
    "Functions of |s|: value and gradients from a single visit; thin, thick and ragged blocks."
    for n, b in ((3, 7), (4, 5), (6, 3)):
        xs = [x.requires_grad_() for x in batches(n, b, 8, seed=n)]
        scale = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
        want = by_cube(xs, scale, measure, shrink)
        grads = torch.autograd.grad(want, [*xs, scale])
        for entries in (1, b, 3 * b, 2 * b**2) if n == 3 else (2 * b**2,):
            loss = cube_loss(xs, measure, scale=scale, shrink=shrink, streaming=True, entries=entries)
            torch.testing.assert_close(loss, want, rtol=1e-10, atol=1e-10)
            for a, g in zip(torch.autograd.grad(loss, [*xs, scale]), grads):
                torch.testing.assert_close(a, g, rtol=1e-9, atol=1e-10)
        values = [x.detach() for x in xs]
        assert cube_loss(values, measure, scale=3.0, shrink=shrink, streaming=True, entries=b).item() == (
            pytest.approx(want.item(), rel=1e-10)
        )


def test_one_walk_where_only_some_modalities_learn():
    xs = batches(4, 5, 8)
    xs[1].requires_grad_()
    want = torch.autograd.grad(by_cube(xs, 5.0, "mean_norm"), xs[1])
    loss = cube_loss(xs, "mean_norm", scale=5.0, streaming=True, entries=30)
    torch.testing.assert_close(torch.autograd.grad(loss, xs[1]), want)


@pytest.mark.parametrize("scale", (1.0, 30.0, 100.0, 1000.0, 10000.0))
def test_one_walk_in_float32(scale):
    "Learned batches, where one cell of a slice holds nearly all, and scales no common reference can hold."
    centers = torch.randn(6, 16, generator=torch.Generator().manual_seed(1))
    xs = [(centers + 0.3 * x).requires_grad_() for x in batches(4, 6, 16, dtype=torch.float32)]
    want = by_cube(xs, scale, "mean_norm")
    grads = torch.autograd.grad(want, xs)
    loss = cube_loss(xs, "mean_norm", scale=scale, streaming=True, entries=100)
    assert loss.item() / scale == pytest.approx(want.item() / scale, abs=1e-6)
    for a, g in zip(torch.autograd.grad(loss, xs), grads):
        torch.testing.assert_close(a / scale, g / scale, rtol=1e-4, atol=1e-6)


def test_the_slice_loss_of_many_cells_is_exact():
    "n = 6, B = 12: three million cells in blocks of the default size, float32, against float64 on the cube."
    xs = [x.requires_grad_() for x in batches(6, 12, 32, dtype=torch.float32)]
    want = by_cube(xs, 10.0, "mean_norm")
    grads = torch.autograd.grad(want, xs)
    loss = cube_loss(xs, "mean_norm", scale=10.0)
    assert loss.item() == pytest.approx(want.item(), rel=1e-6)
    for a, g in zip(torch.autograd.grad(loss, xs), grads):
        torch.testing.assert_close(a, g, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------- counts and properties


@pytest.mark.parametrize("n, b", ((2, 4), (3, 4), (4, 3)))
def test_support_of_the_gradient(n, b):
    "Which cells matter: change one cell of the cube at a time."
    C = torch.rand([b] * n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for kind in ("axis", "slice", "sigmoid"):
        base, count = oracle(C, kind, 1.0), 0
        for cell in itertools.product(range(b), repeat=n):
            D = C.clone()
            D[cell] += 0.5
            count += abs(oracle(D, kind, 1.0) - base) > 1e-9
        assert (count, kind) == (gradient_cells(n, b, kind)[0], kind)
    assert (
        gradient_cells(6, 8, "axis") == (344, 7)
        and gradient_cells(6, 8, "slice") == (262144, 32767)
        and gradient_cells(6, 8, "pairs") == (15 * 64, 7)
    )


def properties_of(kind, xs, scale, modalities, items):
    "What holds for every kind of loss."
    loss = cube_loss(xs, kind=kind, scale=scale).item()
    assert loss >= 0
    turned = cube_loss([xs[k][items] for k in modalities], kind=kind, scale=scale).item()
    assert turned == pytest.approx(loss)
    assert cube_loss([x * 2 for x in xs], kind=kind, scale=scale).item() == pytest.approx(loss)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.integers(2, 4), st.integers(0, 10**6), st.floats(0.1, 20))
def test_properties(n, b, seed, scale):
    xs = batches(n, b, 6, seed)
    rng = np.random.default_rng(seed)
    modalities, items = rng.permutation(n), rng.permutation(b)
    for kind in KINDS:
        properties_of(kind, xs, scale, modalities, items)
    chance = [
        cube_loss([torch.ones(b, 3, dtype=torch.float64)] * n, kind=k, scale=scale).item()
        for k in ("pairs", "axis", "slice")
    ]
    assert chance == pytest.approx([math.log(b), math.log(b), (n - 1) * math.log(b)])
    masked = cube_loss(xs, scale=scale, regions=partitions(n)[:-1]).item() if n > 2 else 0
    assert masked <= cube_loss(xs, scale=scale).item() + 1e-12  # fewer negatives


def hinge(batch):
    "Each cell at least a margin below the match that shares its first coordinate."
    C = batch.scores.block()
    match = C[(torch.arange(len(C)),) * C.ndim]
    return (batch.scale * (C - match.view(-1, *[1] * (C.ndim - 1))) + 1).clamp(min=0).mean()


def test_a_kind_of_loss_is_added_in_one_place(monkeypatch):
    "In `cube_loss`, `gradient_cells`, the properties, trainings, and figures."
    kind = LossKind(
        hinge, "max(0, 1 + C - C(i, .., i))", lambda n, B: (B**n, B**n - B), title="hinge", color="sky"
    )
    monkeypatch.setitem(KINDS, "hinge", kind)
    xs = batches(2, 4)
    assert cube_loss(xs, kind="hinge").item() == pytest.approx(hinge_by_hand(xs))
    assert gradient_cells(3, 2, "hinge") == (8, 6) and "hinge" in KINDS
    properties_of("hinge", batches(2, 4), 2.0, [0, 1], [2, 0, 3, 1])
    views = AlignedTuples({f"v{k}": x.float() for k, x in enumerate(batches(3, 8))})
    assert len(train_encoders(views, steps=2, loss="hinge").history) == 2
    (trained,) = train_together([dict(tuples=views, encoders=default_encoders(views), steps=2, loss="hinge")])
    assert len(trained.history) == 2
    assert len(train_noisy_side_by_side([dict(kind="hinge")], [0], 3, steps=1)[0][0]) == 1
    assert style(KINDS["hinge"])["color"] == PALETTE["sky"]


def hinge_by_hand(xs):
    C = cube(xs)
    cells = [max(0.0, 1 + (C[i, j] - C[i, i]).item()) for i in range(len(C)) for j in range(len(C))]
    return sum(cells) / len(cells)


@pytest.mark.parametrize("n", (2, 3))
@pytest.mark.parametrize("kind", KINDS)
def test_many_batches_are_each_as_alone(kind, n):
    "With an axis in front, measure by measure: values and gradients of everything."
    X, scale = torch.stack([torch.stack(batches(n, 4, seed=s)) for s in range(3)]), torch.tensor([1.0, 3, 10])
    regions = torch.linspace(0.5, 1.5, 3 * len(partitions(n))).view(3, -1).double()
    for measure in [m for m in MEASURES if MEASURES[m].only in (None, n)]:
        if not KINDS[kind].cube and measure != "pairwise":
            continue
        leaves = [[t.clone().requires_grad_() for t in (X, scale.double(), regions)] for _ in range(2)]
        learned = [dict(weights=w) if KINDS[kind].cube else {} for *_, w in leaves]
        (x, s, _), (y, r, w) = leaves
        found = cube_loss(list(x.unbind(1)), measure, kind, s, -s, **learned[0])
        each = [learned[1] and dict(weights=v) for v in w]
        want = torch.stack([cube_loss(list(a), measure, kind, b, -b, **o) for a, b, o in zip(y, r, each)])
        torch.testing.assert_close(found, want)
        found.square().sum().backward(), want.square().sum().backward()
        for mine, other in zip(*leaves):
            torch.testing.assert_close(mine.grad, other.grad)


@pytest.mark.parametrize("options", OPTIONS + [dict(shrink="positive", measure="mean_norm")], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_many_batches_take_every_option(kind, options):
    if not KINDS[kind].cube and {"weights", "regions", "measure"} & set(options):
        pytest.skip("belongs to the cube")
    X, how = torch.stack([torch.stack(batches(3, 3, seed=s)) for s in range(2)]), expand(options, 3)
    want = [cube_loss(list(x), kind=kind, scale=4.0, **how) for x in X]
    for streaming in ("auto", True):
        found = cube_loss(list(X.unbind(1)), kind=kind, scale=4.0, streaming=streaming, **how)
        torch.testing.assert_close(found, torch.stack(want))
    assert isinstance(cube_loss([x.numpy() for x in X.unbind(1)]), np.ndarray)


def test_blocks_tile_the_cube():
    for shape in ((3, 3), (4, 4, 4), (2, 2, 2, 2, 2), (7, 7, 7)):
        for entries in (1, 2, 5, 20, 10**6):
            seen = torch.zeros(shape, dtype=torch.int)
            for where in cube_blocks(shape, entries):
                seen[tuple(where)] += 1
            assert (seen == 1).all() and all(
                math.prod(s.stop - s.start for s in w) <= entries for w in cube_blocks(shape, entries)
            )


def test_numpy_auto_and_no_grad():
    xs = batches(3, 4)
    loss = cube_loss([x.numpy() for x in xs], scale=2.0)
    assert isinstance(loss, np.float64) and loss == pytest.approx(cube_loss(xs, scale=2.0).item())
    assert cube_loss(xs, scale=2.0, entries=10).item() == pytest.approx(loss)
    assert (
        not cube_loss(xs, streaming=True).requires_grad
        and cube_loss([x.bfloat16() for x in xs]).dtype == torch.float32
    )
    again = [exact_inputs(3, 4, "normal", seed=s) for s in (0, 0, 1)]
    assert torch.equal(again[0], again[1]) and not torch.equal(again[0], again[2])


def test_memory_of_sixteen_million_cells():
    "n = 6, B = 16, forward and backward, in a process of its own; the interpreter and torch are counted."
    program = """
import torch
from brace_nb.ndim import cube_loss
torch.set_num_threads(1)
xs = [torch.randn(16, 64, generator=torch.Generator().manual_seed(a)).requires_grad_() for a in range(6)]
cube_loss(xs, kind="slice", scale=10.).backward()
print(int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])/2**20)
"""
    assert (
        float(
            subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        )
        < 1
    )


# ---------------------------------------------------------------- projections and bad input


def test_project():
    xs, P = batches(3), torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    assert all(a is b for a, b in zip(project(xs, P), xs))
    inv, iinv = project(xs, P, "inv", single=1), project(xs, P, "iinv", single=1)
    for a in range(3):
        torch.testing.assert_close(inv[a] @ P if a != 1 else inv[a], xs[a])
        torch.testing.assert_close(iinv[a] @ P if a == 1 else iinv[a], xs[a])


X = batches(3)


@pytest.mark.parametrize(
    "call, says",
    [
        (
            lambda: cube_loss(X, kind="lines"),
            "kind must be one of pairs, axis, slice, sigmoid.*; got 'lines'",
        ),
        (lambda: gradient_cells(3, 2, "all"), "kind must be one of"),
        (lambda: cube_loss([X[0], X[1][:2]]), r"same size; got \[3, 2\]"),
        (lambda: cube_loss(X[:1]), "at least two"),
        (lambda: cube_loss(X, "cos"), "measure must be one of"),
        (lambda: cube_loss(X, streaming="never"), "streaming must be 'auto'"),
        (lambda: cube_loss(X, label_smoothing=1.0), r"\[0, 1\)"),
        (lambda: cube_loss(X, labels="soft"), "'exact'"),
        (lambda: cube_loss(X, labels=torch.ones(2, 6)), "one input of 3 rows"),
        (lambda: cube_loss(X, regions=[(2, 1)]), r"must keep \(3,\)"),
        (lambda: cube_loss(X, regions=[(3,), (4, 1)]), r"partitions of 3.*\(4, 1\)"),
        (lambda: cube_loss(X, weights={(5,): 1.0}), "partition of 3"),
        (lambda: cube_loss(X, weights={(3,): 0.0}), "> 0"),
        (lambda: cube_loss(X, weights=torch.ones(2)), "one number per region"),
        (lambda: cube_loss(X, weights="dense"), "'density'"),
        (lambda: cube_loss(X, kind="pairs", weights="density"), "belong to the cube"),
        (lambda: cube_loss([torch.ones(1000, 2)] * 5, streaming=False), r"GiB.*streaming=True"),
        (lambda: exact_inputs(2, 3, "cauchy"), "'uniform' or 'normal'"),
        (lambda: project(X, torch.ones(6, 5)), "6 x 6"),
        (lambda: project(X, torch.eye(6), "inverse"), "'none', 'inv' or 'iinv'"),
        (lambda: project(X, torch.eye(6), "inv", 3), "0..2; got 3"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()
