"Contrastive losses against plain loops in float64, open_clip's ClipLoss and SigLipLoss, and finite differences."

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional as F

from brace_nb.foundations.contrastive import (
    INFO_NCE_FORMS,
    MULTI_POSITIVE,
    Clustering,
    barlow_score,
    barlow_twins_loss,
    clip_loss,
    clip_score,
    cluster,
    concentration,
    evidence_bound,
    gaussian_entropy,
    info_nce,
    info_nce_score,
    information_bottleneck,
    mil_nce_loss,
    pairwise_clip_loss,
    proto_loss,
    proto_nce_loss,
    proto_score,
    purushwalkam_gupta_loss,
    siglip_loss,
    siglip_score,
    supcon_loss,
    tuple_clip_loss,
)


def unit(*shape, seed=0, dtype=torch.float64):
    return F.normalize(
        torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype), dim=-1
    )


def loop_clip_loss(x, y, scale):
    "Cross-entropy by hand, one query at a time."
    n, total = len(x), 0.0
    for queries, items in ((x, y), (y, x)):
        for i in range(n):
            s = [scale * sum(float(a) * float(b) for a, b in zip(queries[i], items[j])) for j in range(n)]
            top = max(s)
            total += top + np.log(sum(np.exp(v - top) for v in s)) - s[i]
    return total / (2 * n)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 7), d=st.integers(1, 5), scale=st.floats(0.01, 100), seed=st.integers(0, 10**6))
def test_clip_loss_is_the_loop(n, d, scale, seed):
    x, y = unit(n, d, seed=seed), unit(n, d, seed=seed + 1)
    assert float(clip_loss(x, y, scale)) == pytest.approx(loop_clip_loss(x, y, scale), rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    views=st.integers(2, 5),
    n=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    weighted=st.booleans(),
    missing=st.booleans(),
)
def test_pairwise_is_the_loop(views, n, seed, weighted, missing):
    rng, z = np.random.default_rng(seed), unit(views, n, 4, seed=seed)
    w = rng.random((views, views)) if weighted else np.ones((views, views))
    w = w + w.T
    present = rng.random((views, n)) < 0.6 if missing else np.ones((views, n), bool)
    total = weight = 0.0
    for i in range(views):
        for j in range(i):
            both = present[i] & present[j]
            if both.any():
                total += w[i, j] * loop_clip_loss(z[i][both], z[j][both], 7.0)
                weight += w[i, j]
    got = pairwise_clip_loss(z, 7.0, w if weighted else None, torch.from_numpy(present) if missing else None)
    assert float(got) == pytest.approx(total / weight if weight else 0.0, rel=1e-9, abs=1e-9)


def test_equals_open_clip():
    from brace_nb.foundations.encoders import import_open_clip

    loss = import_open_clip().ClipLoss()
    x, y, scale = (
        unit(32, 16, dtype=torch.float32),
        unit(32, 16, seed=1, dtype=torch.float32),
        torch.tensor(14.3),
    )
    assert torch.allclose(clip_loss(x, y, scale), loss(x, y, scale), atol=1e-6)
    assert torch.allclose(pairwise_clip_loss([x, y], scale), loss(x, y, scale), atol=1e-6)


def test_gradients():
    x, y, z = (unit(4, 3, seed=s).requires_grad_() for s in range(3))
    scale = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    present = torch.tensor([[True] * 4, [True, False, True, True], [False, True, True, True]])
    assert torch.autograd.gradcheck(clip_loss, (x, y, scale))
    assert torch.autograd.gradcheck(lambda x, y, z, s: pairwise_clip_loss([x, y, z], s), (x, y, z, scale))
    assert torch.autograd.gradcheck(
        lambda x, y, z, s: pairwise_clip_loss([x, y, z], s, present=present), (x, y, z, scale)
    )


def test_absent_views_get_no_gradient_even_when_nan():
    z = unit(3, 5, 4).clone()
    present = torch.ones(3, 5, dtype=torch.bool)
    present[1, 2] = False
    z[1, 2] = torch.nan
    z.requires_grad_()
    pairwise_clip_loss(z, 5.0, present=present).backward()
    assert torch.isfinite(z.grad).all() and not z.grad[1, 2].any() and z.grad[1, 3].any()


def test_permuting_concepts_or_views_changes_nothing():
    z, order = unit(3, 9, 4), torch.randperm(9, generator=torch.Generator().manual_seed(1))
    assert torch.isclose(pairwise_clip_loss(z, 9.0), pairwise_clip_loss(z[:, order], 9.0))
    assert torch.isclose(pairwise_clip_loss(z, 9.0), pairwise_clip_loss(z[[2, 0, 1]], 9.0))


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
def test_low_precision(dtype, tolerance):
    z = unit(3, 16, 32)
    got = pairwise_clip_loss(z.to(dtype), 10.0)
    assert got.dtype == dtype
    assert float(got) == pytest.approx(float(pairwise_clip_loss(z, 10.0)), rel=tolerance)


def test_large_scales_stay_finite():
    z = unit(2, 6, 3, dtype=torch.float32)
    assert torch.isfinite(pairwise_clip_loss(z, 1e4)) and torch.isfinite(clip_loss(z[0], z[1], 1e4))


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: clip_loss(torch.ones(3, 2), torch.ones(4, 2), 1.0), "as many rows"),
        (lambda: clip_loss(torch.ones(0, 2), torch.ones(0, 2), 1.0), "at least one"),
        (lambda: clip_score(torch.ones(3, 2), torch.ones(3, 5)), "one width"),
        (lambda: pairwise_clip_loss([torch.ones(3, 2)], 1.0), "at least two"),
        (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1.0, weights=torch.ones(3, 3)), "symmetric"),
        (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1.0, weights=[[0, 1], [2, 0]]), "symmetric"),
        (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1.0, weights=[[1, -1], [-1, 1]]), ">= 0"),
        (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1.0, weights=torch.eye(2)), "at least one pair"),
        (lambda: pairwise_clip_loss(torch.ones(2, 3, 2), 1.0, present=torch.ones(2, 3)), "bool"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; torch sees none")
def test_cuda_matches_cpu():
    z = unit(3, 16, 8)
    assert float(pairwise_clip_loss(z.cuda(), 9.0)) == pytest.approx(
        float(pairwise_clip_loss(z, 9.0)), rel=1e-9
    )


# ---- the losses of the notes ------------------------------------------------------------------------------------------

sizes = dict(n=st.integers(2, 6), d=st.integers(1, 5), seed=st.integers(0, 10**6))
oracle = settings(max_examples=25, deadline=None)


def dot(a, b):
    return sum(float(u) * float(v) for u, v in zip(a, b))


def log_sum(values):
    return max(values) + math.log(sum(math.exp(v - max(values)) for v in values))


def loop_info_nce(x, y, t, form, queue=None):
    n, total = len(x), 0.0
    for b in range(n):
        own = dot(x[b], y[b]) / t
        if form == "moco":
            total += log_sum([own] + [dot(x[b], q) / t for q in queue]) - own
        elif form == "barlow":
            total += log_sum([dot(x[b], y[c]) / t for c in range(n) if c != b]) - own
        else:
            one = log_sum([dot(x[b], y[c]) / t for c in range(n)]) - own
            total += (
                one
                if form == "one_way"
                else (one + log_sum([dot(x[c], y[b]) / t for c in range(n)]) - own) / 2
            )
    return total if form == "barlow" else total / n


@oracle
@given(**sizes, form=st.sampled_from(list(INFO_NCE_FORMS)), t=st.floats(0.02, 5))
def test_info_nce_is_the_loop(n, d, seed, form, t):
    x, y = unit(n, d, seed=seed), unit(n, d, seed=seed + 1)
    queue = unit(3, d, seed=seed + 2) if form == "moco" else None
    assert float(info_nce(x, y, t, form, queue)) == pytest.approx(
        loop_info_nce(x, y, t, form, queue), rel=1e-9, abs=1e-9
    )


def test_info_nce_forms_agree_where_they_must():
    x, y = unit(8, 4), unit(8, 4, seed=1)
    assert torch.isclose(info_nce(x, y, 0.1), clip_loss(x, y, 10.0))
    assert info_nce_score(x, y, 0.1, "moco", unit(5, 4)).shape == (8, 6)
    n = 64  # all logits equal: log N; the bound log N - L is 0
    assert float(info_nce(torch.ones(n, 1), torch.ones(n, 1))) == pytest.approx(math.log(n), rel=1e-6)


def test_keys_and_queue_of_moco_have_no_gradient():
    x, y, q = (unit(4, 3, seed=s).requires_grad_() for s in range(3))
    info_nce(x, y, 0.2, "moco", q).backward()
    assert x.grad.abs().max() > 0 and y.grad is None and q.grad is None


@oracle
@given(**sizes, m=st.integers(1, 6), scale=st.floats(0.1, 30), bias=st.floats(-12, 3))
def test_siglip_is_the_loop(n, d, seed, m, scale, bias):
    x, y, z = (
        unit(n, d, seed=seed),
        unit(m, d, seed=seed + 1),
        np.random.default_rng(seed).random((n, m)) < 0.4,
    )
    loop = (
        -sum(
            -math.log1p(math.exp(-(1 if z[i, j] else -1) * (scale * dot(x[i], y[j]) + bias)))
            for i in range(n)
            for j in range(m)
        )
        / n
    )
    assert float(siglip_loss(x, y, scale, bias, torch.from_numpy(z))) == pytest.approx(
        loop, rel=1e-9, abs=1e-9
    )


def test_siglip_equals_open_clip():
    from brace_nb.foundations.encoders import import_open_clip

    import_open_clip()
    from open_clip.loss import SigLipLoss

    loss = SigLipLoss()
    x, y = unit(16, 8, dtype=torch.float32), unit(16, 8, seed=1, dtype=torch.float32)
    assert torch.allclose(
        siglip_loss(x, y, 12.0, -9.0), loss(x, y, torch.tensor(12.0), torch.tensor(-9.0)), rtol=1e-5
    )
    assert torch.allclose(siglip_score(x, y), 10 * clip_score(x, y) - 10)


def loop_positives(x, y, positives, scale, form):
    total = 0.0
    for i in range(len(x)):
        s = [scale * dot(x[i], v) for v in y]
        own = [j for j in range(len(y)) if positives[i][j]]
        total += (
            sum(log_sum(s) - s[j] for j in own) / len(own)
            if form == "supcon"
            else log_sum(s) - log_sum([s[j] for j in own])
        )
    return total / len(x)


@oracle
@given(**sizes, m=st.integers(1, 6), form=st.sampled_from(list(MULTI_POSITIVE)))
def test_several_positives_are_the_loop(n, d, seed, m, form):
    x, y = unit(n, d, seed=seed), unit(m, d, seed=seed + 1)
    positives = np.random.default_rng(seed).random((n, m)) < 0.5
    positives[np.arange(n), np.arange(n) % m] = True
    got = MULTI_POSITIVE[form](x, y, torch.from_numpy(positives), 6.0)
    assert float(got) == pytest.approx(loop_positives(x, y, positives, 6.0, form), rel=1e-9, abs=1e-9)


def test_a_second_caption_is_no_negative():
    images, captions, owner = unit(3, 4), unit(6, 4, seed=1).requires_grad_(), torch.arange(6) // 2
    for form in MULTI_POSITIVE:
        one = tuple_clip_loss(images, captions[::2], torch.arange(3), 5.0, form)
        assert torch.isclose(one, clip_loss(images, captions[::2], 5.0))
    s = 5 * captions.detach() @ images.T  # captions to images: each has one positive, never a sibling
    loop = np.mean([log_sum(r.tolist()) - float(r[o]) for r, o in zip(s, owner)])
    both = loop_positives(
        images, captions.detach(), (owner == torch.arange(3)[:, None]).tolist(), 5.0, "supcon"
    )
    assert float(tuple_clip_loss(images, captions, owner, 5.0).detach()) == pytest.approx((loop + both) / 2)


@oracle
@given(**sizes)
def test_purushwalkam_gupta_is_the_loop(n, d, seed):
    x, related = unit(n, d, seed=seed), np.random.default_rng(seed).random((n, n)) < 0.4
    total = 0.0
    for i in range(n):
        for j in range(n):
            if i == j or not related[i, j]:
                continue
            s = {k: math.exp(4 * dot(x[i], x[k])) for k in range(n)}
            total -= math.log(s[j] / (s[j] + sum(s[k] for k in range(n) if k != i and not related[i, k])))
    assert float(purushwalkam_gupta_loss(x, torch.from_numpy(related), 4.0)) == pytest.approx(
        total, rel=1e-9, abs=1e-9
    )


@oracle
@given(n=st.integers(3, 7), d=st.integers(1, 4), seed=st.integers(0, 10**6), weight=st.floats(0, 2))
def test_barlow_is_the_loop(n, d, seed, weight):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(3, 2, (n, d)), rng.normal(-1, 1, (n, d))
    c = [
        [
            sum((x[b, i] - x[:, i].mean()) * (y[b, j] - y[:, j].mean()) for b in range(n))
            / (
                math.sqrt(sum((x[b, i] - x[:, i].mean()) ** 2 for b in range(n)))
                * math.sqrt(sum((y[b, j] - y[:, j].mean()) ** 2 for b in range(n)))
            )
            for j in range(d)
        ]
        for i in range(d)
    ]
    loss = sum((1 - c[i][i]) ** 2 for i in range(d)) + weight * sum(
        c[i][j] ** 2 for i in range(d) for j in range(d) if i != j
    )
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    assert np.allclose(barlow_score(x, y, 0.0), c, atol=1e-12) and np.allclose(
        barlow_score(x, y, 0.0), np.corrcoef(x.T, y.T)[:d, d:], atol=1e-12
    )
    assert float(barlow_twins_loss(x, y, weight, 0.0)) == pytest.approx(loss, rel=1e-9, abs=1e-9)


def test_barlow_sees_no_shift_and_no_scale():
    x, y = torch.randn(32, 4, dtype=torch.float64), torch.randn(32, 4, dtype=torch.float64)
    factor = torch.tensor([0.1, 2.0, 3.0, 40.0], dtype=torch.float64)
    assert torch.isclose(barlow_twins_loss(x * factor + 5, y, eps=0.0), barlow_twins_loss(x, y, eps=0.0))
    constant = torch.cat([x[:, :3], torch.ones(32, 1)], 1)
    assert torch.isfinite(barlow_twins_loss(constant, y)) and torch.isnan(
        barlow_twins_loss(constant, y, eps=0.0)
    )


def test_gaussian_entropy_is_scipys():
    from scipy.stats import multivariate_normal

    a = np.random.default_rng(0).normal(size=(5, 5))
    c = a @ a.T + np.eye(5)
    assert float(gaussian_entropy(torch.from_numpy(c))) == pytest.approx(
        multivariate_normal(cov=c).entropy(), rel=1e-12
    )


def test_bottleneck_by_hand():
    rng = np.random.default_rng(0)
    views = rng.normal(size=(6, 9, 2)) + 4 * rng.normal(size=(6, 1, 2))
    h = lambda z: 0.5 * np.log(np.linalg.det(2 * np.pi * np.e * np.cov(z.T, bias=True)))
    loop = np.mean([h(v) for v in views]) + (1 - 3.0) / 3.0 * h(views.reshape(-1, 2))
    assert float(information_bottleneck(torch.from_numpy(views), 3.0, 0.0)) == pytest.approx(loop, rel=1e-10)


@oracle
@given(n=st.integers(1, 5), k=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_evidence_bound(n, k, seed):
    g = torch.Generator().manual_seed(seed)
    log_joint, q = (
        torch.randn(n, k, generator=g, dtype=torch.float64),
        torch.rand(n, k, generator=g, dtype=torch.float64).softmax(1),
    )
    loop = [
        sum(float(q[i, c]) * (float(log_joint[i, c]) - math.log(float(q[i, c]))) for c in range(k))
        for i in range(n)
    ]
    assert np.allclose(evidence_bound(log_joint, q), loop)
    assert (evidence_bound(log_joint, q) <= log_joint.logsumexp(1) + 1e-12).all()
    assert torch.allclose(evidence_bound(log_joint, log_joint.softmax(1)), log_joint.logsumexp(1))
    assert torch.allclose(
        evidence_bound(log_joint, torch.eye(k, dtype=torch.float64)[log_joint.argmax(1)]),
        log_joint.max(1).values,
    )


def test_concentration_is_the_loop():
    z, k = unit(40, 3), 7
    label = torch.from_numpy(np.r_[np.arange(k), np.random.default_rng(1).integers(0, k - 1, 40 - k)])
    label[label == k - 1] = torch.where(
        torch.arange(40)[label == k - 1] == k - 1, k - 1, 0
    )  # the last cluster has one member
    means = torch.stack([z[label == c].mean(0) for c in range(k)])
    phi = []
    for c in range(k):
        members = z[label == c]
        phi.append(
            sum(math.dist(m.tolist(), means[c].tolist()) for m in members)
            / (len(members) * math.log(len(members) + 10))
        )
    assert int((label == k - 1).sum()) == 1
    phi[k - 1] = max(phi)
    phi = np.clip(phi, np.percentile(phi, 10), np.percentile(phi, 90))
    assert np.allclose(concentration(z, means, label, 0.2), 0.2 * phi / phi.mean(), atol=1e-12)


def test_cluster_gives_means_of_members():
    z = unit(60, 4)
    for c, k in zip(cluster(z, (3, 9)), (3, 9)):
        assert (
            len(c) == k
            and c.assignment.shape == (60,)
            and float(c.concentration.mean()) == pytest.approx(0.2)
        )
        means = torch.stack([z[c.assignment == j].mean(0) for j in range(k)])
        assert torch.allclose(c.centroids, F.normalize(means, dim=-1), atol=1e-6)
    assert torch.equal(cluster(z, (3,), seed=4)[0].assignment, cluster(z, (3,), seed=4)[0].assignment)


def some_clustering(k=4, d=3, n=8):
    g = torch.Generator().manual_seed(5)
    return Clustering(
        unit(k, d, seed=9), torch.arange(n) % (k - 1), 0.1 + torch.rand(k, generator=g, dtype=torch.float64)
    )


def test_proto_loss_is_the_loop():
    c, x, rows = some_clustering(), unit(5, 3), torch.tensor([0, 1, 2, 3, 6])
    total = 0.0
    for v, r in zip(x, rows):
        s = [dot(v, p) / float(f) for p, f in zip(c.centroids, c.concentration)]
        total += log_sum(s) - s[int(c.assignment[r])]
    assert float(proto_loss(x, rows, c)) == pytest.approx(total / 5)
    assert torch.allclose(
        proto_score(x, c) - proto_score(x, c, exact=True), (1 / c.concentration).expand(5, -1)
    )
    assert torch.isclose(proto_loss(x, rows, c, negatives=4), proto_loss(x, rows, c))  # all that are left
    same = Clustering(c.centroids, c.assignment, torch.full((4,), 0.3, dtype=torch.float64))
    assert torch.isclose(
        proto_loss(x, rows, same, exact=True), proto_loss(x, rows, same)
    )  # -1/phi only matters when phi differ


def test_a_shared_prototype_pushes_only_when_it_counts_twice():
    c = Clustering(
        torch.eye(4, dtype=torch.float64),
        torch.tensor([0, 0, 1, 2]),
        torch.full((4,), 0.01, dtype=torch.float64),
    )
    x = F.normalize(torch.tensor([[1.0, 1, 0, 0], [1.0, 1, 0, 0]], dtype=torch.float64), dim=-1)
    grad = {}
    for duplicates in (False, True):
        leaf = x.clone().requires_grad_()
        proto_loss(leaf, torch.tensor([0, 1]), c, duplicates=duplicates).backward()
        grad[duplicates] = -leaf.grad[:, 0]  # pull towards the own prototype
    assert (grad[True] < grad[False]).all() and (grad[True] > 0).all()


def test_proto_nce_adds_its_terms_and_stops_gradients():
    c, x, keys, rows = some_clustering(), unit(5, 3), unit(5, 3, seed=3), torch.tensor([0, 1, 2, 3, 6])
    other = some_clustering(3)
    x.requires_grad_()
    keys.requires_grad_()
    loss = proto_nce_loss(x, keys, rows, [c, other], 0.2)
    assert torch.isclose(
        loss, info_nce(x, keys, 0.2, "one_way") + (proto_loss(x, rows, c) + proto_loss(x, rows, other)) / 2
    )
    loss.backward()
    assert keys.grad is None and x.grad.abs().max() > 0
    assert torch.isclose(proto_nce_loss(x, keys, rows, []), info_nce(x, keys, 0.2, "one_way"))
    assert torch.isclose(
        proto_nce_loss(x, keys, rows, [], queue=other.centroids),
        info_nce(x, keys, 0.2, "moco", other.centroids),
    )


def test_gradients_of_the_notes_losses():
    x, y, c, rows = (
        unit(4, 3).requires_grad_(),
        unit(4, 3, seed=1).requires_grad_(),
        some_clustering(),
        torch.tensor([0, 1, 2, 3]),
    )
    related = torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=torch.bool)
    wide = (
        torch.randn(6, 3, dtype=torch.float64).requires_grad_(),
        torch.randn(6, 3, dtype=torch.float64).requires_grad_(),
    )
    for form in ("symmetric", "one_way", "barlow"):
        assert torch.autograd.gradcheck(lambda a, b: info_nce(a, b, 0.3, form), (x, y))
    assert torch.autograd.gradcheck(lambda a, b: siglip_loss(a, b, 3.0, -2.0), (x, y))
    for loss in (supcon_loss, mil_nce_loss):
        assert torch.autograd.gradcheck(lambda a, b: loss(a, b, related, 4.0), (x, y))
    assert torch.autograd.gradcheck(lambda a: purushwalkam_gupta_loss(a, related, 4.0), (x,))
    assert torch.autograd.gradcheck(lambda a, b: barlow_twins_loss(a, b, 0.5), wide)
    assert torch.autograd.gradcheck(lambda a: proto_loss(a, rows, c), (x,))
    assert torch.autograd.gradcheck(
        lambda v: information_bottleneck(v, 2.0),
        (torch.randn(2, 5, 2, dtype=torch.float64).requires_grad_(),),
    )


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y: info_nce(x, y),
        siglip_loss,
        barlow_twins_loss,
        lambda x, y: supcon_loss(x, y, torch.eye(64, dtype=torch.bool), 10.0),
    ],
)
@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 8e-2)])
def test_low_precision_of_the_notes_losses(loss, dtype, tolerance):
    x = unit(64, 16)
    y = F.normalize(x + 0.2 * unit(64, 16, seed=1), dim=-1)
    got = loss(x.to(dtype), y.to(dtype))
    assert got.dtype == dtype and float(got) == pytest.approx(float(loss(x, y)), rel=tolerance, abs=tolerance)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: info_nce(torch.ones(3, 2), torch.ones(3, 2), form="simclr"), "form must be one of"),
        (lambda: info_nce(torch.ones(3, 2), torch.ones(3, 2), 0.0), "temperature"),
        (lambda: info_nce(torch.ones(3, 2), torch.ones(3, 2), form="moco"), "queue"),
        (lambda: info_nce(torch.ones(1, 2), torch.ones(1, 2), form="barlow"), "at least two"),
        (lambda: siglip_loss(torch.ones(3, 2), torch.ones(4, 2)), "matches"),
        (lambda: siglip_loss(torch.ones(3, 2), torch.ones(4, 2), matches=torch.ones(3, 4)), "bool"),
        (
            lambda: supcon_loss(
                torch.ones(2, 2), torch.ones(2, 2), torch.tensor([[True, False], [False, False]]), 1.0
            ),
            "needs a positive",
        ),
        (
            lambda: tuple_clip_loss(torch.ones(2, 2), torch.ones(3, 2), torch.tensor([0, 1]), 1.0),
            "picture numbers",
        ),
        (
            lambda: tuple_clip_loss(torch.ones(2, 2), torch.ones(2, 2), torch.tensor([0, 1]), 1.0, "mean"),
            "form must be",
        ),
        (
            lambda: purushwalkam_gupta_loss(torch.ones(2, 2), torch.ones(2, 3, dtype=torch.bool), 1.0),
            "positives must be",
        ),
        (lambda: barlow_twins_loss(torch.ones(1, 2), torch.ones(1, 2)), "at least two"),
        (lambda: information_bottleneck(torch.ones(3, 1, 2), 2.0), "distortions"),
        (lambda: information_bottleneck(torch.ones(3, 4, 2), 0.0), "beta"),
        (lambda: cluster(torch.ones(5, 2), (9,)), "number of samples"),
        (lambda: concentration(torch.ones(4, 2), torch.ones(2, 2), torch.tensor([0, 0, 1, 1])), "collapsed"),
    ],
)
def test_bad_input_of_the_notes_losses(call, words):
    with pytest.raises(ValueError, match=words):
        call()
