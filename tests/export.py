"Write the package from the notebooks, and clean the notebooks: what `make export` does."

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path


def tool(command, folder):
    "Run a command of the environment in a folder."
    command = str(Path(sys.executable).with_name(command))
    subprocess.run([command], cwd=folder, check=True, capture_output=True)


def wrapped(source):
    "nbdev fills the lines of `__all__` up to 130 columns; here none has more than 110."
    found = re.search(r"^__all__ = (\[.*?\])$", source, re.M | re.S)
    if not found or max(map(len, found[0].split("\n"))) <= 110:
        return source
    names = ", ".join(map(repr, ast.literal_eval(found[1])))
    lines = textwrap.fill(names, 109, initial_indent="    ", subsequent_indent="    ")
    return source.replace(found[0], f"__all__ = [\n{lines},\n]")


def export(folder):
    "Module by module from nothing: nbdev adds to a file that is there."
    for path in (folder / "brace_nb").rglob("*.py"):
        if path.name != "__init__.py":
            path.unlink()
    tool("nbdev_export", folder)
    for path in (folder / "brace_nb").rglob("*.py"):
        if path.name != "_modidx.py":
            path.write_text(wrapped(path.read_text(encoding="utf-8")), encoding="utf-8")
    tool("nbdev_clean", folder)


if __name__ == "__main__":
    export(Path(__file__).parents[1])
