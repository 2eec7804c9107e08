"The drawing helpers: each gives, byte for byte, the picture of the plain matplotlib calls it stands for."

import io

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

from brace_nb.companion import (
    PALETTE,
    band95,
    direct,
    dots_by_seed,
    grouped_bars,
    heatmap,
    lines_with_band,
    mean_interval,
    panel,
    style,
    use_style,
)
from brace_nb.core import Entry

RNG = np.random.default_rng(0)


def picture(draw):
    "The bytes of what `draw` puts on an Axes."
    use_style()
    fig, ax = panel(width=3.3, height=2.4)
    draw(ax)
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", metadata={"Software": None})
    plt.close(fig)
    return buffer.getvalue()


def test_panel_is_subplots_at_final_size():
    fig, axes = panel(2, 3, sharex=True, width_ratios=[1, 2, 1])
    assert axes.shape == (2, 3) and tuple(fig.get_size_inches()) == (6.8, 4.6)
    single, ax = panel(width=3.3, height=2)
    assert tuple(single.get_size_inches()) == (3.3, 2) and not isinstance(ax, np.ndarray)
    plt.close("all")


def test_two_series_of_bars():
    a, b = RNG.random((2, 4))
    hatched = dict(color=PALETTE["orange"], hatch="//", edgecolor="white")

    def plain(ax):
        where = np.arange(4)
        ax.bar(where - 0.2, a, 0.4, color=PALETTE["blue"], label="same")
        ax.bar(where + 0.2, b, 0.4, label="other", **hatched)
        ax.set_xticks(where, list("wxyz"))
        ax.legend()

    def helped(ax):
        styles = {"same": Entry(title="same", color="blue"), "other": hatched}
        grouped_bars(ax, {"same": a, "other": b}, list("wxyz"), styles)
        ax.legend()

    assert picture(plain) == picture(helped)


def test_three_series_of_thin_bars_with_errors_to_the_right():
    mean, spread = RNG.random((2, 3, 5))
    colors = ("blue", "orange", "green")

    def plain(ax):
        for i, color in enumerate(colors):
            where = np.arange(5)[::-1] + (1 - i) * 0.27
            look = dict(color=PALETTE[color], error_kw=dict(linewidth=0.8))
            ax.barh(where, mean[i], xerr=spread[i], height=0.25, **look)
        ax.set_yticks(np.arange(5)[::-1], list("abcde"))

    def helped(ax):
        looks = {c: dict(color=PALETTE[c], error_kw=dict(linewidth=0.8)) for c in colors}
        values, errors = dict(zip(colors, mean)), dict(zip(colors, spread))
        grouped_bars(ax, values, list("abcde"), looks, errors, width=0.81, thickness=0.25, horizontal=True)

    assert picture(plain) == picture(helped)


@pytest.mark.parametrize("seeds, places", [(3, 10), (3, 40), (8, 10)])
def test_a_line_shows_its_runs_and_from_six_on_their_interval(seeds, places):
    x, runs = np.arange(places), RNG.random((seeds, places))
    entry = Entry(title="binary", color="blue", marker="s")
    look = style(entry) | {"marker": ""}

    def plain(ax):
        ax.plot(x, runs.mean(0), label="binary", **look)
        if seeds > 5:
            low, _, high = np.transpose([mean_interval(values) for values in runs.T])
            ax.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)
        for run in runs if seeds <= 5 else []:
            dots = dict(marker="o", linestyle="", markersize=1.8, alpha=0.55)
            ax.plot(x, run, color=look["color"], zorder=1.9, **(dots if places <= 16 else thin))
        ax.legend()

    def helped(ax):
        lines_with_band(ax, x, runs, entry=entry, marker="")
        ax.legend()

    thin = dict(linewidth=0.4, alpha=0.5)
    assert picture(plain) == picture(helped)


def test_one_run_has_no_spread():
    _, ax = plt.subplots()
    line = lines_with_band(ax, [0, 1], [[1.0, 2.0]])
    assert line.get_ydata().tolist() == [1, 2] and len(ax.lines) == 1 and not ax.collections
    with pytest.raises(ValueError, match="two runs or more; got 1"):
        band95([[1.0, 2.0]])
    plt.close("all")


def test_the_band_is_the_interval_of_the_ledger():
    runs = RNG.random((7, 3))
    for low, high, values in zip(*band95(runs), runs.T):
        assert np.allclose([low, values.mean(), high], mean_interval(values))


def test_dots_by_seed():
    values = RNG.random((3, 2))

    def plain(ax):
        ax.plot([0, 1] * 3, values.ravel(), "o", color="k", markersize=4)

    assert picture(plain) == picture(lambda ax: dots_by_seed(ax, [0, 1], values, color="k", markersize=4))
    named = picture(lambda ax: ax.plot(["n = 3"] * 3, values[:, 0], "o", color="k"))
    assert named == picture(lambda ax: dots_by_seed(ax, "n = 3", values[:, 0], color="k"))


def test_heatmap_writes_its_numbers():
    percent = RNG.random((4, 4)) * 100
    names = list("abcd")

    def plain(ax):
        ax.imshow(percent, vmin=0, vmax=100, cmap="Blues")
        for (i, j), v in np.ndenumerate(percent):
            color = "white" if v > 60 else "black"
            ax.text(j, i, f"{v:.0f}", ha="center", va="center", fontsize=6.5, color=color)
        ax.set_xticks(range(4), names)
        ax.set_yticks(range(4), names)
        ax.grid(False)

    def ink(value):
        return "white" if value > 60 else "black"

    def helped(ax):
        heatmap(ax, percent, names, names, "{:.0f}", ink=ink, vmin=0, vmax=100, cmap="Blues")

    assert picture(plain) == picture(helped)


def test_heatmap_ink_follows_the_brightness_of_the_cell():
    _, ax = plt.subplots()
    image = heatmap(ax, [[0.0, 1.0, np.nan]], None, ["low", "high", "none"], "{:.0f}", cmap="viridis")
    assert {t.get_text(): t.get_color() for t in ax.texts} == {"0": "white", "1": "black"}
    assert image.get_array().shape == (1, 3) and not ax.get_yticks().size
    plt.close("all")


def test_names_beside_their_lines_do_not_touch():
    use_style()
    fig, ax = panel(width=3.3, height=2)
    for k in range(6):
        ax.plot([0, 1, np.nan], [0, 0.01 * k, 1], label=f"line {k}")
    ax.plot([0, 1], [1, 1])  # without a name
    texts = direct(ax)
    fig.draw_without_rendering()
    boxes = [t.get_window_extent() for t in texts]
    assert [t.get_text() for t in texts] == [f"line {k}" for k in range(6)]
    assert [b.y0 for b in boxes] == sorted(b.y0 for b in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert all(t.xy == (1, 0.01 * k) for k, t in enumerate(texts))
    assert all(np.dot(t.get_color(), [0.299, 0.587, 0.114]) < 0.46 for t in texts)
    plt.close(fig)


@pytest.mark.parametrize("seed", range(5))
def test_names_beside_their_dots_touch_neither_names_nor_dots(seed):
    use_style()
    fig, ax = panel(width=3.3, height=2.4)
    for k, (x, y) in enumerate(np.random.default_rng(seed).random((8, 2))):
        ax.plot(x, y, "o", label=f"dot {k}")
    ax.set(xlim=(-0.2, 1.2), ylim=(-0.2, 1.2))
    texts = direct(ax)
    fig.draw_without_rendering()
    boxes = [t.get_window_extent() for t in texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    dots = ax.transData.transform([t.xy for t in texts])
    assert not any(box.count_contains(dots) for box in boxes)
    assert all(ax.bbox.contains(*box.min) and ax.bbox.contains(*box.max) for box in boxes)
    plt.close(fig)


def test_names_stand_in_a_part_of_a_figure_as_in_the_whole():
    "`direct` failed in a SubFigure, which cannot draw itself."
    use_style()
    ends = []
    for parts in (False, True):
        fig = plt.figure(figsize=(3.3, 2))
        ax = (fig.subfigures() if parts else fig).subplots()
        for k in range(3):
            ax.plot([0, 1], [0, 0.01 * k], label=f"line {k}")
        ax.plot(0.2, 0.01, "o", label="dot")
        texts = direct(ax)
        fig.draw_without_rendering()
        boxes = [t.get_window_extent() for t in texts]
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
        ends.append([t.get_text() for t in texts])
        plt.close(fig)
    assert ends[0] == ends[1] == ["line 0", "line 1", "line 2", "dot"]


def test_room_for_names_is_taken_from_the_axes():
    use_style()
    fig, ax = panel(width=3.3, height=2.4)
    ax.plot([0, 1], [0, 1], label="a line")
    ax.set_xlim(0, 1)
    (text,) = direct(ax, room=0.25)
    fig.draw_without_rendering()
    assert ax.get_xlim() == (0, 1 / 0.75) and text.get_window_extent().x1 < ax.bbox.x1
    plt.close(fig)
