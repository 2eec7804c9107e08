"""The committed ledger: every verdict could have come out otherwise."""

import json
import re

import pytest

from brace_nb.companion import (
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
            assert split_tables((root() / f"figures/{figure}.csv").read_text())
