"""The committed ledger: every verdict could have come out otherwise."""

import ast
import json
import re

import pytest

from brace_nb.companion import (
    decide,
    holds,
    is_number,
    load_claims,
    names_in,
    read_facts,
    root,
    split_tables,
    verdict,
)

CLAIMS = load_claims()
MEASURED = {
    r["id"]: r
    for r in json.loads((root() / "figures/claims.json").read_text())
    if r["measured"] is not None and r["id"] in CLAIMS
}
EXACT = {"nothing", "timing"}  # no data that something could be learned from


def others(value, values):
    "What a value might have been instead."
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return [value + "?", *(v for v in values if isinstance(v, str) and v != value)]
    middle = value[1] if isinstance(value, list) else value
    scaled = [middle * f for f in (0, -1, 0.1, 0.5, 0.9, 0.99, 1.01, 1.1, 2, 10, 1e3, -1e3)]
    moved = [middle + d for d in (-1e3, -1, -0.1, 0.1, 1, 1e3)]
    return [*scaled, *moved, *(v for v in values if isinstance(v, (int, float)))]


def candidates(row, values):
    "All values of a row, and the numbers that its condition compares them with."
    return [*values.values(), *map(float, re.findall(r"(?<![\w.])\d*\.?\d+", row["holds"]))]


def decides(row, values, name):
    "Does another value under this name change the answer?"
    answer = holds(row, values)
    return any(
        holds(row, values | {name: v}) is not answer for v in others(values[name], candidates(row, values))
    )


def neighbors(row, values, name):
    "The values as they are, then with one of the others moved: a part of `and` may mask another part."
    yield values
    for other in names_in(row["holds"]) - {name}:
        for v in others(values[other], candidates(row, values)):
            yield values | {other: v}


@pytest.mark.parametrize("id", MEASURED)
def test_a_verdict_moves_when_a_value_that_it_reads_moves(id):
    row, values = CLAIMS[id], MEASURED[id]["measured"]
    if is_number(row):
        far = row["says"] + 2 * row["tolerance"] + 1
        assert verdict(row, far) != verdict(row, row["says"])
        return
    for name in names_in(row["holds"]):
        moves = any(decides(row, near, name) for near in neighbors(row, values, name))
        assert moves, f"nothing that {name!r} could be changes {row['holds']!r}"


@pytest.mark.parametrize("id", [i for i, r in MEASURED.items() if r["verdict"] == "reproduced" and r["null"]])
def test_what_was_not_learned_does_not_reproduce(id):
    assert verdict(CLAIMS[id], MEASURED[id]["null"]) != "reproduced"


def test_empirical_claims_have_a_null_or_say_why_not():
    bare = [
        id
        for id, r in MEASURED.items()
        if r["kind"] == "claim" and r["needs"] not in EXACT and r["null"] is None
        if "no_null" not in CLAIMS[id]
    ]
    assert not bare, f"{len(bare)} empirical claims without a null: {bare[:20]}"


def rolled(node):
    "What `np.roll` puts in another order; nothing for anything else."
    is_roll = isinstance(node, ast.Call) and ast.unparse(node.func) == "np.roll"
    return ast.unparse(node.args[0]) if is_roll else None


def sides(node):
    "What a difference, a quotient or a call puts beside each other."
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Div)):
        return [node.left, node.right]
    return node.args if isinstance(node, ast.Call) else []


def beside_itself(code):
    "Expressions that put an array beside itself in another order: their mean is that of equals."
    found = []
    for node in ast.walk(ast.parse(code)):
        parts = sides(node)
        moved = {rolled(p) for p in parts} - {None}
        found += [ast.unparse(node) for name in moved if name in map(ast.unparse, parts)]
        if isinstance(node, ast.Call) and ast.unparse(node).startswith("mean_interval(np.diff("):
            found.append(ast.unparse(node))
    return found


def test_what_puts_an_array_beside_itself_is_found():
    for code in (
        "np.roll(x, 1) - x",
        "gain(np.roll(x, 1), x)",
        "a / np.roll(a, 2)",
        "mean_interval(np.diff(v))",
    ):
        assert len(beside_itself(code)) == 1, code
    for code in ("np.roll(x, 1) - y", "a - b", "np.roll(x, 1)", "x[1:] - x[:-1]", "np.diff(v)"):
        assert beside_itself(code) == [], code


def test_no_null_is_an_arm_against_itself():
    "Other seeds of one arm differ by 0 on average, whatever is true: nothing that is credited is taken away."
    found = {}
    for path in sorted((root() / "nbs/experiments").glob("*/*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
        faults = [
            fault for cell in code if "null" in cell or "np.roll" in cell for fault in beside_itself(cell)
        ]
        if faults:
            found[path.stem] = faults
    assert found == {}


def test_a_condition_that_is_too_deep_is_refused():
    with pytest.raises(ValueError, match="not a condition"):
        decide("-" * 100_000 + "1 < 2", {})


def test_uncertain_values_are_undecided():
    "An interval around the threshold of a committed number makes its verdict undecided."
    numbers = [id for id, r in MEASURED.items() if is_number(CLAIMS[id]) and CLAIMS[id]["tolerance"] > 0]
    assert numbers
    for id in numbers:
        edge = CLAIMS[id]["says"] + CLAIMS[id]["tolerance"]
        width = CLAIMS[id]["tolerance"] / 2
        assert verdict(CLAIMS[id], [edge - width, edge, edge + width]) == "undecided"


def test_every_figure_stands_in_the_gallery_with_its_verdicts():
    for part, facts in read_facts(root() / "figures").items():
        page = (root() / f"figures/{part}/README.md").read_text()
        for figure, about in facts["figures"].items():
            assert f"]({figure.partition('/')[2]}.png)" in page, figure
            assert all(f"#{id})" in page for id in about["claims"]), figure
            assert split_tables((root() / f"data/numbers/{figure}.csv").read_text())
