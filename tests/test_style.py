"How code looks, in lessons, experiments, package and tests (the rules are in `house.py`)."

import pytest
from house import (
    biome,
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


RULES = [
    ruff,
    biome,
    long_cells,
    long_modules,
    long_lines,
    deep_imports,
    experiment_code,
    hidden_figures,
]


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


def test_tables_stay_whole():
    table = "TITLES = {\n" + "".join(f'    "{k}": {k},\n' for k in range(60)) + "}\n"
    assert sizes(table) == {"": 1}
    assert sizes("def f():\n    return 1\n" + table) == {"": 2}


def test_a_long_line_is_found_and_a_generated_one_is_not(tmp_path):
    module = tmp_path / "brace_nb" / "part" / "module.py"
    module.parent.mkdir(parents=True)
    names = ", ".join(f"'a_rather_long_name_{k}'" for k in range(5))
    module.write_text(f"__all__ = [{names}]\n{'x' * 111}\n{'y' * 110}\n")
    (found,) = long_lines(tmp_path)
    assert found.place.endswith(":2") and found.what == "111 columns"
