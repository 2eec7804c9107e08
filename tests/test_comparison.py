"""A run against what is committed: what is counted, what is told, and what is not overwritten."""

import json
import shutil
import subprocess

import pytest
from test_companion import finished
from test_engine import notebook

from brace_nb.companion import (
    collect,
    compare,
    find_experiments,
    main,
    moved_cells,
    moved_values,
    publish,
    select,
)
from brace_nb.companion import engine, result_of

JUDGED = "where: w, needs: nothing, experiment: p/e, on_miss: differs, verdict: reproduced}\n"
ROWS = (
    "p.a: {kind: claim, says: 10, tolerance: 2, why: exact, " + JUDGED + "p.b: {kind: claim, says: s, "
    'test: t, holds: "low < 5", measured: "{low:.2f}", ' + JUDGED
)
CELL = "print(rows)\nsave_figure(fig, 'p/fig')\nrecord('p.a', 1)\nrecord('p.b', 1)"


@pytest.fixture
def clone(tmp_path, monkeypatch):
    "A clone with an experiment whose figure and rows are committed."
    monkeypatch.setenv("BRACE_NB_ROOT", str(tmp_path))
    monkeypatch.delenv("KEEP", raising=False)
    for name, text in {
        "settings.ini": "",
        ".gitignore": "data/derived\n",
        "constraints.txt": "torch==2.13.0\nnumpy==2.4.6\n",
        "data/profiles/cpu.yaml": "{}\n",
        "data/claims/p.yaml": ROWS,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    notebook(tmp_path, "p/e", "rows = 3", CELL)
    ran(tmp_path)
    publish(found()["p/e"])
    collect("cpu")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")
    return tmp_path


def git(folder, *words):
    said = subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return said.stdout


def found():
    return select(find_experiments("cpu"), "")


def ran(
    clone,
    table="n,loss\n1,0.5\n2,0.25\n",
    a=(9.0, 10.0, 11.0),
    b=4.0,
    inputs=(("cell", "1"),),
    picture="",
    **run,
):
    "The experiment has run, with these results."
    e = finished(clone, "p/e", {"p/fig": {"": table}}, **dict(inputs))
    out = e.folder / "out"
    rows = {"p.a": list(a), "p.b": dict(low=b)}
    rows = {id: dict(measured=m, null=None, note="") for id, m in rows.items()}
    (out / "claims.json").write_text(json.dumps(rows))
    result = json.loads((out / "result.json").read_text())
    if picture:
        (out / "figures/p/fig.png").write_text(picture)
        from brace_nb.companion import digest

        result["files"]["figures/p/fig.png"] = digest(out / "figures/p/fig.png")
    result["run"] |= run
    (out / "result.json").write_text(json.dumps(result))
    return e


def test_the_same_results_are_all_as_committed(clone, capsys):
    ran(clone)
    assert compare(found()).text() == "as committed: 1 of 1 pictures, 4 of 4 numbers, 2 of 2 verdicts"
    with pytest.raises(SystemExit):
        main(["compare"])
    assert capsys.readouterr().out.startswith("as committed: 1 of 1 pictures")


def test_what_moved_is_told_with_its_size_and_what_changed(clone):
    ran(
        clone,
        table="n,loss\n1,0.5\n2,0.2\n",
        a=(9.1, 10.1, 11.1),
        b=6.0,
        picture="other",
        inputs={"cell": "2"},
    )
    said = compare(found()).text()
    assert "as committed: 0 of 1 pictures, 3 of 4 numbers, 1 of 2 verdicts" in said
    assert "p/fig: the picture, 1 of 4 numbers, at most by 0.2 of their size (other cell)" in said
    assert "p.a: reproduced; 10 to 10.1 (0.1 of half its interval)" in said
    assert "p.b: reproduced is now differs; low 4 to 6" in said
    assert "and 2 more: `brace-nb compare`" in compare(found()).text(most=1)
    ran(clone, table="n,loss\n1,0.5\n2,0.2\n")
    assert "1 figures moved although nothing of their inputs is another" in compare(found()).text()


def test_rows_that_a_night_judges_are_told_apart(clone):
    night = dict(measured=dict(low=4.0), null=None, gained=None, note="")
    about = dict(experiment="p/e", parameters=dict(seeds=[0, 1]), seconds=1, device="cpu", inputs={})
    path = clone / "data/evidence/p/e.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(about | dict(rows={"p.b": night})))
    ran(clone, b=4.5)
    said = compare(found()).text()
    assert said.splitlines()[0] == "as committed: 1 of 1 pictures, 4 of 4 numbers, 1 of 1 verdicts"
    assert said.splitlines()[1:] == [
        "  Nights with more seeds judge 1 rows more; this run agrees with 1 of them."
    ]
    ran(clone, b=6.0)
    assert (
        "agrees with 0 of them.\n    p.b: reproduced by the night, here differs; low 4 to 6"
        in compare(found()).text()
    )
    assert "p.b" not in compare(found()).text(most=10)


@pytest.mark.parametrize(
    "run, why",
    [
        (dict(packages=dict(torch="2.15.0+cu13", numpy="2.4.6")), "torch is 2.15.0+cu13 and not 2.13.0"),
        (dict(device="NVIDIA H200"), "they were computed on NVIDIA H200"),
        (dict(own_bytes="this is linux on aarch64, not Linux on x86_64"), "this is linux on aarch64"),
    ],
)
def test_where_the_bytes_cannot_be_the_same_nothing_committed_is_overwritten(clone, monkeypatch, run, why):
    ran(clone, table="n,loss\n1,0.5\n2,0.3\n", b=6.0, picture="other", **run)
    assert publish(found()["p/e"]) == []
    collect("cpu")
    assert git(clone, "status", "--short") == ""
    said = compare(found()).text()
    assert why in said and "KEEP=1 publishes them" in said
    assert "nothing of their inputs" not in said
    monkeypatch.setenv("KEEP", "1")
    assert "p/fig.png" in publish(found()["p/e"])
    collect("cpu")
    assert "figures/claims.json" in git(clone, "status", "--short")


def test_a_build_of_the_same_version_is_published(clone):
    ran(clone, picture="other", packages=dict(torch="2.13.0+cpu"), device="cpu", own_bytes="")
    assert publish(found()["p/e"]) == ["p/fig.png"]


def test_without_git_nothing_is_said(clone, tmp_path, capsys):
    (clone / ".git").rename(clone / "not git")
    assert compare(found()).text() == ""
    with pytest.raises(SystemExit):
        main(["compare"])
    assert "nothing to compare: there is no git here" in capsys.readouterr().out
    shutil.rmtree(found()["p/e"].folder)
    with pytest.raises(SystemExit):
        main(["compare", "--only", "p/e"])
    assert "no result of p/e here; `brace-nb figures --only p/e`" in capsys.readouterr().out


def test_make_ends_with_the_comparison(clone, monkeypatch):
    said = []
    e = ran(clone)
    monkeypatch.setattr(engine, "_plan", lambda *_: {})
    assert engine.make(say=lambda text, **_: said.append(text)) == 0 and result_of(e)
    assert said[-1] == "as committed: 1 of 1 pictures, 4 of 4 numbers, 2 of 2 verdicts"


def test_moves():
    assert moved_cells("a,b\n1,x\n", "a,b\n1,x\n2,y\n") == (2, 1, 1.0)
    assert moved_cells("a\n0\n", "a\n0.0\n") == (1, 1, 0.0)
    assert moved_values(dict(a=True, b="x", c=[1, 2, 3]), dict(a=True, b="y", c=[1, 2.5, 3])) == (
        "c 2 to 2.5 (0.5 of half its interval)"
    )
