"Figures: what is a fault, what a figure may say, and that no published figure has a fault."

import importlib
import io
import json
import re
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from brace_nb.companion import (
    MAPS,
    PALETTE,
    STYLE,
    captions_of,
    dots_by_seed,
    identifiers,
    lines_with_band,
    number_faults,
    picture_faults,
    read_facts,
    root,
    save_figure,
    shades,
    split_tables,
    style,
    use_style,
)
from brace_nb.core import Entry, Registry

ROOT = root()


def drawn(**size):
    "An empty figure of the project, and its axes."
    use_style()
    fig, ax = plt.subplots(**size)
    plt.close(fig)
    return fig, ax


def identifier(ax):
    ax.set(xlabel="greedy_delta")


def power(ax):
    ax.set_title("10^3 rows")


def greek(ax):
    ax.plot([0, 1], [0, 1], label="lambda = 2")
    ax.legend(loc="upper left")


def tiny(ax):
    ax.text(0.5, 0.5, "tiny", fontsize=6)


def overlap(ax):
    ax.text(0.5, 0.5, "one text")
    ax.text(0.52, 0.5, "another text")


def off_the_page(ax):
    ax.text(1.5, 0.5, "far away", transform=ax.transAxes, in_layout=False)


def crowded_ticks(ax):
    ax.set_xticks([0.5, 0.51], ["first", "second"])


def legend_on_a_line(ax):
    ax.plot([0, 1], [0.5, 0.5], label="flat")
    ax.legend(loc="center")


def legend_on_dots(ax):
    ax.scatter(*np.random.default_rng(0).random((2, 400)), label="dots")
    ax.legend(loc="upper right")


def legend_on_bars(ax):
    ax.bar([0, 1, 2], [1, 1, 1], label="bars")
    ax.legend(loc="center")


def struck_by_a_level(ax):
    ax.axhline(0.5)
    ax.text(0.5, 0.5, "the level", va="center")


def struck_by_dots(ax):
    ax.plot(np.linspace(0, 1, 60), np.full(60, 0.5), "o")
    ax.text(0.5, 0.5, "dotted", va="center")


def bars_on_a_log_axis(ax):
    ax.bar([0, 1], [1, 1000])
    ax.set_yscale("log")


def lying_bars_on_a_log_axis(ax):
    ax.barh([0, 1], [1, 1000])
    ax.set_xscale("log")


def legend_that_looks_like_dots(ax):
    "assignment/network: the keys of three formats at the height of a method."
    for k, name in enumerate(("fp32", "e4m3", "e5m2")):
        ax.plot([0.45, 0.6, 0.65], [0, 1 + k / 5, 2 + k / 5], "os^"[k], label=name)
    ax.plot([0.97, 0.99], [2.9, 3.0], "k.")
    ax.legend(loc="lower right")


def line_between_names(ax):
    "evaluation/cka_speed: steps, and the floor of another implementation, on one line."
    ax.plot([250, 240, 80, 10], range(4))
    ax.set_yticks(range(4), ["torch-cka", "Gram matrices once", "self-terms once", "by torch"])


def line_between_named_places(ax):
    "assignment/network_shapes: lines that join two shapes and a third."
    ax.plot(["wide", "square", "tall"], [0.2, 0.5, 0.4])


def scale_that_bends(ax):
    "grounding/scenes_weight: a straight ray on a symlog axis."
    ax.plot([80, 100, 150, 200, 250], [0.5, 3.89, 6.68, 9.69, 12.85])
    ax.set(yscale="symlog")


def axis_for_a_legend(ax):
    "codes/posts_sparsity: 60 % of the height hold the keys."
    ax.plot([0, 40, 80], [40, 15, 6], label="pictures")
    ax.set(ylim=(0, 100))
    ax.legend(loc="upper right")


def log_axis_half_empty(ax):
    "assignment/network_losses: times up to 90 on an axis to 3,000."
    ax.plot([0.9, 1.1, 3, 20, 60], [4, 8, 6.5, 6.1, 6.5], "o")
    ax.set(xscale="log", xlim=(0.5, 3000))


FAULTY = {
    identifier: "'greedy_delta' is a name from code",
    power: "'10^3 rows' is a name from code",
    greek: "'lambda = 2' is a name from code",
    tiny: "smaller than 6.5 points",
    overlap: "'one text' and 'another text' overlap",
    off_the_page: "'far away' leaves the figure",
    crowded_ticks: "'first' and 'second' overlap",
    legend_on_a_line: "the legend of 'flat' lies on data",
    legend_on_dots: "the legend of 'dots' lies on data",
    legend_on_bars: "the legend of 'bars' lies on data",
    struck_by_a_level: "'the level' has a line or a mark through it",
    struck_by_dots: "'dotted' has a line or a mark through it",
    bars_on_a_log_axis: "bars on a logarithmic axis",
    lying_bars_on_a_log_axis: "bars on a logarithmic axis",
    legend_that_looks_like_dots: "the legend of 'fp32' looks like dots",
    line_between_names: "a line joins the categories",
    line_between_named_places: "a line joins the categories",
    scale_that_bends: "a symlog axis bends a line",
    axis_for_a_legend: "of an axis hold a legend alone",
    log_axis_half_empty: "of a logarithmic axis are empty",
}


@pytest.mark.parametrize("flaw", FAULTY, ids=lambda f: f.__name__)
def test_each_kind_of_fault_is_found_alone(flaw):
    fig, ax = drawn()
    flaw(ax)
    faults = picture_faults(fig)
    assert len(faults) == 1 and FAULTY[flaw] in faults[0]


def beside(ax):
    ax.plot([0, 1], [0, 0.2], label="low")
    ax.legend(loc="upper left")
    ax.axhline(0.8)
    ax.text(0.5, 0.81, "the level", va="bottom")
    ax.set(ylim=(0, 1))


def boxed(ax):
    ax.plot([0, 1], [0, 1])
    ax.text(0.5, 0.5, "named on its line", ha="center", va="center", bbox=dict(color="white", pad=1))


def mathematics(ax):
    ax.set(xlabel=r"$x_1$ and $10^{-3}$", ylabel=r"$\lambda$")


def hidden(ax):
    ax.text(0.5, 0.5, "one_text", visible=False)


def slanted(ax):
    ax.set_xticks(range(12), [f"name {k}" for k in range(12)], rotation=45)


def bars_from_zero(ax):
    ax.bar([0, 1], [1, 1000])
    ax.set_yscale("symlog")


def in_space(ax):
    fig = ax.figure
    ax.remove()
    ax = fig.add_subplot(projection="3d")
    ax.text(0, 0, 0, "here")
    ax.text(0, 0, 1, "there")


def numbered_family(ax):
    ax.plot(range(3), [1, 2, 3])
    ax.set_xticks(range(3), ["8 bits", "16", "32"])


def level_across_names(ax):
    ax.plot(["noto", "twemoji", "fluent"], [1, 2, 3], "o")
    ax.axhline(2)


def symlog_beyond_its_threshold(ax):
    ax.plot([1, 2, 3], [10, 100, 1000])
    ax.set(yscale="symlog")


def share_of_all(ax):
    ax.plot([1, 2, 3], [3, 5, 4], "o", label="dots")
    ax.set(ylim=(0, 100))


READABLE = [
    *(beside, boxed, mathematics, hidden, slanted, bars_from_zero, in_space),
    *(numbered_family, level_across_names, symlog_beyond_its_threshold, share_of_all),
]


@pytest.mark.parametrize("draw", READABLE, ids=lambda f: f.__name__)
def test_what_is_readable_has_no_fault(draw):
    fig, ax = drawn()
    draw(ax)
    assert picture_faults(fig) == []


def test_the_check_leaves_the_figure_as_it_is():
    fig, ax = drawn()
    beside(ax)
    canvas, dpi = fig.canvas, fig.dpi
    picture_faults(fig)
    assert fig.canvas is canvas and fig.dpi == dpi


def saved(tmp_path, monkeypatch, draw, **more):
    "The facts of a figure, and the warnings of its author."
    monkeypatch.setenv("BRACE_NB_RUN", str(tmp_path))
    fig, ax = drawn()
    draw(ax)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        png = save_figure(fig, "a/b", data=dict(x=[0]), alt="Two lines and a level.", **more)
    return json.loads(png.with_suffix(".json").read_text()), " ".join(str(w.message) for w in told)


@pytest.mark.parametrize("flaw", FAULTY, ids=lambda f: f.__name__)
def test_a_fault_stands_in_the_facts_and_warns(flaw, tmp_path, monkeypatch):
    facts, told = saved(tmp_path, monkeypatch, flaw)
    assert len(facts["faults"]) == 1 and FAULTY[flaw] in facts["faults"][0] and FAULTY[flaw] in told


def test_what_a_figure_says_is_what_its_numbers_show(tmp_path, monkeypatch):
    facts, told = saved(tmp_path, monkeypatch, beside, says={"One is low.": np.True_, "Both are.": False})
    assert facts["alt"] == "Two lines and a level. One is low."
    assert facts["says"] == {"One is low.": True, "Both are.": False}
    assert facts["faults"] == ["the numbers deny 'Both are.'"] and "Both are." in told
    facts, told = saved(tmp_path, monkeypatch, beside, says={"Row x_1 is low.": True})
    assert len(facts["faults"]) == 1 and "name from code" in facts["faults"][0]
    facts, told = saved(tmp_path, monkeypatch, beside)
    assert facts["faults"] == [] and facts["says"] == {} and not told


@pytest.mark.parametrize("color", PALETTE)
def test_a_word_is_dark_enough_to_be_read(color, tmp_path, monkeypatch):
    def contrast(rgb):  # with white, by WCAG 2
        r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in rgb)
        return 1.05 / (0.05 + 0.2126 * r + 0.7152 * g + 0.0722 * b)

    words = {}

    def named(ax):
        words["name"] = ax.text(0.1, 0.1, "a name", color=PALETTE[color], transform=ax.transAxes)
        words["line"] = ax.plot([0, 1], [0.2, 0.3], color=PALETTE[color])[0]

    saved(tmp_path, monkeypatch, named)
    assert contrast(to_rgb(words["name"].get_color())) > 3.3
    assert words["line"].get_color() == PALETTE[color]  # a line keeps the color of its method


def registries():
    "Part and name -> registry of entries that figures draw and name."
    found = {}
    for path in sorted((ROOT / "brace_nb").glob("*/__init__.py")):
        part = importlib.import_module(f"brace_nb.{path.parent.name}")
        public = {name: getattr(part, name) for name in getattr(part, "__all__", ())}
        found |= {f"{path.parent.name}.{n}": r for n, r in public.items() if isinstance(r, Registry)}
    return {n: {k: e for k, e in r.items() if isinstance(e, Entry)} for n, r in found.items()}


def test_every_entry_of_a_registry_speaks_in_words_and_has_a_look():
    for name, entries in registries().items():
        titles = [entry.title for entry in entries.values()]
        assert identifiers(titles) == [], name
        assert len(set(titles)) == len(titles), name
        assert all(style(entry)["color"] in PALETTE.values() for entry in entries.values()), name


def test_an_entry_that_is_added_has_its_look_and_its_name_everywhere():
    METHODS = Registry("method", {"exact": Entry(title="exact", color="black")})
    METHODS["mine"] = Entry(title="my own", color="red", marker="P", line=":")
    assert style(METHODS["mine"]) == dict(color=PALETTE["red"], marker="P", linestyle=":")
    _, ax = drawn()
    line = lines_with_band(ax, [0, 1], [[0.0, 1.0], [1.0, 2.0]], entry=METHODS["mine"])
    dots = dots_by_seed(ax, [0, 1], [[0, 1]], entry=METHODS["mine"])
    assert line.get_label() == "my own" and line.get_color() == dots.get_color() == PALETTE["red"]
    assert line.get_marker() == dots.get_marker() == "P" and dots.get_linestyle() == "None"


def test_shades_darken_no_further_than_a_page_can_show():
    dark_to_light = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b, _ in shades(9)]
    assert dark_to_light == sorted(dark_to_light) and dark_to_light[-1] < 0.75
    assert len(shades(1)) == 1 and len(set(shades(5))) == 5


# --- what is committed


def published():
    "The facts of every published figure."
    return {name: f for part in read_facts(ROOT / "figures").values() for name, f in part["figures"].items()}


def test_no_published_figure_has_a_fault():
    assert {name: f["faults"] for name, f in published().items() if f["faults"]} == {}


PHONE = 360  # Pixels
LETTER = 6  # Pixels
SMALLEST = 6.5  # Points, below which `picture_faults` complains


def test_letters_of_every_picture_can_be_read_on_a_phone():
    "At 360 pixels a picture of 6.8 inches has letters of 4.8, one of 5.4 inches of 6.02."
    widths = {name: Image.open(ROOT / f"figures/{name}.png").width for name in published()}
    small = [n for n, w in widths.items() if SMALLEST * PHONE / 72 / (w / STYLE["savefig.dpi"]) < LETTER]
    assert widths and small == []


def test_a_caption_that_is_decided_by_numbers_says_what_they_decided():
    "The caption in the notebook that draws a figure is one of its findings, where it has any."
    stray, decided = {}, {name: f for name, f in published().items() if f["says"]}
    for name, f in decided.items():
        caption = captions_of(ROOT / f"nbs/experiments/{f['experiment']}.ipynb").get(name)
        if f"{caption}." not in f["says"]:
            stray[name] = caption
    assert decided and stray == {}


def test_every_figure_says_what_it_found():
    "A caption that nothing decides stays when the numbers change; one that names the axes says nothing."
    silent = sorted(name for name, f in published().items() if not any(f["says"].values()))
    assert published() and silent == []


def test_a_matrix_takes_the_map_of_its_role():
    found = {}
    for path in ROOT.glob("nbs/experiments/*/*.ipynb"):
        code = "".join("".join(c["source"]) for c in json.loads(path.read_text())["cells"])
        maps = re.findall(r"cmap=\"(\w+)\"|get_cmap\(\"(\w+)\"", code)
        strange = {name for pair in maps for name in pair if name} - set(MAPS.values())
        if strange:
            found[Path(path).stem] = strange
    assert found == {}


def test_a_name_at_a_line_is_given_to_the_line():
    "`direct` reads lines; the label of an `errorbar` is its container's, and codes/more_data had no names."
    lost = set()
    for path in ROOT.glob("nbs/experiments/*/*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            code = "".join(cell["source"])
            if "direct(" in code and re.search(r"errorbar\([^\n]*\blabel=", code):
                lost.add(path.stem)
    assert lost == set()


SHOW_TIMES = """
assignment/lisascore_time assignment/network_losses assignment/pareto assignment/speed codes/index
codes/search_crossover codes/search_lists codes/search_speed codes/speed codes/speed_rows
evaluation/cka_one_hsic evaluation/cka_speed grounding/detection_time
ndim/benchmark ndim/loss_speed
""".split()


def test_only_these_figures_show_times_and_may_differ_between_two_runs():
    parts = read_facts(ROOT / "figures").values()
    found = {name for part in parts for name, f in part["figures"].items() if not f["deterministic"]}
    assert found == set(SHOW_TIMES)


@pytest.mark.parametrize("path", sorted(ROOT.glob("data/numbers/*/*.csv")), ids=lambda p: p.stem)
def test_numbers_of_other_figures_are_no_times(path):
    name = f"{path.parent.name}/{path.stem}"
    head = re.split(r"[,_ ]", path.read_text().partition("\n")[0])
    stored = name.endswith("on_device")  # times of `data/device`: the same in every run
    assert stored or name in SHOW_TIMES or not {"ms", "us", "seconds", "minutes"} & set(head)


def committed_tables(name):
    "The numbers of a published figure, read from its csv."
    texts = split_tables((ROOT / f"data/numbers/{name}.csv").read_text()).values()
    return [pd.read_csv(io.StringIO(t), index_col=0 if t.startswith(",") else None) for t in texts]


def test_captions_recompute_from_the_committed_numbers_alone():
    facts = published()
    assert number_faults(facts["codes/balance"]["alt"] + " Or 12.34.", committed_tables("codes/balance"))
    wrong = {name: number_faults(f["alt"], committed_tables(name)) for name, f in facts.items()}
    assert {name: faults for name, faults in wrong.items() if faults} == {}
