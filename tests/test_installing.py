"A light core, and messages that say what to type for the rest."

import ast
import configparser
import importlib.util
import re
import subprocess
import sys

import pytest

from brace_nb.companion import root
from brace_nb.core import EXTRAS, extra_of, install_words

ROOT = root()


def declared(key):
    "Packages of a line of settings.ini."
    parser = configparser.ConfigParser(delimiters=["="])
    parser.read(ROOT / "settings.ini", encoding="utf-8")
    return [re.split(r"[<>=;]", word)[0] for word in parser["DEFAULT"][key].split()]


def test_the_table_is_that_of_settings():
    assert declared("requirements") == ["numpy", "torch", "numba"]
    for extra, names in EXTRAS.items():
        told = set(declared(f"{extra}_requirements"))
        unknown = set(names.values()) - told - {"nbconvert", "torch"}
        assert not unknown, f"{extra} does not bring {unknown}"
    assert set(EXTRAS["tools"].values()) == set(declared("tools_requirements")) - {
        "faiss-cpu"
    }  # is in dev too


def test_tools_are_enough_for_codes_and_reports_of_ones_own():
    trees = [ast.parse(p.read_text()) for part in ("codes", "evaluation", "core") for p in files_of(part)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    packages = {package for extra in EXTRAS.values() for package in extra.items()}
    needs = {package for name, package in packages if name in {n.partition(".")[0] for n in names}}
    assert "faiss-cpu" in needs and needs - {"transformers"} <= set(declared("tools_requirements"))


def files_of(part):
    return sorted((ROOT / "brace_nb" / part).glob("*.py"))


HIDE = """
import sys

class Hide:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else self.finder.find_spec(name, path, target)

HIDDEN = {hidden!r}
sys.meta_path[:] = [Hide(finder) for finder in sys.meta_path]
"""


def without_extras(code, extras=tuple(EXTRAS)):
    "Run code where only the core is installed, or all but these extras."
    hidden = sorted({name for extra in extras for name in EXTRAS[extra]} - {"sympy"})
    head = HIDE.replace("{hidden!r}", repr(hidden))
    return subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, cwd=ROOT)


CORE = """
import numpy as np, torch
from brace_nb.assignment import assign
from brace_nb.codes import binarize, jaccard, pack
from brace_nb.evaluation import cka, recall_at_k
from brace_nb.foundations import info_nce, read_embeddings
from brace_nb.ndim import cube_loss, score
x = np.random.default_rng(0).random((50, 16), dtype=np.float32)
codes = binarize(x)
jaccard(codes, codes), pack(codes), assign(x), cka(x, x), recall_at_k(x @ x.T)
t = torch.tensor(x[:6])
info_nce(t, t), score([t] * 3), cube_loss([t] * 3, "mean_norm", kind="slice")
assert not {"scipy", "pandas", "matplotlib", "sklearn"} & set(sys.modules)
print("all of it")
"""


def test_the_core_needs_three_packages():
    done = without_extras(CORE)
    assert done.returncode == 0 and "all of it" in done.stdout, done.stderr[-2000:]


def test_a_missing_package_names_its_extra_as_it_must_be_typed():
    inside = "exec('import sklearn.svm', {'__name__': 'brace_nb.evaluation.probes'})"
    done = without_extras("import brace_nb.codes\n" + inside)
    assert "this needs scikit-learn, which is in the extra 'tools'" in done.stderr
    done = without_extras(
        "from brace_nb.companion.cli import main; main(['train', 'data/examples/names.csv'])"
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "-e '.[tools]'" in done.stderr and "Traceback" not in done.stderr


def test_training_without_its_extra_is_one_line(tmp_path):
    words = ["train", "data/examples/names.csv", "--out", str(tmp_path / "out"), "--quiet"]
    done = without_extras(f"from brace_nb.companion.cli import main; main({words!r})", ["clip"])
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr[-2000:]
    assert "-e '.[clip]'" in done.stderr.splitlines()[-1]


def test_what_other_programs_import_is_their_business():
    done = without_extras("import brace_nb.codes\nimport sklearn")
    assert "No module named 'sklearn'" in done.stderr
    done = without_extras("import brace_nb.codes, importlib.util\nprint(importlib.util.find_spec('sklearn'))")
    assert done.stdout.strip() == "None"


def test_a_wheel_says_its_own_line(monkeypatch):
    extras = sys.modules[install_words.__module__]
    assert "constraints.txt" in install_words("clip") and extra_of("lap") == "assignment"
    monkeypatch.setattr(extras, "__file__", "/nowhere/site-packages/brace_nb/core/extras.py")
    assert "-py3-none-any.whl[clip]" in install_words("clip")


def test_help_says_which_commands_need_a_clone(capsys):
    from brace_nb.companion import main, parser

    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    (actions,) = [a for a in parser()._actions if hasattr(a, "choices") and a.choices]
    clone = {a.dest for a in actions._choices_actions if a.help.endswith("(clone)")}
    assert clone == {"figures", "list", "compare", "claims", "readme", "job", "paper"}
    assert (
        "Commands marked (clone)" in text and "[tools,clip]" in text and importlib.util.find_spec("brace_nb")
    )


def test_a_command_of_a_clone_says_so_before_a_package_is_missing(tmp_path):
    "`readme` needs nbconvert, too; who has no clone should not install it first."
    script = "from brace_nb.companion import main; main(['readme'])"
    hidden = HIDE.format(hidden=("nbconvert", "nbclient", "nbformat"))
    lost = "\nimport brace_nb.companion.folders as f; f._candidates = lambda: iter(())\n"
    done = subprocess.run(
        [sys.executable, "-c", hidden + lost + script], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2 and done.stderr.startswith("brace-nb: no brace_nb checkout found")
