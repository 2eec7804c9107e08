"Tokens: distances, stability indices, token score, EOT finders, equivalence of lookup and product, against plain loops."

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import spearmanr

from brace_nb.evaluation.tokens import (
    BRIDGES,
    STABILITY,
    as_linear,
    bridge_memory,
    encode_inputs,
    eot_by_id,
    eot_by_largest_id,
    eot_by_similarity,
    eot_gumbel,
    gumbel_noise,
    instability,
    jaccard_stability,
    near_and_far,
    nogueira_stability,
    one_hot,
    prequential_losses,
    spearman_interval,
    straight_through,
    take,
    thesis_sigma,
    token_distances,
    token_scores,
    train_bags,
)
from brace_nb.foundations.encoders import EncoderConfig, build_encoder, encode_tokens


def test_distances_equal_a_loop_and_ignore_what_was_not_seen():
    rng = np.random.default_rng(0)
    x, seen = rng.standard_normal((30, 5)), [1, 4, 7, 29]
    mean = sum(x[i] for i in seen) / 4
    d = token_distances(x, seen)
    assert np.isnan(np.delete(d, seen)).all() and d[seen] == pytest.approx(
        [np.sqrt(((x[i] - mean) ** 2).sum()) for i in seen]
    )
    assert token_distances(torch.from_numpy(x).requires_grad_(), center="origin") == pytest.approx(
        np.linalg.norm(x, axis=1)
    )
    wild = x.copy()
    wild[0] = 1e9  # not seen: moves nothing
    assert token_distances(wild, seen)[seen] == pytest.approx(d[seen])


def test_near_and_far_break_ties_by_id_and_never_overlap():
    near, far = near_and_far(np.array([2.0, 1, np.nan, 1, 5, 5]), 2)
    assert near.tolist() == [1, 3] and far.tolist() == [4, 5]


def slow_nogueira(sets, v):
    r = len(sets)
    z = np.array([[float(f in s) for f in range(v)] for s in sets])
    p, k = z.mean(0), z.sum(1).mean()
    return 1 - sum(r / (r - 1) * p[f] * (1 - p[f]) for f in range(v)) / v / ((k / v) * (1 - k / v))


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 6), st.integers(1, 6), st.integers(0, 10**6))
def test_stability_indices_equal_plain_loops(runs, k, seed):
    rng = np.random.default_rng(seed)
    sets = [rng.choice(12, k, replace=False) for _ in range(runs)]
    pairs = [len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in itertools.combinations(sets, 2)]
    assert jaccard_stability(sets) == pytest.approx(np.mean(pairs)) and nogueira_stability(
        sets, 12
    ) == pytest.approx(slow_nogueira(sets, 12))
    union, common = set().union(*sets), set(sets[0]).intersection(*sets)
    assert instability(sets) == (
        pytest.approx((len(union) - len(common)) / len(common) / runs) if common else np.inf
    )
    for name, index in STABILITY.items():
        assert index["function"]([sets[0]] * runs, 12) == pytest.approx(index["identical"]), name


def test_random_sets_are_at_chance_and_the_thesis_score_divides_by_zero():
    rng = np.random.default_rng(0)
    values = [
        nogueira_stability([rng.choice(200, 20, replace=False) for _ in range(10)], 200) for _ in range(200)
    ]
    assert abs(np.mean(values)) < 0.005
    assert (
        thesis_sigma([1, 2], [3]) == np.inf
        and np.isnan(thesis_sigma([], []))
        and thesis_sigma([1, 2, 3], [3, 4], runs=2) == 1.5
    )
    assert instability([[1], [2]]) == np.inf and np.isnan(nogueira_stability([[0, 1], [0, 1]], 2))


def slow_scores(near, far, majority):
    out = []
    for r in range(len(near)):
        product = 1
        for sets in (near, far):
            others = [set(s) for i, s in enumerate(sets) if i != r]
            votes = {t: sum(t in o for o in others) for t in set().union(*others)}
            agreed = {
                t
                for t, n in votes.items()
                if (n == len(others) if majority >= 1 else n > majority * len(others))
            }
            product *= len(agreed & set(sets[r])) / len(sets[r])
        out.append(product)
    return out


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 6), st.integers(1, 5), st.sampled_from([0.3, 0.5, 1.0]), st.integers(0, 10**6))
def test_token_scores_equal_a_loop(runs, k, majority, seed):
    rng = np.random.default_rng(seed)
    near, far = ([rng.choice(8, k, replace=False) for _ in range(runs)] for _ in range(2))
    assert token_scores(near, far, majority) == pytest.approx(slow_scores(near, far, majority))
    assert (token_scores(near, far, majority, leave_one_out=False) >= 0).all()


def test_own_vote_inflates_the_thesis_score():
    near = [[0, 1], [2, 3], [4, 5]]
    assert (token_scores(near, near, majority=0.3) == 0).all() and (
        token_scores(near, near, majority=0.3, leave_one_out=False) == 1
    ).all()


def test_spearman_equals_scipy_and_its_interval_covers():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(40).round(1)
    y = x + rng.standard_normal(40)
    rho, low, high = spearman_interval(x, y)
    assert rho == pytest.approx(spearmanr(x, y).statistic) and low < rho < high
    hits = [
        l <= 0 <= h
        for _, l, h in (
            spearman_interval(rng.standard_normal(30), rng.standard_normal(30), 400, seed=s)
            for s in range(100)
        )
    ]
    assert np.mean(hits) > 0.85 and spearman_interval(np.ones(5), np.arange(5))[0] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lookup_product_and_linear_layer_agree_with_their_gradients(dtype):
    torch.manual_seed(0)
    table = torch.nn.Embedding(40, 6, dtype=dtype)
    layer, ids = as_linear(table), torch.randint(0, 40, (4, 9))
    p, target = one_hot(ids, 40, dtype).requires_grad_(), torch.randn(4, 9, 6, dtype=dtype)
    outs = [table(ids), p @ table.weight, layer(p)]
    grads = [
        torch.autograd.grad(((o - target) ** 3).sum(), w, retain_graph=True)[0]
        for o, w in zip(outs, (table.weight, table.weight, layer.weight))
    ]
    assert (
        all(torch.equal(outs[0], o) for o in outs)
        and torch.allclose(grads[0], grads[1], atol=1e-4)
        and torch.allclose(grads[0], grads[2].T, atol=1e-4)
    )
    assert layer.weight.data_ptr() != table.weight.data_ptr() and layer.bias is None
    toward = torch.autograd.grad(((outs[2] - target) ** 3).sum(), p)[0]
    assert torch.allclose(toward, 3 * (outs[0] - target).detach() ** 2 @ table.weight.detach().T, atol=1e-4)


def test_two_linear_layers_merge_only_without_a_choice_between():
    g = torch.Generator().manual_seed(0)
    x, a, b = (torch.randn(s, generator=g, dtype=torch.float64) for s in ((5, 4), (4, 7), (7, 3)))
    merged = x @ (a @ b)
    assert (
        torch.allclose((x @ a) @ b, merged)
        and not torch.allclose(straight_through(x @ a) @ b, merged)
        and not torch.allclose((x @ a).softmax(-1) @ b, merged)
    )


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_straight_through_is_hard_forwards_and_soft_backwards(temperature):
    logits = torch.randn(
        6, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).requires_grad_()
    noise, weight = (
        gumbel_noise((6, 9), 2, torch.float64),
        torch.randn(6, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(3)),
    )
    hard, soft = (straight_through(logits, temperature, noise, h) for h in (True, False))
    assert (
        (hard.argmax(-1) == (logits + noise).argmax(-1)).all()
        and torch.allclose(hard.max(-1).values, torch.ones(6, dtype=torch.float64))
        and torch.allclose(soft.sum(-1), torch.ones(6, dtype=torch.float64))
    )
    assert torch.allclose(soft, ((logits + noise) / temperature).softmax(-1))
    g_hard, g_soft = (
        torch.autograd.grad((y * weight).sum(), logits, retain_graph=True)[0] for y in (hard, soft)
    )
    assert torch.allclose(g_hard, g_soft, atol=1e-12)
    assert torch.autograd.gradcheck(lambda l: straight_through(l, temperature, noise, hard=False), logits)


def test_gumbel_noise_repeats_and_has_its_mean():
    a = gumbel_noise((20000,), 5, torch.float64)
    assert (
        torch.equal(a, gumbel_noise((20000,), 5, torch.float64))
        and abs(a.mean() - np.euler_gamma) < 0.03
        and abs(a.var() - np.pi**2 / 6) < 0.06
    )


def test_eot_finders():
    ids = torch.tensor([[10, 1, 11, 0], [10, 11, 11, 0], [10, 2, 3, 11]])
    assert eot_by_id(ids, 11).tolist() == [2, 1, 3] == eot_by_largest_id(ids).tolist()
    with pytest.raises(ValueError, match=r"rows \[0, 2\] hold no end token"):
        eot_by_id(ids[:, :2], 11)
    assert eot_by_largest_id(ids[:1, :2]).tolist() == [0]
    E = torch.eye(12, dtype=torch.float64)
    x = (one_hot(ids, 12, torch.float64) @ E).requires_grad_()
    e = E[11].clone().requires_grad_()
    position = eot_by_similarity(x, e)
    assert position.tolist() == [2, 1, 3]
    (row_gradient,) = torch.autograd.grad(take(x, position).pow(2).sum(), x)
    assert (row_gradient.abs().sum(-1) > 0).int().tolist() == one_hot(
        position, 4, torch.int64
    ).tolist()  # that row only
    rows, weights = eot_gumbel(x, e, 0.5, gumbel_noise((3, 4), 0, torch.float64) * 0)
    assert torch.allclose(rows, take(x, position)) and (weights.argmax(-1) == position).all()
    soft, w = eot_gumbel(x, e, 0.5, hard=False)
    assert torch.allclose(soft, ((x @ e / 0.5).softmax(-1)[..., None] * x).sum(1))
    (everywhere,) = torch.autograd.grad((rows @ torch.arange(12.0).double()).sum(), x, retain_graph=True)
    assert (everywhere.abs().sum(-1) > 0).all()  # the choice hears every row
    assert (
        not torch.autograd.grad(rows.sum(), e, allow_unused=True)[0] is not None
    )  # the end token is a constant


def test_encode_inputs_equals_the_text_tower_and_reaches_the_choice():
    encoder = build_encoder(
        EncoderConfig(embed_dim=16, text_width=32, text_heads=2, text_layers=2, vocab_size=300)
    )
    ids = encoder.tokenizer(["abc de", "x", "a longer text"])
    for length in (encoder.config.context_length, int(ids.argmax(-1).max()) + 1):
        features = encode_inputs(
            encoder.model,
            encoder.model.token_embedding(ids[:, :length]),
            eot_by_id(ids[:, :length], encoder.tokenizer.end),
        )
        assert torch.allclose(features, encode_tokens(encoder.model, ids), atol=1e-5)
    assert torch.allclose(features, encoder.model.encode_text(ids), atol=1e-5)


def test_bridge_memory_is_the_arithmetic():
    one = bridge_memory("gumbel one-hot")
    assert (
        one["tensor"] == 10 * 80 * 60000 * 4 / 1e6 == 192
        and bridge_memory("gumbel one-hot", bytes_each=2)["tensor"] == 96
    )
    assert (
        bridge_memory("linear")["tensor"] == 10 * 80 * 512 * 4 / 1e6
        and bridge_memory("linear")["weights"] == pytest.approx((512 * 512 + 512) * 4 / 1e6)
        and bridge_memory("identity")["weights"] == 0
    )
    assert all(bridge_memory(b)["with_gradients"] < 1000 for b in BRIDGES)


def test_prequential_loss_is_a_code_length_and_the_other_is_not():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(400, 20, generator=g), torch.randint(0, 50, (400,), generator=g)
    before, after = prequential_losses(x, y, 50, updates=30, learning_rate=0.05)
    assert len(before) == len(after) == 13 and before.mean() > np.log(50) > 1 > after.mean()
    learnable = torch.nn.functional.one_hot(y, 50).float() @ torch.randn(50, 20, generator=g)
    before, _ = prequential_losses(learnable, y, 50, updates=5, learning_rate=0.05)
    assert (
        before[-3:].mean() < before[0]
        and (prequential_losses(x, y, 50)[0] == prequential_losses(x, y, 50)[0]).all()
    )


def test_bags_learn_repeat_and_leave_unseen_tokens_to_weight_decay():
    rng = np.random.default_rng(0)
    bags = [torch.from_numpy(rng.integers(1, 30, (90, 3))) for _ in range(2)]
    pictures = torch.from_numpy(rng.standard_normal((31, 8))).float()[bags[0]].mean(1)
    args = (pictures, bags, 40, np.arange(70), np.arange(70, 90))
    run, again, start = (
        train_bags(*args, steps=40, batch_size=32),
        train_bags(*args, steps=40, batch_size=32),
        train_bags(*args, steps=0),
    )
    assert (
        np.array_equal(run["tokens"], again["tokens"])
        and run["loss"][-5:].mean() < run["loss"][:5].mean() - 0.3
        and run["val_loss"] < start["val_loss"]
    )
    assert (
        run["tokens"].shape == (40, 8)
        and run["texts"].shape == run["images"].shape == (90, 8)
        and np.allclose(np.linalg.norm(run["texts"], axis=1), 1, atol=1e-5)
    )
    unseen, before = (
        run["tokens"][35],
        start["tokens"][35],
    )  # never in a text: shrinks along its own direction
    assert unseen @ before / np.linalg.norm(unseen) / np.linalg.norm(before) > 1 - 1e-6 and np.linalg.norm(
        unseen
    ) < np.linalg.norm(before)
    only = train_bags(pictures, bags[:1], 40, np.arange(70), np.arange(70, 90), steps=5)
    assert len(only["loss"]) == 5
    with pytest.raises(ValueError, match="same number of rows"):
        train_bags(pictures[:5], bags, 40, [0], [1])
    with pytest.raises(ValueError, match="at least one token"):
        train_bags(pictures, [bags[0] * 0], 40, [0], [1])
    with pytest.raises(ValueError, match="from 1 to 19"):
        train_bags(pictures, bags, 20, [0], [1])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: token_distances(np.zeros(3)), "must have shape"),
        (lambda: token_distances(np.zeros((3, 2)), [3]), "from 0 to 2"),
        (lambda: token_distances(np.zeros((3, 2)), center="median"), "center"),
        (lambda: near_and_far(np.arange(5.0), 3), "half of the 5"),
        (lambda: near_and_far(np.arange(5.0), 0), "k must"),
        (lambda: jaccard_stability([[1]]), "two runs"),
        (lambda: jaccard_stability([[1], []]), "at least one token"),
        (lambda: nogueira_stability([[1], [2]], 1), "vocabulary"),
        (lambda: token_scores([[1], [2]], [[1], [2], [3]]), "same runs"),
        (lambda: spearman_interval([1, 2, 3], [1, 2, 3]), "four runs"),
        (lambda: spearman_interval([1, 2, 3, np.nan], [1, 2, 3, 4]), "finite"),
        (lambda: straight_through(torch.zeros(3), -1), "temperature"),
        (lambda: bridge_memory("wire"), "unknown bridge"),
        (lambda: prequential_losses(torch.zeros(3, 2), torch.tensor([0, 1, 5]), 4), "from 0 to 3"),
        (lambda: prequential_losses(torch.zeros(3, 2), torch.tensor([0]), 4), "same number of rows"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
