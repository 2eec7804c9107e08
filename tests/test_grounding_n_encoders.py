"Training n encoders: plain loops as oracles, incomplete tuples, exact resuming, gradients in pieces."

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from brace_nb.grounding import (
    AlignedTuples,
    FeatureEncoder,
    Looks,
    PictureTower,
    TextTower,
    TupleObjective,
    cube_log,
    default_encoders,
    distance_weights,
    embed_views,
    encode_batch,
    encode_in_chunks,
    first_and_bad,
    least_squares_probe,
    one_hot_labels,
    pair_recall,
    read_aligned,
    region_errors,
    region_name,
    region_table,
    text_tokens,
    train_encoders,
    view_patterns,
)
from brace_nb.ndim import cube, cube_loss, region_of, region_sizes


def random_views(n, rows, width=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, 4, generator=generator)
    maps = torch.randn(n, 4, width, generator=generator)
    return {
        f"v{k}": hidden @ m + 0.3 * torch.randn(rows, width, generator=generator) for k, m in enumerate(maps)
    }


def tuples_of(n=3, rows=24, missing=(), labels=True):
    views = random_views(n, rows)
    for view, row in missing:
        views[f"v{view}"][row] = torch.nan
    return AlignedTuples(views, labels=np.arange(rows) % 3 if labels else None)


# ---- the log of a cube ----


@pytest.mark.parametrize("n, batch", [(2, 3), (3, 4), (4, 2), (3, 2)])
def test_regional_errors_are_those_of_plain_loops(n, batch):
    logits = torch.randn((batch,) * n, generator=torch.Generator().manual_seed(n))
    labels = torch.rand((batch,) * n, generator=torch.Generator().manual_seed(batch))
    cells = {}
    for index in itertools.product(range(batch), repeat=n):
        gap = float(logits[index].double() - labels[index].double())
        cells.setdefault(region_of(index), []).append((gap**2, float(logits[index])))
    whole = sum(e for part in cells.values() for e, _ in part)
    mean = whole / batch**n
    found = region_errors(logits, labels)
    assert set(found["error"]) == set(cells)
    for p, part in cells.items():
        errors, values = np.array(part).T
        expected = dict(error=errors.mean(), ratio=errors.mean() / mean, share=errors.sum() / whole)
        expected |= dict(mean=values.mean(), variance=values.var())
        for kind, value in expected.items():
            assert found[kind][p] == pytest.approx(value, rel=1e-5, abs=1e-9), (kind, p)


@pytest.mark.parametrize("n, batch", [(2, 5), (4, 4), (6, 3), (3, 2)])
def test_shares_add_up_and_ratios_average_to_one(n, batch):
    logits = 14 * torch.randn((batch,) * n, generator=torch.Generator().manual_seed(1))
    found, sizes = region_errors(logits, one_hot_labels(n, batch)), region_sizes(n, batch)
    sizes = {p: count for p, count in sizes.items() if count}
    assert sum(found["share"].values()) == pytest.approx(1)
    assert sum(found["ratio"][p] * c for p, c in sizes.items()) / batch**n == pytest.approx(1)
    for p, count in sizes.items():
        assert found["share"][p] == pytest.approx(found["ratio"][p] * count / batch**n)


def test_a_row_of_the_log():
    logits = torch.randn(4, 4, 4, generator=torch.Generator().manual_seed(0))
    row = cube_log(logits, variance=True)
    assert row["first"] == float(logits[0, 0, 0]) and row["bad"] == float(logits[0, 1, 2])
    error = (logits - one_hot_labels(3, 4)).square()
    assert row["mean_error"] == pytest.approx(float(error.mean()), rel=1e-5)
    assert row["error 3"] == pytest.approx(float(error[(torch.arange(4),) * 3].mean()), rel=1e-5)
    assert "variance 2+1" in row
    exact = cube_log(logits, "exact", exact=logits)
    assert exact["mean_error"] == 0
    assert math.isnan(first_and_bad(logits[:2, :2, :2])[1])
    with pytest.raises(ValueError, match="errors must be"):
        cube_log(logits, "nothing")


def test_the_table_of_regions():
    rows = [dict(step=k, **cube_log(torch.randn(3, 3))) for k in range(3)]
    table = region_table(rows, "ratio")
    assert list(table.columns) == ["2", "1+1"] and list(table.index) == [0, 1, 2]
    assert table.loc[1, "1+1"] == rows[1]["ratio 1+1"]
    with pytest.raises(ValueError, match="no 'size' of regions"):
        region_table(rows, "size")
    assert region_name((2, 2, 1)) == "2+2+1"


# ---- the objective ----


@pytest.mark.parametrize("loss", ["pairs", "axis", "slice", "sigmoid"])
@pytest.mark.parametrize("measure", ["pairwise", "sum_norm", "l2norm"])
def test_a_complete_batch_has_the_loss_of_the_cube(loss, measure):
    xs = list(random_views(3, 4).values())
    objective = TupleObjective(3, loss, measure, 4, 5, scale=3.0)
    bias = -2 * math.log(4) if loss == "sigmoid" else 0.0
    assert objective(xs).item() == pytest.approx(cube_loss(xs, measure, loss, 3.0, bias).item(), rel=1e-5)
    summed = TupleObjective(3, loss, measure, 4, 5, scale=3.0, reduction="sum")
    assert summed(xs).item() == pytest.approx(4 * objective(xs).item(), rel=1e-5)


def test_missing_views_are_masked_and_never_read():
    xs = list(random_views(3, 5).values())
    present = torch.ones(3, 5, dtype=torch.bool)
    present[2, 1] = present[0, 3] = False
    objective, values = TupleObjective(3, "axis", "sum_norm", 5, 5), []
    for fill in (0.5, 1e3):
        filled = [x.clone().requires_grad_() for x in xs]
        with torch.no_grad():
            filled[2][1], filled[0][3] = fill, -fill
        value = objective(filled, present)
        value.backward()
        assert filled[2].grad[1].abs().max() == 0 == filled[0].grad[3].abs().max()
        assert filled[1].grad.abs().sum(1).min() > 0
        values.append(value.item())
    assert values[0] == values[1]


def test_incomplete_tuples_are_judged_among_those_that_have_what_they_have():
    xs = list(random_views(3, 5).values())
    present = torch.ones(3, 5, dtype=torch.bool)
    present[2, 1] = present[2, 4] = False
    scale = 1 / 0.07
    whole = cube_loss([x[[0, 2, 3]] for x in xs], "sum_norm", "axis", scale)
    two = cube_loss(xs[:2], "sum_norm", "axis", scale)
    found = TupleObjective(3, "axis", "sum_norm", 5, 5)(xs, present)
    assert found.item() == pytest.approx(float(3 * whole + 2 * two) / 5, rel=1e-5)
    patterns = view_patterns(present)
    assert [(views, rows.tolist(), count) for views, rows, count in patterns] == [
        ([0, 1], [0, 1, 2, 3, 4], 2),
        ([0, 1, 2], [0, 2, 3], 3),
    ]
    with pytest.raises(ValueError, match="two tuples"):
        TupleObjective(3, "axis", "sum_norm", 5, 5)(xs, torch.eye(3, 5).bool())


def test_projections_act_where_the_table_says():
    xs = list(random_views(3, 4).values())
    for projection, moved in (("inv", (1, 2)), ("iinv", (0,)), ("none", ())):
        objective = TupleObjective(3, "axis", "sum_norm", 4, 5, projection=projection)
        for k, (x, y) in enumerate(zip(xs, objective.projected(xs))):
            expected = x @ torch.linalg.inv(objective.matrix) if k in moved else x
            assert torch.allclose(y, F.normalize(expected, dim=-1), atol=1e-5), (projection, k)


def test_weights_by_the_distance_of_a_region():
    xs = [F.normalize(x, dim=-1) for x in random_views(3, 4).values()]
    found = distance_weights(xs, "sum_norm", 5.0)
    gap = (5 * cube(xs, "sum_norm") - 5 * cube([xs[0]] * 3, "sum_norm")).double().square()
    sums = {}
    for index in itertools.product(range(4), repeat=3):
        sums.setdefault(region_of(index), []).append(float(gap[index]))
    roots = {p: math.sqrt(np.mean(v)) for p, v in sums.items()}
    mean = np.mean(list(roots.values()))
    assert found == pytest.approx({p: r / mean for p, r in roots.items()}, rel=1e-3)
    xs = [x.requires_grad_() for x in xs]
    value = TupleObjective(3, "slice", "sum_norm", 4, 5, normlogits=True)(xs)
    expected = cube_loss(
        [x.detach() for x in xs],
        "sum_norm",
        "slice",
        1 / 0.07,
        weights=distance_weights(xs, "sum_norm", 1 / 0.07),
    )
    assert value.item() == pytest.approx(expected.item(), rel=1e-4)


def test_what_the_objective_learns():
    xs = list(random_views(3, 4).values())
    objective = TupleObjective(3, "slice", "sum_norm", 4, 5, projection="inv", weights="learned")
    objective(xs).backward()
    named = {k: p.grad is not None and bool(p.grad.abs().sum() > 0) for k, p in objective.named_parameters()}
    assert named == dict(log_scale=True, matrix=True, weights=True)
    fixed = TupleObjective(3, "slice", "sum_norm", 4, 5, scale=5.0, max_scale=5.0)
    assert not fixed.log_scale.requires_grad and float(fixed.scale) == pytest.approx(5.0)


@pytest.mark.parametrize(
    "wrong",
    [
        dict(loss="all"),
        dict(measure="cos"),
        dict(projection="both"),
        dict(reduction="max"),
        dict(normlogits=True, weights="density"),
    ],
)
def test_objectives_that_do_not_exist(wrong):
    with pytest.raises(ValueError, match="must be|drop"):
        TupleObjective(3, **wrong)


# ---- encoding ----


@pytest.mark.parametrize("chunk", [1, 3, 7, 20])
def test_pieces_give_the_gradient_of_the_full_batch(chunk):
    network = FeatureEncoder(5, 4, layers=2, width=8).double()
    x, found = torch.randn(7, 5, dtype=torch.float64), []
    for size in (None, chunk):
        network.zero_grad()
        z = [F.normalize(encode_in_chunks(network, v, size), dim=-1) for v in (x, x + 0.1, x - 0.2)]
        value = cube_loss(z, "sum_norm", "slice", 5.0)
        value.backward()
        found.append((value.detach(), [p.grad.clone() for p in network.parameters()]))
    assert torch.allclose(found[0][0], found[1][0], rtol=1e-12)
    for a, b in zip(found[0][1], found[1][1]):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-14)


def test_pieces_repeat_their_random_numbers():
    network, x = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(5, 3)), torch.ones(6, 5)
    torch.manual_seed(0)
    z = encode_in_chunks(network, x, 2)
    z.sum().backward()
    kept = network[1].weight.grad.clone()
    network.zero_grad()
    torch.manual_seed(0)
    torch.cat([network(p) for p in x.split(2)]).sum().backward()
    assert torch.equal(kept, network[1].weight.grad)


def test_rows_that_mix_are_refused_in_pieces():
    with pytest.raises(ValueError, match="treat every row alone"):
        encode_in_chunks(torch.nn.BatchNorm1d(3), torch.ones(4, 3), 2)
    assert encode_in_chunks(torch.nn.BatchNorm1d(3).eval(), torch.ones(4, 3), 2).shape == (4, 3)
    with pytest.raises(ValueError, match="chunk must be"):
        encode_in_chunks(torch.nn.Identity(), torch.ones(4, 3), 0)


def test_a_shared_encoder_gives_each_view_its_own_rows():
    shared, own = FeatureEncoder(5, 4), FeatureEncoder(5, 4, seed=1)
    batch = random_views(3, 6)
    encoders = {"v0": shared, "v1": own, "v2": shared}
    for z, name in zip(encode_batch(encoders, batch), batch):
        assert torch.allclose(z, encoders[name](batch[name]), atol=1e-6)


# ---- training ----


def same_weights(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values()))


def test_a_killed_training_goes_on_to_the_same_bit(tmp_path):
    items = tuples_of(missing=[(2, 1), (2, 5), (0, 7)])
    split = items.rows(range(16)), items.rows(range(16, 24))
    options = dict(loss="axis", measure="sum_norm", held=split[1], steps=12, look_every=4, batch_size=5)
    options |= dict(save_every=5, projection="iinv", embed_dim=6, seed=3)

    def encoders():
        drop = torch.nn.Dropout(0.2)
        return {
            k: torch.nn.Sequential(drop, FeatureEncoder(5, 6, seed=k2)) for k2, k in enumerate(items.names)
        }

    whole = train_encoders(split[0], encoders(), **options)
    calls = []

    def killed(_):
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError("killed")
        return {}

    with pytest.raises(MemoryError):
        train_encoders(split[0], encoders(), folder=tmp_path, more=killed, **options)
    resumed = train_encoders(split[0], encoders(), folder=tmp_path, **options)
    assert resumed.history == whole.history and len(whole.history) == 12
    assert [str(look) for look in resumed.looks] == [str(look) for look in whole.looks]
    assert all(same_weights(resumed.encoders[k], whole.encoders[k]) for k in items.names)
    assert same_weights(resumed.objective, whole.objective)
    again = train_encoders(split[0], encoders(), folder=tmp_path, **options)
    assert again.history == whole.history and same_weights(again.objective, whole.objective)


def test_a_folder_of_another_run_is_named(tmp_path):
    items = tuples_of(labels=False)
    train_encoders(items, steps=2, folder=tmp_path, embed_dim=4)
    with pytest.raises(ValueError, match="another run.*batch_size"):
        train_encoders(items, steps=2, folder=tmp_path, embed_dim=4, batch_size=5)
    fresh = train_encoders(items, steps=2, folder=tmp_path, embed_dim=4, batch_size=5, resume=False)
    assert len(fresh.history) == 2
    (tmp_path / "state.safetensors").write_bytes(b"half")
    with pytest.raises(ValueError, match="not a readable training state"):
        train_encoders(items, steps=2, folder=tmp_path, embed_dim=4)


def test_frozen_encoders_stay_and_unfrozen_ones_move():
    items = tuples_of()
    encoders = default_encoders(items, 6)
    encoders["v0"].requires_grad_(False)
    before = {k: {n: p.clone() for n, p in e.named_parameters()} for k, e in encoders.items()}
    run = train_encoders(items, encoders, "pairs", steps=3, embed_dim=6)
    for name, e in encoders.items():
        moved = any(not torch.equal(p, before[name][k]) for k, p in e.named_parameters())
        assert moved == (name != "v0")
    row = run.history[-1]
    assert row["gradient v0"] == 0 < row["gradient v1"]


def test_a_loss_without_a_cube_builds_none_for_its_log(monkeypatch):
    items = tuples_of()
    train_encoders(items, None, "axis", steps=2, embed_dim=4)  # this one logs its cube

    def refuse(*_, **__):
        raise AssertionError("a cube was built")

    monkeypatch.setattr("brace_nb.grounding.tuple_objective.cube", refuse)
    with pytest.raises(AssertionError, match="a cube was built"):
        train_encoders(items, None, "axis", steps=2, embed_dim=4)
    logged = train_encoders(items, None, "pairs", steps=3, embed_dim=4).history
    assert [row["step"] for row in logged] == [0, 1, 2] and not any(
        "share" in k for row in logged for k in row
    )
    assert train_encoders(items, None, "axis", steps=3, embed_dim=4, log_every=0).history == []


def test_the_logged_gradient_norm_is_that_of_the_loss():
    items, encoder = tuples_of(n=2, rows=6), FeatureEncoder(5, 4)
    start = FeatureEncoder(5, 4)
    run = train_encoders(items, encoder, "axis", "sum_norm", steps=1, batch_size=6, embed_dim=4)
    z = [start(x) for x in items.views.values()]
    cube_loss(z, "sum_norm", "axis", 1 / 0.07).backward()
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in start.parameters()))
    assert run.history[0]["gradient v0"] == pytest.approx(norm, rel=1e-4) == run.history[0]["gradient v1"]
    assert run.history[0]["loss"] == pytest.approx(
        cube_loss(z, "sum_norm", "axis", 1 / 0.07).item(), rel=1e-5
    )


def test_gradient_caching_does_not_change_a_training():
    items, runs = tuples_of(), []
    for chunk in (None, 2):
        encoders = {k: FeatureEncoder(5, 6, seed=1).double() for k in items.names}
        double = AlignedTuples(items.views)
        double.views = {k: x.double() for k, x in double.views.items()}
        runs.append(train_encoders(double, encoders, "slice", "sum_norm", steps=5, embed_dim=6, chunk=chunk))
    for a, b in zip(*(r.history for r in runs)):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-6)


def test_it_learns_and_shuffled_views_do_not():
    items = tuples_of(n=4, rows=120)
    split = items.rows(range(90)), items.rows(range(90, 120))
    mixed = {
        k: x[torch.randperm(90, generator=torch.Generator().manual_seed(k2))]
        for k2, (k, x) in enumerate(split[0].views.items())
    }
    options = dict(held=split[1], steps=120, embed_dim=8, log_every=40, learning_rate=3e-3)
    found = [
        train_encoders(t, None, "axis", "sum_norm", **options).looks[-1]["R@1"]
        for t in (split[0], AlignedTuples(mixed, labels=split[0].labels))
    ]
    assert found[0] > 3 * found[1] and found[0] > 0.3


def test_encoders_that_do_not_fit():
    items = tuples_of()
    with pytest.raises(ValueError, match="a module for each view"):
        train_encoders(items, {"v0": FeatureEncoder(5, 4)})
    with pytest.raises(ValueError, match="batch_size must be"):
        train_encoders(items, batch_size=1)
    with pytest.raises(FloatingPointError, match="diverged"):
        train_encoders(items, steps=50, learning_rate=lambda step: 1e18, embed_dim=4)


# ---- looks ----


def test_a_probe_in_closed_form():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).numpy()
    assert least_squares_probe(x, y, x, y, 1e-6) > 0.9
    standard = (x.double() - x.double().mean(0)) / x.double().std(0, correction=0)
    target = torch.eye(2, dtype=torch.float64)[torch.as_tensor(y).long()]
    gram = standard.T @ standard + 2.0 * 40**0.5 * torch.eye(3)
    told = standard @ torch.linalg.solve(gram, standard.T @ (target - target.mean(0))) + target.mean(0)
    assert least_squares_probe(x, y, x, y, 2.0) == float((told.argmax(1).numpy() == y).mean())


def test_lagged_probes_use_the_look_before():
    items = tuples_of(rows=60)
    learn, held = items.rows(range(40)), items.rows(range(40, 60))
    looks = Looks(learn, held, 6)
    first, second = default_encoders(items, 6, seed=0), default_encoders(items, 6, seed=50)
    assert math.isnan(looks(first, 10.0)["lagged v1"])
    found = looks(second, 10.0)
    old, new = embed_views(first, learn)["v1"], embed_views(second, held)["v1"]
    assert found["lagged v1"] == least_squares_probe(old, learn.labels, new, held.labels)
    honest = embed_views(second, learn)["v1"]
    assert found["probe v1"] == least_squares_probe(honest, learn.labels, new, held.labels)


def test_recall_between_views_by_hand():
    same = torch.eye(4)
    found = pair_recall(dict(a=same, b=same, c=same.roll(1, 0)), ks=(1,))
    assert found == {"R@1 a-b": 1.0, "R@1 a-c": 0.0, "R@1 b-c": 0.0, "R@1": pytest.approx(1 / 3)}
    gone = same.clone()
    gone[0] = torch.nan
    assert pair_recall(dict(a=same, b=gone), ks=(1,))["R@1 a-b"] == 1.0


# ---- data ----


def test_a_table_of_paths_and_captions(tmp_path):
    from PIL import Image

    for k in range(4):
        Image.new("RGBA", (9, 9), (60 * k, 0, 0, 255)).save(tmp_path / f"{k}.png")
    rows = [
        "picture,english,spanish,label",
        "0.png,red one,rojo,a",
        "1.png,red two,,b",
        "2.png,three,tres,a",
        "3.png,,cuatro,b",
    ]
    (tmp_path / "own.csv").write_text("\n".join(rows))
    items = read_aligned(tmp_path / "own.csv", image_size=32)
    assert items.present.int().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1]]
    assert items.views["picture"].shape == (4, 32, 32, 3) and items.views["picture"][2, 0, 0].tolist() == [
        120,
        0,
        0,
    ]
    assert items.labels.tolist() == ["a", "b", "a", "b"]
    run = train_encoders(
        items, default_encoders(items, 8, width=64), "pairs", steps=2, batch_size=4, embed_dim=8
    )
    assert isinstance(run.encoders["picture"], PictureTower) and isinstance(
        run.encoders["english"], TextTower
    )
    assert run.embed(items)["spanish"].isnan().any(1).tolist() == [False, True, False, False]
    (tmp_path / "own.csv").write_text("picture,english\n9.png,nine")
    with pytest.raises(FileNotFoundError, match="9.png"):
        read_aligned(tmp_path / "own.csv")


def test_embedding_files(tmp_path):
    a, b = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    b[2] = np.nan
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    items = read_aligned({"one": tmp_path / "a.npy", "two": tmp_path / "b.npy"})
    assert items.present[1].tolist() == [True, True, False, True, True, True]
    assert torch.equal(items.views["one"], torch.from_numpy(a))
    assert items.only(["two"] + ["one"]).names == ["two", "one"] and len(items.rows([0, 2])) == 2


@pytest.mark.parametrize(
    "views",
    [
        {"a": torch.ones(3, 2)},
        {"a": torch.ones(3, 2), "b": torch.ones(4, 2)},
        {"a": torch.ones(3, 2), "b": torch.ones(3)},
        {"a": torch.ones(3, 2), "b": torch.tensor([[1.0, torch.nan]] * 3)},
    ],
)
def test_views_that_do_not_make_tuples(views):
    with pytest.raises(ValueError, match="views|view must be|one number of rows|finite"):
        AlignedTuples(views)


def test_tokens_of_captions():
    tokens, there, tokenizer = text_tokens(["red apple", None, "", "red pear"], vocab_size=300)
    assert there.tolist() == [True, False, False, True] and tokens.shape[0] == 4
    assert tokenizer.decode(tokens[3].tolist()).strip().startswith("red pear")
    with pytest.raises(ValueError, match="say something"):
        text_tokens([None, " "])
