"How code looks in notebooks, package and tests, by the rules of `house.py`; `make test` runs ruff and biome."

import json

import pytest
from house import STYLE, code_lines, sizes, unrepeatable

from brace_nb.companion import root


@pytest.mark.parametrize("rule", STYLE)
def test_the_house_keeps_its_style(rule):
    found = list(rule(root()))
    assert not found, "\n" + "\n".join(found)


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


def test_what_cannot_be_repeated_is_found(tmp_path):
    source = "rest = torch.linalg.lstsq(a, b)\nx = torch.randn(3)\ny = torch.randn(3, generator=g)"
    path = tmp_path / "nbs/experiments/codes/planted.ipynb"
    path.parent.mkdir(parents=True)
    cell = dict(cell_type="code", source=source, outputs=[], metadata={})
    path.write_text(json.dumps(dict(cells=[cell])))
    assert [line.split()[2] for line in unrepeatable(tmp_path)] == ["torch.linalg.lstsq", "torch.randn"]
