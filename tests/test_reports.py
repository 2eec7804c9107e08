"The reports beside the sources: every row of the ledger once, and no sentence that the ledger does not say."

import ast
import json
import re
from collections import Counter

import pytest

from brace_nb.companion import SourceReport, VERDICTS, counts, in_worlds, read_rows, root, verdict_sentence

REPORTS = sorted((root() / "nbs/reports").glob("*.ipynb"))


def row(id="a.1", verdict="reproduced", **more):
    "A row of a ledger."
    kept = dict(source="a", where="Fig. 1", says="it falls | twice", text="0.3", unit=None, needs="nothing")
    return kept | dict(id=id, verdict=verdict, kind="claim", experiment="codes/speed") | more


def outputs(path, **given):
    "What the cells of a report show, in order, and its names; `given` stand in place of its own."
    shown, names = [], {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, path.name, "exec"), names)
            names |= given
            if last is not None:
                found = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
                shown.append(str(getattr(found, "data", found)))
    return shown, names.get("report")


@pytest.fixture(scope="module")
def made():
    return {
        path.stem: outputs(path) for path in REPORTS if "SourceReport(" in path.read_text(encoding="utf-8")
    }


def test_every_row_of_the_sources_stands_in_a_report_once(made):
    rows = [r for r in read_rows(root() / "figures/claims.json") if r["source"] != "project"]
    text = "\n".join("\n".join(shown[2:]) for shown, _ in made.values())  # below summary and headlines
    times = Counter({r["id"]: text.count(f"claims/{r['source']}.md#{r['id']})") for r in rows})
    assert rows and set(times.values()) == {1}, [id for id, n in times.items() if n != 1]


def test_every_headline_is_a_row_and_its_verdict_is_the_ledgers(made):
    for shown, report in made.values():
        lines = shown[1].splitlines()
        assert 3 <= len(lines) <= 40
        verdicts = {r["id"]: in_worlds(r) for r in report.rows}
        titles = {r["id"]: r["title"] for r in report.flagged}
        for line in lines:
            title, verdict, id = re.match(r"- \*\*(.+?)\*\* \(\[(.+?)\]\([^#]*#(.+?)\)\)\. ", line).groups()
            assert verdicts[id] == verdict and title == titles[id][0].upper() + titles[id][1:]


def test_every_headline_has_a_title_and_no_words_wait_for_a_headline(made):
    for path in REPORTS:
        if path.stem in made:
            report = made[path.stem][1]
            cells = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"]]
            trees = [
                ast.parse(source) for source in cells if source.startswith(("WORDS", "#| echo: false\nWORDS"))
            ]
            words = next(
                ast.literal_eval(n.value) for t in trees for n in t.body if isinstance(n, ast.Assign)
            )
            assert set(words) <= {r["id"] for r in report.flagged if r["title"]}, path.stem


def test_what_the_null_did_not_measure_is_not_said_twice():
    "A text of two clauses; the null measured the first alone, so the second is that of the claim."
    told = row(text="loss 1.0; of 250 pairs (a; b)", null_text="loss 5.0; of 250 pairs (a; b)")
    shown = SourceReport("a", rows=[told], facts={}).section("a.*")
    assert "null: loss 5.0 |" in shown and shown.count("of 250 pairs") == 1
    same = SourceReport("a", rows=[told | dict(null_text=told["text"])], facts={}).section("a.*")
    assert "null: the same |" in same


def test_an_undecided_row_says_what_it_waits_for():
    rows = [
        row("a.1", "undecided", undecided_because="ten seeds more."),
        row("a.2", "undecided", same_as="a.1"),
    ]
    shown = SourceReport("a", rows=rows, facts={}).section("a.*")
    assert "(`a.1`): ten seeds more." in shown and "(`a.2`): as `a.1`." in shown


def test_a_report_follows_the_ledger():
    "The same prose with another verdict and another number."
    for verdict in VERDICTS:
        shown = SourceReport("a", rows=[row(verdict=verdict, text="0.25")], facts={}).section("a.*")
        assert f"[{verdict}](" in shown and ("0.25" in shown or verdict == "not run")
        assert r"it falls \| twice" in shown
    assert "left open" in verdict_sentence([row(verdict="undecided")])


def test_a_row_is_shown_once_and_none_is_lost():
    rows = [row("a.1"), row("a.2"), row("a.3", "not run", needs="a GPU"), row("a.4", kind="erratum")]
    report = SourceReport("a", rows=rows, facts={})
    first, again, rest = report.section("a.1"), report.section("a.[12]"), report.rest()
    assert first.count("#a.1)") == 1 and "#a.1)" not in again and "#a.2)" in again
    assert "#a.3)" in rest and "needs a GPU" in rest and "#a.4)" in rest and "#a.1)" not in rest
    assert report.rest() == "Every row was shown."


def test_a_picture_stands_open_when_it_shows_a_headline():
    "Of two figures the one with the headline is chosen, although the other has more rows."
    rows = [row("a.1", headline=True), row("a.2"), row("a.3")]
    about = dict(alt="Three dots fall from 3 to 1. It falls.", says={"It falls.": True, "It rises.": False})
    about |= dict(experiment="codes/speed")
    figures = {"a/one": about | dict(claims=["a.1"]), "a/more": about | dict(claims=["a.2", "a.3"])}
    facts = dict(a=dict(figures=figures))
    shown = SourceReport("a", rows=rows, facts=facts).section("a.*")
    stands, folded = shown.split("<details>")
    assert "a/one.png" in stands and "*It falls.*" in stands and "`make figures ONLY=codes/speed`" in stands
    assert "Three dots" not in stands.replace(f"![{about['alt']}]", "") and "Three dots" in folded
    shown = SourceReport("a", rows=[r | dict(headline=False) for r in rows], facts=facts).section("a.*")
    assert shown.startswith("<details>") and "a/more.png" in shown


def minutes(text):
    "The minutes to read what stands open: 200 words a minute, half a minute for each picture."
    text = re.sub(r"(<details>\s*<summary>.*?</summary>).*?</details>", r"\1", text, flags=re.S)
    text, pictures = re.subn(r"!\[.*?\]\(\.\./[^)]*\)", "", text)
    words = re.sub(r"<[^>]+>", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)).split()
    return len(words) / 200 + pictures / 2


def test_a_report_is_read_in_ten_minutes(made):
    assert (
        minutes("one [two](../a.md)\n\n![three [4]](../b.png) <details><summary>3</summary>four</details>")
        == 0.515
    )
    for path in REPORTS:
        if path.stem in made:
            cells = json.loads(path.read_text())["cells"]
            prose = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
            assert 2 < minutes("\n\n".join(prose + made[path.stem][0])) <= 10, path.stem


def test_what_a_report_cannot_say():
    report = SourceReport("a", rows=[row()], facts={})
    with pytest.raises(ValueError, match="no row of the ledger fits"):
        report.section("b.*")
    with pytest.raises(ValueError, match="no figure"):
        report.section("a.*", figure="codes/none")
    with pytest.raises(ValueError, match="has no source"):
        SourceReport("z", rows=[row()], facts={})


def replication(rows):
    "What the page of the whole replication shows of a ledger."
    return "\n".join(outputs(root() / "nbs/reports/replication.ipynb", rows=rows)[0])


def test_the_replication_report_says_what_the_ledger_says():
    rows = read_rows(root() / "figures/claims.json")
    report = replication(rows)
    for r in rows:
        once = "same_as" not in r
        ours = r["source"] == "project"
        assert (f"#{r['id']})" in report) or r["verdict"] != "refuted" or not once, r["id"]
        assert ours or not r.get("headline") or f"#{r['id']})" in report, r["id"]
    told = counts(rows)
    assert f"{told['refuted']} rows are refuted" in report
    assert f"{told['not run']} rows were not run" in report
    assert 2_000 < len(report.split()) < 6_500  # ten pages in print


def test_a_headline_changes_its_report_with_its_verdict():
    told = row("x.1", source="x", says="it falls", test="a fall of .1 or less", tolerance=None, headline=True)
    told |= dict(measured=0.4, text="0.4")
    texts = {v: replication([told | dict(verdict=v)]) for v in ("reproduced", "undecided", "differs")}
    assert "would fail by: a fall of .1 or less" in texts["reproduced"]
    assert "open, because" in texts["undecided"] and "we looked for" in texts["differs"]


def test_a_mistake_that_is_repeated_is_a_number_of_the_replication_report():
    first = row("x.1", "refuted", source="x", tolerance=None, test="", measured=1.0)
    again = row("x.2", "refuted", source="x", tolerance=None, test="", measured=None, same_as="x.1")
    report = replication([first, again])
    assert "Repeated in 1 other rows" in report and "x.2" not in report and "1 rows are refuted" in report
