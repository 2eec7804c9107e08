"Every measure against plain float64 loops: n = 2..6, rectangular batches, gradients, properties, bad input."

import itertools
import json
import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from brace_nb.as_printed.ndim import james_stein
from brace_nb.companion import PALETTE, style
from brace_nb.ndim import (
    MEASURES,
    STATISTICS,
    CubeScores,
    Measure,
    Statistic,
    cosine_tail,
    cube,
    feature_cube,
    is_increasing,
    point_statistics,
    rank_classes,
    rank_correlation,
    score,
    with_gram,
)

quick = settings(max_examples=40, deadline=None)
SHRINK = {"thesis": james_stein, "positive": "positive"}


def usable(n):
    return [k for k, m in MEASURES.items() if m.only in (None, n)]


# ---------------------------------------------------------------- oracle: the formulas in plain Python


def root(x):
    return math.sqrt(max(x, 0.0))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def norm(a):
    return math.sqrt(dot(a, a))


def determinant(M):
    return (
        sum((-1) ** j * M[0][j] * determinant([r[:j] + r[j + 1 :] for r in M[1:]]) for j in range(len(M)))
        if M
        else 1.0
    )


def sums(xs):
    "s_f, q_f and a_f of one tuple."
    columns = list(zip(*xs))
    return [[sum(map(f, c)) for c in columns] for f in (float, lambda v: v * v, abs)]


def means(xs):
    return [v / len(xs) for v in sums(xs)[0]]


def sst(xs):
    mean = means(xs)
    return [max(sum((x[f] - m) ** 2 for x in xs), 0.0) for f, m in enumerate(mean)]


def length(xs):
    return norm(sums(xs)[0])


def leave_one_out(xs):
    s = sums(xs)[0]
    rests = [[v - w for v, w in zip(s, x)] for x in xs]
    return sum(dot(x, r) / norm(r) if norm(r) > 1e-6 else 0.0 for x, r in zip(xs, rests))


def hypotenuses(mean, xs):
    return sum(m - (root(e) - math.sqrt(len(xs)) * abs(m)) for m, e in zip(mean, sums(xs)[1]))


def heron(xs):
    a, b, c = (norm([v - w for v, w in zip(x, y)]) for x, y in itertools.combinations(xs, 2))
    p = (a + b + c) / 2
    return root(p * (p - a) * (p - b) * (p - c))


def product(xs):
    return sum(map(math.prod, zip(*xs)))


ORACLES = {  # the formulas of the sources, in loops that share nothing with the registry
    "sst_sum": lambda xs: 1 - sum(sst(xs)),
    "l2norm": lambda xs: 1 - sum(map(root, sst(xs))),
    "mean_cosine": lambda xs: dot(means(xs), means(xs)) / norm(means(xs)) if norm(means(xs)) else 0.0,
    "rms_feature": lambda xs: 1 - sum(map(root, sst(xs))) / len(xs[0]),
    "sst_l2": lambda xs: 1 - root(sum(v * v for v in sst(xs))),
    "norm_sum": lambda xs: 1 - sum(map(root, sums(xs)[1])),
    "sst": lambda xs: 1 - sum(sst(xs)),
    "sst_root": lambda xs: 1 - root(sum(sst(xs))),
    "sst_abs": lambda xs: 1 - sum(map(abs, sst(xs))),
    "sst_feature": lambda xs: sum(1 - v for v in sst(xs)),
    "mean_norm_sq": lambda xs: length(xs) ** 2 / len(xs) ** 2 / length(xs),
    "sum_norm": lambda xs: length(xs) ** 2 / length(xs),
    "mean_norm": lambda xs: norm(means(xs)),
    "mean_dot": lambda xs: sum(dot(x, means(xs)) / norm(means(xs)) for x in xs),
    "leave_one_out": leave_one_out,
    "delta_h": lambda xs: hypotenuses(means(xs), xs),
    "delta_h_abs": lambda xs: hypotenuses([a / len(xs) for a in sums(xs)[2]], xs),
    "einsum": product,
    "symile": product,
    "pairwise": lambda xs: sum(dot(a, b) for a, b in itertools.combinations(xs, 2)) / math.comb(len(xs), 2),
    "gram_volume": lambda xs: -root(determinant([[dot(a, b) for b in xs] for a in xs])),
    "triangle": lambda xs: -heron(xs),
    "pmrl": lambda xs: np.linalg.svd(np.array(xs), compute_uv=False)[0],
}


def direct(m, xs):
    "The function of a registry's row on one tuple, its arguments from loops: the oracle of all others."
    n, F, s, q, a = len(xs), len(xs[0]), *(torch.tensor(v, dtype=torch.float64) for v in sums(xs))
    if m.family == "norm":
        return m.compute(s @ s, q.sum(), n, F)
    if m.family == "gram":
        pairs = itertools.combinations_with_replacement(range(n), 2)
        return m.compute({(a, b): torch.tensor(dot(xs[a], xs[b]), dtype=torch.float64) for a, b in pairs}, n)
    if m.family == "product":
        return product(xs)
    return m.compute(m.each(s, q, a, n).sum(), n, F)


def oracle(name, xs):
    "One tuple of vectors (lists of floats)."
    return ORACLES[name](xs) if name in ORACLES else float(direct(MEASURES[name], xs))


def shrunk(name, xs, how):
    "Measures that are functions of s and q, with s replaced."
    n, F = len(xs), len(xs[0])
    s, q = [sum(x[f] for x in xs) for f in range(F)], [sum(x[f] ** 2 for x in xs) for f in range(F)]
    if how == "thesis":
        s = [v * (1 - 4 / e) for v, e in zip(s, q)]
    else:
        variance = (sum(q) - dot(s, s) / n) / ((n - 1) * F) / n
        s = [v * max(0, 1 - (F - 2) * variance / (dot(s, s) / n**2)) for v in s]
    if name == "mean_norm":
        return norm(s) / n
    if name == "pairwise":
        return (dot(s, s) - sum(q)) / (n * (n - 1))
    if name == "sst_root":
        return 1 - root(sum(q) - dot(s, s) / n)
    if name == "l2norm":
        return 1 - sum(root(e - v * v / n) for v, e in zip(s, q))
    if name == "delta_h":
        return sum(v / n - (root(e) - abs(v) / math.sqrt(n)) for v, e in zip(s, q))
    raise KeyError(name)


def units(x):
    return [[v / norm(r) for v in r] for r in x.tolist()]


def by_loops(name, xs, normalize=True, f=oracle, **more):
    rows = [units(x) if normalize else x.tolist() for x in xs]
    out = np.empty([len(x) for x in xs])
    for index in itertools.product(*map(range, out.shape)):
        out[index] = f(name, [r[i] for r, i in zip(rows, index)], **more)
    return torch.from_numpy(out)


def batches(n, F=5, sizes=(2, 3, 1, 2, 3, 2), seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(b, F, generator=g, dtype=dtype) for b in sizes[:n]]


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("n", range(2, 7))
def test_cube_against_loops(n):
    xs = batches(n, F=8, seed=n)  # with F < n every volume is 0 and only rounding is compared
    for name in usable(n):
        for normalize in (True, False):
            torch.testing.assert_close(
                cube(xs, name, normalize),
                by_loops(name, xs, normalize),
                rtol=1e-8,
                atol=1e-6 if name == "gram_volume" else 1e-9,
                msg=lambda s: f"{name}: {s}",
            )


@pytest.mark.parametrize("n", (2, 3, 6))
def test_score_broadcasts_to_the_cube(n):
    xs = batches(n, seed=n)
    grid = [x.reshape([len(x) if k == a else 1 for k in range(n)] + [-1]) for a, x in enumerate(xs)]
    for name in usable(n):
        torch.testing.assert_close(
            score(grid, name), cube(xs, name), rtol=1e-8, atol=1e-6 if name == "gram_volume" else 1e-9
        )
        same = [x[:1].expand(4, -1) for x in xs]
        torch.testing.assert_close(
            score(same, name), by_loops(name, [x[:1] for x in xs]).flatten().expand(4), rtol=1e-8, atol=1e-6
        )


@pytest.mark.parametrize("how", ("thesis", "positive"))
@pytest.mark.parametrize("name", ("mean_norm", "pairwise", "sst_root", "l2norm", "delta_h"))
def test_james_stein(name, how):
    for n, F in ((2, 4), (3, 5), (5, 6)):
        xs = batches(n, F, seed=F)
        want = by_loops(name, xs, f=shrunk, how=how)
        torch.testing.assert_close(cube(xs, name, shrink=SHRINK[how]), want, rtol=1e-7, atol=1e-8)
        grid = [x.reshape([len(x) if k == a else 1 for k in range(n)] + [-1]) for a, x in enumerate(xs)]
        torch.testing.assert_close(score(grid, name, shrink=SHRINK[how]), want, rtol=1e-7, atol=1e-8)


def test_feature_blocks_are_seamless():
    "One feature at a time or all at once."
    xs = [x.requires_grad_() for x in batches(3, F=11)]
    for m in (m for m in MEASURES.values() if m.family == "feature"):
        found = []
        for entries in (1, 40, 1 << 18):
            c = feature_cube(xs, m, entries=entries)
            found.append((c, *torch.autograd.grad(c.square().sum(), xs)))
        for other in found[1:]:
            for a, b in zip(found[0], other):
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", MEASURES)
def test_blocks_are_parts_of_the_cube(name):
    xs = batches(3, sizes=(4, 5, 3))
    where = [slice(1, 3), slice(0, 4), slice(2, 3)]
    torch.testing.assert_close(CubeScores(xs, name).block(where), cube(xs, name)[tuple(where)])


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", MEASURES)
def test_gradcheck(name):
    for n in (n for n in (2, 3, 5) if name in usable(n)):
        xs = [x.requires_grad_() for x in batches(n, F=6, sizes=(2, 2, 1, 2, 1), seed=5)]
        for normalize in (True, False):
            near = dict(rtol=1e-3, atol=1e-5, fast_mode=True)
            assert torch.autograd.gradcheck(lambda *ys: cube(ys, name, normalize), xs, **near)


@pytest.mark.parametrize("how", ("thesis", "positive"))
def test_gradcheck_james_stein(how):
    xs = [x.requires_grad_() for x in batches(3, F=4, sizes=(2, 2, 2), seed=5)]
    for name in ("mean_norm", "l2norm", "delta_h"):
        assert torch.autograd.gradcheck(lambda *ys: cube(ys, name, False, SHRINK[how]), xs)


@pytest.mark.parametrize("name", [k for k in MEASURES if k not in ("pmrl",)])
def test_gradient_is_finite_at_equality(name):
    x = batches(1)[0]
    xs = [x.clone().requires_grad_() for _ in range(3)]
    cube(xs, name).sum().backward()
    assert all(x.grad.isfinite().all() for x in xs)


def test_gradient_is_finite_where_the_sum_vanishes():
    x = batches(1)[0]
    for name in (k for k, m in MEASURES.items() if m.family == "norm" or k == "leave_one_out"):
        xs = [x.clone().requires_grad_(), (-x).requires_grad_()]
        c = cube(xs, name)
        c.sum().backward()
        assert c.isfinite().all() and all(x.grad.isfinite().all() for x in xs)


# ---------------------------------------------------------------- properties

shapes = st.tuples(st.integers(2, 5), st.integers(1, 3), st.integers(3, 9), st.integers(0, 10**6))


@quick
@given(shapes)
def test_permuting_modalities_permutes_the_cube(shape):
    n, b, F, seed = shape
    xs = batches(n, F, (b, b + 1, b, 1, 2), seed)
    order = np.random.default_rng(seed).permutation(n).tolist()
    for name in usable(n):
        torch.testing.assert_close(
            cube([xs[k] for k in order], name), cube(xs, name).permute(order), rtol=1e-6, atol=1e-6
        )


@quick
@given(shapes)
def test_equivalent_measures_rank_alike(shape):
    n, b, F, seed = shape
    xs = batches(n, F, (b, b + 1, b, 1, 2), seed)
    base = cube(xs, "pairwise").flatten()
    order = base.argsort()
    for name, m in MEASURES.items():
        if m.monotone:
            assert (cube(xs, name).flatten()[order].diff() > -1e-9).all(), name


@quick
@given(shapes)
def test_invariances_are_as_registered(shape):
    n, b, F, seed = shape
    xs = batches(n, F, (b,) * 5, seed)
    R = torch.linalg.qr(
        torch.randn(F, F, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    ).Q
    for name in usable(n):
        c = cube(xs, name)
        if MEASURES[name].gram:
            torch.testing.assert_close(cube([x @ R for x in xs], name), c, rtol=1e-6, atol=1e-6)
        if MEASURES[name].flip == "yes" or MEASURES[name].flip == "even n" and n % 2 == 0:
            torch.testing.assert_close(cube([-x for x in xs], name), c, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            cube([x * 3 for x in xs], name), c, rtol=1e-6, atol=1e-6
        )  # rows are normalized


@quick
@given(shapes)
def test_equal_vectors_are_the_best_for_the_monotone(shape):
    n, b, F, seed = shape
    xs = batches(n, F, (b,) * 5, seed)
    for name, m in MEASURES.items():
        if m.monotone:
            assert (cube(xs, name) <= score([xs[0][:1]] * n, name).item() + 1e-9).all()


def test_registry():
    assert sorted(m.row for m in MEASURES.values() if m.row) == list(range(1, 19))  # all of Figure 5.9
    for name, m in MEASURES.items():
        assert m.name == name and m.title and m.formula and m.source, name
        assert m.family in ("norm", "gram", "feature", "product") and m.flip in ("yes", "no", "even n"), name
        assert m.gram or not m.monotone, name
        assert style(m)["color"]
    with pytest.raises(ValueError, match="measure must be one of sst_sum.*got 'mine'"):
        MEASURES["mine"]


def of_equals(words, n, v):
    "What n equal unit vectors score, in words of the registry or as an expression of n and F."
    told = {
        "sum_f v_f": v.sum(),
        "|v|_1": v.abs().sum(),
        "sum_f v_f^n": (v**n).sum(),
        "1 - sqrt(n) |v|_1": 1 - math.sqrt(n) * v.abs().sum(),
    }
    return float(told[words] if words in told else eval(words, dict(sqrt=math.sqrt, n=n, F=v.numel())))


def test_equal_vectors_score_what_is_registered():
    v = torch.randn(1, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    v /= v.norm()
    for n in (2, 3, 4):
        for name in usable(n):
            stated = of_equals(MEASURES[name].equal, n, v)
            assert score([v] * n, name).item() == pytest.approx(stated, abs=1e-6), name


# ---------------------------------------------------------------- which measures rank alike


def test_links_are_the_measures():
    for n in (2, 3, 6):
        xs = batches(n, F=7, sizes=(5,) * 6, seed=n)
        P = cube(xs, "sum_norm").square().flatten().tolist()
        for name, m in MEASURES.items():
            if m.link:
                assert cube(xs, name).flatten().tolist() == pytest.approx(
                    [eval(m.link, {"sqrt": math.sqrt}, dict(n=n, P=p, F=7)) for p in P]
                ), name


def test_links_are_proven_increasing():
    assert all(is_increasing(m.link) for m in MEASURES.values() if m.monotone)
    assert not any(map(is_increasing, ("-P", "(P - n)**2", "F", "1/P", "sqrt(n - P/n)")))


def test_a_link_is_read_and_not_executed(tmp_path):
    mark = tmp_path / "mark"
    for link in (
        f"__import__('os').system('touch {mark}')",
        "P.__class__",
        "lambda: P",
        "[P]",
        "log(P)",
        "'P'",
    ):
        with pytest.raises(ValueError, match="a link must be made of numbers"):
            is_increasing(link)
    for link in ("P**9**9**9", "P**(n**9)", "2**99999999"):
        with pytest.raises(ValueError, match="powers in a link are numbers up to 9"):
            is_increasing(link)
    assert is_increasing("P**9") and is_increasing("-(P**-2)") and not mark.exists()


def test_rank_correlation_against_scipy():
    from scipy.stats import spearmanr

    g = np.random.default_rng(0)
    scores = {
        "a": g.normal(size=(4, 5)),
        "b": g.integers(0, 4, (4, 5)),
        "c": torch.from_numpy(g.normal(size=20)).requires_grad_(),
    }
    np.testing.assert_allclose(
        rank_correlation(scores),
        spearmanr(
            np.stack([scores["a"].ravel(), scores["b"].ravel(), scores["c"].detach().numpy()], 1)
        ).statistic,
    )
    assert np.isnan(rank_correlation({"a": [1, 2], "b": [3, 3]})[0, 1])
    near = np.array([1, 2, 3, 3 + 1e-14])
    assert rank_correlation({"a": near, "b": near[[0, 1, 3, 2]]})[0, 1] == pytest.approx(1)
    with pytest.raises(ValueError, match="same tuples"):
        rank_correlation({"a": [1, 2], "b": [3, 3, 3]})
    with pytest.raises(ValueError, match="at least two"):
        rank_correlation({"a": [1, 2]})


def classes_of(n):
    xs = batches(n, F=16, sizes=(9, 8, 5, 4, 3, 2), seed=n)
    return [set(c) for c in rank_classes({k: cube(xs, k) for k in usable(n)})]


@pytest.mark.parametrize("n", range(2, 7))
def test_classes(n):
    mono = {k for k, m in MEASURES.items() if m.monotone}
    classes = [c & (set(ORACLES) | mono) for c in classes_of(n)]  # others may rank as one of these do
    large = next(c for c in classes if "pairwise" in c)
    assert mono <= large and large - mono == ({"leave_one_out", "einsum", "symile"} if n == 2 else set())
    together = [{"l2norm", "rms_feature"}, {"gram_volume", "pmrl"} if n == 2 else {"einsum", "symile"}]
    assert all(c in classes for c in together)
    assert all(len(c) <= 1 for c in classes if c != large and c not in together)


# ---------------------------------------------------------------- a measure in one cell


def test_a_measure_is_one_cell(monkeypatch):
    facts = dict(formula="cube of |s|/n", source="a test", family="norm", equal="1", link="sqrt(P)**3/n**3")
    mine = Measure(
        title="cubed length", color="red", compute=lambda P, Q, n, F: P.clamp(min=0) ** 1.5 / n**3, **facts
    )
    monkeypatch.setitem(MEASURES, "cubed", mine)
    xs = batches(3, F=8)
    want = (xs[0][:, None, None] / xs[0].norm(dim=1)[:, None, None, None]).expand(2, 3, 1, 8)
    want = want + (xs[1] / xs[1].norm(dim=1)[:, None])[:, None] + xs[2] / xs[2].norm(dim=1)[:, None]
    torch.testing.assert_close(cube(xs, "cubed"), (want / 3).norm(dim=-1) ** 3)
    assert score([x[:1] for x in xs], "cubed").item() == pytest.approx(cube(xs, "cubed")[0, 0, 0].item())
    for n in (2, 5):
        test_cube_against_loops(n)  # its oracle is the row's own definition
        test_score_broadcasts_to_the_cube(n)
        test_classes(n)  # `link` says that it ranks as the others do
    test_blocks_are_parts_of_the_cube("cubed")
    test_gradcheck("cubed")
    test_gradient_is_finite_at_equality("cubed")
    for promised in (
        test_registry,
        test_equal_vectors_score_what_is_registered,
        test_links_are_the_measures,
        test_links_are_proven_increasing,
        test_equivalent_measures_rank_alike,
        test_invariances_are_as_registered,
        test_numpy_and_precision,
    ):
        promised()
    assert style(mine) == dict(color=PALETTE["red"], marker="o", linestyle="-")
    assert "cubed" in order_in_equivalence()


def order_in_equivalence():
    "The order of the picture `ndim/equivalence`, by the notebook's own line."
    cells = json.loads(Path("nbs/experiments/ndim/equivalence.ipynb").read_text())["cells"]
    lines = [line for c in cells for line in c["source"] if line.startswith("order = [k for c in sorted")]
    known = dict(classes={("random", 3): [sorted(c) for c in classes_of(3)]}, shown=3)
    exec(lines[0], known)
    return known["order"]


@pytest.mark.parametrize(
    "broken, check",
    [
        (dict(equal="0"), "test_equal_vectors_score_what_is_registered"),
        (dict(link="P/n"), "test_links_are_the_measures"),
        (dict(link="1/P"), "test_links_are_proven_increasing"),
    ],
)
def test_a_wrong_promise_is_found(monkeypatch, broken, check):
    row = {f.name: getattr(MEASURES["mean_norm"], f.name) for f in fields(Measure)} | broken
    monkeypatch.setitem(MEASURES, "wrong", Measure(**row))
    with pytest.raises(AssertionError):
        globals()[check]()


# ---------------------------------------------------------------- vectors with given inner products


@quick
@given(st.integers(1, 5), st.integers(0, 3), st.integers(0, 10**6))
def test_with_gram(n, extra, seed):
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(3, 2, n, n, generator=g, dtype=torch.float64)
    G = A @ A.mT
    xs = torch.stack(with_gram(G, n + extra, g), -2)
    torch.testing.assert_close(xs @ xs.mT, G, rtol=1e-7, atol=1e-7)
    ys = with_gram(G[0, 0].numpy(), n + extra, seed)
    assert all(isinstance(y, np.ndarray) and y.shape == (n + extra,) for y in ys)
    np.testing.assert_array_equal(ys, with_gram(G[0, 0].numpy(), n + extra, seed))


def test_with_gram_has_no_preferred_direction():
    (x,) = with_gram(torch.ones(4000, 1, 1, dtype=torch.float64), 3, 0)
    assert (x.mean(0).abs() < 0.04).all() and (x.square().mean(0) - 1 / 3).abs().max() < 0.02


def test_with_gram_refuses():
    with pytest.raises(ValueError, match="no vectors have"):
        with_gram([[1, -0.6, -0.6], [-0.6, 1, -0.6], [-0.6, -0.6, 1]], 4)
    with pytest.raises(ValueError, match="at least 2 features; got 1"):
        with_gram(np.eye(2), 1)
    with pytest.raises(ValueError, match="inner products are symmetric"):
        with_gram([[1.0, 0], [0.5, 1]], 2)


# ---------------------------------------------------------------- significance of a cosine


def test_cosine_tail_is_the_share_of_a_cap():
    from scipy.integrate import quad

    spec = {
        2: [0.46812, 0.43591, 0.40301, 0.36901, 0.33333, 0.29517, 0.25318, 0.20483, 0.14357],
        3: [0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05],
        4: [0.43644, 0.37353, 0.31192, 0.25232, 0.1955, 0.14238, 0.09406, 0.05204, 0.01869],
        5: [0.42525, 0.352, 0.28175, 0.216, 0.15625, 0.104, 0.06075, 0.028, 0.00725],
    }
    t = np.arange(1, 10) / 10
    for n, values in spec.items():
        np.testing.assert_allclose(cosine_tail(t, n), values, atol=6e-6)
    for n in (2, 3, 7, 64):
        for c in (-0.95, -0.3, 0, 0.2, 0.7):
            cap, sphere = (quad(lambda u: math.sin(u) ** (n - 2), 0, a)[0] for a in (math.acos(c), math.pi))
            assert cosine_tail(c, n) == pytest.approx(cap / sphere, rel=1e-7)
    np.testing.assert_allclose(cosine_tail(t, 2), np.arccos(t) / math.pi)
    assert cosine_tail(1, 9) == 0 and cosine_tail(-1, 9) == 1 and cosine_tail(0, 9) == 0.5


def test_cosine_tail_of_samples():
    g = torch.Generator().manual_seed(0)
    for n in (2, 5, 40):
        x, y = (torch.nn.functional.normalize(torch.randn(400, n, generator=g), dim=1) for _ in range(2))
        for c in (-0.4, 0.1, 0.5):
            assert (x @ y.T >= c).float().mean().item() == pytest.approx(
                cosine_tail(c, n), abs=5 * 0.5 / 400
            )  # pairwise independent: sd <= .5/sqrt(400^2)


def test_cosine_tail_kinds():
    assert isinstance(cosine_tail(0.5, 3), float) and isinstance(cosine_tail(np.array([0.5]), 3), np.ndarray)
    out = cosine_tail(torch.tensor([[0.5]]), 3)
    assert out.dtype == torch.float32 and out.shape == (1, 1) and out.item() == 0.25
    for bad in (1.1, float("nan")):
        with pytest.raises(ValueError, match=r"\[-1, 1\]"):
            cosine_tail(bad, 3)
    with pytest.raises(ValueError, match="whole number >= 2; got 1"):
        cosine_tail(0.5, 1)


# ---------------------------------------------------------------- statistics of points


def signed(v, p):
    return math.copysign(abs(v) ** p, v)


def statistic(name, xs):
    n, mean = len(xs), sum(xs) / len(xs)
    p = {"mean": 1, "l2mean": 2, "l3mean": 3, "dynmean": n, "lsqrtmean": 0.5}.get(name)
    if name == "variance":
        return sum((x - mean) ** 2 for x in xs) / n
    if name == "std":
        return math.sqrt(sum((x - mean) ** 2 for x in xs) / n)
    if p % 2 == 0:
        return (sum(x**p for x in xs) / n) ** (1 / p)
    return signed(sum(signed(x, p) for x in xs) / n, 1 / p)


@quick
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_statistics_against_loops(n, seed):
    points = torch.randn(2, n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = point_statistics(points)
    assert list(found) == list(STATISTICS)
    for name, value in found.items():
        for b in range(2):
            for f in range(3):
                assert value[b, f].item() == pytest.approx(
                    statistic(name, points[b, :, f].tolist()), rel=1e-7, abs=1e-9
                ), name
    for name, value in point_statistics(points[:, torch.randperm(n)] * 3).items():
        torch.testing.assert_close(value, found[name] * (9 if name == "variance" else 3))


def test_a_statistic_is_one_cell(monkeypatch):
    facts = dict(title="span", formula="max - min", color="blue")
    monkeypatch.setitem(STATISTICS, "span", Statistic(**facts, compute=lambda x: x.amax(-2) - x.amin(-2)))
    assert point_statistics([[1.0, 2], [4, -1]])["span"].tolist() == [3, 3]
    assert style(STATISTICS["span"])["color"] == PALETTE["blue"]


def test_power_means_are_ordered_and_do_not_overflow():
    x = np.random.default_rng(0).random((5, 12, 2))
    s = point_statistics(x)
    assert (
        all(
            (s[a] <= s[b] + 1e-12).all()
            for a, b in itertools.pairwise(("lsqrtmean", "mean", "l2mean", "l3mean", "dynmean"))
        )
        and (s["dynmean"] <= x.max(-2)).all()
    )
    np.testing.assert_allclose(point_statistics(x * 1e150)["dynmean"], s["dynmean"] * 1e150)
    zero = point_statistics(torch.zeros(4, 2))
    assert all(v.eq(0).all() and isinstance(v, torch.Tensor) for v in zero.values())
    with pytest.raises(ValueError, match="points have shape"):
        point_statistics([1.0, 2])


# ---------------------------------------------------------------- the product


def test_einsum_of_independent_directions_has_mean_square_F_to_1_minus_n():
    g = torch.Generator().manual_seed(0)
    for n, F in ((2, 7), (3, 16), (6, 5)):
        c = score([torch.randn(200_000, F, generator=g) for _ in range(n)], "einsum")
        assert c.square().mean().item() * F ** (n - 1) == pytest.approx(1, abs=0.05)


def test_einsum_best_partner_of_two_equal_vectors_is_their_square():
    v = batches(1, F=6, sizes=(9,))[0].abs()
    u = v / v.norm(dim=1, keepdim=True)
    best = score([v, v, v * v], "einsum")
    torch.testing.assert_close(best, u.square().norm(dim=1))
    assert (best > score([v] * 3, "einsum")).all()
    for seed in range(20):
        assert (best >= score([v, v, batches(1, F=6, sizes=(9,), seed=seed)[0]], "einsum")).all()


# ---------------------------------------------------------------- kinds of arrays


def test_numpy_and_precision():
    xs = batches(4)
    for name in usable(4):
        want, arrays = cube(xs, name), cube([x.numpy() for x in xs], name)
        assert isinstance(arrays, np.ndarray) and arrays.dtype == np.float64
        np.testing.assert_array_equal(arrays, want)
        single = cube([x.float() for x in xs], name)
        assert single.dtype == torch.float32
        torch.testing.assert_close(
            single.double(), want, rtol=1e-4, atol=2e-3 if name == "gram_volume" else 1e-4
        )
        half = [x.bfloat16() for x in xs]
        torch.testing.assert_close(cube(half, name), cube([x.float() for x in half], name))
        assert cube(half, name).dtype == torch.float32
    assert isinstance(score([x[0].numpy() for x in xs]), np.generic | np.ndarray)


def test_every_kind_of_numbers_is_widened():
    "Small integers, bools and half precision; lists, reversed views and foreign byte order."
    x = np.random.default_rng(0).integers(1, 100, (2, 3, 5))
    want = cube(list(x.astype(np.float64)), "mean_norm")
    for dtype in (np.int8, np.uint8, np.int32, np.float16, ">f8", "longdouble"):
        np.testing.assert_allclose(cube(list(x.astype(dtype)), "mean_norm"), want, rtol=1e-6)
    assert np.array_equal(cube(x.tolist(), "mean_norm"), cube(list(x), "mean_norm"))
    assert np.array_equal(cube([a[::-1] for a in x.astype(float)], "mean_norm"), want[::-1, ::-1])
    assert cube(list(x > 50), "mean_norm", normalize=False).dtype == np.float32


def test_extreme_scales():
    xs = batches(3)
    for factor in (1e-200, 1e200):
        torch.testing.assert_close(cube([x * factor for x in xs]), cube(xs))


def test_leave_one_out_with_a_zero_rest():
    a = torch.tensor([[1.0, 0]])
    b = torch.tensor([[0.0, 1]])
    assert cube([a, b, -b], "leave_one_out").item() == pytest.approx(-math.sqrt(2), abs=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees():
    xs = batches(4)
    for name in usable(4):
        torch.testing.assert_close(
            cube([x.cuda() for x in xs], name).cpu(), cube(xs, name), rtol=1e-7, atol=1e-6
        )


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "xs, says",
    [
        ([torch.ones(2, 3), torch.ones(2, 4)], r"same number of features; got \[3, 4\]"),
        ([torch.ones(2, 3)], "at least two modalities; got 1"),
        ([], "at least two"),
        ([torch.ones(2, 3), torch.ones(0, 3)], "at least one row"),
        ([torch.ones(2, 3), torch.zeros(2, 3)], r"zeros in modality 1, rows \[0, 1\]"),
        ([torch.ones(2, 3), torch.full((2, 3), math.nan)], "modality 1.*NaN"),
        ([torch.ones(2, 3), torch.ones(2, 3) * 1j], "modality 1 must be real numbers"),
        ([torch.ones(2, 3), torch.tensor(1.0)], "axis of features"),
        ([torch.ones(3), torch.ones(2, 3)], "use `score`|Use `score`"),
    ],
)
def test_bad_batches(xs, says):
    with pytest.raises(ValueError, match=says):
        cube(xs)


def test_bad_options():
    xs = batches(4)
    with pytest.raises(ValueError, match="must be one of sst_sum.*pmrl.*; got 'cosine'"):
        cube(xs, "cosine")
    with pytest.raises(ValueError, match="exactly 3 vectors; got 4"):
        cube(xs, "triangle")
    with pytest.raises(ValueError, match="None, 'positive' or a function"):
        cube(xs, shrink="james")
    for name in ("einsum", "leave_one_out", "norm_sum", "delta_h_abs"):
        with pytest.raises(ValueError, match="does not use"):
            cube(xs, name, shrink="positive")
    with pytest.raises(
        ValueError, match=r"1000 x 1000 x 1000 x 1000 = 1000000000000 cells, 3725.3 GiB.*streaming"
    ):
        cube([torch.ones(1000, 2)] * 4)
    assert cube([torch.zeros(2, 3)] * 2, normalize=False).eq(0).all()
