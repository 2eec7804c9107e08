"What a figure says against what it draws and what its numbers are; every rule catches a figure of the past."

import matplotlib

matplotlib.use("Agg")
import json
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from brace_nb.companion import compares, direct, number_faults, panel, save_figure, sentence_faults, use_style


def dots(names, values):
    "A plot of named dots."
    use_style()
    fig, ax = panel(width=3.3)
    for place, (name, value) in enumerate(zip(names, values)):
        ax.plot(value, place, "o", label=name)
    ax.set(yticks=[], ylim=(-1, len(names)))
    direct(ax)
    plt.close(fig)
    return fig


def found(drawn, measured, sentence, *series, alt="Dots of a method each."):
    "Faults of a picture that draws some of what was measured."
    table = pd.DataFrame(dict(method=list(measured), recall=list(measured.values())))
    fig = dots(drawn, [measured.get(name, 1.0) for name in drawn])
    return sentence_faults(fig, alt, {sentence: compares(True, *series)}, [table])


def test_a_measured_rival_is_drawn():
    "codes/tradeoff drew nine lines and left out the floats with memory, 41.4 %."
    measured = {"codes, memory": 35.1, "floats": 27.8, "floats, memory": 41.4}
    sentence = "Codes lead the floats."
    assert found(["codes, memory", "floats"], measured, sentence, "codes, memory", "floats") == [
        "'floats, memory' is in the numbers beside 'codes, memory' and not in the picture"
    ]
    assert found(list(measured), measured, sentence, "codes, memory", "floats") == []


def test_a_level_that_a_sentence_needs_is_drawn_and_in_the_numbers():
    "codes/few_bits compared with the floats, which were neither drawn nor in the numbers."
    measured = {"trained": 29.8, "largest entries": 9.2}
    assert found(
        list(measured), measured, "Codes find no fewer than the floats.", "trained", "the floats"
    ) == [
        "'Codes find no fewer than the floats.' compares 'the floats', which the picture does not show",
        "the picture shows 'the floats', which its numbers lack",
    ]


def test_what_the_picture_shows_is_in_its_numbers():
    "assignment/pareto drew SciPy, which its csv lacked."
    measured = {"exact": 11.0, "greedy by lead": 9.0}
    faults = found([*measured, "SciPy"], measured, "The exact solver is faster.", "exact", "SciPy")
    assert faults == ["the picture shows 'SciPy', which its numbers lack"]


def test_a_sentence_names_what_it_compares():
    "codes/headline compared signs of a rotation with the learned code and named neither."
    table = pd.DataFrame(dict(method=["binary", "itq"], recall=[18.2, 22.9]))
    fig = dots(["binary", "itq"], [18.2, 22.9])
    assert sentence_faults(fig, "Two dots.", {"ITQ finds more.": True}, [table]) == [
        "'ITQ finds more.' names nothing that it compares (`compares`); the picture shows ['binary', 'itq']"
    ]
    one = dots(["binary"], [18.2])
    assert sentence_faults(one, "A dot.", {"Codes find some.": True}, [table]) == []


def repeated(draw):
    "Faults of a picture of five runs of two methods."
    use_style()
    fig, ax = panel(width=3.3)
    rows = [(s, m, 1.0 * b, k + s + b) for s in range(5) for k, m in enumerate("ab") for b in (8, 16)]
    table = pd.DataFrame(rows, columns=["seed", "method", "bytes", "recall"])
    for name, part in table.groupby("method"):
        draw(ax, name, part.pivot(index="seed", columns="bytes", values="recall"))
    direct(ax)
    plt.close(fig)
    return sentence_faults(fig, "Two lines.", {"a is below b.": compares(True, "a", "b")}, [table])


def means(ax, name, runs):
    ax.plot(runs.columns, runs.mean(), label=name)


def each_run(ax, name, runs):
    means(ax, name, runs)
    ax.plot([*runs.columns] * len(runs), runs.to_numpy().ravel(), ".")


def band(ax, name, runs):
    means(ax, name, runs)
    ax.fill_between(runs.columns, runs.min(), runs.max(), alpha=0.2)


def error_bars(ax, name, runs):
    ax.errorbar(runs.columns, runs.mean(), yerr=runs.std(), label=f"_{name}")
    means(ax, name, runs)


def test_runs_that_were_repeated_are_drawn_with_their_spread():
    "codes/tradeoff: five seeds in the csv, nine lines without a band."
    (fault,) = repeated(means)
    assert "seed is in the numbers" in fault and "draw their spread" in fault
    assert all(repeated(draw) == [] for draw in (each_run, band, error_bars))


def test_a_number_of_a_text_is_in_a_row():
    "assignment/pareto told the mean over two sizes."
    table = pd.DataFrame(dict(size=[32, 100], method="exact", us=[2.85, 20.07], f1=[0.934, 1.0]))
    assert number_faults("exact: 11.46 microseconds.", [table]) == [
        "the text tells 11.46, which no row of the numbers has"
    ]
    told = "2.85 and 20.1 microseconds, F1 0.93, that is 93.4 %, or 6.6 % missed, of 1,024 matrices"
    assert number_faults(told, [table]) == []
    assert number_faults("F1 of 0.94", [table]) and number_faults("93.5 %", [table])


def test_a_mean_over_repetitions_is_a_number_of_the_rows_and_one_over_kinds_is_not():
    rows = [(s, kind, v + s / 10) for kind, v in (("pictures", 1.25), ("names", 7.5)) for s in range(3)]
    table = pd.DataFrame(rows, columns=["seed", "kind", "recall"])
    assert number_faults("1.35 for pictures and 7.60 for names", [table]) == []
    assert number_faults("a difference of 6.25", [table])
    assert number_faults("a difference of 6.25", [table, pd.DataFrame(dict(difference=[6.25]))]) == []


def test_whole_percents_are_in_a_row_in_sentences_too():
    "grounding/relations told 53 % and 50 % of a panel whose numbers were not in the csv."
    table = pd.DataFrame(dict(input=["picture", "another picture"], share=[0.5346, 0.4992]))
    sentence = (
        "Pictures are nearer in 53 % of 2400 unseen scenes, other pictures in 50 %, at 95 % confidence."
    )
    assert sentence_faults(dots(["picture"], [1.0]), "Dots.", {sentence: True}, [table]) == []
    assert sentence_faults(dots(["picture"], [1.0]), "Dots.", {sentence: True}, [table.head(1)]) == [
        "the text tells 50, which no row of the numbers has"
    ]


@pytest.mark.parametrize("told", ["-0.25", "\u22120.25", "+0.25", "0.2", "0.3"])
def test_signs_and_digits_as_they_are_written(told):
    assert number_faults(f"by {told} points", [pd.DataFrame(dict(x=[-0.25]))]) == []


def test_a_fault_of_a_sentence_stands_in_the_facts(tmp_path, monkeypatch):
    monkeypatch.setenv("BRACE_NB_RUN", str(tmp_path))
    fig = dots(["a"], [1.5])
    table = pd.DataFrame(dict(method=["a", "b"], recall=[1.5, 2.5]))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        png = save_figure(
            fig, "p/n", table, "A dot at 1.5 and no other.", says={"a leads.": compares(np.True_, "a")}
        )
    facts = json.loads(png.with_suffix(".json").read_text())
    assert facts["says"] == {"a leads.": True} and len(told) == 1
    assert facts["faults"] == ["'b' is in the numbers beside 'a' and not in the picture"]


def test_a_comparison_names_what_it_compares():
    with pytest.raises(ValueError, match="names the series"):
        compares(True)
