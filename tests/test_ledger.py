"""The committed ledger: every verdict could have come out otherwise."""

import ast
import inspect
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brace_nb.companion import (
    decide,
    gain_over_null,
    holds,
    independent_difference,
    is_number,
    ledger,
    load_claims,
    mean_interval,
    names_in,
    problems,
    read_facts,
    root,
    row_faults,
    split_tables,
    to_index,
    to_page,
    to_text,
    unfold,
    verdict,
)
from brace_nb.core import read_yaml

CLAIMS = load_claims()


def fits(row, r):
    "Was it measured for the row as it stands? What does not fit has no verdict; `test_project` finds it."
    if r["measured"] is None or row["experiment"] != r["experiment"]:
        return False
    try:
        return bool(verdict(row, r["measured"], r["null"], r.get("gained")))
    except ValueError:
        return False


ROWS = unfold(json.loads((root() / "figures/claims.json").read_text()))
MEASURED = {r["id"]: r for r in ROWS if r["id"] in CLAIMS and fits(CLAIMS[r["id"]], r)}
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
    "The values as they are, then with all or one of the others moved: a part of `and` may mask another part."
    yield values
    every = names_in(row["holds"]) - {name}
    numbers = {other for other in every if not isinstance(values[other], (str, bool))}
    for far in (-1e3, 1e3):
        yield values | dict.fromkeys(numbers, far)
    for other in every:
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


WITH_NULL = [
    id
    for id, r in MEASURED.items()
    if r["null"] is not None and CLAIMS[id]["kind"] == "claim" and "control" not in CLAIMS[id]
]


@pytest.mark.parametrize("id", WITH_NULL)
def test_a_null_adds_nothing_to_itself(id):
    row, null = CLAIMS[id], MEASURED[id]["null"]
    added = gain_over_null(row, null, null)
    assert added.middle == 0 and added.low <= 0 <= added.high


def test_empirical_claims_have_a_null_or_say_why_not():
    bare = [
        id
        for id, r in MEASURED.items()
        if r["kind"] == "claim" and r["needs"] not in EXACT and r["null"] is None
        if CLAIMS[id]["experiment"] and not CLAIMS[id].keys() & {"no_null", "control"}
    ]
    assert not bare, f"{len(bare)} empirical claims without a null: {bare[:20]}"


def test_a_claim_with_a_null_says_what_it_gains():
    "In which amount it is to be better than its null; or a positive control in place of the null."
    with_null = [id for id, r in MEASURED.items() if r["null"] is not None and r["experiment"]]
    claims = [id for id in with_null if CLAIMS[id]["kind"] == "claim" and CLAIMS[id]["needs"] != "nothing"]
    assert not [id for id in claims if not CLAIMS[id].keys() & {"gain", "control", "same_as"}]


def test_every_source_has_its_headlines():
    for source in {row["source"] for row in CLAIMS.values()} - {"thesis_1"}:
        chosen = [id for id, row in CLAIMS.items() if row["source"] == source and row.get("headline")]
        least = 6 if source not in ("thesis_7", "thesis_appendix") else 3  # a few pages each
        most = 12 if source != "project" else 16  # what is ours has no pages of its own
        assert least <= len(chosen) <= most, (source, chosen)


def unmarked(says: str) -> str:
    "A quote without what is marked: `a formula, a cell or code in plain letters` and [words of ours]."
    return re.sub(r"\[[^\[\]]*\]", "", re.sub(r"`[^`]*`", "", says))


def test_marks_in_a_quote_are_closed():
    "Otherwise a reader cannot tell the source's words from ours."
    assert not set("`[]") & set(unmarked("a proxy `b in [0, 1]` ... [ours]"))
    assert all(set("`[]") & set(unmarked(bad)) for bad in ("a `b", "a [b", "a b]", "[a [b]", "`a` [b` c"))
    said = {id: row["says"] for id, row in CLAIMS.items() if isinstance(row["says"], str)}
    assert not [id for id, says in said.items() if set("`[]") & set(unmarked(says))]


# ---- the rule, by planting: what is true, false, without power, trivial or unlearned comes out so ----

PLANTED = dict(
    kind="claim",
    where="here",
    says="training lowers the loss by more than .1",
    test="a fall of .1 or less",
    holds="fall > .1",
    measured="{fall}",
    gain="fall",
    learned="end < chance",
    power="planted > .1",
    on_miss="differs",
    needs="training",
    experiment="a/b",
    verdict="reproduced",
)
SAMENESS = {k: v for k, v in PLANTED.items() if k not in ("gain", "learned", "power")} | dict(
    says="both losses are almost identical", holds="abs(fall) < .1", control="planted > .1"
)


def study(effect, of_null, seeds, noise=0.05, planted=0.3, end=1.0, draw=0, row=PLANTED):
    "The verdict of a study whose truth we know: falls of the loss by seed, with and without the cause."
    random = np.random.default_rng(draw)
    shared = random.normal(0, noise, seeds)  # what a seed does to both
    fall, null, found = (e + shared + random.normal(0, noise / 5, seeds) for e in (effect, of_null, planted))
    rest = dict(end=end, chance=1.8, planted=mean_interval(found))
    here, there = (rest | dict(fall=mean_interval(v)) for v in (fall, null))
    if "gain" not in row:
        return verdict(row, here)
    gained = mean_interval(fall - null)
    assert gain_over_null(row, here, there, gained).middle == pytest.approx(
        gain_over_null(row, here, there).middle
    )
    return verdict(row, here, there, gained)


@pytest.mark.parametrize(
    "truth, expected",
    {
        "true": (dict(effect=0.4, of_null=0.0, seeds=8), "reproduced"),
        "true, with a null that passes the threshold": (dict(effect=0.4, of_null=0.2, seeds=8), "reproduced"),
        "false": (dict(effect=0.0, of_null=0.0, seeds=8), "differs"),
        "false, of a kind that refutes": (
            dict(effect=0.0, of_null=0.0, seeds=8, row=PLANTED | {"on_miss": "refuted"}),
            "refuted",
        ),
        "powerless: a planted effect is not found": (
            dict(effect=0.0, of_null=0.0, seeds=8, planted=0.0),
            "undecided",
        ),
        "too few seeds": (dict(effect=0.2, of_null=0.0, seeds=2, noise=0.3), "undecided"),
        "trivial: the null does the same": (dict(effect=0.4, of_null=0.4, seeds=8), "undecided"),
        "worse than its null": (dict(effect=0.4, of_null=0.6, seeds=8), "undecided"),
        "not learned": (dict(effect=0.4, of_null=0.0, seeds=8, end=1.9), "undecided"),
        "not learned, and a miss": (dict(effect=0.0, of_null=0.0, seeds=8, end=1.9), "undecided"),
        "sameness": (dict(effect=0.0, of_null=0.0, seeds=8, row=SAMENESS), "reproduced"),
        "sameness without its control": (
            dict(effect=0.0, of_null=0.0, seeds=8, planted=0.0, row=SAMENESS),
            "undecided",
        ),
        "a difference where sameness is claimed": (
            dict(effect=0.4, of_null=0.0, seeds=8, row=SAMENESS),
            "differs",
        ),
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_planted_is_found(truth, expected):
    truth, wanted = expected
    found = [study(**truth, draw=draw) for draw in range(100)]
    assert found.count(wanted) >= 92, found  # an interval of 95 % errs


def test_what_adds_nothing_is_seldom_reproduced():
    found = [study(0.4, 0.4, seeds=5, draw=draw) for draw in range(400)]
    assert found.count("reproduced") < 0.05 * len(found)


intervals = st.lists(st.floats(-5, 5), min_size=3, max_size=3).map(sorted)


@given(fall=intervals, null=intervals, gained=st.none() | intervals, end=intervals, planted=intervals)
def test_a_verdict_keeps_what_it_promises(fall, null, gained, end, planted):
    here = dict(fall=fall, end=end, chance=1.8, planted=planted)
    found = verdict(PLANTED, here, here | dict(fall=null), gained)
    gain = gain_over_null(PLANTED, here, here | dict(fall=null), gained)
    learned, right, wrong = end[2] < 1.8, fall[0] > 0.1, fall[2] <= 0.1
    assert (found == "reproduced") == (learned and right and gain.low > 0)
    assert (found == "differs") == (learned and wrong and planted[0] > 0.1)
    assert found in ("reproduced", "differs", "undecided")


@given(a=intervals, b=intervals)
def test_a_difference_of_independent_intervals(a, b):
    found = independent_difference(a, b)
    assert found.low >= a[0] - b[2] - 1e-9 and found.high <= a[2] - b[0] + 1e-9  # within the ends' difference
    assert found.middle == a[1] - b[1]
    back = independent_difference(b, a)
    assert (back.low, back.high) == (-found.high, -found.low)


def test_the_order_of_the_questions():
    values = dict(fall=0.4, end=1.9, chance=1.8, planted=0.3)
    assert verdict(PLANTED | {"kind": "definition"}, values) == "checked"  # a definition asks one question
    assert verdict(PLANTED, values | {"end": [1.7, 1.75, 1.9]}) == "undecided"
    bare = {k: v for k, v in PLANTED.items() if k not in ("learned", "power")}
    assert verdict(bare, values | {"fall": 0.0}) == "differs"  # `holds` itself is on the wrong side


@pytest.mark.parametrize(
    "changes, says",
    [
        (dict(gain="1 + 1"), "reads no value"),
        (dict(learned="True"), "reads no value"),
        (dict(power="open('x')"), "power: a condition has names"),
        (dict(control=3), "control"),
        (dict(headline="yes"), "headline"),
        (dict(headline=True), "has a `title`"),
        (dict(title="it falls"), "has a `title`"),
        (dict(headline=True, title="x" * 41), "has a `title`"),
        (dict(headline=True, title=1), "has a `title`"),
        (dict(same_as="other.row"), "measured by that one alone"),
    ],
)
def test_bad_fields_are_named(changes, says):
    assert any(says in fault for fault in row_faults(PLANTED | changes))


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


def test_every_undecided_claim_says_what_it_waits_for():
    "And no row that is decided, not run or measured by another says so still."
    told = read_yaml(root() / "data/undecided.yaml")
    waiting = [id for rows in told.values() for id in rows]
    open_ = [id for id, row in CLAIMS.items() if row["kind"] == "claim" and row["verdict"] == "undecided"]
    asked = [id for id in open_ if "same_as" not in CLAIMS[id]]
    assert sorted(waiting) == sorted(asked)
    assert all(re.fullmatch(r".{30,300}[.]", why) for rows in told.values() for why in rows.values())


def test_a_reason_is_shown_and_a_bad_one_named(tmp_path):
    _reasons = inspect.getmodule(to_page)._reasons  # no public name: every result would depend on it
    path = tmp_path / "undecided.yaml"
    path.write_text("night: {a.b: ten seeds}")
    assert _reasons(path) == {"a.b": "a night decides it. ten seeds"}
    row = dict(EVIDENCE, verdict="undecided")
    shown = ledger({"a.b": row}, {"a.b": dict(measured=dict(x=[-1, 1, 3]), null=None, note="")})[0]
    shown |= dict(undecided_because="a night decides it. ten seeds")
    assert "a night decides it. ten seeds" in to_text([shown], says=True)
    assert "a night decides it. ten seeds" in to_page("own", [shown], {})
    assert "- 1 undecided: a night decides it" in to_index([shown])
    for bad, says in (
        ("day: {a.b: x}", "waits for one of"),
        ("night: {a.b: x}\nfloor: {a.b: y}", "two reasons"),
    ):
        path.write_text(bad)
        with pytest.raises(ValueError, match=says):
            _reasons(path)


EVIDENCE = dict(kind="claim", where="w", says="s", test="t", needs="data", experiment="a/b", verdict="x")
EVIDENCE |= dict(holds="x > 0", measured="{x}", on_miss="differs", no_null="a test", source="own")


@pytest.mark.parametrize(
    "here, long, verdict, moved",
    [
        ([-1, 1, 3], [0.5, 1, 1.5], "reproduced", False),  # a night decides
        ([0.5, 1, 2], [-3, -2, -1], "differs", True),  # the half hour says the opposite
        ([-3, -2, -1], [-1, 0, 1], "undecided", False),  # decided here, by seeds that happened to agree
        ([-9, -8, -7], [-1, 0, 1], "undecided", True),  # what was measured here lies beside the night's
        (None, [0.5, 1, 1.5], "reproduced", False),  # nothing ran here
    ],
)
def test_a_row_with_evidence_is_judged_by_it(here, long, verdict, moved):
    record = dict(measured=here and dict(x=here), null=None, note="")
    proof = dict(measured=dict(x=long), null=None, note="", seeds=12)
    row = ledger({"r": EVIDENCE}, {"r": record}, None, {"r": proof})[0]
    assert row["verdict"] == verdict and row["seeds"] == 12 and ("moved" in row) == moved
    assert row["measured"] == dict(x=long)
    assert any("moved" in told for told in problems([row | dict(accepted=verdict)])) == moved
