"""The rules of the house, as functions that list violations.

`tests/test_style.py` and `tests/test_rooms.py` demand that there are none;
`python tests/house.py` prints the list for the checkout in the current folder, by part.
"""

from __future__ import annotations

import ast
import io
import json
import re
import shutil
import subprocess
import sys
import tokenize
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

LONGEST_LINE, LONGEST_MODULE, LONGEST_KERNELS = 110, 420, 660
LESSON, KERNELS, EXPERIMENT = 25, 40, 40  # lines of a cell; tables and classes count less, see `sizes`
LONGEST_FUNCTION = 8  # lines of a function in an experiment, without signature and docstring

# part -> the parts its modules may import (and itself)
KNOWS = {
    "core": set(),
    "foundations": {"core"},
    "codes": {"core", "foundations"},
    "ndim": {"core", "foundations"},
    "assignment": {"core", "foundations"},
    "evaluation": {"core", "foundations"},
    "grounding": {"core", "foundations", "codes", "ndim", "assignment", "evaluation"},
    "companion": {"core"},
    "as_printed": {"core", "foundations", "codes", "ndim", "assignment", "evaluation", "grounding"},
}
# words in the names of tests -> their part, where the part is not named itself
TESTS = {
    "foundations": "contrastive data encoders self_supervised training tuples",
    "codes": "heads projection",
    "evaluation": "evaluate probes retrieval",
}


class Violation(NamedTuple):
    rule: str  # Name of a function of this file
    part: str  # Whose it is
    place: str  # File, and where in it
    what: str


def part_of(path: Path) -> str:
    "The part a file belongs to: by its folder; a test by its name."
    pieces = path.parts
    if pieces[0] == "tests":
        words = path.stem.split("_")
        own = [p for p in KNOWS if p in words or p in path.stem and "_" in p]
        told = [p for p, names in TESTS.items() if any(name in path.stem for name in names.split())]
        return next(iter(own + told), "companion")
    if pieces[:2] == ("nbs", "experiments"):
        return f"experiments/{pieces[2]}"
    return re.sub(r"^\d_", "", pieces[1]) if len(pieces) > 2 else "companion"


def notebooks(root: Path) -> list[Path]:
    "Every notebook, relative to the checkout."
    found = sorted((root / "nbs").rglob("*.ipynb"))
    return [p.relative_to(root) for p in found if ".ipynb_checkpoints" not in p.parts]


def modules(root: Path) -> list[Path]:
    "Every module of the package, relative to the checkout."
    return [p.relative_to(root) for p in sorted((root / "brace_nb").rglob("*.py"))]


def cells(root: Path, path: Path) -> list[tuple[int, str]]:
    "(Number, source) of the code cells; lines that only IPython reads are blanked."
    found = []
    for number, cell in enumerate(json.loads((root / path).read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            found.append((number, re.sub(r"^\s*[%!].*$", "", source, flags=re.M)))
    return found


@cache  # several rules ask
def code_lines(source: str) -> set[int]:
    "Numbers of the lines with code on them: no blank lines, comments, docstrings, signatures, imports."
    quiet = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    text = source.splitlines()
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (*quiet, tokenize.ENDMARKER):
            lines |= set(range(token.start[0], token.end[0] + 1))
    lines = {n for n in lines if text[n - 1].strip()}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            lines -= set(range(node.lineno, node.end_lineno + 1))
        body = getattr(node, "body", None)
        if (
            not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module))
            or not body
        ):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])  # rules belong to it
            lines -= set(range(first, body[0].lineno))
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
            lines -= set(range(first.lineno, first.end_lineno + 1))
    return lines


def tables(tree: ast.Module) -> set[int]:
    "Numbers of the lines inside literal tables at the top of a cell; such a table stays whole."
    lines = set()
    for node in tree.body:
        for value in [v for v in ast.walk(node) if isinstance(v, (ast.Dict, ast.List, ast.Tuple, ast.Call))]:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and value.end_lineno > value.lineno:
                lines |= set(range(value.lineno + 1, value.end_lineno + 1))
    return lines


def sizes(source: str) -> dict[str, int]:
    "Lines of code of a cell: of everything outside classes and tables, and of each method."
    tree = ast.parse(source)
    lines, found = code_lines(source) - tables(tree), {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    own = set(range(method.lineno, method.end_lineno + 1))
                    found[f"{node.name}.{method.name}"] = len(lines & own)
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return {"": len(lines)} | found


def long_cells(root: Path) -> list[Violation]:
    "Cells hold one thought: lessons up to 25 lines of code (40 in `NNa_*`), experiments up to 40."
    found = []
    for path in notebooks(root):
        if path.stem == "zz_init":
            continue  # the names of a part, a line for each module
        experiment = path.parts[1] == "experiments"
        limit = KERNELS if re.match(r"\d\d[a-z]_", path.name) else LESSON
        for number, source in cells(root, path):
            if experiment:
                limit = EXPERIMENT
                whole = tables(ast.parse(source))
                text = enumerate(source.splitlines(), 1)
                counts = {"": sum(bool(line.strip()) and n not in whole for n, line in text)}
            else:
                counts = sizes(source)
            for name, count in counts.items():
                if count > limit:
                    place = f"{path} [{number}] {name}".strip()
                    found.append(
                        Violation("long_cells", part_of(path), place, f"{count} lines, limit {limit}")
                    )
    return found


def long_modules(root: Path) -> list[Violation]:
    "A module is one concept; more than 420 lines are two. Kernels share one: numba's cache knows no other."
    found = []
    for path in modules(root):
        count = len((root / path).read_text(encoding="utf-8").splitlines())
        limit = LONGEST_KERNELS if path.stem.endswith("kernels") else LONGEST_MODULE
        if count > limit and path.name != "_modidx.py":
            found.append(Violation("long_modules", part_of(path), str(path), f"{count} lines, limit {limit}"))
    return found


GENERATED = re.compile(r"(__all__ = \[| {11})'")  # nbdev's own list, which it wraps at 120 columns


def long_lines(root: Path) -> list[Violation]:
    "Lines of the package, its rules, builders and pages up to 110 columns; what nbdev writes is exempt."
    found = []
    others = "Snakefile data/*/build.py nbs/_book/*.py nbs/_book/static/*.js nbs/_book/static/*.css".split()
    others = [p.relative_to(root) for pattern in others for p in sorted(root.glob(pattern))]
    for path in others + [p for p in modules(root) if p.name != "_modidx.py"]:
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > LONGEST_LINE and not GENERATED.match(line):
                what = f"{len(line)} columns"
                found.append(Violation("long_lines", part_of(path), f"{path}:{number}", what))
    return found


def ruff(root: Path) -> list[Violation]:
    "What ruff finds in notebooks, builders, tests and setup.py, and what it would lay out otherwise."
    tool = str(Path(sys.executable).with_name("ruff"))
    files = ["nbs", "tests", "data", "setup.py"]
    run = subprocess.run(
        [tool, "check", "--no-cache", "--output-format", "json", *files],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if run.returncode > 1:
        raise RuntimeError(run.stderr)
    found = []
    for entry in json.loads(run.stdout):
        path = Path(entry["filename"]).relative_to(root.resolve())
        place = str(path)
        if cell := entry.get("cell"):
            place += f" [{cell - 1}]"
        place += f" line {entry['location']['row']}"
        found.append(Violation("ruff", part_of(path), place, f"{entry['code']} {entry['message']}"))
    run = subprocess.run(
        [tool, "format", "--no-cache", "--check", *files], cwd=root, capture_output=True, text=True
    )
    for name in re.findall(r"^Would reformat: (.*)$", run.stdout, re.M):
        found.append(Violation("ruff", part_of(Path(name)), name, "run `ruff format`"))
    return found


def biome_here() -> str | None:
    "The linter of scripts and styles: beside this Python, or on the path."
    beside = Path(sys.executable).with_name("biome")
    return str(beside) if beside.exists() else shutil.which("biome")


def biome(root: Path) -> list[Violation]:
    "What biome finds in the scripts and the style of the site, and what it would lay out otherwise."
    if biome_here() is None:
        return []  # its wheels are for Linux on x86-64; `test_style` says that nothing was looked at
    command = [biome_here(), "ci", "--colors=off", "--reporter=github", "--max-diagnostics=none", "."]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True)
    said = re.findall(r"^::\w+ (.*?file=([^,]+),line=(\d+).*?)::(.*)$", run.stdout, re.M)
    found = [Violation("biome", "companion", f"{file}:{line}", what) for _, file, line, what in said]
    if run.returncode and not found:
        raise RuntimeError(run.stdout + run.stderr)
    return found


def public_names(root: Path, path: Path) -> list[str]:
    "Names in the `__all__` of a module; of a part's `__init__`, those of its lazy table."
    names = []
    for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names += [e.value for e in getattr(node.value, "elts", []) if isinstance(e, ast.Constant)]
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy":
            names += [n for k in node.keywords for n in getattr(k.value, "value", "").split()]
    return names


def shadowed_modules(root: Path) -> list[Violation]:
    "No module has the name of a public name of its part."
    by_part = defaultdict(list)
    for path in modules(root):
        if len(path.parts) > 2:
            by_part[path.parts[1]].append(path)
    found = []
    for part, paths in by_part.items():
        names = {name: path for path in paths for name in public_names(root, path)}
        for path in paths:
            if path.stem in names:
                found.append(
                    Violation(
                        "shadowed_modules", part, str(path), f"{path.stem} is a name in {names[path.stem]}"
                    )
                )
    return found


def imports(source: str, where: str = "", is_package: bool = False) -> list[tuple[str, str, int, bool]]:
    "(Module, name, line, at the top) of each import of the package in a module called `where`."
    tree = ast.parse(source)
    top = {id(n) for n in tree.body}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(a.name, "", node.lineno, id(node) in top) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = where.split(".") if is_package else where.split(".")[:-1]
            base = base[: len(base) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(module, a.name, node.lineno, id(node) in top) for a in node.names]
    return [f for f in found if f[0].split(".")[0] == "brace_nb"]


def strangers(root: Path) -> list[Violation]:
    "Who may know whom: core nobody, foundations core, the four topics core and foundations, ..."
    found = []
    for path in modules(root):
        if len(path.parts) < 3:
            continue
        part, is_package = path.parts[1], path.name == "__init__.py"
        where = ".".join(path.with_suffix("").parts[: -1 if is_package else None])
        for module, name, line, top in imports((root / path).read_text(encoding="utf-8"), where, is_package):
            other = (module.split(".") + [name])[1]
            if other == part or other in KNOWS.get(part, set()) or other not in KNOWS:
                continue
            if part == "companion" and path.stem == "cli" and not top:
                continue  # a subcommand imports what it needs
            found.append(Violation("strangers", part, f"{path}:{line}", f"{part} may not know {other}"))
    return found


def deep_imports(root: Path) -> list[Violation]:
    "Experiments, lessons and tests import from parts, not from their modules."
    found = []
    sources = [(p, f" [{n}]", s) for p in notebooks(root) for n, s in cells(root, p) if "#| export" not in s]
    sources += [(p.relative_to(root), "", p.read_text()) for p in sorted((root / "tests").glob("*.py"))]
    for path, place, source in sources:
        for module, name, line, _ in imports(source):
            pieces = module.split(".")
            if len(pieces) < 3 or pieces[1] == "as_printed" or "kernels" in pieces[2]:
                continue
            place_of = f"{path}{place} line {line}"
            found.append(Violation("deep_imports", part_of(path), place_of, f"from {module} import {name}"))
    return found


def experiment_code(root: Path) -> list[Violation]:
    "Experiments hold no function of more than 8 lines, import names, and are stored without outputs."
    found = []
    for path in notebooks(root):
        if path.parts[1] != "experiments":
            continue
        if any(c.get("outputs") for c in json.loads((root / path).read_text(encoding="utf-8"))["cells"]):
            found.append(Violation("experiment_code", part_of(path), str(path), "stored with outputs"))
        for number, source in cells(root, path):
            lines, place = code_lines(source), f"{path} [{number}]"
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.FunctionDef):
                    count = len(lines & set(range(node.lineno, node.end_lineno + 1)))
                    if count > LONGEST_FUNCTION:
                        what = f"{node.name} has {count} lines; it belongs in a module"
                        found.append(Violation("experiment_code", part_of(path), place, what))
                if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
                    found.append(Violation("experiment_code", part_of(path), place, "a star import"))
    return found


def hidden_figures(root: Path) -> list[Violation]:
    "An experiment that saves figures shows one of them: a relative link to its png in a markdown cell."
    found = []
    for path in notebooks(root):
        if path.parts[1] != "experiments" or path.parts[2] == "paper":  # its figures are not committed
            continue
        code = "\n".join(source for _, source in cells(root, path))
        figures = set(re.findall(r'save_figure\(\s*\w+,\s*"(\w+/\w+)"', code))
        every = json.loads((root / path).read_text(encoding="utf-8"))["cells"]
        prose = "\n".join("".join(c["source"]) for c in every if c["cell_type"] == "markdown")
        shown = set(re.findall(r"!\[[^]]*\]\(\.\./\.\./\.\./figures/(\w+/\w+)\.png\)", prose))
        if figures and not shown & figures:
            what = f"shows none of {', '.join(sorted(figures))}"
            found.append(Violation("hidden_figures", part_of(path), str(path), what))
    return found


NOT_PORTABLE = ("torch.linalg.lstsq", "torch.linalg.solve_triangular")  # other bytes in another run
RANDOM = re.compile(
    r"torch\.(rand|randn|randint|randperm|normal|bernoulli|multinomial|(rand|randn|randint)_like)"
    r"|torch\.nn\.(Linear|Embedding|Conv2d|MultiheadAttention|Transformer\w+)"
    r"|np\.random\.(rand|randn|randint|permutation|normal|choice|shuffle)"
)


def unrepeatable(root: Path) -> list[Violation]:
    "Nothing is called whose bytes change from run to run, and experiments draw with a seed."
    found = []
    for path in notebooks(root):
        sources = cells(root, path)
        seeded = any("torch.manual_seed(" in source for _, source in sources)
        for number, source in sources:
            for node in ast.walk(ast.parse(source)):
                if not isinstance(node, ast.Call):
                    continue
                name, place = ast.unparse(node.func), f"{path} [{number}]"
                if name in NOT_PORTABLE:
                    found.append(Violation("unrepeatable", part_of(path), place, name))
                drawn = RANDOM.fullmatch(name) and all(k.arg != "generator" for k in node.keywords)
                if path.parts[1] == "experiments" and drawn and not seeded:
                    what = f"{name} without a generator or torch.manual_seed"
                    found.append(Violation("unrepeatable", part_of(path), place, what))
    return found


RULES = (
    ruff,
    biome,
    long_cells,
    long_modules,
    long_lines,
    shadowed_modules,
    strangers,
    deep_imports,
    experiment_code,
    hidden_figures,
    unrepeatable,
)


def report(violations: list[Violation]) -> str:
    "Markdown: a table of counts, then the lists by part."
    by_part = defaultdict(list)
    for v in violations:
        by_part[v.part].append(v)
    names = [r.__name__ for r in RULES]
    lines = ["| part | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for part in sorted(by_part):
        counts = [str(sum(v.rule == n for v in by_part[part]) or "") for n in names]
        lines.append(f"| {part} | " + " | ".join(counts) + " |")
    for part in sorted(by_part):
        lines += ["", f"## {part}", ""]
        lines += [f"- {v.rule}: {v.place}: {v.what}" for v in by_part[part]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    here = Path.cwd()
    wanted = sys.argv[1:]
    everything = [v for rule in RULES for v in rule(here)]
    print(report([v for v in everything if not wanted or v.part in wanted]))
