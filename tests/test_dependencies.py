"What a result depends on: whole modules, however they are reached, and nothing else."

import json
import shutil
import subprocess
import sys

import pytest

from brace_nb.companion import (
    PACKAGES,
    code_closure,
    code_digest,
    find_experiments,
    fingerprint,
    imports,
    lazy_table,
    module_of,
    root,
)

PACKAGE = {
    "toy/__init__.py": 'VERSION = "1"\n',
    "toy/core.py": 'LIMIT = 3\n\n\ndef helper(x=LIMIT):\n    "Doc."\n    return x\n',
    "toy/part/__init__.py": (
        "from ..lazy import lazy\n"
        "__getattr__, __dir__, __all__ = lazy(\n"
        '    __name__, solving="solve METHODS", classes="Model", words="text " "title"\n'
        ")\n"
    ),
    "toy/lazy.py": "def lazy(name, **modules):\n    return None, None, []\n",
    "toy/part/kernels.py": "def exact(x):\n    return -x\n",
    "toy/part/solving.py": "from toy.part.kernels import *\nMETHODS, solve = {}, exact\n",
    "toy/part/classes.py": (
        "from ..core import helper as renamed\n"
        "class Model:\n"
        "    def run(self):\n"
        "        try:\n"
        "            from .fast import walk\n"
        "        except ImportError:\n"
        "            from .slow import walk\n"
        "        return walk(1) + renamed()\n"
    ),
    "toy/part/slow.py": "def walk(x):\n    return x\n",
    "toy/part/words.py": "def text():\n    return 'a'\ndef title():\n    return 'b'\n",
    "toy/program.py": 'PROGRAM = "from toy.part import text; print(text())"\n',
    "toy/other.py": "import toy.part.words as w\n",
}


@pytest.fixture
def package(tmp_path):
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def closure(package, *sources):
    return code_closure(list(sources), package, "toy")


ALWAYS = {"toy", "toy.part", "toy.lazy"}
SOLVE = ALWAYS | {"toy.part.solving", "toy.part.kernels"}
MODEL = ALWAYS | {"toy.part.classes", "toy.core", "toy.part.slow", "toy.part.fast"}


@pytest.mark.parametrize(
    "source, reached",
    [
        ("from toy.part import solve", SOLVE),
        ("from toy.part import METHODS as M", SOLVE),
        ("from toy.part import text", ALWAYS | {"toy.part.words"}),
        ("def f():\n    from toy.part import Model\n    return Model", MODEL),
        ("from toy.part import solving", SOLVE),
        ("from toy.part.solving import solve", SOLVE),
        ("import toy.part.solving as s", SOLVE),
        ("from toy import part", SOLVE | MODEL | {"toy.part.words"}),
        ("import toy.part", SOLVE | MODEL | {"toy.part.words"}),
        ("import toy.part as p", SOLVE | MODEL | {"toy.part.words"}),
        ("from toy.part import *", SOLVE | MODEL | {"toy.part.words"}),
        ("import toy", {"toy"}),
        ("from toy.core import LIMIT", {"toy", "toy.core"}),
        ("from toy import core", {"toy", "toy.core"}),
        ("import toy.program", SOLVE | MODEL | {"toy.part.words", "toy.program"}),
        ("import toy.other", ALWAYS | {"toy.other", "toy.part.words"}),
        ("run(['python', '-c', 'import toy.core'])", {"toy", "toy.core"}),
        ("import numpy, torch.nn as nn", set()),
        ("'''prose about toy.core'''\nx = 1", set()),
    ],
)
def test_which_modules_code_reaches(package, source, reached):
    assert set(closure(package, source)) == reached


@pytest.mark.parametrize(
    "file, old, new",
    [
        ("toy/core.py", "LIMIT = 3", "LIMIT = 4"),  # a constant, used as a default, two modules away
        ("toy/part/slow.py", "return x", "return x + 1"),  # behind try and except
        ("toy/lazy.py", "None, None, []", "None, None, ()"),  # what loads the names
        ("toy/__init__.py", '"1"', '"2"'),  # what the package does when it is imported
    ],
)
def test_a_change_is_seen_in_its_module_and_nowhere_else(package, file, old, new):
    source = "from toy.part import Model as M\nM().run()"
    before, text = closure(package, source), (package / file).read_text()
    assert old in text
    (package / file).write_text(text.replace(old, new))
    after = closure(package, source)
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert {m for m in before if before[m] != after[m]} == {module}


def test_a_module_that_appears_is_seen(package):
    before = closure(package, "from toy.part import Model")
    assert before["toy.part.fast"] == "absent"
    (package / "toy/part/fast.py").write_text("def walk(x):\n    return 0\n")
    assert closure(package, "from toy.part import Model")["toy.part.fast"] != "absent"


def test_a_name_that_moves_to_another_module_is_seen_and_a_new_name_is_not(package):
    source, part = "from toy.part import solve", package / "toy/part/__init__.py"
    before, text = closure(package, source), part.read_text()
    part.write_text(text.replace('words="text ', 'words="text caption '))
    assert closure(package, source) == before
    part.write_text(text.replace("solve METHODS", "METHODS").replace('words="', 'words="solve '))
    assert set(closure(package, source)) == ALWAYS | {"toy.part.words"}


def test_comments_docstrings_and_layout_do_not_count(package):
    before = closure(package, "import toy.core")
    text = '# a comment\nLIMIT = 3\ndef helper(x=LIMIT):\n    "Other doc."\n\n    return (x)  # same\n'
    (package / "toy/core.py").write_text(text)
    assert closure(package, "import toy.core") == before
    assert code_digest("x = 'a'") != code_digest("x = 'b'")


def test_a_module_that_is_no_python_is_named_with_its_line(package):
    (package / "toy/core.py").write_text("LIMIT = 3\ndef helper(:\n")
    with pytest.raises(ValueError, match="toy/core.py, line 2: .* Mend the module"):
        closure(package, "import toy.core")


def test_relative_imports_of_an_init_are_its_own(package):
    (package / "toy/part/__init__.py").write_text("from .words import text\nfrom . import slow\n")
    reached = {"toy", "toy.part", "toy.part.words", "toy.part.slow"}
    assert set(closure(package, "from toy.part import text")) == reached


def test_a_package_without_init_is_followed(package):
    (package / "toy/__init__.py").unlink()
    assert set(closure(package, "from toy import core")) == {"toy.core"}


def test_imports_and_tables_are_read_as_they_are_written():
    assert imports("from . import a\nfrom .b import c\nfrom ..d import *", "toy", "toy.part") == {
        ("toy.part", "a"),
        ("toy.part.b", "c"),
        ("toy.d", "*"),
    }
    assert lazy_table('lazy(__name__, a="x y", b="z")') == dict(x="a", y="a", z="b")
    with pytest.raises(ValueError, match="literal strings"):
        lazy_table("lazy(__name__, a=NAMES)")
    with pytest.raises(ValueError, match="literal strings"):
        lazy_table("lazy(__name__, **tables)")


def test_the_embeddings_that_a_study_trains_on_are_in_its_fingerprint():
    assert "data data/embeddings" in fingerprint(find_experiments("cpu")["evaluation/small_statements"])


def test_the_data_of_an_experiment_follow_from_the_module_that_loads_them():
    home = module_of("brace_nb.foundations:load_emoji")
    assert home in code_closure(["from brace_nb.foundations import load_emoji"])
    with pytest.raises(ValueError, match="must offer nothing_like_it"):
        module_of("brace_nb.companion:nothing_like_it")


REACHED = [  # a module, an experiment that runs it, one that does not
    ("codes.projection_kernels", "codes/optimum", "assignment/attribution"),
    ("codes.similarity_kernels", "codes/matching", "ndim/distance"),
    ("assignment.kernels", "assignment/attribution", "codes/optimum"),
    ("assignment.exact_kernels", "assignment/loss_gradients", "ndim/statistics"),
    ("assignment.cycles", "assignment/longest_cycle", "ndim/distance"),
    ("evaluation.similarity_index", "evaluation/cka_accuracy", "assignment/metrics"),
    ("foundations.encoder_recipe", "foundations/encoder", "ndim/statistics"),
    ("ndim.measures", "ndim/gradient", "assignment/attribution"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    "A copy of the package, and what some experiments reach in it."
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(root() / "brace_nb", folder / "brace_nb", ignore=shutil.ignore_patterns("__pycache__"))
    found = find_experiments("cpu")
    sources = {name: found[name].sources for _, *names in REACHED for name in names}
    return folder, sources, {name: code_closure(s, folder) for name, s in sources.items()}


@pytest.mark.parametrize("module, runs, runs_not", REACHED)
def test_a_change_of_the_real_package_is_seen_by_those_who_reach_it(copy, module, runs, runs_not):
    folder, sources, before = copy
    path = folder / f"brace_nb/{module.replace('.', '/')}.py"
    text = path.read_text()
    path.write_text(text + "\nEXTRA = 1\n")
    after = {name: code_closure(sources[name], folder) for name in (runs, runs_not)}
    path.write_text(text)
    assert {m for m in before[runs] if after[runs][m] != before[runs][m]} == {f"brace_nb.{module}"}
    assert after[runs_not] == before[runs_not]


def test_every_package_that_computes_is_in_the_fingerprint():
    lines = (root() / "settings.ini").read_text().splitlines()
    wanted = ("requirements =", "tools_requirements =", "clip_requirements =", "assignment_requirements =")
    words = [w for line in lines if line.startswith(wanted) for w in line.split("=", 1)[1].split()]
    declared = {w.split(">")[0].split("<")[0] for w in words}
    peers = {"faiss-cpu", "optuna", "torch-cka"}  # Measured beside ours, installed for development
    peers |= {"timm", "regex", "sympy"}  # Imported by modules, and installed by others
    assert declared - {"tqdm", "pyyaml", "psutil"} | peers == set(PACKAGES.split())


# In a process for each module: import a name of it, and say which modules of the package Python has loaded.
LOADED = """
import json, os, sys, torch
import matplotlib.pyplot, numba, pandas, scipy.optimize, scipy.stats  # the heavy ones, once for all processes
for statement in sys.argv[1:]:
    if os.fork() == 0:
        exec(statement)
        loaded = sorted(m for m in sys.modules if m.split(".")[0] == "brace_nb")
        print(json.dumps([statement, loaded]), flush=True)
        os._exit(0)
    os.wait()
"""


def test_what_python_loads_lies_in_the_closure():
    statements = []
    for path in sorted((root() / "brace_nb").glob("*/__init__.py")):
        homes = {module: name for name, module in lazy_table(path.read_text()).items()}
        statements += [f"from brace_nb.{path.parent.name} import {name}" for name in homes.values()]
    command = [sys.executable, "-c", LOADED, *statements]
    said = subprocess.run(command, cwd=root(), capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in said.stdout.splitlines()]
    assert [statement for statement, _ in lines] == statements, said.stderr
    for statement, loaded in lines:
        lost = set(loaded) - code_closure([statement]).keys()
        assert not lost, f"{statement} runs {lost}"
