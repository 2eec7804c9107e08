"""Finite numbers that were wrong: each is right now, or an error that names the argument."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from test_fuzz import numbers

from brace_nb.assignment import (
    assign,
    bertscore,
    line_loss,
    lisascore,
    recurse,
    rounding_losses,
    solution_quality,
    to_matrix,
    total_score,
    upper_bound,
)
from brace_nb.assignment import dickman
from brace_nb.codes import sign_codes
from brace_nb.core import checked, floats, normalize, positive
from brace_nb.evaluation import (
    alignment,
    cka,
    cka_matrix,
    class_embeddings,
    coordinate_share,
    effective_rank,
    firing,
    hsic,
    knn_overlap,
    mean_similarity,
    modality_accuracy,
    modality_gap,
    movement,
    participation_ratio,
    permuted_cka,
    reliability,
    separation,
    simplex_uniformity,
    spearman_interval,
    token_distances,
    tuple_auc,
    tuple_similarity,
    uniformity,
)
from brace_nb.foundations import (
    barlow_twins_loss,
    batch_ids,
    clip_loss,
    evidence_bound,
    mil_nce_loss,
    pairwise_clip_loss,
    place,
    purushwalkam_gupta_loss,
    siglip_loss,
    supcon_loss,
)
from brace_nb.grounding import eot_by_similarity, parallelism, prequential_losses
from brace_nb.ndim import (
    MEASURES,
    cross_entropy,
    cube_loss,
    gradient_cells,
    rank_classes,
    rank_correlation,
    score,
)

RNG = np.random.default_rng(3)
X = RNG.normal(size=(12, 6))
Y = X + 0.5 * RNG.normal(size=(12, 6))
OWNER = np.repeat(np.arange(4), 3)
UNIT = torch.nn.functional.normalize(torch.tensor(X), dim=-1)
SCALES = (1e-42, 1e-40, 1e-30, 1e-20, 1.0, 1e18, 1e20, 1e30, 3e37)

PAIRS = dict(
    alignment=alignment,
    modality_gap=modality_gap,
    separation=separation,
    modality_accuracy=modality_accuracy,
    cka=cka,
    cka_matrix=lambda x, y: cka_matrix([x, y], [y]),
    knn_overlap=lambda x, y: knn_overlap(x, y, 3),
    cube_loss=lambda x, y: cube_loss([x, y, x]),
    bertscore=bertscore,
    lisascore=lisascore,
    **{f"score {m}": lambda x, y, m=m: score([x, y], m) for m in MEASURES if MEASURES[m].only in (None, 2)},
)
ALONE = dict(
    uniformity=uniformity,
    mean_similarity=mean_similarity,
    tuple_auc=lambda x: tuple_auc(x, OWNER),
    tuple_similarity=lambda x: tuple_similarity(x, OWNER),
    class_embeddings=lambda x: class_embeddings(x, OWNER),
    effective_rank=effective_rank,
    participation_ratio=participation_ratio,
    normalize=lambda x: normalize(torch.from_numpy(x)),
)


def flat(result):
    return np.concatenate([n.ravel() for n in numbers(result)])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [*PAIRS, *ALONE])
def test_geometry_is_the_same_at_any_scale_of_float32(name, scale):
    function, given = (PAIRS[name], (X, Y)) if name in PAIRS else (ALONE[name], (X,))
    small = [(v * scale).astype(np.float32) for v in given]
    wanted = flat(function(*(v.astype(np.float64) / scale for v in small)))
    assert np.abs(flat(function(*small)) - wanted).max() < 2e-4


@pytest.mark.parametrize("scale", SCALES)
def test_movement_grows_with_the_scale(scale):
    a, b = ((v * scale).astype(np.float32) for v in (X, Y))
    wanted = movement(a.astype(np.float64), b.astype(np.float64))
    assert np.allclose(movement(a, b), wanted, rtol=1e-5, atol=3e-45)


@pytest.mark.parametrize("scale", (1e-42, 1e-40, 1e-30, 1.0, 1e30))
@pytest.mark.parametrize("method", ("exact", "greedy_delta", "greedy_best", "recursive_top2", "sinkhorn"))
def test_assign_solves_denormal_scores(method, scale):
    scores = (X[:6] * scale).astype(np.float32)
    wanted = assign(scores.astype(np.float64) / scale, maximize=True, method=method)
    found = assign(scores, maximize=True, method=method)
    assert found.valid and (found.cols == wanted.cols).all()


def test_recurse_of_the_smallest_numbers():
    x = torch.tensor(X[:6] * 1e-42, dtype=torch.float32)
    found, wanted = recurse(x), recurse(x.double())
    assert found.isfinite().all()
    assert torch.equal(found.argmax(-1), wanted.argmax(-1))


BAD_SCALES = (0, -1.0, math.nan, math.inf, "10", 2j, None, torch.tensor(-1.0), torch.tensor(math.nan))
POSITIVES = torch.eye(12, dtype=torch.bool)
SCALED = dict(
    clip=lambda s: clip_loss(UNIT, UNIT, s),
    pairwise=lambda s: pairwise_clip_loss([UNIT, UNIT], s),
    siglip=lambda s: siglip_loss(UNIT, UNIT, s),
    supcon=lambda s: supcon_loss(UNIT, UNIT, POSITIVES, s),
    mil_nce=lambda s: mil_nce_loss(UNIT, UNIT, POSITIVES, s),
    purushwalkam_gupta=lambda s: purushwalkam_gupta_loss(UNIT, POSITIVES, s),
)


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("scale", BAD_SCALES)
def test_a_scale_is_positive(name, scale):
    with pytest.raises(ValueError, match="scale must be a finite number > 0"):
        SCALED[name](scale)
    assert SCALED[name](torch.tensor(2.0, requires_grad=True)).requires_grad


def nan_in(x):
    x = np.array(x, float)
    x.flat[0] = np.nan
    return x


TEXT, COMPLEX = X.astype(str), X + 1j
WRONG = dict(
    to_matrix_float_ids=(lambda: to_matrix(np.array([0.7]), np.array([1.2]), (3, 3)), "whole numbers"),
    firing_nan=(lambda: firing(nan_in(X), 0.5), "finite"),
    eot_nan=(lambda: eot_by_similarity(torch.tensor(nan_in(X))[None], UNIT[0]), "finite"),
    rank_classes_nan=(lambda: rank_classes(dict(a=nan_in(X), b=Y)), "finite"),
    evidence_bound_nan=(lambda: evidence_bound(UNIT, torch.tensor(nan_in(X.clip(0)))), "finite"),
    hsic_nan=(lambda: hsic(nan_in(X), Y), "finite"),
    permuted_cka_nan=(lambda: permuted_cka(nan_in(X), Y), "finite"),
    token_distances_nan=(lambda: token_distances(nan_in(X)), "finite"),
    batch_size=(lambda: batch_ids(np.arange(10), -1, 0, 0), "batch_size must be a whole number >= 1"),
    step=(lambda: batch_ids(np.arange(10), 2, 0, -1), "step must be a whole number >= 0"),
    gradient_cells=(lambda: gradient_cells(-1, 4, "slice"), "n must be"),
    gradient_cells_nan=(lambda: gradient_cells(math.nan, 4, "slice"), "n must be"),
    gradient_cells_part=(lambda: gradient_cells(1.5, 4, "slice"), "n must be"),
    simplex_uniformity=(lambda: simplex_uniformity(-1), "n must be a whole number >= 2"),
    simplex_of_one=(lambda: simplex_uniformity(1), "n must be a whole number >= 2"),
    coordinate_share=(lambda: coordinate_share(4, -1), "bound must be a number from 0 to 1"),
    total_complex=(lambda: total_score(COMPLEX, X > 0), "real numbers"),
    quality_complex=(lambda: solution_quality(COMPLEX, X > 0, X > 0), "real numbers"),
    upper_bound_complex=(lambda: upper_bound(torch.tensor(COMPLEX)), "real numbers"),
    reliability_complex=(lambda: reliability(COMPLEX, OWNER), "real numbers"),
    spearman_complex=(lambda: spearman_interval(COMPLEX[:, 0], X[:, 0]), "real numbers"),
    rank_correlation_complex=(lambda: rank_correlation(dict(a=COMPLEX, b=X)), "real numbers"),
    rounding_complex=(lambda: rounding_losses(COMPLEX, "e4m3"), "real numbers"),
    reliability_text=(lambda: reliability(TEXT, OWNER), "real numbers"),
    spearman_text=(lambda: spearman_interval(TEXT[:, 0], X[:, 0]), "real numbers"),
    token_distances_text=(lambda: token_distances(TEXT), "real numbers"),
    dickman_text=(lambda: dickman(["1.5"]), "real numbers"),
)


@pytest.mark.parametrize("name", WRONG)
def test_nonsense_has_a_name(name):
    call, says = WRONG[name]
    with pytest.raises(ValueError, match=says):
        call()


def test_place_needs_a_magnification():
    rgba = np.zeros((1, 4, 4, 4), np.uint8)
    at = torch.zeros(1), torch.zeros(1), torch.zeros(1, 2), torch.ones(1, 3)
    with pytest.raises(ValueError, match="scale must be > 0"):
        place(rgba, *at)


def test_losses_of_a_stream_in_half_precision_are_numbers():
    targets = torch.tensor(OWNER)
    half = prequential_losses(UNIT.half(), targets, 4, batch_size=4)
    full = prequential_losses(UNIT.half().float(), targets, 4, batch_size=4)
    assert np.isfinite(half).all()
    assert np.array_equal(half, full)


def test_the_signature_is_held():
    @checked(x=floats("N D"), y=floats("M>0 D"), t=positive)
    def f(x, y, t: float = 1.0, n: int | None = None, name: str = "a"):
        return x, y, t, n, name

    x = torch.ones(2, 3)
    assert f(x, x, np.float32(2), n=np.int64(3))[2:] == (2, 3, "a")
    assert f(x, y=x)[3] is None
    for wrong, says in (
        (dict(t=0), "t must be a finite number > 0; got 0"),
        (dict(t=[1.0]), "t must be"),
        (dict(n=1.5), "n must be a whole number; got 1.5"),
        (dict(n="3"), "n must be"),
        (dict(name=3), "name must be a text"),
        (dict(y=torch.ones(2, 4)), r"y must have the shape \(M>0, D\) with D = 3; got \(2, 4\)"),
        (dict(y=torch.ones(0, 3)), "y must have the shape"),
        (dict(y=torch.ones(2, 3).long()), "floating point"),
        (dict(y=np.ones((2, 3))), "torch tensor"),
    ):
        with pytest.raises(ValueError, match=says):
            f(x, **(dict(y=x) | wrong))
    with pytest.raises(TypeError, match="has no arguments"):
        checked(other=positive)(len)


LARGE = (1e-30, 1.0, 1e18, 1e20, 1e30, 1e37, 5e37)


@pytest.mark.parametrize("scale", LARGE)
def test_parallelism_and_end_tokens_at_any_scale_of_float32(scale):
    pairs = torch.tensor([[0, 1], [2, 3], [4, 5], [6, 6]])
    x = torch.tensor(X * scale, dtype=torch.float32)
    assert parallelism(x, pairs) == pytest.approx(parallelism(x.double() / scale, pairs), abs=1e-6)
    one_small = torch.cat([x[:4] * 1e-30, x[4:]]) if scale >= 1 else x
    assert parallelism(one_small, pairs) == pytest.approx(parallelism(x.double() / scale, pairs), abs=1e-6)
    states, end = x.view(2, 6, 6), x[3]
    wanted = (states.double() / scale) @ (end.double() / scale)
    assert eot_by_similarity(states, end).tolist() == wanted.argmax(-1).tolist()


def test_end_tokens_beyond_float64_have_a_name():
    x = torch.tensor(X * 1e200).view(2, 6, 6)
    with pytest.raises(ValueError, match="products of x and end"):
        eot_by_similarity(x, x[0, 0])


@pytest.mark.parametrize("scale", LARGE[2:])
def test_barlow_twins_of_large_numbers(scale):
    x, y = (torch.tensor(v * scale, dtype=torch.float32, requires_grad=True) for v in (X, Y))
    loss = barlow_twins_loss(x, y)
    wanted = barlow_twins_loss(*(v.detach().double() / scale for v in (x, y)), eps=0)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)
    loss.backward()
    assert x.grad.isfinite().all()
    same = torch.full((12, 6), 3e38)
    assert barlow_twins_loss(x.detach() + 0 * same, same).item() == pytest.approx(6)


def test_cross_entropy_of_logits_that_no_difference_has():
    logits = torch.tensor([[3e38, -3e38, 0.0], [1.0, 2.0, -math.inf]], requires_grad=True)
    target = torch.tensor([[0.5, 0.1, 0.4], [0.3, 0.7, 0.0]])
    for smoothing in (0.0, 0.1):
        found = cross_entropy(logits, target, smoothing)
        wanted = cross_entropy(logits.double(), target.double(), smoothing)
        assert found.dtype == torch.float32 and torch.allclose(found.double(), wanted, rtol=1e-6)
        found.sum().backward()
        assert logits.grad[:, :2].isfinite().all()
    onehot = torch.tensor([[1.0, 0, 0]])
    assert cross_entropy(logits[:1], onehot, 0.0) == 0  # nan: 0 times a difference of -inf


@pytest.mark.parametrize("scale", (1e-45, 1e-42, 1e-30, 1.0, 1e30, 3e37))
def test_signs_at_any_scale(scale):
    x = (X * scale).astype(np.float32)
    assert (sign_codes(x) == (x > 0)).all()
    turn = np.linalg.qr(RNG.normal(size=(6, 6)))[0].astype(np.float32)
    assert (sign_codes(x, rotation=turn) == (x.astype(np.float64) @ turn > 0)).all()
    tiny = X * 1e-300  # below float32
    assert (sign_codes(tiny) == (X > 0)).all() and (sign_codes(torch.tensor(tiny)).numpy() == (X > 0)).all()


def test_the_truth_of_a_line_loss_is_a_number():
    truth = torch.eye(3)
    assert line_loss(truth, truth).isfinite()
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="truth must be finite"):
            line_loss(truth, truth.masked_fill(truth == 0, bad))
