"The results of the precision study, asked by name."

import numpy as np
import pytest

from brace_nb.assignment import DISTRIBUTIONS, PrecisionGrid
from brace_nb.as_printed.assignment import legacy_scores_from_counts

FORMATS, METHODS = ["fp32", "e4m3", "e5m2"], ["exact", "greedy_delta"]
SIZE = (6, 2, 3, 3, 2, 4)  # distributions, heights, widths, formats, methods, matrices


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    "A small study as the experiment stores it: the folder and the arrays."
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("grid")
    sides = np.minimum(np.array([2, 3])[:, None], np.array([2, 3, 4]))
    arrays = dict(
        shared=rng.integers(0, 3, SIZE),
        cells=np.broadcast_to(sides[None, :, :, None, None, None], SIZE),
        valid=rng.random(SIZE) < 0.8,
        gap=rng.random(SIZE),
        certified=rng.random(SIZE),
    )
    names = dict(kinds=list(DISTRIBUTIONS), formats=FORMATS, methods=METHODS)
    np.savez(folder / "grid.npz", **names, heights=[2, 3], widths=[2, 3, 4], **arrays)
    return folder, arrays


def test_names_find_the_cells_of_the_stored_arrays(stored):
    grid, arrays = PrecisionGrid(stored[0]), stored[1]
    assert grid.shapes == [(2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (3, 4)]
    for d, distribution in enumerate(grid.distributions):
        for f, format in enumerate(FORMATS):
            for m, method in enumerate(METHODS):
                found = grid.each("f1", distribution, format, method)
                for j, shape in enumerate(grid.shapes):
                    shared = arrays["shared"][d, j // 3, j % 3, f, m]
                    np.testing.assert_allclose(found[j], shared / min(shape))
                valid = arrays["valid"][d, :, :, f, m].reshape(6, 4)
                gap = arrays["gap"][d, :, :, f, m].reshape(6, 4)
                np.testing.assert_array_equal(
                    grid.each("lost", distribution, format, method), np.where(valid, gap, np.nan)
                )
                assert grid.mean("lost", distribution, format, method) == pytest.approx(gap[valid].mean())


def test_lists_keep_their_axis_and_single_names_lose_it(stored):
    grid = PrecisionGrid(stored[0])
    assert grid.each("f1").shape == (6, 6, 3, 2, 4)
    assert grid.means("f1", grid.main, ["e4m3", "fp32"], "exact").shape == (5, 6, 2)
    swapped = grid.means("f1", "normal", ["e5m2", "fp32"], "exact")
    np.testing.assert_array_equal(swapped[:, ::-1], grid.means("f1", "normal", ["fp32", "e5m2"], "exact"))
    square = grid.ratio == 1
    np.testing.assert_array_equal(
        grid.each("recall", "normal", "fp32", "exact", square),
        grid.each("recall", "normal", "fp32", "exact")[square],
    )


def test_runs_are_means_over_all_but_the_matrices(stored):
    grid = PrecisionGrid(stored[0])
    assert np.allclose(grid.runs("f1", grid.main, "e4m3"), grid.each("f1", grid.main, "e4m3").mean((0, 1, 2)))
    lost = grid.each("lost", "normal", "fp32", "exact")
    np.testing.assert_allclose(grid.runs("lost", "normal", "fp32", "exact"), np.nanmean(lost, 0))


def test_another_measure_of_the_counts_joins_under_a_prefix(stored):
    grid = PrecisionGrid(stored[0])
    grid.add(legacy_scores_from_counts, "code_")
    shape = grid.shapes.index((2, 4))
    np.testing.assert_allclose(grid.each("code_recall")[:, shape] * 2, grid.each("recall")[:, shape])
