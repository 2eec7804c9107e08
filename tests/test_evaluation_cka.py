"HSIC and CKA against plain float64 loops; all forms equal; properties, hooks, bad input."

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.as_printed.evaluation import (
    CKA_VARIANTS,
    library_cka,
    library_hsic,
    library_matrix,
    thesis_hsic,
)
from brace_nb.companion import PALETTE, style
from brace_nb.evaluation import (
    HSIC_FORMS,
    HSICForm,
    REPRESENTATIONS,
    Representation,
    MinibatchCKA,
    StreamingCKA,
    cka,
    cka_matrix,
    cka_z,
    compare_models,
    end_positions,
    hollow_gram,
    hsic,
    layer_features,
    null_sd,
    permuted_cka,
)
from brace_nb.evaluation import long_rows, row_kernels, similarity_index

quick = settings(max_examples=40, deadline=None)
shapes = st.tuples(st.integers(4, 12), st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))


def noise(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# ---------------------------------------------------------------- oracle: Song et al. 2012 and Gretton 2005


def dots(x):
    return [[sum(a * b for a, b in zip(u, v)) for v in x] for u in x]


def centered(M):
    n, rows = len(M), range(len(M))
    return [
        [M[i][j] - sum(M[i]) / n - sum(M[k][j] for k in rows) / n + sum(map(sum, M)) / n**2 for j in rows]
        for i in rows
    ]


def oracle_hsic(x, y, unbiased=True):
    K, L, n = dots(x), dots(y), len(x)
    rows = range(n)
    if not unbiased:
        C, D = centered(K), centered(L)
        return sum(C[i][j] * D[j][i] for i in rows for j in rows) / (n - 1) ** 2
    for M in (K, L):
        for i in rows:
            M[i][i] = 0.0
    trace = sum(K[i][j] * L[j][i] for i in rows for j in rows)
    middle = sum(K[i][j] * L[j][k] for i in rows for j in rows for k in rows)
    return (trace + sum(map(sum, K)) * sum(map(sum, L)) / ((n - 1) * (n - 2)) - 2 / (n - 2) * middle) / (
        n * (n - 3)
    )


def oracle_cka(x, y, unbiased=True):
    return oracle_hsic(x, y, unbiased) / math.sqrt(oracle_hsic(x, x, unbiased) * oracle_hsic(y, y, unbiased))


@quick
@given(shapes)
def test_every_form_is_the_definition(case):
    n, d1, d2, seed = case
    x, y = noise(n, d1, seed=seed), noise(n, d2, seed=seed + 1)
    want = oracle_hsic(x.tolist(), y.tolist())
    for form in (*HSIC_FORMS, "auto"):
        assert math.isclose(hsic(x, y, form=form).item(), want, rel_tol=1e-9, abs_tol=1e-9), form
    for form in ("gram", "features", "auto"):
        assert math.isclose(
            hsic(x, y, False, form).item(),
            oracle_hsic(x.tolist(), y.tolist(), False),
            rel_tol=1e-9,
            abs_tol=1e-9,
        )


@pytest.mark.parametrize("unbiased", [True, False])
@quick
@given(shapes)
def test_matrix_streaming_and_pairs_agree(unbiased, case):
    n, d1, d2, seed = case
    n += 1
    x, y = noise(n, d1, seed=seed), noise(n, d2, seed=seed + 1)
    want = oracle_cka(x.tolist(), y.tolist(), unbiased)
    assert math.isclose(cka(x, y, unbiased).item(), want, abs_tol=1e-8)
    assert math.isclose(cka_matrix([x], [y], unbiased).item(), want, abs_tol=1e-8)
    stream = StreamingCKA(unbiased)
    for i in range(0, n, 3):
        stream.update(x[i : i + 3], y[i : i + 3])
    assert math.isclose(stream.compute().item(), want, abs_tol=1e-6)
    assert math.isclose(
        stream.hsic().item(), oracle_hsic(x.tolist(), y.tolist(), unbiased), rel_tol=1e-8, abs_tol=1e-8
    )


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("n", [5, 16, 17, 63, 150, 700])
def test_blocks_of_rows_change_nothing(n, unbiased, monkeypatch):
    a, b = [noise(n, d, seed=d) for d in (3, 40)], [noise(n, d, seed=d) for d in (7, 40, 2)]
    want = torch.stack([torch.stack([cka(x, y, unbiased, "gram") for y in b]) for x in a])
    assert (cka_matrix(a, b, unbiased) - want).abs().max() < 1e-12
    monkeypatch.setattr(
        long_rows, "strips", lambda n, layers: [[(i, min(i + 13, n))] for i in range(0, n, 13)]
    )
    monkeypatch.setattr(row_kernels, "MOST_NUMBERS", 1)
    monkeypatch.setattr(long_rows, "COLUMNS", 50)
    assert (cka_matrix(a, b, unbiased) - want).abs().max() < 1e-12


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("groups", [[[(0, 20), (20, 40), (40, 45)]], [[(0, 30)], [(30, 45)]]])
def test_long_rows_are_the_upper_half_of_centered_gram_matrices(groups, unbiased):
    layers = [noise(45, d, seed=d) + 3 for d in (1, 6, 50)]
    made = long_rows.LongRows(layers, unbiased, torch.float64, groups)
    for group in groups:
        long = made.fill(group).clone()
        for x, row in zip(layers, long):
            gram = similarity_index.centered_gram(x, unbiased)
            for (i, j), part in zip(group, row.split([(j - i) * j for i, j in group])):
                want = gram[:j, i:j].clone()
                want[:i] *= math.sqrt(2)
                assert (part.view(j, j - i) - want).abs().max() < 1e-11


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("groups", [[(0, 45)], [(0, 16), (16, 32), (32, 45)]])
@pytest.mark.parametrize("dtype, close", [(torch.float64, 1e-11), (torch.float32, 2e-5)])
def test_triangles_are_the_lower_half_of_centered_gram_matrices(groups, unbiased, dtype, close):
    layers = [noise(45, d, seed=d) + 3 for d in (1, 6, 6, 50)]
    made = row_kernels.Triangles(layers, unbiased, dtype, groups)
    found = torch.cat([made.fill(group).clone() for group in groups], 1)
    rows, cols = np.tril_indices(45)
    for x, row, own, squares in zip(layers, found, made.own, made.squares):
        gram = similarity_index.centered_gram(x, unbiased)
        want = torch.from_numpy(np.where(rows == cols, 1, math.sqrt(2))) * gram[rows, cols]
        assert (row - want).abs().max() < close * want.abs().max()
        assert torch.isclose(own, gram.square().sum(), rtol=close)
        assert torch.allclose(squares.double(), (x - x.mean(0)).square().sum(1), rtol=close)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 63, 64, 65, 130])
@pytest.mark.parametrize("d", [1, 15, 16, 100])
def test_the_lower_triangle_is_a_product_of_rows(n, d):
    up = -(-n // 4) * 4
    c, gram = np.zeros((up, d), np.float32), np.full((up, up), np.nan, np.float32)
    c[:n] = np.random.default_rng(n).normal(size=(n, d))
    row_kernels.lower_gram(c, gram, 0, n)
    want = c.astype(float) @ c.T.astype(float)
    low = np.tril_indices(n)
    assert abs(gram[low] - want[low]).max() <= 1e-6 * max(1, abs(want).max())


def test_same_model_is_computed_once_and_symmetric():
    a = [noise(60, d, seed=d, dtype=torch.float32) for d in (4, 9, 30)]
    M = cka_matrix(a, a)
    assert torch.equal(M, M.T) and torch.allclose(M.diagonal(), torch.ones(3), atol=1e-7)
    assert torch.allclose(M, cka_matrix(a, [x.clone() for x in a]), atol=1e-7)


@quick
@given(shapes, st.floats(0.1, 10))
def test_bounds_and_invariances(case, scale):
    n, d1, d2, seed = case
    x, y = noise(n, d1, seed=seed), noise(n, d2, seed=seed + 1)
    value = cka(x, y)
    assert abs(value) <= 1 and hsic(x, x) >= 0
    turn, _ = torch.linalg.qr(noise(d1, d1, seed=seed))
    moved = x @ turn * scale + noise(1, d1, seed=seed + 2) * scale
    assert abs(cka(moved, y) - value) < 1e-7 and abs(cka(x[:, torch.randperm(d1)], y) - value) < 1e-9
    order = torch.randperm(n)
    assert abs(cka(x[order], y[order]) - value) < 1e-9 and abs(cka(y, x) - value) < 1e-12


def test_float32_is_exact_to_1e5_and_free_of_nan_at_offset_100():
    layers_a, layers_b = (
        [noise(128, 512, seed=i, dtype=torch.float32) for i in range(6)],
        [noise(128, 512, seed=i + 9, dtype=torch.float32) for i in range(6)],
    )
    for i in range(6):
        layers_b[i] = layers_b[i] + 0.3 * i * layers_a[i]
    exact = cka_matrix([x.double() for x in layers_a], [x.double() for x in layers_b])
    assert (cka_matrix(layers_a, layers_b) - exact).abs().max() < 2e-7
    for offset in (100, -1000):
        a, b = ([x + offset for x in layers] for layers in (layers_a, layers_b))
        exact = cka_matrix([x.double() for x in a], [x.double() for x in b])
        assert (cka_matrix(a, b) - exact).abs().max() < 2e-7
        for form in ("gram", "features"):
            assert abs(cka(a[1], b[1], form=form) - exact[1, 1]) < 2e-5
    a, b = layers_a[0] + 100, layers_b[0] + 100
    library = library_cka(a, b)
    assert not abs(library - exact[0, 0]) < 0.1  # raw Gram matrices have lost everything


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_are_computed_in_float32(dtype):
    x, y = noise(40, 64).to(dtype), noise(40, 32, seed=1).to(dtype)
    assert cka(x, y).dtype == torch.float32 and abs(cka(x, y) - cka(x.double(), y.double())) < 1e-6
    assert abs(cka_matrix([x], [y]).item() - cka(x.double(), y.double())) < 1e-6


def test_autocast_and_low_matmul_precision_do_not_leak_in():
    x, y = noise(40, 64, dtype=torch.float32), noise(40, 32, seed=1, dtype=torch.float32)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            values = cka(x, y), cka_matrix([x], [y]).squeeze(), StreamingCKA().update(x, y).compute()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert all(abs(v - cka(x.double(), y.double())) < 1e-6 for v in values)


@pytest.mark.parametrize("form", ["gram", "features"])
def test_gradients(form):
    x, y = noise(7, 3).requires_grad_(), noise(7, 4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda a, b: (hsic(a, b, form=form), cka(a, b, form=form), cka(a, b, False, form)), (x, y)
    )


def test_leading_axes_are_batches_and_kinds_are_kept():
    x, y = noise(2, 3, 9, 4), noise(2, 3, 9, 5, seed=1)
    for form in ("gram", "features", "sums"):
        assert torch.allclose(
            cka(x, y, form=form),
            torch.stack([torch.stack([cka(u, v) for u, v in zip(p, q)]) for p, q in zip(x, y)]),
        )
    assert isinstance(hsic(x.numpy(), y.numpy()), np.ndarray) and isinstance(
        cka_matrix([x[0, 0].numpy()], [y[0, 0].numpy()]), np.ndarray
    )
    assert (
        cka(x.float(), y.float()).dtype == torch.float32
        and cka(x.float().numpy()[0, 0], y[0, 0].float().numpy()).dtype == np.float32
    )


# ---------------------------------------------------------------- minibatches and streams


def test_minibatch_weighs_the_hsic_of_a_batch_by_its_pairs():
    x, y = noise(57, 5), noise(57, 6, seed=1)
    y[:, :5] += x
    cuts = [slice(0, 20), slice(20, 53), slice(53, 57)]
    total = MinibatchCKA()
    for c in cuts:
        total.update({"a": x[c]}, {"b": y[c]})

    def mean(u, v):
        parts = [(u[c].tolist(), v[c].tolist()) for c in cuts]
        return sum(len(p) * (len(p) - 3) * oracle_hsic(p, q) for p, q in parts)

    want = mean(x, y) / math.sqrt(mean(x, x) * mean(y, y))
    assert math.isclose(total.compute().item(), want, abs_tol=1e-12) and total.rows == 57
    with pytest.raises(ValueError, match="same layers"):
        total.update({"c": x}, {"b": y})
    with pytest.raises(ValueError, match="no batch"):
        MinibatchCKA().compute()


@settings(max_examples=15, deadline=None)
@given(st.integers(40, 120), st.integers(4, 12), st.integers(0, 10**4))
def test_an_uneven_last_batch_does_no_harm(size, last, seed):
    "Over orders of the rows the error is that of dropping the last batch, not that of the few rows in it."
    rows = 3 * size + last
    x = noise(rows, 6, seed=seed)
    y = torch.tanh(x @ noise(6, 5, seed=seed + 1)) + 0.7 * noise(rows, 5, seed=seed + 2)
    exact, errors = cka(x, y).item(), {"kept": [], "dropped": []}
    for order in (np.random.default_rng(seed + k).permutation(rows) for k in range(40)):
        parts = list(zip(x[order].split(size), y[order].split(size)))
        for name, chosen in (("kept", parts), ("dropped", parts[:-1])):
            total = MinibatchCKA()
            for p, q in chosen:
                total.update([p], [q])
            errors[name].append(total.compute().item() - exact)
    kept, dropped = (np.sqrt(np.mean(np.square(errors[name]))) for name in ("kept", "dropped"))
    assert kept <= 1.1 * dropped


def test_minibatch_hsic_has_no_bias_but_the_mean_of_ratios_has():
    x = noise(4000, 6)
    y = torch.tanh(x) + noise(4000, 6, seed=2)
    parts = list(zip(x.split(8), y.split(8)))
    total = MinibatchCKA()
    for p, q in parts:
        total.update([p], [q])
    full = StreamingCKA().update(x, y).compute()
    assert abs(total.compute() - full) < 0.02
    biased = MinibatchCKA(False)
    for p, q in parts:
        biased.update([p], [q])
    assert biased.compute() > full + 0.2


@quick
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 99))
def test_streaming_knows_neither_order_nor_chunks(sizes, seed):
    n = sum(sizes) + 4
    x, y = noise(n, 3, seed=seed) + 40, noise(n, 4, seed=seed + 1) - 7
    cuts = np.cumsum([0, 4, *sizes])
    stream = StreamingCKA()
    for i in np.random.default_rng(seed).permutation(len(cuts) - 1):
        stream.update(x[cuts[i] : cuts[i + 1]], y[cuts[i] : cuts[i + 1]])
    assert abs(stream.compute() - cka(x, y)) < 1e-7 and stream.n == n


def test_streaming_float32_at_an_offset():
    x = noise(3000, 40, dtype=torch.float32)
    y = torch.tanh(x[:, :20]) + noise(3000, 20, seed=1, dtype=torch.float32)
    exact = cka(x.double(), y.double())
    stream = StreamingCKA()
    for p, q in zip((x + 100).split(256), (y - 100).split(256)):
        stream.update(p, q)
    assert abs(stream.compute() - exact) < 1e-5
    with pytest.raises(ValueError, match="at least 4 rows; got 3"):
        StreamingCKA().update(x[:3], y[:3]).compute()


# ---------------------------------------------------------------- null distribution


@pytest.mark.parametrize("n", [4, 5, 6])
def test_closed_form_of_the_permutation_null(n):
    x, y = noise(n, 3), noise(n, 2, seed=1)
    values = [cka(x, y[list(p)]).item() for p in itertools.permutations(range(n))]
    assert abs(np.mean(values)) < 1e-12 and math.isclose(np.std(values), null_sd(n), rel_tol=1e-9)


def test_permuted_cka_and_z():
    x = noise(80, 10)
    y = x[:, :6] + noise(80, 6, seed=1)
    null = permuted_cka(x, y, 300, seed=3)
    assert (
        abs(null.std() / null_sd(80) - 1) < 0.15
        and abs(null.mean()) < 0.01
        and (null < cka(x, y).item()).all()
    )
    assert np.array_equal(null, permuted_cka(x, y, 300, seed=3)) and cka_z(0.5, 80) == 0.5 / null_sd(80)
    p = np.random.default_rng(3).permutation(80)
    assert math.isclose(null[0], cka(x, y[p]).item(), abs_tol=1e-12)


def test_independent_features_have_exactly_this_spread():
    values = cka(noise(3000, 8, 5), noise(3000, 8, 40, seed=1)).numpy()
    assert abs(values.mean()) < 4 * null_sd(8) / 3000**0.5 and abs(values.std() / null_sd(8) - 1) < 0.06


# ---------------------------------------------------------------- what has no answer


@pytest.mark.parametrize("value", [0.0, 3.7, -1e6, 1e-30])
@pytest.mark.parametrize("unbiased", [True, False])
def test_constant_features_give_nan_and_their_name(value, unbiased):
    x, flat = noise(30, 8, dtype=torch.float32), torch.full((30, 5), value)
    with pytest.warns(UserWarning, match="y: constant features"):
        assert cka(x, flat, unbiased).isnan()
    with pytest.warns(UserWarning, match="dead: constant features"):
        M = cka_matrix({"fine": x, "dead": flat}, {"x": x}, unbiased)
    assert abs(M[0, 0] - 1) < 1e-6 and M[1, 0].isnan()
    with pytest.warns(UserWarning, match="y: constant"):
        assert StreamingCKA(unbiased).update(x, flat).compute().isnan()


def test_a_dead_layer_of_one_model_leaves_its_namesake_alone():
    x = {name: noise(30, 8, seed=seed, dtype=torch.float32) for seed, name in enumerate("pq")}
    with pytest.warns(UserWarning, match="q: constant features"):
        M = cka_matrix(x, {"p": x["p"], "q": torch.ones(30, 5)})
    assert M[:, 1].isnan().all() and M[:, 0].isfinite().all()


def test_equidistant_rows_and_non_finite_rows():
    x = noise(30, 8, dtype=torch.float32)
    with pytest.warns(UserWarning, match="equally alike"):
        assert cka(torch.eye(30), x).isnan()
    with pytest.warns(UserWarning, match=r"layers_b\[0\]: all rows are equally alike"):
        assert cka_matrix([x], [torch.eye(30) * 7 + 2]).isnan().all()
    assert not cka(torch.eye(30), torch.eye(30), unbiased=False).isnan()  # the biased form sees the diagonal
    x[3, 2], x[9, 1] = torch.nan, torch.inf
    with pytest.warns(UserWarning, match="layers_a: *|NaN or infinity in 2 of 30 rows"):
        assert cka_matrix([x], [x]).isnan().all()


def test_a_constant_column_of_any_size_changes_nothing():
    x, y = noise(50, 8, dtype=torch.float32), noise(50, 6, seed=1, dtype=torch.float32)
    y[:, :6] += x[:, :6]
    huge = torch.cat([x * 1e-3, torch.full((50, 2), 1e6)], 1)
    assert (
        abs(cka(huge, y) - cka(x.double(), y.double())) < 1e-6
        and abs(cka_matrix([huge], [y]).item() - cka(x.double(), y.double())) < 1e-6
    )


def test_one_dead_batch_does_not_kill_a_layer():
    x, y = noise(40, 4), noise(40, 4, seed=1)
    x[:20] = 2.0
    total = MinibatchCKA()
    for i in (0, 20):
        total.update([x[i : i + 20]], [y[i : i + 20]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert abs(total.compute()) <= 1 and not total.undefined


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda x: hsic(x[:3], x[:3]), "at least 4 rows; got 3"),
        (lambda x: cka(x, x[1:]), "30 and 29 rows"),
        (lambda x: cka_matrix([x], [x[:9]]), "30 and 9 rows"),
        (lambda x: cka_matrix([x, x[:9]], [x]), "same rows"),
        (lambda x: cka_matrix([x[None]], [x]), "Flatten"),
        (lambda x: cka(x[:, 0], x), "Flatten"),
        (lambda x: cka_matrix([], [x]), "empty"),
        (lambda x: cka(x, x, form="f1"), "or auto. must be one of gram"),
        (lambda x: cka(x, x, False, "sums"), "unbiased estimate only"),
        (lambda x: cka(x, x, False, "ones"), "unbiased estimate only"),
        (lambda x: hsic(x[:1], x[:1], False), "at least 2 rows"),
        (lambda x: permuted_cka(x[None], x[None]), "must have the shape"),
        (lambda x: null_sd(3), "at least 4"),
        (lambda x: StreamingCKA().update(x, x[:4]), "same rows"),
        (lambda x: cka(x.numpy().astype(str), x), "real numbers"),
        (lambda x: cka_matrix([x.to(torch.complex64)], [x]), "real numbers"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call(noise(30, 4))


def test_baselines_are_the_same_statistic():
    x, y = noise(20, 30), noise(20, 10, seed=1)
    K, L = hollow_gram(x), hollow_gram(y)
    want = oracle_hsic(x.tolist(), y.tolist())
    for step in (0, 1, 2):
        assert math.isclose(thesis_hsic(K, L, step).item(), want * 20 * 17, rel_tol=1e-9), step
    assert math.isclose(library_hsic(K.float(), L.float()), want, rel_tol=1e-4)
    a, b = ([noise(20, 16, seed=i + s, dtype=torch.float32) for i in range(3)] for s in (0, 9))
    want = cka_matrix([x.double() for x in a], [x.double() for x in b])
    for name, (_, function) in CKA_VARIANTS.items():
        assert (function(a, b) - want).abs().max() < 1e-5, name


def test_torch_cka_itself_on_batches():
    "The library weighs all batches alike: our value for equal batches, not where the last is small."
    x = noise(400, 30, dtype=torch.float32)
    y = torch.tanh(x[:, :20]) + 0.7 * noise(400, 20, seed=1, dtype=torch.float32)
    for size, last in ((100, 100), (98, 8)):
        ours = MinibatchCKA()
        for p, q in zip(x.split(size), y.split(size)):
            ours.update([p], [q])
        assert len(p) == last
        theirs = library_matrix([x], [y], size)
        hsics = [
            [hsic(u, v) for u, v in zip(a.split(size), b.split(size))] for a, b in ((x, y), (x, x), (y, y))
        ]
        cross, own_a, own_b = (sum(h) for h in hsics)
        assert abs(theirs - cross / (own_a * own_b).sqrt()) < 1e-5
        assert (abs(theirs - ours.compute()) < 1e-5) == (last == size)


# ---------------------------------------------------------------- hooks


class Net(torch.nn.Module):
    "Token tower with a shared in-place ReLU and a branch that does not always run."

    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.relu, self.drop, self.rare = (
            torch.nn.Embedding(20, 6),
            torch.nn.Linear(6, 6),
            torch.nn.ReLU(inplace=True),
            torch.nn.Dropout(0.5),
            torch.nn.Linear(6, 6),
        )

    def forward(self, ids, rare=False):
        h = self.relu(self.mix(self.embed(ids)).cumsum(1))
        h = self.drop(self.relu(h - 1))
        return self.rare(h) if rare else h


def tokens(n=12, length=5, seed=0):
    ids = torch.randint(1, 19, (n, length), generator=torch.Generator().manual_seed(seed))
    ids[torch.arange(n), torch.arange(n) % length] = 19
    return ids


def clean(net):
    return not any(m._forward_hooks for m in net.modules())


def test_features_are_copies_in_order_and_without_gradients():
    torch.manual_seed(0)
    net, ids = Net(), tokens()
    net.drop.eval()
    features = layer_features(net, ids.split(5))
    assert list(features) == ["embed", "mix", "relu", "relu#2", "drop"] and all(
        len(v) == 12 and not v.requires_grad for v in features.values()
    )
    assert (
        torch.allclose(features["mix"], net.mix(net.embed(ids)).flatten(1), atol=1e-6)
        and (features["relu"] >= 0).all()
    )
    assert torch.equal(features["drop"], features["relu#2"])  # dropout was off
    assert (
        clean(net) and net.training and net.mix.training and not net.drop.training
    )  # every module keeps its own mode


def test_representations():
    torch.manual_seed(0)
    net, ids = Net(), tokens()
    at = ids.argmax(1)
    h = net.mix(net.embed(ids)).detach()
    got = {r: layer_features(net, ids, "mix", r)["mix"] for r in REPRESENTATIONS}
    assert (
        torch.equal(got["flatten"], h.flatten(1))
        and torch.allclose(got["mean"], h.mean(1))
        and torch.equal(got["cls"], h[:, 0])
    )
    assert torch.equal(got["eot"], h[torch.arange(12), at]) and torch.allclose(
        got["valid"], torch.stack([v[: k + 1].mean(0) for v, k in zip(h, at)])
    )
    last = layer_features(net, ids, "mix", lambda out, batch: out[:, -1], head=lambda out: 2 * out)["mix"]
    through = layer_features(net, ids, ["embed", "mix"], "eot", head=net.mix)  # a head made of hooked modules
    assert torch.allclose(through["embed"], got["eot"], atol=1e-6) and list(through) == ["embed", "mix"]
    assert torch.equal(last, 2 * h[:, -1]) and torch.equal(end_positions((None, ids)), at)
    picture = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
    x = noise(5, 3, 8, 8, dtype=torch.float32)
    assert torch.allclose(
        layer_features(picture, x, representation="mean")["0"], picture[0](x).mean((2, 3)), atol=1e-6
    )
    with pytest.raises(ValueError, match="no token ids"):
        layer_features(picture, x, representation="eot")


def test_choosing_layers():
    net, ids = Net(), tokens()
    assert list(layer_features(net, ids, torch.nn.Linear)) == ["mix"] and list(
        layer_features(net, ids, ["m*", "drop"])
    ) == ["mix", "drop"]
    assert list(layer_features(net, ids, "Net")) == ["Net"]  # the whole model
    with pytest.raises(ValueError, match="names are like"):
        layer_features(net, ids, ["mxi"])
    with pytest.raises(ValueError, match="no module of Net is a"):
        layer_features(net, ids, torch.nn.Conv2d)
    with pytest.raises(ValueError, match="was called"):
        layer_features(net, ids, "rare")
    with pytest.raises(ValueError, match="different numbers of samples"):
        layer_features(net, [(ids, False), (ids, True)])
    with pytest.raises(ValueError, match="representation must be one of flatten"):
        layer_features(net, ids, representation="EOT")
    assert clean(net)


def test_arguments_in_tuples_and_dicts():
    net, ids = Net(), tokens()
    assert "rare" in layer_features(net, [(ids, True)]) and "rare" in layer_features(
        net, [dict(ids=ids, rare=True)]
    )
    assert list(layer_features(net, ids, forward=lambda m, b: m.embed(b))) == ["embed"]


def test_hooks_go_away_after_any_error():
    net, ids = Net().train(), tokens()

    def fails(model, batch):
        model(batch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        layer_features(net, ids, forward=fails)

    def head(h):
        raise RuntimeError("head")

    with pytest.raises(RuntimeError, match="head"):
        layer_features(net, ids, head=head)
    with pytest.raises(ValueError, match="must give"):
        layer_features(net, ids, representation=lambda h, b: h)
    assert clean(net) and net.training


def test_modules_without_samples_first():
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.swap, self.out = torch.nn.Identity(), torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.out(self.swap(x.transpose(0, 1)).transpose(0, 1))

    odd, x = Odd(), noise(6, 3, 4, dtype=torch.float32)
    assert list(layer_features(odd, x)) == ["out"]
    with pytest.raises(ValueError, match="swap"):
        layer_features(odd, x, ["swap", "out"])
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)  # returns a tuple
    assert list(layer_features(attention, [(x, x, x)], "MultiheadAttention"))[0] == "MultiheadAttention"


def test_compare_models():
    torch.manual_seed(0)
    a, b, ids = Net(), Net(), tokens(40)
    full = compare_models(a, b, ids.split(16), representation="valid", layers=["mix", "relu"])
    assert (
        full.layers_a == ["mix", "relu", "relu#2"]
        and full.rows == full.batch_rows == 40
        and np.allclose(full.z, full.matrix / null_sd(40))
    )
    features = [layer_features(m, ids, ["mix", "relu"], "valid") for m in (a, b)]
    assert np.allclose(full.matrix, cka_matrix(*features)) and list(full.frame().columns) == full.layers_b
    small = compare_models(a, b, ids.split(20), minibatch=True, representation="valid", layers="mix")
    total = MinibatchCKA()
    for i in (0, 20):
        total.update({"mix": features[0]["mix"][i : i + 20]}, {"mix": features[1]["mix"][i : i + 20]})
    assert np.allclose(small.matrix, total.compute()) and small.batch_rows == 20
    own = compare_models(a, a, ids, representation="valid", layers="mix")
    assert np.allclose(own.matrix, 1)
    with pytest.warns(UserWarning, match="embed: constant"):
        dead = compare_models(a, b, ids, representation="eot", layers=["embed", "relu"])
    assert (
        list(dead.undefined) == ["embed"]
        and np.isnan(dead.matrix[0]).all()
        and not np.isnan(dead.matrix[1:, 1:]).any()
    )
    with pytest.raises(ValueError, match="40 and 39 rows"):
        compare_models(a, b, ids, ids[:39], representation="valid", layers="mix")
    with pytest.raises(ValueError, match="inputs of a end after 1 batches"):
        compare_models(a, b, ids, ids.split(20), layers="mix")
    with pytest.raises(ValueError, match="inputs of b end after 1 batches"):
        compare_models(a, b, ids.split(20), ids[:20], layers="mix", minibatch=True)
    lazy = compare_models(
        a, b, iter(ids.split(20)), minibatch=True, representation="valid", layers="mix"
    )  # one batch at a time
    assert np.array_equal(lazy.matrix, small.matrix)
    with pytest.raises(ValueError, match="none was called"):
        compare_models(a, b, [])
    with pytest.raises(ValueError, match="no batch"):
        compare_models(a, b, [], minibatch=True)
    with pytest.raises(ValueError, match="closed-form"):
        compare_models(a, b, ids, unbiased=False, layers="mix").z


@pytest.mark.gpu
def test_cuda_equals_cpu():
    a, b = ([noise(200, d, seed=d + s, dtype=torch.float32) for d in (64, 300)] for s in (0, 9))
    cpu, gpu = cka_matrix(a, b), cka_matrix([x.cuda() for x in a], [x.cuda() for x in b])
    assert gpu.is_cuda and (gpu.cpu() - cpu).abs().max() < 1e-6
    stream = StreamingCKA().update(a[0].cuda(), b[0].cuda())
    assert (
        abs(stream.compute().cpu() - cpu[0, 0]) < 1e-5
        and abs(cka(a[0].cuda(), b[0].cuda()).cpu() - cpu[0, 0]) < 1e-6
    )
    net, ids = Net().cuda(), tokens().cuda()
    assert all(v.is_cuda for v in layer_features(net, ids, representation="eot").values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [-25, -9, 9, 25])
def test_all_pairs_at_scales_whose_fourth_powers_do_not_exist(power, dtype):
    "A power of two changes no bit; where one layer lies far out, the others keep theirs."
    layers = [noise(12, d, seed=d).to(dtype) for d in (3, 8, 20)]
    expected = cka_matrix(layers, layers)
    factor = 2.0 ** round(power * np.log2(10) * (8 if dtype == torch.float64 else 1))
    moved = [layers[0], layers[1] * factor, layers[2]]
    assert torch.equal(cka_matrix(moved, moved), expected)
    assert torch.equal(cka_matrix(moved, layers), cka_matrix(layers, layers))
    assert MinibatchCKA().update(layers, layers).out_of_range is False
    assert MinibatchCKA().update(moved, moved).out_of_range or abs(power) < 20


# ---------------------------------------------------------------- a form, a representation in one cell


def test_a_form_of_hsic_is_one_cell(monkeypatch):
    facts = dict(title="rows of products", formula="sum_i (A B)_ii", cost="n^3", source="a test", color="red")

    def compute(x, y, unbiased):
        A, B = (similarity_index.centered_gram(v, unbiased) for v in (x, y))
        return (A @ B).diagonal(dim1=-2, dim2=-1).sum(-1)

    monkeypatch.setitem(HSIC_FORMS, "trace", HSICForm(**facts, compute=compute, matrices=True))
    x, y = noise(9, 3), noise(9, 4, seed=1)
    assert math.isclose(cka(x, y, form="trace"), cka(x, y), abs_tol=1e-12)
    test_every_form_is_the_definition()
    assert style(HSIC_FORMS["trace"])["color"] == PALETTE["red"]


def test_a_representation_is_one_cell(monkeypatch):
    last = Representation(title="last token", function=lambda h, at: h[:, -1], color="blue")
    monkeypatch.setitem(REPRESENTATIONS, "last", last)
    net, tokens = torch.nn.Sequential(torch.nn.Embedding(9, 4)), torch.arange(12).view(3, 4) % 9
    found = layer_features(net, tokens, representation="last")["0"]
    assert torch.equal(found, net[0](tokens)[:, -1]) and style(last)["color"] == PALETTE["blue"]
