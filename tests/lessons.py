"""Run every cell of every lesson: `nbdev_test`, in two processes. `brace-nb readme --check` runs the reports.

A figure below its cell is not drawn. Nobody would see it, the drawings took a fifth of the time, and IPython
tells of an error in them without failing. The processes are forks that find torch and the like imported, set
aside from Python's search for garbage.
"""

import gc
from unittest import mock

from brace_nb.core import use_one_instruction_set

use_one_instruction_set()

import matplotlib.pyplot  # noqa: E402, F401
import pandas  # noqa: E402, F401
import scipy.stats  # noqa: E402, F401
import torch  # noqa: E402, F401
from IPython.core import pylabtools  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from nbdev.test import nbdev_test  # noqa: E402


def main():
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    with (
        mock.patch.object(FigureCanvasAgg, "draw_idle"),
        mock.patch.object(pylabtools, "print_figure", return_value=""),
        mock.patch.object(pylabtools, "retina_figure", return_value=("", {})),
    ):
        nbdev_test(n_workers=2, do_print=True, skip_folder_re=r"^([_.]|(experiments|reports)$)")


if __name__ == "__main__":
    main()
