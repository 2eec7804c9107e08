"""The pages to play with: their functions are the library's, and mouse and keyboard drive them."""

import inspect
import re
import shutil
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from browser import Watched, call

from brace_nb.assignment import (
    DISTRIBUTIONS,
    FLOAT_FORMATS,
    METHODS,
    PRESETS,
    arguments_of,
    assign,
    precision_study,
    quantize,
    recurse,
)
from brace_nb.codes import (
    CODE_MEASURES,
    CODES,
    binarize,
    cosine_similarity,
    counterexample_interval,
    hamming_similarity,
    jaccard,
    partial_sums,
    stop_at_first_descent,
    ternarize,
    unpack,
)
from brace_nb.companion import root, style
from brace_nb.core import Entry
from brace_nb.ndim import (
    KINDS,
    MEASURES,
    STATISTICS,
    collision_probability,
    gradient_cells,
    mask_value,
    partitions,
    point_statistics,
    region_of,
    region_sizes,
    safe_exponent,
    score,
)

BOOK = root() / "nbs/_book"
MANY = 200  # Random inputs for each comparison
sys.path.insert(0, str(BOOK))
import play_pages  # noqa: E402
import registries  # noqa: E402

FORMATS = tuple(FLOAT_FORMATS)
PAGES = play_pages.names()


def put_pages(folder):
    "The pages without their frame: style, scripts, the library's registries as they are now."
    shutil.copytree(BOOK / "static", folder / "_static")
    (folder / "_static/registries.js").write_text(registries.script(), encoding="utf-8")
    for name in PAGES:
        play_pages.bare(name, folder)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    "The pages, with the entries of this checkout."
    return put_pages(tmp_path_factory.mktemp("play"))


@pytest.fixture(scope="module")
def map_data(site, monkeypatch_module):
    "The map's data, as `make book` writes them."
    import map_page

    monkeypatch_module.setattr(map_page, "SOURCE", site)
    monkeypatch_module.setattr("sources.SOURCE", site)
    map_page.write()
    return np.load(map_page.DATA)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def close(got, wanted, **tolerance):
    np.testing.assert_allclose(np.array(got, float), np.array(wanted, float), **tolerance)


# --- points in the plane


def random_points():
    random = np.random.default_rng(0)
    return [random.uniform(-1, 1, (int(random.integers(2, 13)), 2)) for _ in range(MANY)]


@pytest.mark.parametrize("normalized", [False, True])
def test_measures_of_points_are_the_librarys(opened, normalized):
    sets = random_points()
    sets[:20] = [np.random.default_rng(k).uniform(-1, 1, (3, 2)) for k in range(20)]
    flag = str(normalized).lower()
    found = call(
        opened("play/points.html"), f"(p) => brace.points.measures(p, {flag})", [p.tolist() for p in sets]
    )
    assert set(found[0]) == set(MEASURES)
    for points, values in zip(sets, found):
        for name, measure in MEASURES.items():
            if measure.only and len(points) != measure.only:
                assert values[name] is None
                continue
            wanted = score(list(points), name, normalize=normalized)
            # more than two vectors of a plane have a determinant of 0, up to the root of rounding
            room = 1e-5 if name == "gram_volume" else 1e-9
            close(values[name], wanted, rtol=1e-9, atol=room, err_msg=name)


def test_statistics_of_points_are_the_librarys(opened):
    sets = random_points()
    found = call(opened("play/points.html"), "(p) => brace.points.statistics(p)", [p.tolist() for p in sets])
    for points, values in zip(sets, found):
        wanted = point_statistics(points)
        assert list(values) == list(STATISTICS) == list(wanted)
        for name in wanted:
            close(values[name], wanted[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_points_move_by_mouse_and_by_keys(opened):
    page = opened("play/points.html")
    value = page.locator("tr[data-name=sum_norm] td.number").first
    dot = page.get_by_role("slider", name="Point 1", exact=True)
    before, place = value.inner_text(), dot.get_attribute("aria-valuetext")
    box = dot.locator(".mark").bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(box["x"] + 44, box["y"] - 36, steps=4)
    page.mouse.up()
    dragged = value.inner_text()
    assert dragged != before and dot.get_attribute("aria-valuetext") != place
    dot.focus()
    page.keyboard.press("Shift+ArrowRight")
    assert value.inner_text() != dragged
    page.get_by_role("button", name="together").click()
    pairs = page.locator("tr[data-name=pairwise]")
    assert "rises" in pairs.inner_text()
    count = page.get_by_role("slider", name="points, n")
    count.focus()
    page.keyboard.press("Home")
    assert page.locator(".dot").count() == 2
    page.get_by_label("unit length").check()
    assert "–" in page.locator("tr[data-name=triangle]").inner_text()


# --- assignment


def random_matrices(kind="normal"):
    random = np.random.default_rng(1)
    shapes = [tuple(random.integers(1, 9, 2)) for _ in range(MANY)]
    if kind == "coarse":  # many equal entries
        return [random.integers(-3, 4, s).astype(np.float32) / 4 for s in shapes]
    return [random.normal(size=s).astype(np.float32) for s in shapes]


def run(page, matrices, body):
    return call(page, f"(x) => {{ const A = brace.assignment; {body} }}", [m.tolist() for m in matrices])


def test_rounding_is_the_librarys(opened):
    random = np.random.default_rng(2)
    x = random.normal(size=4000) * 10.0 ** random.uniform(-12, 6, 4000)
    x = np.r_[x, 0, 448, 464, 480, 1e9, -1e9, 2.0**-10, 3 * 2.0**-10, 57344, 61440].astype(np.float32)
    page = opened("play/assignment.html")
    for name in FORMATS:
        got = call(page, f"(x) => brace.assignment.quantize(x, '{name}')", x.tolist())
        assert np.array_equal(np.array(got, np.float32), quantize(x, name)), name


SAME_CELLS = [m for m in METHODS if m not in ("exact", "sinkhorn")]


@pytest.mark.parametrize("kind", ["normal", "coarse"])
@pytest.mark.parametrize("maximize", [True, False])
def test_methods_choose_the_librarys_cells(opened, kind, maximize):
    matrices, flag = random_matrices(kind), str(maximize).lower()
    page = opened("play/assignment.html")
    for method in SAME_CELLS:
        body = f"return A.answer(x, {flag}, '{method}', 'fp32', {{noise: 0}});"
        for x, got in zip(matrices, run(page, matrices, body)):
            wanted = assign(x, maximize, method, noise=0.0)
            there = wanted.rows >= 0
            pairs = np.stack([wanted.rows[there], wanted.cols[there]], 1).tolist()
            if got["valid"] and 1 not in x.shape or method.startswith("greedy"):
                assert got["pairs"] == pairs, (method, x.tolist())
            assert got["valid"] == wanted.valid
            close(got["total"], x[tuple(np.array(pairs).T)].sum(dtype=np.float64), atol=1e-5)


def test_exact_and_sinkhorn_reach_the_librarys_sums(opened):
    page = opened("play/assignment.html")
    for matrices in (random_matrices(), random_matrices("coarse")):
        for x, got in zip(matrices, run(page, matrices, "return A.answer(x, true, 'exact', 'fp32');")):
            assert got["valid"]
            close(got["total"], assign(x, True).total, atol=1e-5)
    matrices = random_matrices()
    for x, got in zip(matrices, run(page, matrices, "return A.answer(x, true, 'sinkhorn', 'fp32');")):
        wanted = assign(x.astype(np.float64), True, "sinkhorn")
        assert got["pairs"] == np.stack([wanted.rows, wanted.cols], 1).tolist()


def test_the_recursion_is_the_librarys_step_by_step(opened):
    matrices = [m for m in random_matrices() if 1 not in m.shape]
    body = "return A.recursed(x, {steps: 7, factor: 0.8});"
    for x, states in zip(matrices, run(opened("play/assignment.html"), matrices, body)):
        for steps in (1, 3, 7):
            close(states[steps], recurse(torch.tensor(x), steps, 0.8), rtol=1e-6, atol=1e-7)


def test_the_recursive_rules_in_all_formats_are_the_librarys(opened):
    random = np.random.default_rng(3)
    x = random.normal(size=(40, 5, 6)).astype(np.float32)
    names = ("exact", "greedy_delta", "greedy_best", "argbest", *PRESETS)
    study = precision_study(x, True, FORMATS, names)
    page = opened("play/assignment.html")
    for f, name in enumerate(FORMATS):
        for m, method in enumerate(names):
            rule = "recursive_top2" if method in PRESETS else method
            rules = f"const o = brace.registries.presets['{method}'] || {{}};"
            body = f"{rules} return A.compare(x, true, o)['{rule}']['{name}'];"
            found = run(page, x, body)
            assert [g["valid"] for g in found] == study.valid[f, m].tolist()
            shared, cells = study.shared[f, m], study.cells[f, m]
            if method != "exact" or name == "fp32":  # among equal sums the cells are a matter of taste
                close([g["total"] for g in found], study.total[f, m], atol=1e-5)
                close([g["f1"] for g in found], 2 * shared / (cells + 5), atol=1e-12)
            for g, best, total in zip(found, study.best, study.total[f, m]):
                if g["valid"] and method != "exact":
                    close(g["lost"], max(0, best - total), atol=1e-5)
            if name == "fp32":  # the gap is that of the library
                gaps = assign(x, True, **arguments_of(method)).gap
                known = [i for i, g in enumerate(found) if g["valid"]]
                close([found[i]["gap"] for i in known], gaps[known], atol=1e-5)


def test_the_page_computes_all_methods_and_formats(opened):
    page = opened("play/assignment.html")
    assert page.evaluate("brace.assignment.computed") == list(METHODS)
    assert page.evaluate("brace.assignment.drawable.map(([name]) => name)") == list(DISTRIBUTIONS)
    for name, stored in page.evaluate("brace.registries.formats").items():
        form = FLOAT_FORMATS[name]
        found = stored["mantissa"], stored["step"], stored["top"]
        assert found == (form.mantissa, form.step, torch.finfo(form.dtype).max)
    rules = page.evaluate("brace.registries.presets")
    assert rules.pop("default") == rules["v5s"]
    assert rules == {name: dict(rule) for name, rule in PRESETS.items()}
    options = page.evaluate("brace.assignment.OPTIONS")
    told = inspect.signature(assign).parameters
    assert options == {name: told[name].default for name in options}


def test_a_matrix_is_edited_and_methods_answer(opened):
    page = opened("play/assignment.html")
    best = page.get_by_role("button", name=re.compile("^exact in fp32"))
    before = best.inner_text()
    cell = page.get_by_label("row 1, column 1", exact=True)
    cell.fill("9")
    cell.press("Enter")
    assert (
        best.inner_text() != before and page.evaluate("document.activeElement.ariaLabel") == "row 2, column 1"
    )
    assert "chosen" in page.locator(".matrix td").first.get_attribute("class")
    page.get_by_role("button", name=re.compile("^argbest in e5m2")).click()
    assert "argbest in e5m2" in page.locator(".stage .hint").inner_text()
    step = page.get_by_role("slider", name="step")
    step.focus()
    page.keyboard.press("End")
    assert "After 10 of 10 steps" in page.locator(".film + .hint").inner_text()
    page.get_by_role("button", name="play").click()
    page.wait_for_function("document.querySelector('.film + .hint').textContent.startsWith('After 2')")
    page.get_by_role("button", name="pause").click()
    rows = page.get_by_role("slider", name="rows, m")
    rows.focus()
    page.keyboard.press("Home")
    assert page.locator(".matrix tr").count() == 1
    page.get_by_label("drawn from").select_option("detr")
    assert page.get_by_label("goal").input_value() == "min"


# --- nearest corner


def random_vectors(signed=False):
    random = np.random.default_rng(4)
    sizes = [np.exp(random.normal(size=int(random.integers(2, 17)))) for _ in range(MANY)]
    return [v * random.choice([-1, 1], len(v)) for v in sizes] if signed else sizes


def test_codes_are_the_librarys(opened):
    page, vectors = opened("play/corner.html"), random_vectors()
    inputs = [v.tolist() for v in vectors]
    for v, S, code, early in zip(
        vectors,
        call(page, "brace.corner.partialSums", inputs),
        call(page, "(v) => brace.corner.binarize(v)", inputs),
        call(page, "(v) => brace.corner.stopAtFirstDescent(v)", inputs),
    ):
        close(S, partial_sums(v), rtol=1e-12)
        assert code == binarize(v).tolist() and early == stop_at_first_descent(v).tolist()
    signed = random_vectors(signed=True)
    for v, code in zip(signed, call(page, "(v) => brace.corner.ternarize(v)", [v.tolist() for v in signed])):
        assert code == ternarize(v).tolist()


def test_every_code_is_listed_and_three_are_computed(opened):
    page = opened("play/corner.html")
    assert set(page.evaluate("Object.keys(brace.corner.encode)")) == {"binary", "ternary", "sign"}
    listed = registries.tables()["codes"]
    assert page.locator("tr[data-name]").count() == len(listed)
    vectors = random_vectors(signed=True)
    found = call(page, "(v) => brace.corner.encode.sign(v)", [v.tolist() for v in vectors])
    assert all(np.array_equal(code, v > 0) for v, code in zip(vectors, found))
    for name in listed:
        words = page.locator(f"tr[data-name='{name}']").inner_text()
        assert ("in Python only" in words) == (name not in ("binary", "ternary", "sign"))


def test_the_intervals_of_failure_are_exact(opened):
    page, random = opened("play/corner.html"), np.random.default_rng(5)
    vectors = [v / v.max() for v in random_vectors()]
    entries = [int(random.integers(len(v))) for v in vectors]
    inputs = [[v.tolist(), i] for v, i in zip(vectors, entries)]
    found = call(page, "([v, i]) => brace.corner.failingIntervals(v, i)", inputs)
    seen = 0
    for v, i, intervals in zip(vectors, entries, found):
        ends = np.array(intervals).ravel()
        ts = np.r_[random.uniform(1e-6, 1, 60), ends - 1e-7, ends + 1e-7]
        ts = ts[(ts > 0) & (ts < 1)]
        changed = np.repeat(v[None], len(ts), 0)
        changed[:, i] = ts
        fails = (binarize(changed) != stop_at_first_descent(changed)).any(1)
        inside = np.zeros(len(ts), bool)
        for low, high in intervals:
            inside |= (ts > low) & (ts < high)
        assert np.array_equal(fails, inside), (v.tolist(), i)
        seen += len(intervals)
    assert seen > 40


def test_the_interval_of_the_flat_tail_is_the_proved_one(opened):
    page = opened("play/corner.html")
    found = call(page, "(D) => brace.corner.counterexampleInterval(D)", list(range(2, 200)))
    close(found, [counterexample_interval(d) for d in range(2, 200)], rtol=1e-12)
    # the head of a tail of height .3, as an entry: the same interval as a share of the squared length
    for D in (4, 8, 16):
        ends = page.evaluate(
            f"brace.corner.failingIntervals([1, ...new Array({D} - 1).fill(.3)], 0, 5).at(-1)"
        )
        share = np.array(ends) ** 2 / (np.array(ends) ** 2 + (D - 1) * 0.09)
        close(share, counterexample_interval(D), rtol=1e-9)


def test_a_vector_is_dragged_and_its_code_follows(opened):
    page = opened("play/corner.html")
    code, bar = page.locator(".bits"), page.get_by_role("slider", name="Entry 3", exact=True)
    assert code.get_attribute("aria-label") == "The code: 0 1 0 1 0 0 0 0"
    bar.focus()
    page.keyboard.press("End")
    assert bar.get_attribute("aria-valuenow") == "1" and code.inner_text().split()[2] == "1"
    box = bar.locator(".touch").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] - 20)
    assert float(bar.get_attribute("aria-valuenow")) < 0.1 and code.inner_text().split()[2] == "0"
    page.get_by_role("button", name="where stopping early fails").click()
    assert "is wrong" in page.locator(".verdict-line").inner_text()
    assert page.locator(".bar.focus .fails rect").count() >= 1
    page.get_by_label("ternary").check()
    assert "−" in code.inner_text()
    bar.focus()
    page.keyboard.press("Home")
    assert bar.get_attribute("aria-valuenow") == "-1"


# --- regions of the cube


def test_regions_are_the_librarys(opened):
    page = opened("play/regions.html")
    cases = [[n, B] for n in range(1, 9) for B in range(1, 26)]
    for (n, B), found in zip(
        cases, call(page, "([n, B]) => brace.regions.partitions(n, Math.min(n, B))", cases)
    ):
        assert [tuple(p) for p in found] == partitions(n, B)
    body = "([n, B]) => { const R = brace.regions; "
    body += "return R.partitions(n, Math.min(n, B)).map((p) => R.regionSize(p, n, B)); }"
    for (n, B), found in zip(cases, call(page, body, cases)):
        assert found == list(region_sizes(n, B).values())
    wanted = [collision_probability(n, B) for n, B in cases]
    close(call(page, "([n, B]) => brace.regions.collisionProbability(n, B)", cases), wanted, atol=1e-12)
    for kind in KINDS:
        body = f"([n, B]) => brace.regions.gradientCells.{kind}(n, B)"
        several = [case for case in cases if min(case) > 1]
        assert call(page, body, several) == [gradient_cells(n, B, kind)[0] for n, B in several]
    for n in range(1, 9):
        m = page.evaluate(f"brace.regions.safeExponent({n})")
        assert m == safe_exponent(n)
        labels = page.evaluate(f"brace.regions.partitions({n}).map((p) => brace.regions.maskValue(p, {m}))")
        assert labels == [mask_value(p, m) for p in partitions(n)]
    cells = np.random.default_rng(6).integers(0, 5, (MANY, 5)).tolist()
    assert [tuple(r) for r in call(page, "(i) => brace.regions.regionOf(i)", cells)] == [
        region_of(i) for i in cells
    ]


def test_the_cube_is_cut_by_mouse_and_by_keys(opened):
    page = opened("play/regions.html")
    words, canvas = page.locator(".stage .hint"), page.locator("canvas")
    assert page.locator("tr[data-region]").count() == 3
    assert page.locator("tr[data-name=slice]").inner_text().endswith("216")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert "Cell (1, 2, 1): region 2 + 1" in words.inner_text()
    for key in ("ArrowDown", "PageDown"):
        page.keyboard.press(key)
    assert "Cell (2, 2, 2): region 3, all of one tuple" in words.inner_text()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 6, box["y"] + 22)
    assert "Cell (1, 1, 1)" in words.inner_text()
    page.get_by_role("slider", name="batches, n").focus()
    page.keyboard.press("End")
    assert page.locator("tr[data-region]").count() == 11
    page.get_by_role("slider", name="coordinate 6").focus()
    page.keyboard.press("End")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert re.search(r"Cell \(1, 2, 1, 1, 1, 6\): region 4 \+ 1 \+ 1", words.inner_text())


# --- the map


SIMILARITIES = dict(jaccard=jaccard, hamming=hamming_similarity, cosine=cosine_similarity)


def test_similarities_of_codes_are_the_librarys(opened, map_data):
    page, random = opened("play/map.html"), np.random.default_rng(7)
    assert page.evaluate("Object.keys(brace.map.similarity)") == list(CODE_MEASURES) == list(SIMILARITIES)
    codes = map_data["codes"]
    pairs = [[int(i) for i in random.integers(0, s, 2)] for s in codes.shape[:2] for _ in range(MANY)]
    pairs = [[a, r, b, q] for (a, b), (r, q) in zip(pairs[:MANY], pairs[MANY:])]
    for name, function in SIMILARITIES.items():
        body = (
            f"([a, r, b, q]) => brace.map.similarity.{name}(brace.table.code(a, r), brace.table.code(b, q))"
        )
        page.evaluate("brace.table = brace.map.read(brace.mapData)")
        wanted = [function(codes[a, r][None], codes[b, q][None])[0, 0] for a, r, b, q in pairs]
        close(call(page, body, pairs), wanted, atol=1e-6)


def test_neighbors_of_codes_are_the_librarys(opened, map_data):
    page, random = opened("play/map.html"), np.random.default_rng(8)
    codes, dim = map_data["codes"], 8 * map_data["codes"].shape[-1]
    page.evaluate("brace.table = brace.map.read(brace.mapData)")
    rows = random.choice(codes.shape[1], 60, replace=False).tolist()
    for name, function in SIMILARITIES.items():
        call_of = f"brace.table.code(0, r), 4, brace.map.similarity.{name}"
        body = f"(r) => brace.map.nearestCodes(brace.table, {call_of})"
        wanted = function(unpack(codes[0, rows], dim), unpack(codes[4], dim))
        for of, found in zip(wanted, call(page, body, rows)):
            close(of[found], np.sort(of)[::-1][:5], atol=1e-6)
            assert len(set(found)) == 5


def test_the_map_reads_its_numbers_right(opened, map_data):
    page = opened("play/map.html")
    page.evaluate("brace.table = brace.map.read(brace.mapData)")
    random, places, near = np.random.default_rng(9), map_data["places"], map_data["near"]
    asked = [[int(random.integers(s)) for s in places.shape[:2]] for _ in range(MANY)]
    for (view, row), got in zip(asked, call(page, "([v, r]) => brace.table.place(v, r)", asked)):
        place = places[view, row]
        assert got is None if place[0] == 65535 else np.allclose(got, place / 65534)
    asked = [[int(random.integers(s)) for s in near.shape[:3]] for _ in range(MANY)]
    for (d, lang, row), got in zip(asked, call(page, "([d, l, r]) => brace.table.nearest(d, l, r)", asked)):
        assert got == [n for n in near[d, lang, row].tolist() if n != 65535]


def test_the_map_shows_the_default_encoder():
    import map_data

    for path in (map_data.EMBEDDINGS, map_data.HEADS):
        if not path.exists():
            pytest.skip("needs results of the default profile: `make figures ONLY=codes/heads`")
    stored = np.load(root() / "data/embeddings/emoji_map.npz")
    views, model = map_data.read_results()
    if not np.array_equal(map_data.digest_of(views), stored["digest"]):
        pytest.skip("this machine trained another encoder than the one of data/embeddings/emoji_map.npz")
    cure = "the encoder or the heads changed: run `python nbs/_book/map_data.py`"
    codes = unpack(np.stack(map_data.codes_of(views, model)), 256)
    assert (codes != unpack(stored["codes"], 256)).mean() < 1e-4, cure
    for view, places in zip(views, stored["places"]):
        assert np.array_equal(np.isfinite(view).all(1), places[:, 0] != map_data.NONE), cure
    near = map_data.near_of(views)
    for d, pictures in enumerate(views[:4]):
        there = np.flatnonzero(near[d, 0, :, 0] != map_data.NONE)
        for lang, names in enumerate(views[4:]):
            found = (pictures[there] @ names.T)[
                np.arange(len(there))[:, None], stored["near"][d, lang, there]
            ]
            best = -np.sort(-(pictures[there] @ names.T), 1)[:, : map_data.NEIGHBORS]
            np.testing.assert_allclose(found, best, atol=1e-5, err_msg=cure)


def test_the_map_is_searched_clicked_and_moved_by_keys(opened, map_data):
    page = opened("play/map.html")
    page.get_by_label("a word that the data hold").fill("manzana roja")
    page.locator(".hits button").first.click()
    panel = page.locator(".panel")
    assert "red apple" in panel.locator("h3").inner_text() and "tufaha jekundu" in panel.inner_text()
    columns = 1 + len(CODE_MEASURES)  # the float embedding, and each similarity of codes
    assert panel.locator(".near").count() == columns and panel.locator(".near .hit").count() == 5 * columns
    assert panel.locator(".bit-grid span").count() == 256
    page.get_by_label("language").select_option("1")
    assert "Spanish names" in panel.inner_text()
    panel.locator(".near .hit").nth(3).click()
    page.get_by_label("a word that the data hold").fill("nothing has this name")
    assert "No caption" in page.locator(".hits").inner_text()
    page.get_by_label("a word that the data hold").fill("")
    page.get_by_role("button", name="whole map").click()
    canvas = page.locator("canvas")
    before = panel.locator("h3").inner_text()
    canvas.focus()
    for key in ("ArrowLeft", "ArrowUp", "+", "+", "Enter"):
        page.keyboard.press(key)
    assert panel.locator("h3").inner_text() != before
    page.get_by_label("pictures by").select_option("3")
    page.evaluate("brace.table = brace.map.read(brace.mapData)")
    lacking = int(np.flatnonzero(map_data["places"][3, :, 0] == 65535)[0])
    name = page.evaluate(f"brace.mapData.names[0][{lacking}]")
    page.get_by_label("a word that the data hold").fill(name)
    page.locator(".hits button").first.click()
    assert "has no picture" in panel.inner_text()


# --- entries of the library


@dataclass(frozen=True, kw_only=True)
class Added(Entry):
    "An entry as a reader of the library would add one."

    formula: str = "max_a |x_a|"
    source: str = "a test"
    says: str = "the first column for the first row, and so on"
    only: int | None = None


def test_an_entry_of_the_library_is_on_its_page(browser, tmp_path, monkeypatch):
    "One added entry of each registry, which no script computes: its title stands there, without a number."
    places = {  # registry: page, and where an entry's name is found on it
        "measures": (MEASURES, "points", "tr[data-name=added]"),
        "methods": (METHODS, "assignment", "tr[data-name=added]"),
        "losses": (KINDS, "regions", "tr[data-name=added]"),
        "codes": (CODES, "corner", "tr[data-name=added]"),
    }
    for registry, _, _ in places.values():
        monkeypatch.setitem(registry, "added", Added(title="Added & new", color="red", marker="*"))
    put_pages(tmp_path)
    for registry, page, row in places.values():
        watched = Watched(browser)
        shown = watched.open(tmp_path / f"play/{page}.html").locator(row).inner_text()
        assert "Added & new" in shown and "in Python only" in shown, page
        watched.check()
        watched.page.close()
    stored = registries.tables()["measures"]["added"]
    assert stored["color"] == style(MEASURES["added"])["color"] and stored["marker"] == "*"


def test_no_script_has_rules_and_formulas_of_its_own():
    scripts = "\n".join(path.read_text(encoding="utf-8") for path in BOOK.glob("static/*.js"))
    for table in ("measures", "methods", "losses", "statistics"):
        for name, entry in registries.tables()[table].items():
            told = [entry.get(field, "") for field in ("formula", "says", "source")]
            assert not any(words in scripts for words in told if len(words) > 8), name


def test_the_picture_of_a_card_is_taken(browser, tmp_path, monkeypatch):
    "With Chromium; a page that has a picture keeps it."
    from PIL import Image

    (tmp_path / "static").mkdir()
    shutil.copytree(BOOK / "play", tmp_path / "play")
    for path in BOOK.glob("static/*.[jc]s*"):
        shutil.copy(path, tmp_path / "static")
    monkeypatch.setattr(play_pages, "HERE", tmp_path)
    monkeypatch.setattr(play_pages, "names", lambda: ["points"])
    assert "<img" not in play_pages.card("points", "")
    assert play_pages.main([]) == 0
    with Image.open(tmp_path / "static/play_points.webp") as picture:
        assert picture.width == 520 and len(picture.getcolors(10**6)) > 50
    assert "_static/play_points.webp" in play_pages.card("points", "")
    monkeypatch.setattr(play_pages, "picture", lambda *_: pytest.fail("it was there"))
    assert play_pages.main([]) == 0


# --- fingers


class Fingers:
    "Real touches of a page, by the protocol of the browser's developer tools."

    def __init__(self, page):
        self.page, self.session = page, page.context.new_cdp_session(page)

    def _send(self, kind, places):
        points = [dict(x=x, y=y, id=k) for k, (x, y) in enumerate(places)]
        self.session.send("Input.dispatchTouchEvent", dict(type=kind, touchPoints=points))

    def drag(self, *ways, steps=8):
        "Each finger from a place to another, all at once."
        self._send("touchStart", [way[0] for way in ways])
        for step in range(1, steps + 1):
            self._send(
                "touchMove",
                [[a + (b - a) * step / steps for a, b in zip(*way, strict=True)] for way in ways],
            )
        self._send("touchEnd", [])
        self.page.wait_for_timeout(50)

    def tap(self, x, y):
        self.drag(([x, y], [x, y]), steps=0)


@pytest.fixture(params=["light", "dark"])
def touched(opened, map_data, request):
    "Open a page on a phone, and put something in the middle of its screen."

    def go(name):
        how = dict(has_touch=True, is_mobile=True, width=390, height=844, color_scheme=request.param)
        page = opened(f"play/{name}.html", **how)
        return page, Fingers(page)

    return go


def middle(locator):
    "Where a finger meets an element, after scrolling it there."
    locator.evaluate("(e) => e.scrollIntoView({block: 'center'})")
    box = locator.bounding_box()
    return [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]


def scrolled(page):
    return page.evaluate("scrollY")


def test_a_finger_moves_a_point_and_scrolls_beside_it(touched):
    page, fingers = touched("points")
    dot = page.get_by_role("slider", name="Point 1", exact=True)
    x, y = middle(dot.locator(".mark"))
    place, top = dot.get_attribute("aria-valuetext"), scrolled(page)
    fingers.drag(([x, y], [x + 40, y - 40]))
    assert dot.get_attribute("aria-valuetext") != place and scrolled(page) == top
    box = page.locator(".stage svg").first.bounding_box()
    page.evaluate("scrollTo(0, 0)")
    fingers.drag(([box["x"] + 5, 500], [box["x"] + 5, 300]), steps=20)
    page.wait_for_function("scrollY > 50")


def test_a_finger_drags_a_bar_of_the_vector(touched):
    page, fingers = touched("corner")
    bar = page.get_by_role("slider", name="Entry 3", exact=True)
    x, y = middle(bar.locator(".touch"))
    top = scrolled(page)
    fingers.drag(([x, y + 30], [x, y - 200]))
    assert float(bar.get_attribute("aria-valuenow")) > 0.9 and scrolled(page) == top
    assert page.locator("tr[data-name=binary] td").last.is_visible()  # the code, on a narrow screen too
    page.get_by_role("button", name="where stopping early fails").tap()
    assert "is wrong" in page.locator(".verdict-line").inner_text()


def test_a_cell_of_the_cube_stays_where_a_finger_taps(touched):
    page, fingers = touched("regions")
    canvas, words = page.locator("canvas"), page.locator(".stage .hint")
    x, y = middle(canvas)
    box = canvas.bounding_box()
    fingers.tap(box["x"] + 6, box["y"] + 22)
    assert "Cell (1, 1, 1)" in words.inner_text()
    page.locator("tr[data-region]").nth(1).tap()
    assert page.evaluate("document.activeElement.dataset.region")


def test_fingers_move_the_map_pull_it_apart_and_choose(touched):
    page, fingers = touched("map")
    x, y = middle(page.locator("canvas"))
    shown, top = page.locator("canvas").screenshot(), scrolled(page)
    fingers.drag(([x, y], [x + 60, y + 30]))
    moved = page.locator("canvas").screenshot()
    fingers.drag(([x - 20, y], [x - 120, y]), ([x + 20, y], [x + 120, y]))
    apart = page.locator("canvas").screenshot()
    assert shown != moved and moved != apart and scrolled(page) == top
    chosen = page.locator(".panel h3")
    assert not chosen.count()  # fingers that move or pull choose nothing
    page.get_by_role("button", name="whole map").tap()
    for across in range(0, 151, 15):  # a row of places; there are gaps between the pictures
        if not chosen.count():
            fingers.tap(x + across, y)
    assert chosen.inner_text() and scrolled(page) == top


def test_a_finger_edits_the_matrix_and_asks_a_method(touched):
    page, fingers = touched("assignment")
    best = page.get_by_role("button", name=re.compile("^exact in fp32"))
    before = best.inner_text()
    cell = page.get_by_label("row 1, column 1", exact=True)
    cell.tap()
    assert cell.evaluate("(e) => document.activeElement === e")
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("9")
    page.keyboard.press("Enter")
    assert best.inner_text() != before
    page.get_by_role("button", name=re.compile("^argbest in e5m2")).tap()
    assert "argbest in e5m2" in page.locator(".stage .hint").inner_text()


@pytest.mark.parametrize("name", PAGES)
def test_what_is_touched_is_not_too_small(opened, map_data, name):
    page = opened(f"play/{name}.html", has_touch=True, is_mobile=True, width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    small = page.evaluate(
        "[...document.querySelectorAll('.play button, .play select, .play input, .play .dot .touch')]"
        ".map((e) => e.closest('label') || e).filter((e) => e.checkVisibility()).map((e) => ({e, box: "
        "e.getBoundingClientRect()})).filter((f) => f.box.height < 24 || f.box.width < 24)"
        ".map((f) => f.e.outerHTML.slice(0, 80))"
    )
    assert not small, small


# --- all pages


@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_every_control_has_a_name(opened, map_data, name, scheme, width):
    page = opened(f"play/{name}.html", width=width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    nameless = page.evaluate(
        "[...document.querySelectorAll('.play input, .play select, .play button, .play canvas, .play svg')]"
        ".filter((e) => !(e.ariaLabel || e.textContent.trim() || (e.labels && e.labels.length))).length"
    )
    assert nameless == 0


@pytest.mark.parametrize("name", PAGES)
def test_without_scripts_a_page_says_where_to_read(browser, site, name):
    watched = Watched(browser, java_script_enabled=False)
    page = watched.open(site / f"play/{name}.html")
    assert "needs scripts" in page.locator(".play").inner_text()
    assert (
        BOOK.parent
        / page.locator("noscript a").get_attribute("href").replace("../nbs/", "").replace(".html", ".ipynb")
    ).exists()
    watched.check()
    page.close()
