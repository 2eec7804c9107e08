"""The rules of the house, as functions that list violations.

`tests/test_style.py` and `tests/test_rooms.py` demand that there are none.
Each rule yields lines "place: what"; what ruff and biome see is theirs.
`python tests/house.py ndim` prints the lines whose place has the word, for the current folder's checkout.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

LONGEST_MODULE, LONGEST_KERNELS = 420, 660
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


def long_cells(root: Path) -> Iterator[str]:
    "Cells hold one thought: lessons up to 25 lines of code (40 in `NNa_*`), experiments up to 40."
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
                    yield f"{path} [{number}] {name}: {count} lines, limit {limit}"


def long_modules(root: Path) -> Iterator[str]:
    "A module is one concept; more than 420 lines are two. Kernels share one: numba's cache knows no other."
    for path in modules(root):
        count = len((root / path).read_text(encoding="utf-8").splitlines())
        limit = LONGEST_KERNELS if path.stem.endswith("kernels") else LONGEST_MODULE
        if count > limit and path.name != "_modidx.py":
            yield f"{path}: {count} lines, limit {limit}"


def public_names(root: Path, path: Path) -> list[str]:
    "Names in the `__all__` of a module; of a part's `__init__`, those of its lazy table."
    names = []
    for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names += [e.value for e in getattr(node.value, "elts", []) if isinstance(e, ast.Constant)]
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy":
            names += [n for k in node.keywords for n in getattr(k.value, "value", "").split()]
    return names


def shadowed_modules(root: Path) -> Iterator[str]:
    "No module has the name of a public name of its part."
    by_part = defaultdict(list)
    for path in modules(root):
        if len(path.parts) > 2:
            by_part[path.parts[1]].append(path)
    for paths in by_part.values():
        names = {name: path for path in paths for name in public_names(root, path)}
        yield from (f"{p}: {p.stem} is a name in {names[p.stem]}" for p in paths if p.stem in names)


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


def strangers(root: Path) -> Iterator[str]:
    "Who may know whom: core nobody, foundations core, the four topics core and foundations, ..."
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
            yield f"{path}:{line}: {part} may not know {other}"


def deep_imports(root: Path) -> Iterator[str]:
    "Experiments, lessons and tests import from parts, not from their modules."
    sources = [(p, f" [{n}]", s) for p in notebooks(root) for n, s in cells(root, p) if "#| export" not in s]
    sources += [(p.relative_to(root), "", p.read_text()) for p in sorted((root / "tests").glob("*.py"))]
    for path, place, source in sources:
        for module, name, line, _ in imports(source):
            pieces = module.split(".")
            if len(pieces) > 2 and pieces[1] != "as_printed" and "kernels" not in pieces[2]:
                yield f"{path}{place} line {line}: from {module} import {name}"


def experiment_code(root: Path) -> Iterator[str]:
    "Experiments hold no function of more than 8 lines, and are stored without outputs."
    for path in notebooks(root):
        if path.parts[1] != "experiments":
            continue
        if any(c.get("outputs") for c in json.loads((root / path).read_text(encoding="utf-8"))["cells"]):
            yield f"{path}: stored with outputs"
        for number, source in cells(root, path):
            lines = code_lines(source)
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.FunctionDef):
                    count = len(lines & set(range(node.lineno, node.end_lineno + 1)))
                    if count > LONGEST_FUNCTION:
                        yield f"{path} [{number}]: {node.name} has {count} lines; it belongs in a module"


def hidden_figures(root: Path) -> Iterator[str]:
    "An experiment that saves figures shows one of them: a relative link to its png in a markdown cell."
    for path in notebooks(root):
        if path.parts[1] != "experiments" or path.parts[2] == "paper":  # its figures are not committed
            continue
        code = "\n".join(source for _, source in cells(root, path))
        figures = set(re.findall(r'save_figure\(\s*\w+,\s*"(\w+/\w+)"', code))
        every = json.loads((root / path).read_text(encoding="utf-8"))["cells"]
        prose = "\n".join("".join(c["source"]) for c in every if c["cell_type"] == "markdown")
        shown = set(re.findall(r"!\[[^]]*\]\(\.\./\.\./\.\./figures/(\w+/\w+)\.png\)", prose))
        if figures and not shown & figures:
            yield f"{path}: shows none of {', '.join(sorted(figures))}"


NOT_PORTABLE = ("torch.linalg.lstsq", "torch.linalg.solve_triangular")  # other bytes in another run
RANDOM = re.compile(
    r"torch\.(rand|randn|randint|randperm|normal|bernoulli|multinomial|(rand|randn|randint)_like)"
    r"|torch\.nn\.(Linear|Embedding|Conv2d|MultiheadAttention|Transformer\w+)"
    r"|np\.random\.(rand|randn|randint|permutation|normal|choice|shuffle)"
)


def unrepeatable(root: Path) -> Iterator[str]:
    "Nothing is called whose bytes change from run to run, and experiments draw with a seed."
    for path in notebooks(root):
        sources = cells(root, path)
        seeded = any("torch.manual_seed(" in source for _, source in sources)
        for number, source in sources:
            for node in (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)):
                name = ast.unparse(node.func)
                if name in NOT_PORTABLE:
                    yield f"{path} [{number}]: {name}"
                drawn = RANDOM.fullmatch(name) and all(k.arg != "generator" for k in node.keywords)
                if path.parts[1] == "experiments" and drawn and not seeded:
                    yield f"{path} [{number}]: {name} without a generator or torch.manual_seed"


STYLE = (long_cells, long_modules, deep_imports, experiment_code, hidden_figures, unrepeatable)
ROOMS = (strangers, shadowed_modules)

if __name__ == "__main__":
    found = [line for rule in STYLE + ROOMS for line in rule(Path.cwd())]
    print("\n".join(line for line in found if all(word in line.partition(": ")[0] for word in sys.argv[1:])))
