"Prototypes against plain loops in float64: the bound, the clusters, the losses."

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from test_foundations_contrastive_losses import unit
from torch.nn import functional as F

from brace_nb.foundations import (
    Clustering,
    cluster,
    concentration,
    evidence_bound,
    info_nce,
    proto_loss,
    proto_nce_loss,
    proto_score,
)


def dot(a, b):
    return sum(float(u) * float(v) for u, v in zip(a, b))


def log_sum(values):
    return max(values) + math.log(sum(math.exp(v - max(values)) for v in values))


@settings(max_examples=25, deadline=None)
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


def test_gradients():
    x, c, rows = unit(4, 3).requires_grad_(), some_clustering(), torch.tensor([0, 1, 2, 3])
    assert torch.autograd.gradcheck(lambda a: proto_loss(a, rows, c), (x,))


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: cluster(torch.ones(5, 2), (9,)), "number of samples"),
        (lambda: concentration(torch.ones(4, 2), torch.ones(2, 2), torch.tensor([0, 0, 1, 1])), "collapsed"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
