"Figures, ledger, parameters, publishing and the command line."

import io
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import yaml

from brace_nb.companion import publishing
from brace_nb.companion import (
    Experiment,
    artifacts,
    collect,
    counts,
    damaged,
    differences,
    digest,
    find_experiments,
    join_tables,
    keep_replication,
    load_claims,
    load_profile,
    load_replications,
    main,
    parameters,
    problems,
    publish,
    read_facts,
    record,
    result_of,
    root,
    runs,
    save_figure,
    split_tables,
    to_csv,
    use_style,
    write_ledger,
)

from brace_nb.core import write_atomic

# --- figures

DRAW = """
import matplotlib; matplotlib.use("Agg")
import matplotlib.pyplot as plt, numpy as np
from brace_nb.companion import save_figure, use_style
use_style()
fig, ax = plt.subplots()
ax.plot(np.linspace(0, 1, 9), np.random.default_rng(0).random(9), label="$x^2$")
ax.scatter([0, 1], [0, 1], clip_path=plt.Circle((0.5, 0.5), 0.4, transform=ax.transData)); ax.legend()
ax.add_patch(plt.Circle((0.5, 0.5), 0.2, hatch="//", clip_on=True)); ax.imshow(np.eye(2), aspect="auto")
ax.inset_axes([0.5, 0.5, 0.2, 0.2]).fill_between([0, 1], [0, 1], hatch="..", zorder=3)
save_figure(fig, "part/name", data=dict(x=[0.1, 1/3]), alt="A line of nine random points.")
"""


OF_A_USER = """figure.facecolor: black
savefig.bbox: tight
savefig.transparent: True
lines.linewidth: 9
lines.dashed_pattern: 1, 1
axes.formatter.limits: 0, 0
mathtext.fontset: cm
path.simplify: False
svg.fonttype: none
svg.hashsalt: mine
text.hinting: no_autohint
"""


def test_two_processes_draw_the_same_bytes_whatever_the_matplotlibrc_of_a_user(tmp_path):
    made = []
    for name in "ab":
        (tmp_path / name).mkdir()
        environment = os.environ | {"BRACE_NB_RUN": str(tmp_path / name)}
        if name == "b":
            (tmp_path / name / "matplotlibrc").write_text(OF_A_USER)
            environment |= {"MATPLOTLIBRC": str(tmp_path / name / "matplotlibrc")}
        subprocess.run([sys.executable, "-c", DRAW], env=environment, check=True)
        made.append({p.suffix: p.read_bytes() for p in sorted((tmp_path / name / "figures/part").iterdir())})
    assert set(made[0]) == {".png", ".svg", ".csv", ".json"} and made[0] == made[1]
    assert made[0][".csv"] == b"x\n0.1\n0.333333333\n"


def test_an_svg_does_not_keep_the_last_digits_of_its_layout(tmp_path, monkeypatch):
    "Two layouts that differ by rounding: the same picture, so the same bytes."
    made = []
    for shift in (0, 1e-13):
        monkeypatch.setenv("BRACE_NB_RUN", str(tmp_path / str(shift)))
        use_style()
        fig, axes = plt.subplots(1, 2, layout="none")
        for ax in axes:
            box = ax.get_position().bounds
            ax.set_position([box[0] + shift, *box[1:]])
            ax.plot([0, 2], [0, 1])
            ax.set(xlim=(0, 1))
            ax.tick_params(labelleft=False, labelbottom=False)
        png = save_figure(fig, "a/b", data=dict(x=[0]), alt="Two lines that leave their axes.")
        made.append(png.with_suffix(".svg").read_text())
        plt.close(fig)
    assert made[0] == made[1]
    ids = re.findall('clipPath id="([^"]*)"', made[0])
    assert len(set(ids)) == 2 and all(f"url(#{id})" in made[0] for id in ids)


def test_save_figure_refuses_what_is_no_figure_of_the_project(tmp_path, monkeypatch):
    monkeypatch.setenv("BRACE_NB_RUN", str(tmp_path))
    use_style()
    fig, _ = plt.subplots()
    frame, alt = pd.DataFrame(dict(x=[1])), "A sentence with enough words."
    for bad, word in [
        (dict(name="name"), "part/name"),
        (dict(alt="short"), "alt must be a sentence"),
        (dict(data=None), "data must be the numbers"),
    ]:
        with pytest.raises(ValueError, match=word):
            save_figure(fig, **(dict(name="a/b", data=frame, alt=alt) | bad))
    wide, _ = plt.subplots(figsize=(5, 2))
    with pytest.raises(ValueError, match="final size"):
        save_figure(wide, "a/b", data=frame, alt=alt)
    save_figure(fig, "a/b", data={"one": frame, "two": frame}, alt=alt)
    assert {p.name for p in (tmp_path / "figures/a").glob("*.csv")} == {"b.one.csv", "b.two.csv"}


def test_a_table_keeps_its_key():
    keyed = pd.DataFrame(dict(x=[1 / 3]), index=pd.Index(["a"], name="key"))
    assert to_csv(keyed) == "key,x\na,0.333333333\n"


# --- the ledger


def row(**changes):
    number = dict(kind="claim", where="w", says=1.0, tolerance=0.5, why="reason", needs="nothing")
    return number | dict(on_miss="differs", experiment="a/b", verdict="reproduced") | changes


@pytest.fixture
def project(tmp_path, monkeypatch):
    for sub in ("nbs", "data/profiles", "data/claims", "figures"):
        (tmp_path / sub).mkdir(parents=True)
    (tmp_path / "settings.ini").touch()
    monkeypatch.setenv("BRACE_NB_ROOT", str(tmp_path))
    monkeypatch.setenv("BRACE_NB_RUN", str(tmp_path / "run"))
    return tmp_path


def write(project, rows):
    (project / "data/claims/toy.yaml").write_text(yaml.safe_dump(rows, sort_keys=False))


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(verdict="maybe"), "is none of"),
        (dict(kind="rumour"), "is none of"),
        (dict(holds="x < 1"), "judged by its tolerance"),
        (dict(says="s", tolerance=None, test="t", holds="1 < 2", measured="m"), "cannot fail"),
        (
            dict(says="s", tolerance=None, test="t", holds="open('x') < 2", measured="m"),
            "a condition has names",
        ),
        (dict(tolerance=None, says="sentence"), "a sentence has none"),
        (dict(why=""), "has a reason"),
        (dict(on_miss="wrong"), "on_miss"),
        (dict(on_miss="differs", kind="claim", headline="no"), "headline"),
        (dict(extra=1), "unknown fields"),
        (dict(experiment=None), "is `not run`"),
    ],
)
def test_rows_are_checked(project, change, message):
    write(project, {"a": row(**change)})
    with pytest.raises(ValueError, match=message):
        load_claims()


def test_record_judges_and_refuses(project):
    sentence = row(
        says="it holds", on_miss="refuted", test="one wrong", holds="wrong < 1", measured="{wrong}"
    )
    del sentence["tolerance"], sentence["why"]
    number = row(needs="data", gain="-abs(x - 1)")
    write(project, {"number": number, "sentence": sentence | {"needs": "data"}, "exact": row()})
    assert record("number", np.float32(1.25)) == "reproduced"
    assert record("number", 1.75) == "differs"
    assert record("number", (1.2, 1.4, np.float64(1.6))) == "undecided"
    assert record("number", 1.25, null=0.75) == "undecided"
    assert record("number", 1.25, null=1.5) == "reproduced"
    assert record("number", 1.25, null=1.5, gained=[-0.1, 0.25, 0.6]) == "undecided"
    pairs = np.array([[-0.2, -0.5], [-0.3, -0.5], [-0.25, -0.5]], np.float32)  # a seed each
    assert record("number", 1.25, null=1.5, gained=pairs) == "reproduced"
    kept = json.loads((project / "run/claims.json").read_text())["number"]["gained"]
    assert kept[0] < kept[1] < kept[2] and abs(kept[1] - 0.25) < 1e-6
    assert record("sentence", dict(wrong=np.int64(0))) == "reproduced"
    with pytest.raises(ValueError, match="in which amount"):
        record("sentence", dict(wrong=0), null=dict(wrong=(0, 0.5, 0.9)))
    assert record("sentence", dict(wrong=2), "by this counterexample") == "refuted"
    for bad, message in [
        (("numbr", 1), r"unknown ledger id 'numbr'; close: \['number'\]"),
        (("number", "one"), "finite number"),
        (("number", float("inf")), "finite number"),
        (("sentence", 1), "needs a dict of named values"),
        (("sentence", dict(right=1)), "reads 'wrong'"),
        (("sentence", dict(wrong=3)), "by what proof"),
        (("exact", (1, 1, 1)), "arithmetic has no interval"),
        (("number", 1, "", None, (0, 1, 2)), "one of both is missing"),
        (("sentence", dict(wrong=0), "", dict(wrong=1), (0, 1, 2)), "one of both is missing"),
    ]:
        with pytest.raises(ValueError, match=message):
            record(*bad)
    (project / "run/run.json").write_text(json.dumps(dict(experiment="c/d")))
    with pytest.raises(ValueError, match="belongs to experiment"):
        record("number", 1)
    (project / "run/run.json").write_text(json.dumps(dict(experiment="a/b")))
    with pytest.raises(ValueError, match="recorded twice"):
        record("number", 1)


def test_ledger_joins_keeps_and_reports(project):
    write(project, {"a": row(), "b": row(), "c": row(experiment=None, verdict="not run", needs="GPU | more")})
    first = write_ledger({"a": dict(measured=1.1, null=None, note="n")})
    assert {v: n for v, n in counts(first).items() if n} == {"reproduced": 1, "not run": 2}
    assert problems(first) == ["b: experiment a/b did not record it"]
    second = write_ledger({"b": dict(measured=9.0, null=None, note="")})
    assert second[0]["measured"] == 1.1 and "accepts 'reproduced'" in problems(second)[0]
    assert problems([r | {"needs": "data"} for r in second], exact_only=True) == []
    write(project, {"a": row(tolerance=0.01), "b": row(), "c": row(experiment=None, verdict="not run")})
    assert [r["verdict"] for r in write_ledger({})] == ["differs", "differs", "not run"]  # the row changed
    write(project, {"a": row(), "b": row(), "c": row(experiment=None, verdict="not run", needs="GPU | more")})
    gone = write_ledger({"b": dict(measured=1.0, null=None, note="")}, finished={"a/b"})
    assert [r["measured"] for r in gone] == [None, 1.0, None]  # a finished run that no longer records `a`
    write_ledger({"a": dict(measured=1.1, null=None, note="n"), "b": dict(measured=9.0, null=None, note="")})
    page = (project / "figures/CLAIMS.md").read_text()
    assert "3 rows: claim (1 reproduced, 1 differs, 1 not run)." in page
    assert "| [toy](claims/toy.md) | claim | 1 | 1 |" in page
    assert "needs GPU \\| more" in (project / "figures/claims/toy.md").read_text()


def test_one_mistake_is_counted_once(project):
    repeats = row(same_as="a", experiment=None)
    write(project, {"a": row(), "b": repeats})
    first = write_ledger({"a": dict(measured=9.0, null=None, note="n")})
    assert [r["verdict"] for r in first] == ["differs", "differs"] and counts(first)["differs"] == 1
    assert len(problems(first)) == 2  # both accept `reproduced`
    assert "repeats `a`" in (project / "figures/claims/toy.md").read_text()
    for wrong in ("c", "b"):
        write(project, {"a": row(), "b": repeats | {"same_as": wrong}})
        with pytest.raises(ValueError, match="that is not there, or that repeats"):
            load_claims()


def test_a_run_with_other_seeds_must_agree(project):
    "One row agrees, one comes out the other way, one was not measured there, a proof needs no second run."
    (project / "data/profiles/cpu.yaml").touch()
    (project / "data/profiles/moved.yaml").write_text("over: cpu\nseeds: 7\n")
    trained = row(needs="data")
    rows = {"agrees": trained, "differs": trained, "new": trained, "proof": row()}
    write(project, rows)
    there = dict(agrees=1.2, differs=9.0, proof=9.0)
    kept = [dict(id=id, needs=rows[id]["needs"], measured=v, null=None) for id, v in there.items()]
    keep_replication("moved", [*kept, dict(id="new", needs="data", measured=None, null=None)])
    assert load_replications() == {
        "7 added to every seed": {id: dict(measured=there[id], null=None) for id in ("agrees", "differs")}
    }
    ledger = {r["id"]: r for r in write_ledger({id: dict(measured=1.0, null=None, note="") for id in rows})}
    verdicts = {id: r["verdict"] for id, r in ledger.items()}
    assert verdicts == dict(agrees="reproduced", differs="undecided", new="reproduced", proof="reproduced")
    assert ledger["differs"]["alone"] == "reproduced"
    assert ledger["differs"]["elsewhere"].keys() == {"7 added to every seed"}


# --- notebooks and profiles


def test_a_profile_moves_seeds_and_nothing_else(project):
    folder = project / "nbs/experiments/a"
    folder.mkdir(parents=True)
    said = "seed = 3\nseeds = [0, 1]\ncount_of_seeds = 4\nsteps = 5\nblind_seeds = [2]"
    cells = [dict(cell_type="code", source=said, metadata=dict(tags=["parameters"]))]
    cells += [dict(cell_type="code", source="seed, seeds, count_of_seeds, steps, blind_seeds", metadata={})]
    (folder / "b.ipynb").write_text(json.dumps(dict(cells=cells)))
    (project / "data/profiles/cpu.yaml").touch()
    (project / "data/profiles/moved.yaml").write_text("over: cpu\nseeds: 7\n")
    moved = dict(seed=10, seeds=[7, 8], count_of_seeds=4, steps=5, blind_seeds=[9])
    assert find_experiments("moved")["a/b"].values == moved


def test_what_others_read_takes_another_course_with_other_seeds():
    "Else a replication would measure the same training again; six encoders once stood still in it."
    here, there = find_experiments("cpu"), find_experiments("other_seeds")
    read = {name for e in here.values() for name in e.needs}
    still = {name for name in read if here[name].values == there[name].values}
    no_course_of_its_own = {"grounding/runs_features"}  # features of encoders that are moved
    judged_by_ten_seeds = {"evaluation/distilled"}
    assert len(read) > 20 and still == no_course_of_its_own | judged_by_ten_seeds


def test_parameters_and_profiles(project):
    def notebook(*cells):
        found = [dict(cell_type="code", source=s, metadata=dict(tags=t)) for s, t in cells]
        (project / "nbs/n.ipynb").write_text(json.dumps(dict(cells=found)))
        return project / "nbs/n.ipynb"

    good = notebook(("a = 1\nb = [1, {'x': -2}]", ["parameters"]), ("%matplotlib inline\na, b", []))
    assert parameters(good) == dict(a=1, b=[1, {"x": -2}])
    for cells, message in [
        ([("a", [])], "exactly one"),
        ([("a = 1", ["parameters"]), ("b = 2", [])], "never read"),
        ([("a = f(1)", ["parameters"]), ("a", [])], "not a literal"),
        ([("import x", ["parameters"])], "lines only"),
        ([("a = b = 1", ["parameters"])], "lines only"),
    ]:
        with pytest.raises(ValueError, match=message):
            parameters(notebook(*cells))
    (project / "data/profiles/cpu.yaml").write_text("all: {device: cpu}\npart/name: {a: 1}\n")
    p = load_profile("cpu")
    assert (p.everywhere, p.experiments, p.requires) == ({"device": "cpu"}, {"part/name": {"a": 1}}, "")
    (project / "data/profiles/$(touch DONE).yaml").touch()
    for name in ("tpu", "../cpu", "$(touch DONE)", "cpu;x", ""):
        with pytest.raises(ValueError, match="known: cpu"):
            load_profile(name)
    assert differences({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == ["c is new", "b is gone"]


def test_a_profile_over_another_takes_over_what_it_says_of_experiments(project):
    below = "requires: cuda\nall: {device: cuda}\na/b: {steps: 9000, kinds: [x, y]}\nc/d: {steps: 5}\n"
    (project / "data/profiles/large.yaml").write_text(below)
    (project / "data/profiles/small.yaml").write_text("over: large\na/b: {steps: 2}\ne/f: {steps: 1}\n")
    p = load_profile("small")
    assert p.experiments == {
        "a/b": dict(steps=2, kinds=["x", "y"]),
        "c/d": dict(steps=5),
        "e/f": dict(steps=1),
    }
    assert (p.requires, p.everywhere) == ("", {})
    (project / "data/profiles/small.yaml").write_text("over: none\n")
    with pytest.raises(ValueError, match="unknown profile 'none'; known: large, small"):
        load_profile("small")


@pytest.mark.parametrize(
    "text, said",
    [
        ("a/b: {steps: 2\nc/d: {steps: 1}\n", "line 2"),
        ("a/b:\n\tsteps: 2\n", "line 2"),
        ("- a/b\n", "no table"),
        ("a/b: [steps, 2]\n", "a table of parameters for 'a/b'"),
        ("all: cuda\n", "a table of parameters for 'all'"),
        ("requires: [cuda]\n", "a word for 'requires'"),
        ("seeds: many\n", "a whole number for 'seeds'"),
        ("<<<<<<< ours\nall: {}\n", "merge conflict"),
        ("a/b: !!python/object/apply:os.getcwd []\n", "not readable YAML"),
        ("a/b: {day: 2020-13-45}\n", "not readable YAML"),
    ],
)
def test_a_damaged_profile_is_one_line_with_its_file_and_the_cure(project, capsys, text, said):
    (project / "data/profiles/cpu.yaml").write_text(text)
    with pytest.raises(SystemExit) as done:
        main(["list"])
    error = capsys.readouterr().err
    assert done.value.code == 2 and error.count("\n") == 1
    assert "cpu.yaml" in error and said in error and "git" in error


def test_a_damaged_ledger_is_one_line_with_its_file(project):
    for text, said in (("a: {kind: claim\n", "not readable YAML"), ("a: claim\n", "row 'a': is no table")):
        (project / "data/claims/toy.yaml").write_text(text)
        with pytest.raises(ValueError, match=f"toy.yaml.*{said}") as error:
            load_claims()
        assert "\n" not in str(error.value)


def test_results_that_a_notebook_does_not_say_it_needs_are_refused(project):
    for name in ("a/b", "c/d"):
        (project / f"data/derived/cpu/runs/{name}/out/output").mkdir(parents=True)
    assert artifacts("a/b").parts[-4:] == ("a", "b", "out", "output")  # outside the engine
    facts = dict(experiment="e/f", profile="cpu", needs=["a/b"])
    (project / "run").mkdir(exist_ok=True)
    (project / "run/run.json").write_text(json.dumps(facts))
    assert artifacts(name="a/b").parts[-4:-2] == ("a", "b")
    says = "e/f does not say that it needs the results of "
    for words, name in ((["c/d"], "c/d"), (["a/b", "smoke"], "a/b for profile 'smoke'")):
        with pytest.raises(ValueError, match=says + name):
            artifacts(*words)


def test_missing_checkout_says_what_was_expected(tmp_path, monkeypatch):
    monkeypatch.setenv("BRACE_NB_ROOT", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="settings.ini"):
        root()


# --- publishing


def finished(project, name, figures, seconds=1.0, timed=False, faults=(), **inputs):
    "A finished run that saved these figures: name -> {table: csv}."
    e = Experiment(name, project / "none.ipynb", "cpu", dict(rows=3), [], [])
    out = e.folder / "out/figures"
    shutil.rmtree(e.folder, ignore_errors=True)
    files = {}
    for figure, tables in figures.items():
        made = {f"{figure}.png": b"png of " + figure.encode(), f"{figure}.svg": b"svg"}
        made |= {f"{figure}.{key}.csv" if key else f"{figure}.csv": t.encode() for key, t in tables.items()}
        facts = dict(figure=figure, alt="A line.", claims=[], deterministic=not timed, experiment=name)
        facts |= dict(faults=list(faults))
        facts |= dict(profile="cpu", parameters=e.values, inputs=inputs, files=dict.fromkeys(made, "digest"))
        made[f"{figure}.json"] = json.dumps(facts).encode()
        for file, content in made.items():
            (out / file).parent.mkdir(parents=True, exist_ok=True)
            (out / file).write_bytes(content)
            files[f"figures/{file}"] = digest(out / file)
    run = dict(seconds=seconds, dirty=False, commit="c")
    (e.folder / "out").mkdir(parents=True, exist_ok=True)
    (e.folder / "out/result.json").write_text(json.dumps(dict(files=files, run=run, fingerprint={})))
    return e


def test_a_run_is_published_and_what_it_no_longer_makes_is_deleted(project):
    one, two = {"": "x\n1\n"}, {"left": "x\n1\n", "right": "y\n\n2\n"}
    e = finished(project, "p/e", {"p/one": one, "q/two": two})
    changed = publish(e)
    assert {"p/one.png", "p/one.csv", "p/facts.json", "q/two.csv", "q/facts.json"} <= set(changed)
    folder = project / "figures"
    numbers = project / "data/numbers"
    assert (numbers / "p/one.csv").read_text() == "x\n1\n"
    assert split_tables((numbers / "q/two.csv").read_text()) == two
    assert not (folder / "p/one.json").exists()
    assert publish(e) == []
    assert publish(finished(project, "p/e", {"p/one": one, "q/two": two}, seconds=9.0)) == []
    assert publish(finished(project, "p/e", {"p/one": one, "q/two": two}, cell="n")) == [
        "p/facts.json",
        "q/facts.json",
    ]
    publish(finished(project, "p/e", {"p/one": one}))
    left = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert left == {"p/one.png", "p/one.svg", "p/facts.json"}
    assert [p.relative_to(numbers).as_posix() for p in numbers.rglob("*.csv")] == ["p/one.csv"]


def test_a_figure_that_another_experiment_took_over_stays(project):
    table = {"": "x\n1\n"}
    publish(finished(project, "p/old", {"p/fig": table}))
    publish(finished(project, "p/new", {"p/fig": table}))
    publish(finished(project, "p/old", {}))
    facts = read_facts(project / "figures")["p"]
    assert facts["figures"]["p/fig"]["experiment"] == "p/new" and set(facts["experiments"]) == {"p/new"}
    assert (project / "figures/p/fig.png").exists()


def test_figures_with_a_fault_leave_the_last_good_ones(project):
    good, bad = {"": "x\n1\n"}, {"": "x\n2\n"}
    publish(finished(project, "p/e", {"p/fig": good}))
    e = finished(project, "p/e", {"p/fig": bad}, faults=["the legend of 'a' lies on data"])
    says = ["p/fig: the legend of 'a' lies on data"]
    assert publish(e) == [] and publishing.refused(e, publishing.saved_facts(e)) == says
    assert (project / "data/numbers/p/fig.csv").read_text() == good[""]
    mended = finished(project, "p/e", {"p/fig": bad})
    assert "p/fig.csv" in publish(mended) and publishing.refused(mended, publishing.saved_facts(mended)) == []


def test_damaged_results_are_not_published(project):
    e = finished(project, "p/e", {"p/fig": {"": "x\n1\n"}})
    publish(e)
    (e.folder / "out/figures/p/fig.png").write_bytes(b"half")
    with pytest.raises(ValueError, match="figures/p/fig.png is damaged. Run it again"):
        publish(e)
    assert (project / "figures/p/fig.png").read_bytes() == b"png of p/fig"
    (e.folder / "out/result.json").write_text('{"files": [')
    assert damaged(e) == ["its result.json is damaged"] and result_of(e) is None
    (e.folder / "out/result.json").unlink()
    with pytest.raises(ValueError, match="p/e are not whole: there is no result.json. Run it again"):
        publish(e)


def test_times_are_published_when_the_code_is_new_or_somebody_asks(project, monkeypatch):
    first, second = {"p/fig": {"": "seconds\n1\n"}}, {"p/fig": {"": "seconds\n2\n"}}
    shown = project / "data/numbers/p/fig.csv"
    publish(finished(project, "p/e", first, timed=True, code="a"))
    assert publish(finished(project, "p/e", second, timed=True, code="a")) == []
    assert "1" in shown.read_text()
    publish(finished(project, "p/e", second, timed=True, code="b"))
    assert "2" in shown.read_text()
    denied = finished(project, "p/e", first, timed=True, code="b", faults=["the numbers deny 'a is faster'"])
    assert (
        publishing.refused(denied, publishing.saved_facts(denied)) == []
    )  # another machine; the committed ones stay
    monkeypatch.setenv("RETIME", "1")
    assert publishing.refused(denied, publishing.saved_facts(denied)) == [
        "p/fig: the numbers deny 'a is faster'"
    ]
    publish(finished(project, "p/e", first, timed=True, code="b"))
    assert "1" in shown.read_text()


def test_experiments_that_end_together_lose_no_facts(project):
    names = [f"p/e{i}" for i in range(12)]
    every = [
        finished(project, name, {f"{name}a": {"": "x\n"}, f"q/{name[2:]}": {"": "x\n"}}) for name in names
    ]
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(publish, every))
    facts = read_facts(project / "figures")
    assert set(facts["p"]["experiments"]) == set(facts["q"]["experiments"]) == set(names)
    assert len(facts["p"]["figures"]) == len(facts["q"]["figures"]) == 12


def test_threads_that_write_one_file_leave_one_of_their_contents(project):
    path, contents = project / "shared.bin", [bytes([k]) * 100_000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write_atomic, path, contents[k % 8]) for k in range(80)]
        seen = [path.read_bytes() for _ in range(80) if path.exists()]
        assert all(future.exception() is None for future in writing)
    assert set(seen) | {path.read_bytes()} <= set(contents)
    assert not list(project.glob(".*.part"))


@pytest.mark.parametrize(
    "tables",
    [
        {"": "x\n1\n"},
        {"one": "x\n1\n"},
        {"one": "x\n\n1\n", "two": "", "three": 'a,b\n"two\nlines",2\n\n'},
    ],
)
def test_tables_come_back_as_they_were(tables):
    assert split_tables(join_tables(tables)) == tables


def test_facts_say_what_a_needed_result_was_made_from_and_not_what_is_in_it(project):
    found = []
    for content, code in (("1.5 s", "a"), ("1.7 s", "a"), ("1.7 s", "b")):
        out = project / "data/derived/cpu/runs/p/need/out"
        out.mkdir(parents=True, exist_ok=True)
        (out / "result.json").write_text(json.dumps(dict(output=content, fingerprint={"code m": code})))
        e = Experiment("p/e", project / "none.ipynb", "cpu", {}, ["p/need"], [])
        inputs = {"cell 1": "c", "results of p/need": content}
        facts = json.loads((runs._prepare(e, inputs) / "run.json").read_text())
        assert (
            facts["needs"] == ["p/need"] and json.loads((e.folder / "work/inputs.json").read_text()) == inputs
        )
        found.append(facts["inputs"])
    assert found[0] == found[1] and found[0]["cell"] == found[2]["cell"]
    assert found[0]["results"] != found[2]["results"]


CONFLICT = "<<<<<<< ours\n{}\n=======\n{}\n>>>>>>> theirs\n"


@pytest.mark.parametrize(
    "content, says", [(CONFLICT, "unresolved merge conflict"), ('{"a": [', "not readable")]
)
def test_a_damaged_json_file_is_named_with_its_cure(project, content, says):
    e = finished(project, "p/e", {"p/fig": {"": "x\n1\n"}})
    publish(e)
    (project / "figures/p/facts.json").write_text(content)
    with pytest.raises(ValueError, match=f"p/facts.json .*{says}.*Restore it with git, or delete it"):
        publish(e)
    (project / "figures/p/facts.json").unlink()
    assert publish(e) == ["p/facts.json"]
    write(project, {"a": row()})
    (project / "figures/claims.json").write_text(content)
    with pytest.raises(ValueError, match=f"figures/claims.json .*{says}"):
        collect("cpu")
    for file in ("out/result.json", "work/inputs.json"):  # our own: made again
        path = e.folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    assert result_of(e) is None and damaged(e) == ["its result.json is damaged"]
    assert json.loads((runs._prepare(e, {"cell 1": "a"}) / "inputs.json").read_text()) == {"cell 1": "a"}


# --- the command line


def command(*words):
    "What a command line says, and its exit code."
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([*map(str, words)])
        except SystemExit as done:
            code = done.code or 0
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def test_binarize_command(tmp_path):
    from brace_nb.codes import binarize, ternarize, unpack

    v = np.random.default_rng(0).exponential(size=(300, 40)).astype(np.float32)
    np.save(tmp_path / "in.npy", v)
    done = command("binarize", tmp_path / "in.npy", tmp_path / "out.npy", "--rows", 64)
    assert done.returncode == 0, done.stderr
    assert (unpack(np.load(tmp_path / "out.npy"), 40) == binarize(v)).all() and "300" in done.stdout
    assert command("binarize", tmp_path / "in.npy", tmp_path / "dense.npy", "--dense").returncode == 0
    assert (np.load(tmp_path / "dense.npy").astype(bool) == binarize(v)).all()
    np.save(tmp_path / "signed.npy", v - 1)
    refused = command("binarize", tmp_path / "signed.npy", tmp_path / "no.npy")
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    assert not (tmp_path / "no.npy").exists()
    signed = command("binarize", tmp_path / "signed.npy", tmp_path / "t.npy", "--ternary", "--dense")
    assert signed.returncode == 0 and (np.load(tmp_path / "t.npy") == ternarize(v - 1)).all()
    missing = command("binarize", tmp_path / "none.npy", tmp_path / "x.npy")
    assert missing.returncode == 2 and "none.npy" in missing.stderr


def test_list_and_help():
    assert command("--help").returncode == 0
    listed = command("list", "--profile", "smoke")
    assert listed.returncode == 0 and "codes/" in listed.stdout
