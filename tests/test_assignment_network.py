"Networks that guess an assignment: shapes, symmetry, the loss and its floor, gradients, training."

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.assignment import (
    ARCHITECTURES,
    AssignmentNetwork,
    agreement_loss,
    agreement_loss_floor,
    assign,
    is_valid,
    load_networks,
    optimal_matrix,
    sample_matrices,
    save_networks,
    to_matrix,
)


def permuted(kind, side):
    "Do the answers follow a permutation of the rows (side 0) or the columns (side 1)?"
    x, net = sample_matrices("uniform", (3, 5, 7), 1), AssignmentNetwork(kind, (5, 7), seed=2)
    p = torch.randperm(x.shape[1 + side], generator=torch.Generator().manual_seed(3))
    return torch.allclose(net(x.index_select(1 + side, p)), net(x).index_select(1 + side, p), atol=1e-5)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("shape", [(4, 4), (3, 6), (6, 3)])
def test_shapes_seeds_and_sharing(kind, shape):
    x = sample_matrices("uniform", (2, 3, *shape))
    net = AssignmentNetwork(kind, shape, seed=1)
    y = net(x)
    assert (
        y.shape == x.shape
        and torch.equal(y, AssignmentNetwork(kind, shape, seed=1)(x))
        and not torch.equal(y, AssignmentNetwork(kind, shape, seed=2)(x))
    )
    assert torch.allclose(net(x[0, 1]), y[0, 1], atol=1e-5)
    ends = sum(p.numel() for p in net.ends.parameters())

    def count(**o):
        return sum(p.numel() for p in AssignmentNetwork(kind, shape, **o).parameters()) - ends

    assert count(blocks=3) == 3 * count(blocks=1) == 3 * count(blocks=3, shared=True)


def test_weights_leave_the_global_generator_alone():
    torch.manual_seed(5)
    a = torch.rand(3)
    torch.manual_seed(5)
    AssignmentNetwork("linear", (3, 3))
    b = torch.rand(3)
    assert torch.equal(a, b)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_only_the_exchangeable_network_has_the_symmetry(kind):
    assert permuted(kind, 0) == permuted(kind, 1) == ARCHITECTURES[kind].equivariant
    if ARCHITECTURES[kind].any_shape:
        assert AssignmentNetwork(kind, (5, 7))(torch.rand(2, 8, 3)).shape == (2, 8, 3)


def test_half_a_transformer_block_follows_its_tokens():
    half = AssignmentNetwork("transformer", (5, 7)).blocks[0].rows
    x, p = torch.rand(2, 5, 7), torch.tensor([3, 1, 4, 0, 2])
    assert torch.allclose(half(x[:, p]), half(x)[:, p], atol=1e-5)


def slow_loss(y, t, temperature):
    "By loops over the lines of the definition."
    y, t = (m.T if m.shape[0] >= m.shape[1] else m for m in (y, t))
    k = len(y)
    S = [
        [sum(y[i, a] * t[j, a] for a in range(y.shape[1])) / temperature for j in range(k)] for i in range(k)
    ]
    row = sum(math.log(sum(math.exp(v) for v in S[i])) - S[i][i] for i in range(k)) / k
    col = sum(math.log(sum(math.exp(S[i][j]) for i in range(k))) - S[j][j] for j in range(k)) / k
    return (row + col) / 2


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from([0.1, 1.0]), st.integers(0, 1000))
def test_loss_equals_loops_and_stays_above_its_floor(h, w, temperature, seed):
    x = sample_matrices("uniform", (2, h, w), seed).double()
    y, t = (5 * x).softmax(-2 if h >= w else -1), optimal_matrix(x)
    loss = agreement_loss(y, t, temperature).item()
    assert loss == pytest.approx(
        np.mean([slow_loss(a.numpy(), b.numpy().astype(float), temperature) for a, b in zip(y, t)])
    )
    assert loss >= agreement_loss_floor(min(h, w), temperature) - 1e-12
    assert agreement_loss(t.double(), t, temperature).item() == pytest.approx(
        agreement_loss_floor(min(h, w), temperature)
    )
    assert agreement_loss(y[0], t[0], temperature).item() == pytest.approx(
        slow_loss(y[0].numpy(), t[0].numpy().astype(float), temperature)
    )


def test_the_floor_is_that_of_the_thesis():
    assert (
        agreement_loss_floor(10) == pytest.approx(math.log(1 + 9 / math.e))
        and round(agreement_loss_floor(66), 3) == 3.215
        and agreement_loss_floor(10, 0.05) < 1e-7
    )


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_gradient(kind):
    net = AssignmentNetwork(kind, (3, 4), blocks=1, width=6).double()
    x = sample_matrices("uniform", (1, 3, 4)).double().requires_grad_()
    t = optimal_matrix(x)
    assert torch.autograd.gradcheck(lambda x: agreement_loss(net(x).softmax(-1), t, 0.5), x)
    agreement_loss(net(x).softmax(-1), t).backward()
    assert all(p.grad is not None for p in net.parameters()) and any(
        p.grad.abs().sum() > 0 for p in net.parameters()
    )


@pytest.mark.parametrize("shape", [(4, 5, 5), (2, 2, 3, 6), (6, 3)])
def test_a_function_is_a_method(shape):
    x = sample_matrices("uniform", shape)
    for cost, sign in ((x, True), (x.double(), False), (x.numpy(), True)):
        for other, function in (("greedy_best", lambda s: s), ("argbest", lambda s: 3 * s + 1)):
            a, b = (
                assign(cost, sign, function, select="stepped" if other == "greedy_best" else "argmax"),
                assign(cost, sign, other),
            )
            for f, g in zip(a, b):
                assert type(f) is type(g) and np.allclose(np.asarray(f), np.asarray(g), equal_nan=True)
    net = AssignmentNetwork("exchangeable", shape[-2:])
    a = assign(x, True, net, sweeps=3)
    assert (
        a.valid.all()
        and is_valid(to_matrix(a.rows, a.cols, x.shape)).all()
        and (a.gap >= assign(x, True).total - a.total - 1e-6).all()
    )


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: AssignmentNetwork("mlp", (3, 3)), "must be one of linear, transformer, exchangeable"),
        (
            lambda: AssignmentNetwork("linear", (3, 3))(torch.ones(2, 3, 4)),
            r"weights for 3 x 3 matrices; got \(3, 4\)",
        ),
        (lambda: assign(torch.ones(2, 3, 3), method=lambda s: s.sum(-1)), "of the same shape"),
        (lambda: assign(torch.ones(2, 3, 3), method=lambda s: s * math.nan), "got NaN"),
        (
            lambda: assign(torch.ones(2, 3, 3), method=lambda s: s, select="most"),
            "must be one of argmax",
        ),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_network_comes_back_from_its_file(kind, tmp_path):
    made = [AssignmentNetwork(kind, (4, 5), blocks=2, width=6, shared=s, seed=1) for s in (False, True)]
    save_networks(tmp_path / "n.safetensors", [dict(network=n, seed=i) for i, n in enumerate(made)])
    back = load_networks(tmp_path / "n.safetensors")
    x = sample_matrices("uniform", (3, 4, 5))
    for i, (run, network) in enumerate(zip(back, made)):
        own, read = network.state_dict(), run["network"].state_dict()
        assert run["seed"] == i and read.keys() == own.keys() and not run["network"].training
        assert all(torch.equal(read[k], own[k].half().float()) for k in own)
        assert (run["network"](x) - network(x)).abs().max() < 2e-2


def test_a_file_of_networks_that_is_none_is_an_error_of_one_line(tmp_path):
    path = tmp_path / "n.safetensors"
    with pytest.raises(FileNotFoundError, match="save_networks"):
        load_networks(path)
    save_networks(path, [dict(network=AssignmentNetwork("linear", (2, 3), width=4))])
    whole = path.read_bytes()
    for damage in (whole[:-5], whole.replace(b"brace_nb", b"brave_nb"), whole.replace(b"linear", b"ribbon")):
        path.write_bytes(damage)
        with pytest.raises(ValueError, match="save_networks") as error:
            load_networks(path)
        assert "\n" not in str(error.value)


def test_the_stored_networks_know_what_they_learned():
    runs = load_networks()
    assert {r["steps"] for r in runs} == {4000, 8000, 20000} and {r["seed"] for r in runs} == {0, 1, 2}
    transformer = min((r for r in runs if r["kind"] == "transformer"), key=lambda r: r["shape"])
    x = sample_matrices("uniform", (50, *transformer["shape"]), seed=77)
    fresh = AssignmentNetwork("transformer", transformer["shape"])
    right = {}
    for name, network in dict(learned=transformer["network"], fresh=fresh).items():
        a = assign(network(x).detach(), maximize=True, method="greedy_best")
        right[name] = (to_matrix(a.rows, a.cols, x.shape) & optimal_matrix(x)).sum() / optimal_matrix(x).sum()
    assert right["learned"] > 0.75 > 0.65 > right["fresh"]
