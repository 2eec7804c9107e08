"Studies of many runs: run k is run k, whoever makes it; what mattered, against nulls."

import numpy as np
import pandas as pd
import pytest

from brace_nb.companion import main
from brace_nb.grounding import (
    Study,
    StudyStore,
    draw_run,
    factor_columns,
    factor_importance,
    level_correlations,
    read_study,
    sweep,
    sweep_file,
    sweep_parts,
)

FACTORS = {
    "learning_rate": dict(low=1e-5, high=1e-2, log=True),
    "layers": dict(low=1, high=4, int=True),
    "measure": ["sum_norm", "pairwise"],
    "views": [["a", "b"], ["a", "b", "c"]],
}
STUDY = Study(FACTORS, runs=30, seed=4)


def outcome(values):
    return {"R@10": np.log10(values["learning_rate"]) + len(values["views"]), "twice": 2 * values["layers"]}


def test_draws_depend_on_seed_and_number_alone():
    drawn = [draw_run(STUDY, k) for k in range(30)]
    assert drawn == [draw_run(STUDY, k) for k in reversed(range(30))][::-1]
    assert len({d["learning_rate"] for d in drawn}) == 30
    assert draw_run(Study(FACTORS, seed=5), 0) != drawn[0]
    rates = np.log10([d["learning_rate"] for d in drawn])
    assert rates.min() < -4 and rates.max() > -3 and {d["layers"] for d in drawn} == {1, 2, 3, 4}
    assert {tuple(d["views"]) for d in drawn} == {("a", "b"), ("a", "b", "c")}


def test_a_resumed_study_is_the_whole_one(tmp_path):
    calls = []

    def counted(values):
        calls.append(values)
        return outcome(values)

    journal = tmp_path / "journal.log"
    sweep(STUDY, counted, journal, numbers=[7, 2])
    sweep(STUDY, counted, journal, numbers=range(5))
    found = sweep(STUDY, counted, journal)
    assert len(calls) == 30 and found.equals(sweep(STUDY, outcome))
    assert found.number.tolist() == list(range(30))
    with pytest.raises(ValueError, match="another study"):
        StudyStore(Study(FACTORS, seed=9), journal)


def test_a_run_that_diverges_is_finished_and_said():
    def diverges(values):
        if values["layers"] == 4:
            raise FloatingPointError("training diverged")
        return outcome(values)

    table = sweep(STUDY, diverges)
    lost = table[table.layers == 4]
    assert len(table) == 30 and (lost.error == "training diverged").all() and lost["R@10"].isna().all()
    assert (table[table.layers < 4].error == "").all()


def test_tpe_learns_from_what_is_there():
    study = Study({"learning_rate": dict(low=1e-6, high=1.0, log=True)}, runs=40, sampler="tpe", seed=1)
    table = sweep(study, lambda v: {"R@10": -abs(np.log10(v["learning_rate"]) + 3)})
    off = (np.log10(table.learning_rate) + 3).abs()
    assert off[20:].median() < 0.8 * off[:10].median()


@pytest.mark.parametrize(
    "wrong",
    [
        dict(factors={}),
        dict(factors={"a": [1]}),
        dict(factors={"a": dict(low=2, high=1)}),
        dict(sampler="grid"),
        dict(factors={"a": dict(low=0, high=1, log=True)}),
        dict(fixed={"layers": 1}),
        dict(runs=0),
    ],
)
def test_studies_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match="must be|needs|fixed and drawn"):
        Study(**(dict(factors=FACTORS) | wrong))


# ---- studies in files ----

YAML = """
runs: 3
data: {views: {picture: picture.npy, name: name.npy, tag: tag.npy}, labels: labels.npy, held: 0.4}
fixed: {steps: 2, batch_size: 3, embed_dim: 4, loss: axis}
factors:
  learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}
  views: [[picture, name], [picture, name, tag]]
  layers: [0, 1]
"""


@pytest.fixture
def study_file(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("picture", "name", "tag"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(20, 5)).astype(np.float32))
    np.save(tmp_path / "labels.npy", np.arange(20) % 2)
    (tmp_path / "study.yaml").write_text(YAML)
    return tmp_path / "study.yaml"


def test_a_study_of_ones_own_from_the_command_line(study_file, capsys):
    with pytest.raises(SystemExit) as done:
        main(["sweep", str(study_file), "--part", "1/2"])
    assert done.value.code == 0 and "1 of 3 runs" in capsys.readouterr().out
    with pytest.raises(SystemExit) as done:
        main(["sweep", str(study_file)])
    assert done.value.code == 0 and "3 of 3 runs" in capsys.readouterr().out
    table = pd.read_csv(study_file.with_suffix("") / "runs.csv")
    assert table.number.tolist() == [0, 1, 2] and table["probe picture"].between(0, 1).all()


def test_parts_in_several_processes_are_the_study(study_file, tmp_path):
    "Also when the name of the file means something to Python, to Snakemake and to a shell."
    named = tmp_path / ('q" + str(__import__("os").system("touch HARM")) + ".{x} \'$(touch HARM).yaml')
    study_file = study_file.rename(named)
    parts = sweep_parts(study_file, 2, cores=1)
    assert not list(tmp_path.rglob("HARM"))
    other = tmp_path / "other.yaml"
    other.write_text(YAML)
    pd.testing.assert_frame_equal(parts, sweep_file(other))


def test_studies_that_cannot_be_read(tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(YAML.replace("layers:", "layer:"))
    with pytest.raises(ValueError, match=r"arguments of `train_encoders`; got \['layer'\]"):
        read_study(path)
    path.write_text("runs: 3\n")
    with pytest.raises(ValueError, match="factors"):
        read_study(path)
    with pytest.raises(SystemExit) as done:
        main(["sweep", str(tmp_path / "none.yaml")])
    assert done.value.code == 2 and "does not exist" in capsys.readouterr().err


DAMAGED = [
    (YAML + "factors: [1\n", "not readable YAML (line"),
    ("runs: 3\n\tdata: {}\n", "not readable YAML (line 2"),
    ("<<<<<<< ours\n" + YAML, "merge conflict"),
    ("- 3\n", "no table"),
    ("3: {}\n" + YAML, "got ['3']"),
    (YAML.replace("runs: 3", "runs: many"), "runs"),
    (YAML.replace("runs: 3", "runs: -1"), "runs"),
    (YAML.replace("labels: labels.npy", "labels: none.npy"), "none.npy"),
    (YAML.replace("labels: labels.npy", "labels: 3"), "labels"),
    (YAML.replace("held: 0.4", "held: much"), "held"),
    (YAML.replace("held: 0.4", "hold: 0.4"), "hold"),
    (YAML.replace("picture: picture.npy", "picture: 3"), "picture"),
    (YAML[: YAML.index("factors")] + "factors: 3\n", "factors"),
    (YAML[: YAML.index("factors")] + "factors: {layers: 3}\n", "layers"),
    (YAML[: YAML.index("factors")] + "factors: {learning_rate: {low: 1}}\n", "learning_rate"),
    (YAML[: YAML.index("factors")] + "factors: {learning_rate: {low: a, high: b}}\n", "learning_rate"),
    (YAML.replace("fixed: {", "fixed: 3\nseed: {"), "fixed"),
    (YAML.replace("labels: labels.npy, ", "").replace("data: {", "data: 3\nfixed: {"), "data"),
    (YAML + "  loss: [pairs, slize]\n".replace("loss", "measure"), "'measure' must be one of"),
    (YAML.replace("loss: axis", "loss: slize"), "the choices of 'loss' must be one of pairs"),
    (YAML.replace("low: 1.0e-4", "low: 3e-4"), "YAML reads 3e-4 as text; write 3.0e-4"),
    (YAML.replace("steps: 2", "learning_rate: 1.5e4"), "write 1.5e+4"),
    (YAML + "sampler: best\n", "sampler"),
    (YAML + "metric: 3\n", "metric"),
]


@pytest.mark.parametrize("text, said", DAMAGED)
def test_a_damaged_study_is_one_line_that_names_the_file(study_file, capsys, text, said):
    study_file.write_text(text)
    with pytest.raises(SystemExit) as done:
        main(["sweep", str(study_file)])
    error = capsys.readouterr().err
    assert done.value.code == 2 and error.count("\n") == 1, error
    assert "study.yaml" in error and said in error


def test_an_error_of_a_run_names_the_study_and_a_part_is_two_numbers(study_file):
    study_file.write_text(YAML.replace("steps: 2", "steps: two"))
    with pytest.raises(ValueError, match="study.yaml: .* must be a whole number.*'two'"):
        sweep_file(study_file)
    for part in ("two/4", "4/4", "1/0", "-1/4", "1"):
        with pytest.raises(ValueError, match="a part is named k/n"):
            sweep_file(study_file, part)


# ---- what mattered ----


def runs_with_a_known_answer(seed=0, count=120):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(dict(rate=10 ** rng.uniform(-5, -2, count), width=rng.integers(1, 9, count)))
    table["kind"] = rng.choice(["a", "b", "c"], count)
    table["score"] = 2 * (table.kind == "b") - np.log10(table.rate) + 0.3 * rng.standard_normal(count)
    return table


def test_columns_of_factors():
    table = runs_with_a_known_answer()
    x, names, owners = factor_columns(table, ["rate", "kind"], logarithmic=("rate",))
    assert names == ["rate", "kind=a", "kind=b", "kind=c"] and owners == ["rate", "kind", "kind", "kind"]
    assert np.allclose(x[:, 0], np.log10(table.rate)) and (x[:, 1:].sum(1) == 1).all()


def test_importance_finds_what_was_put_in_and_nothing_in_shuffled_outcomes():
    table = runs_with_a_known_answer()
    options = dict(factors=["rate", "width", "kind"], outcome="score", bootstraps=12, trees=30)
    found, null = factor_importance(table, **options), factor_importance(table, shuffled=True, **options)
    assert found["factors"] == ["rate", "width", "kind", "noise"] and found["importance"].shape == (12, 4)
    rate, width, kind, noise = found["importance"].mean(0)
    assert rate > 0.3 and kind > 0.1 and max(abs(width), abs(noise)) < 0.05
    assert (
        np.abs(null["importance"].mean(0)).max() < 0.15
        and null["fit"].mean() < 0.1 < 0.5 < found["fit"].mean()
    )
    again = factor_importance(table, **options)
    assert np.array_equal(again["importance"], found["importance"])


def test_runs_without_the_outcome_are_left_out():
    table = runs_with_a_known_answer()
    holes = pd.concat([table, table.assign(score=np.nan)])
    options = dict(factors=["rate", "kind"], outcome="score", bootstraps=3, trees=5)
    found = [factor_importance(t, **options)["importance"] for t in (table, holes)]
    assert np.array_equal(*found)


def test_correlations_agree_with_scipy():
    from scipy.stats import pearsonr, spearmanr

    table = runs_with_a_known_answer(count=400)
    found = level_correlations(table, ["rate", "kind"], "score", bootstraps=300)
    for name, x in (("rate", table.rate), ("kind=b", table.kind == "b")):
        row = found.loc[name]
        for kind, value in (
            ("pearson", pearsonr(x, table.score)[0]),
            ("spearman", spearmanr(x, table.score)[0]),
        ):
            assert row[f"{kind} low"] < value < row[f"{kind} high"]
            assert abs(row[f"{kind} middle"] - value) < 0.03


def test_runs_that_are_handed_over_together_make_the_same_table():
    study = Study(dict(x=[1, 2, 3]), runs=7)

    def alone(values):
        if values["x"] == 2:
            raise FloatingPointError("not finite")
        return {"R@10": values["x"] / 10}

    def or_error(values):
        try:
            return alone(values)
        except FloatingPointError as diverged:
            return diverged

    sizes = []

    def many(listed):
        sizes.append(len(listed))
        return [or_error(values) for values in listed]

    one, several = sweep(study, alone), sweep(study, many, at_once=3)
    assert several.equals(one) and sizes == [3, 3, 1] and (one.error == "not finite").any()
