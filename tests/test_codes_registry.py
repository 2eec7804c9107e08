"Registries of codes, measures and forms: the promises of every entry, and that adding one is one cell."

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from brace_nb.codes import (
    CODE_FORMATS,
    CODE_MEASURES,
    CODES,
    PRESETS,
    Code,
    CodeEncoder,
    CodeFormat,
    CodeIndex,
    CodeMeasure,
    code_similarity,
    fit_code,
    load_codes,
    nearest,
    nearest_by_product,
    save_codes,
)
from brace_nb.companion import PALETTE, style
from made_codes import random_codes

ROWS = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)


def made(name, seed=0):
    rows = abs(ROWS) if CODES[name].nonnegative else ROWS
    return fit_code(name, rows, 2 if CODES[name].counts else None, seed), rows


def keeps_its_promises(name):
    "What an entry of `CODES` says of itself."
    code, rows = made(name)
    codes = np.asarray(code.encode(rows))
    assert len(codes) == len(rows) and (codes == np.asarray(made(name)[0].encode(rows))).all()
    assert (codes[5:9] == np.asarray(code.encode(rows[5:9]))).all()  # a row does not know the others
    assert np.shape(code.decode(codes))[0] == len(rows) and np.isfinite(code.decode(codes)).all()
    similar = code.similarity(rows[:40], rows[:40])
    assert similar.shape == (40, 40) and np.isfinite(similar).all()
    assert (similar.diagonal() >= similar.max(1) - 1e-5).all()  # none is more alike than the row itself
    one_bit = codes.dtype == bool
    assert code.bytes == (codes.shape[1] / 8 if one_bit else code.bytes) and code.bytes <= 4 * rows.shape[1]
    if code.entry.scale_free:
        assert (codes == np.asarray(code.encode(4 * rows))).all()
    if code.entry.is_set:
        assert one_bit and similar.min() >= 0
    if code.entry.random:
        assert (np.asarray(made(name, 1)[0].encode(rows)) != codes).any()
    assert (
        code.entry.fit.__doc__ and code.entry.fits(16, 2) and style(code.entry)["color"] in PALETTE.values()
    )


def test_every_code_keeps_its_promises():
    for name in CODES:
        keeps_its_promises(name)


@pytest.mark.parametrize("name", CODES)
def test_a_float_query_asks_for_what_the_code_stands_for(name):
    code, rows = made(name)
    got, told = code.asked(rows[:6], rows[:9]), np.asarray(code.decode(code.encode(rows[:9])), np.float64)
    for i, query in enumerate(np.asarray(code.turned(rows[:6]), np.float64)):
        for j, row in enumerate(told):
            length = 1.0 if code.entry.estimates else np.linalg.norm(row)
            expected = sum(a * b for a, b in zip(query, row)) / np.linalg.norm(query) / length
            assert got[i, j] == pytest.approx(expected, abs=1e-5)


def test_the_factor_of_rabitq_makes_the_estimate_unbiased():
    x = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    true = x[:40] @ x[40:80].T
    off = np.mean([fit_code("rabitq", x, 3, seed).asked(x[:40], x[40:80]) - true for seed in range(40)], 0)
    plain = np.mean(
        [fit_code("rotation", x, 2, seed).asked(x[:40], x[40:80]) - true for seed in range(40)], 0
    )
    assert abs((off * true).sum() / (true**2).sum()) < 0.05 < abs((plain * true).sum() / (true**2).sum())


def test_a_code_is_asked_with_the_size_that_it_counts():
    with pytest.raises(ValueError, match="must be a number of bytes; got None"):
        fit_code("itq", ROWS)
    with pytest.raises(ValueError, match="must be None; got 3"):
        fit_code("sign", ROWS, 3)
    with pytest.raises(ValueError, match="name must be one of float, binary"):
        fit_code("none", ROWS)


def of_the_trade_off(names):
    "What the experiment's own cell finds in the registry."
    path = Path(__file__).parents[1] / "nbs/experiments/codes/tradeoff.ipynb"
    cells = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"]]
    cell = next(c for c in cells if c.startswith("def of_any"))
    given = dict(common={}, trained=[], bytes_kept=[1, 2], seeds=[0], wide=[], active=[3], features=16)
    given |= dict(CODES=CODES, asked={"unseen concepts": 0}, peers=dict.fromkeys(names))
    exec(cell, given)
    return given["plan"]


def test_a_code_is_added_in_one_cell(monkeypatch):
    def first_signs(x, size, seed):
        "x_1, ..., x_8s > 0"
        return (lambda z: z[:, : 8 * size] > 0), lambda codes: 2.0 * codes - 1

    entry = Code(first_signs, title="first signs", color="purple", marker="*", counts="bytes")
    monkeypatch.setitem(CODES, "first signs", entry)
    assert fit_code("first signs", ROWS, 1).encode(ROWS[:3]).shape == (3, 8)  # the public call
    keeps_its_promises("first signs")  # the test of properties goes over the registry
    assert ("first signs", 2, -1, "unseen concepts") in of_the_trade_off(["float", "sign"])
    assert style(entry) == dict(color=PALETTE["purple"], marker="*", linestyle="-")


def test_measures_by_products_and_by_counts_agree():
    a, b = random_codes(20, 40), random_codes(30, 40, seed=1)
    for name, entry in CODE_MEASURES.items():
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        counted, product = nearest(a, b, 5, name), nearest_by_product(x, y, 5, name)
        assert (counted[0] == product[0].numpy()).all() and np.allclose(counted[1], product[1], atol=1e-6)
        assert entry.formula and style(entry)["color"] in PALETTE.values()


def test_a_measure_is_added_in_one_cell(monkeypatch):
    def dice(s, union, n, k, dim):
        return torch.where(n + k > 0, 2 * s / (n + k), torch.ones_like(s))

    entry = CodeMeasure(title="Dice", formula="2 s / (n + k)", of_counts=dice, color="green")
    monkeypatch.setitem(CODE_MEASURES, "dice", entry)
    a, b = random_codes(20, 40), random_codes(30, 40, seed=1)
    similar = code_similarity(a, b, "dice")
    assert np.allclose(similar, 2 * (a @ b.T.astype(float)) / (a.sum(1)[:, None] + b.sum(1)))
    rows, best = nearest(a, b, 3, "dice")
    assert (rows == np.argsort(-similar, axis=1, kind="stable")[:, :3]).all() and (
        best[:, 0] == similar.max(1)
    ).all()
    test_measures_by_products_and_by_counts_agree()
    with pytest.raises(ValueError, match="metric must be one of jaccard, hamming"):
        CodeIndex(40, "dice")  # which no graph knows


def test_a_form_is_added_in_one_cell(monkeypatch, tmp_path):
    def lines(codes):
        return [codes.astype(int).tolist()]

    entry = CodeFormat(
        title="nested lists",
        of_codes=lines,
        to_codes=lambda form, dim: np.array(form[0], bool).reshape(-1, dim),
        bits=lambda active, dim: 8.0 * dim,
        suffix=".json",
        write=lambda path, form: Path(path).write_text(json.dumps(form)),
        read=lambda path: json.loads(path.read_text()),
    )
    monkeypatch.setitem(CODE_FORMATS, "json", entry)
    codes = random_codes(7, 12)
    save_codes(tmp_path / "a.json", codes)
    assert (load_codes(tmp_path / "a.json", 12) == codes).all() and entry.mean_bytes(codes) == 12
    x = abs(ROWS[:40])
    encoder = CodeEncoder.preset("post", dim=16, hidden=8, epochs=1, batch_size=16).fit(x, x)
    assert encoder.transform(x[:2], output="json") == lines(encoder.encode(x[:2]))


def test_a_preset_is_added_in_one_cell(monkeypatch):
    monkeypatch.setitem(PRESETS, "tiny", PRESETS["best"] | dict(dim=8))
    assert CodeEncoder.preset("tiny", epochs=3).training.epochs == 3
