"Trainers: networks that learn what a solver computes, and the stacked networks against one network."

import itertools

import numpy as np
import pytest
import torch

from brace_nb.assignment import (
    ARCHITECTURES,
    SIX_LAYER_NETWORKS,
    AssignmentNetwork,
    SixLayerNetwork,
    compare_methods,
    diagonal_hit_rate,
    optimal_matrix,
    sample_matrices,
    train_network,
    train_networks,
    train_six_layers,
)
from brace_nb.core import Stack


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_training_learns_and_repeats(kind):
    one, two = (
        train_network(
            AssignmentNetwork(kind, (3, 3), blocks=2, width=16, seed=4),
            steps=120,
            batch_size=64,
            learning_rate=5e-3,
            every=40,
            seed=1,
        )
        for _ in range(2)
    )
    assert (
        one.history == two.history
        and [h["step"] for h in one.history] == [0, 40, 80, 119]
        and not one.network.training
    )
    assert one.history[-1]["loss"] < 0.9 * one.history[0]["loss"] and one.history[-1]["precision"] > 0.6
    x = sample_matrices("uniform", (200, 3, 3), 5)
    assert compare_methods({"n": dict(method=one.network)}, x, optimal_matrix(x))[0]["f1"] > 0.65


def test_truth_is_the_best_permutation():
    x = sample_matrices("uniform", (5, 4, 4))
    for c, t in zip(x, optimal_matrix(x)):
        best = max(
            itertools.permutations(range(4)), key=lambda p: sum(c[i, j].item() for i, j in enumerate(p))
        )
        assert t.nonzero()[:, 1].tolist() == list(best)


def test_compare_knows_the_truth():
    x = sample_matrices("uniform", (20, 6, 6))
    best, worst = compare_methods(
        {"exact": dict(method="exact"), "best": dict(method="argbest")}, x, optimal_matrix(x)
    )
    assert best["precision"] == best["f1"] == best["valid"] == 1 > worst["f1"] and worst["valid"] < 1


def test_a_training_that_diverges_says_so():
    with pytest.raises(FloatingPointError, match="Lower the learning rate"):
        train_network(AssignmentNetwork("linear", (3, 3)), steps=20, learning_rate=1e30)


def test_diagonal_hits():
    x = np.eye(3)
    x[1] = [1, 1, 0]
    x[2] = [2, 0, 1]
    assert diagonal_hit_rate(x) == pytest.approx(1 / 3) and diagonal_hit_rate(
        np.zeros((2, 3, 3))
    ).tolist() == [0, 0]


@pytest.mark.parametrize("network", SIX_LAYER_NETWORKS)
def test_stack_equals_one_network(network):
    alone = [SixLayerNetwork(seed, n=4, network=network) for seed in (3, 5, 3)]
    x = torch.randn(3, 2, 16, generator=torch.Generator().manual_seed(0))
    y = Stack(alone)(x)
    for z, one, found in zip(x, alone, y):
        assert torch.allclose(found, one(z), atol=1e-6)
        for w, b, act in zip(one.weights, one.biases, SIX_LAYER_NETWORKS[network]):
            z = z @ w + b
            z = {"relu": torch.relu, "sigmoid": torch.sigmoid, "softmax": lambda z: z.softmax(-1)}[act](z)
        assert torch.allclose(found, z.reshape(2, 4, 4), atol=1e-6)
    first, other, again = (one.weights[0] for one in alone)
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_training_is_separate_and_repeats():
    runs = [
        dict(kind="ce"),
        dict(kind="v2", method="greedy_delta"),
        dict(kind="combined_v1", method="v3", factor=True),
        dict(kind="v2", method="sinkhorn", straight_through=True),
        dict(kind="v2", method="sinkhorn"),
    ]
    all_at_once = train_six_layers(runs, [0, 1], steps=20, learning_rate=1e-3, n=4, every=5)
    assert all_at_once.steps.tolist() == [0, 5, 10, 15, 19] and all_at_once.loss.shape == (5, 5, 2)
    for i, run in enumerate(runs):
        alone = train_six_layers([run], [1], steps=20, learning_rate=1e-3, n=4, every=5)
        assert np.allclose(
            alone.loss[:, 0, 0], all_at_once.loss[:, i, 1], rtol=1e-4, atol=1e-5
        ) and np.allclose(alone.scores[0, 0], all_at_once.scores[i, 1], atol=1e-4)
    assert not np.array_equal(
        all_at_once.scores[3], all_at_once.scores[4]
    )  # the straight-through gradient is another one
    again = train_six_layers(runs, [0, 1], steps=20, learning_rate=1e-3, n=4, every=5)
    assert np.array_equal(again.loss, all_at_once.loss)
    assert set(all_at_once.final) == {"hits", "entropy", "dead", "dead_diagonal", "varies"} and all(
        v.shape == (5, 2) for v in all_at_once.final.values()
    )


def test_unknown_networks_are_named():
    for call in (
        lambda: SixLayerNetwork(0, network="deep"),
        lambda: train_six_layers([{}], [0], network="deep"),
    ):
        with pytest.raises(ValueError, match="must be one of thesis, baseline"):
            call()


def test_networks_that_learn_together_learn_as_alone():
    how, shape = dict(steps=6, batch_size=8, every=5), (4, 5)
    asked = list(zip((0.1, None, 1.0), (2, 2, 3)))
    made = [AssignmentNetwork("transformer", shape, seed=s) for s in range(3)]
    temperatures, seeds = map(list, zip(*asked))
    x = sample_matrices("uniform", (20, *shape), 9)
    together = train_networks(made, temperatures=temperatures, seeds=seeds, **how)
    for i, (temperature, seed) in enumerate(asked):
        network = AssignmentNetwork("transformer", shape, seed=i)
        alone = train_network(network, temperature=temperature, seed=seed, **how)
        for one, other in zip(alone.history, together[i].history):
            assert one["step"] == other["step"] and one["loss"] == pytest.approx(other["loss"], rel=1e-4)
        with torch.no_grad():  # weights without a gradient go either way: compare what the loss sees
            one, other = (n(x).softmax(-1) for n in (network, together[i].network))
        assert torch.allclose(one, other, atol=1e-3)
        assert together[i].network is made[i] and not made[i].training


@pytest.mark.parametrize("joined", (False, True))
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_stack_is_its_networks(kind, joined):
    made = [AssignmentNetwork(kind, (5, 3), width=8, shared=s, seed=4).double() for s in (False, False)]
    for p in made[1].parameters():
        p.data.mul_(1.5)
    stack, x = Stack(made, joined), sample_matrices("uniform", (2, 6, 5, 3), 1).double()
    found, expected = stack(x), torch.stack([n(y) for n, y in zip(made, x)])
    assert torch.allclose(found, expected) and not torch.allclose(found[0], found[1])
    gradients = torch.autograd.grad(found.sin().sum(), list(stack.parameters()))
    alone = [p for n in made for p in n.parameters()]
    own = torch.autograd.grad(expected.sin().sum(), alone)
    assert sum(g.square().sum() for g in gradients) == pytest.approx(
        sum(g.square().sum() for g in own).item()
    )


def test_the_history_has_the_f1_of_matrices_kept_aside():
    x = sample_matrices("uniform", (30, 3, 4), 7)
    networks = [AssignmentNetwork("linear", (3, 4), width=8, seed=s) for s in (0, 1)]
    trained = train_networks(networks, steps=5, batch_size=4, every=4, seeds=[0, 1], aside=x)
    for one in trained:
        (last,) = compare_methods({"it": dict(method=one.network)}, x, optimal_matrix(x))
        assert one.history[-1]["f1"] == pytest.approx(last["f1"]) and len(one.history) == 2


def test_a_silent_network_leaves_and_the_others_learn_on_as_they_were():
    how = dict(steps=220, learning_rate=3e-3, n=4, every=20)
    both = train_six_layers([dict(kind="v3"), dict(kind="ce")], [0, 1], **how)
    alone = train_six_layers([dict(kind="ce")], [0, 1], **how)
    assert (both.trained[0] < 220).all() and (both.trained[1] == 220).all()
    assert both.steps.tolist() == alone.steps.tolist()
    assert np.allclose(both.entropy[:, 1], alone.entropy[:, 0], atol=1e-4)
    assert np.allclose(both.scores[1], alone.scores[0], atol=1e-3)
    assert not both.scores[0].any() and (both.final["dead"][0] == 1).all() and not both.loss[-1, 0].any()


def test_a_network_at_rest_is_trained_no_longer():
    how = dict(learning_rate=3e-3, n=4, every=50, patience=60)
    found = train_six_layers([dict(kind="ce"), dict(kind="v1")], [0], steps=900, **how)
    rested = int(found.trained[0, 0])
    assert rested % 60 == 0 and 120 <= rested < 900 == found.trained[1, 0]  # v1 falls without end
    at = found.steps >= rested - 1
    assert np.ptp(found.loss[at, 0, 0]) == 0 and np.ptp(found.loss[at, 1, 0]) > 1
    short = train_six_layers([dict(kind="v3")], [0], steps=900, **how)
    assert short.steps[-1] == short.trained.max() - 1 < 899  # it ends when none is left
