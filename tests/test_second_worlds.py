"""Rows that ask a headline again on other data: they say the same and are judged and told beside it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brace_nb.companion import (
    WORLDS,
    Interval,
    SourceReport,
    counts,
    decide,
    first_row,
    fold,
    group,
    in_worlds,
    ledger,
    load_claims,
    margins,
    problems,
    read_rows,
    root,
    to_headlines,
    to_index,
    to_page,
    to_text,
    to_worlds,
    unfold,
)

CLAIMS = load_claims()
AGAIN = {id: own for id in CLAIMS if (own := first_row(id, CLAIMS))}
SAME = (
    "kind",
    "where",
    "says",
    "source",
    "holds",
    "gain",
    "learned",
    "control",
    "power",
    "no_null",
    "on_miss",
)
ROW = dict(kind="claim", where="p. 1", says="it helps", test="it does not", holds="gain > 0", gain="gain")
ROW |= dict(measured="{gain:.1f} points", on_miss="differs", needs="embedded data", verdict="reproduced")
ROW |= dict(source="thesis_3", experiment="a/b", headline=True, title="a gain of points")
OTHER = {k: v for k, v in ROW.items() if k not in ("headline", "title")} | dict(
    experiment="a/second", test="On stamps: no"
)
HELPS, HARMS, OPEN = [1.0, 2.0, 3.0], [-3.0, -2.0, -1.0], [-1.0, 0.5, 2.0]


def planted(here, there, accepted="reproduced"):
    "The ledger of one headline whose gain is planted in both worlds."
    records = {"x": here, "x.stamps": there}
    records = {id: dict(measured=dict(gain=gain), null=None, note="") for id, gain in records.items()}
    return ledger({"x": ROW, "x.stamps": OTHER | dict(verdict=accepted)}, records)


def test_a_second_world_asks_the_same_question():
    assert len(AGAIN) >= 33
    for id, own in AGAIN.items():
        row, first = CLAIMS[id], CLAIMS[own]
        assert [row.get(k) for k in SAME] == [first.get(k) for k in SAME], id
        assert first.get("headline") and "headline" not in row and row["experiment"], id
        assert re.search(r"\b(stamps|glosses|WordNet)\b", row["test"]), id


def test_second_worlds_are_not_counted_and_not_lost():
    rows = ledger(CLAIMS, {})
    assert [r["id"] for r in unfold(rows)] == list(CLAIMS)
    assert sum(counts(rows).values()) == len([1 for id, r in CLAIMS.items() if "same_as" not in r]) - len(
        AGAIN
    )
    assert {r["id"] for r in rows if "worlds" in r and "same_as" not in r} == set(AGAIN.values())


@pytest.mark.parametrize(
    "here, there, told, what",
    [
        (HELPS, HELPS, "reproduced in both worlds", "alike"),
        (HELPS, HARMS, "reproduced on emoji, differs on stamps", "other"),
        (HELPS, OPEN, "reproduced on emoji, undecided on stamps", "one"),
        (OPEN, HARMS, "undecided on emoji, differs on stamps", "one"),
        (OPEN, OPEN, "undecided in both worlds", "open"),
    ],
)
def test_a_headline_holds_only_where_both_worlds_say_so(here, there, told, what):
    [row] = planted(here, there)
    assert in_worlds(row) == told and group(row, "stamps") == what
    value, report = f"{there[1]:.1f}", SourceReport("thesis_3", rows=[row], facts={})
    for page in (to_headlines([row]), to_page("thesis_3", [row], {}), to_index([row])):
        assert f"**{told}**" in page and value in page
    assert f"on stamps: {value}" in report.headlines({})
    assert f"**A gain of points** ([{told}]" in report.headlines({})
    assert "a gain of points:" in to_text([row], says=True)
    assert "on stamps" in to_text([row]) and '<a id="x.stamps"></a>' in to_page("thesis_3", [row], {})


def test_a_second_world_that_turned_is_a_problem():
    assert not problems(planted(HELPS, HARMS, "differs"))
    assert [p for p in problems(planted(HELPS, HARMS)) if p.startswith("x.stamps: verdict is now 'differs'")]
    silent = ledger({"x": ROW, "x.stamps": OTHER}, {"x": dict(measured=dict(gain=HELPS), null=None, note="")})
    assert [p for p in problems(silent) if p.startswith("x.stamps: experiment a/second did not record it")]
    assert in_worlds(silent[0]) == "reproduced" and "stamps" not in to_text(silent)


def test_what_repeats_a_row_tells_its_worlds_and_counts_them_once():
    repeats = {k: v for k, v in ROW.items() if k not in ("experiment", "holds", "gain")}
    claims = {"x": ROW, "x.stamps": OTHER, "y": repeats | dict(same_as="x", experiment=None)}
    records = {id: dict(measured=dict(gain=HELPS), null=None, note="") for id in ("x", "x.stamps")}
    rows = ledger(claims, records)
    assert in_worlds(rows[1]) == "reproduced in both worlds" and len(unfold(rows)) == 3


def test_a_margin_has_the_sign_of_the_answer():
    "Of all measured rows of comparisons: they hold when all margins are above 0, and fail when one is below."
    seen = 0
    for row in unfold(read_rows(root() / "figures/claims.json")):
        condition = CLAIMS.get(row["id"], {}).get("holds", "")
        if row["measured"] is None or not condition or re.search(r" or |=", condition):
            continue  # what is equal has no interval
        try:
            holds, least = decide(condition, row["measured"]), margins(condition, row["measured"])[0]
        except ValueError:  # no comparison, or recorded for an older form of the row
            continue
        assert holds is (True if least.low > 0 else False if least.high <= 0 else None) or least.low == 0
        seen += 1
    assert seen > 200


@given(st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=6))
def test_margins_keep_sign_and_order(values):
    here, there = sorted(values[:3]), sorted(values[3:])
    one, two = margins("gap > 0", dict(gap=here), dict(gap=there))
    unit = max(abs(here[1]), abs(there[1])) or 1
    assert Interval(*(v / unit for v in here)) == one and Interval(*(v / unit for v in there)) == two


def test_the_picture_shows_each_answer_once():
    rows = planted(HELPS, HARMS)
    picture = to_worlds(rows, {"x": ROW})
    assert (
        picture.count("<circle") == 2
        and ">a gain of points<" in picture
        and "Decided otherwise in the second world (1)" in picture
    )
    assert WORLDS["stamps"] in picture and "differs" in picture
    assert to_worlds(planted(OPEN, OPEN), {"x": ROW}).count('fill="#FFF"') == 2
    assert to_worlds(fold([dict(r, id="z") for r in rows][:1]), {"z": ROW}).count("<circle") == 2
