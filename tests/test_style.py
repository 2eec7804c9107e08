"How code looks, in lessons, experiments, package and tests (the rules are in `house.py`)."

import pytest
from house import (
    code_lines,
    deep_imports,
    experiment_code,
    hidden_figures,
    long_cells,
    long_lines,
    long_modules,
    ruff,
    sizes,
)

from brace_nb.companion import root


RULES = [ruff, long_cells, long_modules, long_lines, deep_imports, experiment_code, hidden_figures]


@pytest.mark.parametrize("rule", RULES)
def test_the_house_keeps_its_style(rule):
    found = rule(root())
    assert not found, "\n" + "\n".join(f"{v.place}: {v.what}" for v in found)


CELL = '''
#| export
import math


def mean(
    x,  # Numbers
) -> float:  # Their mean
    """Sum over count.

    Two lines of docstring.
    """
    # a comment
    total = sum(x)

    return total / len(x)


class Pair:
    "Two numbers."

    first: int
    second: int

    def both(self):
        "Both."
        return (
            self.first,
            self.second,
        )
'''


def test_what_counts_as_a_line_of_code():
    assert sizes(CELL) == {"": 2, "Pair.both": 4}
    assert code_lines("x = 1\n\n# no\ny = (\n    2\n)  # yes\n") == {1, 4, 5, 6}
    assert sizes("text = '''a\n\nb'''\n") == {"": 2}
