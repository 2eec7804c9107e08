"""The site: every lesson, experiment, figure and row has a page, and it builds without a warning."""

import json
import re
import subprocess
import sys

import pytest

from brace_nb.companion import load_claims, read_facts, root

for package in ("sphinx", "furo", "myst_nb", "sphinx_design"):
    pytest.importorskip(package, reason="the site's packages are not installed; `make book` does it")

ROOT = root()
SOURCE = ROOT / "data/derived/book/src"


@pytest.fixture(scope="module")
def pages():
    subprocess.run([sys.executable, ROOT / "nbs/_book/assemble.py"], check=True, cwd=ROOT)
    return {p.relative_to(SOURCE).as_posix(): p.read_text(encoding="utf-8") for p in SOURCE.rglob("*.md")}


def test_every_lesson_and_experiment_has_a_page(pages):
    folders = [*ROOT.glob("nbs/[0-9]_*/[0-9]*.ipynb"), *ROOT.glob("nbs/experiments/*/*.ipynb")]
    for path in folders:
        page = json.loads((SOURCE / path.relative_to(ROOT)).read_text(encoding="utf-8"))
        text = "".join("".join(c["source"]) for c in page["cells"])
        assert not re.search(r"^#\|", text, re.M), path
        assert page["cells"][-1]["source"].startswith("---"), path


def test_every_figure_is_in_the_gallery_and_every_row_in_the_ledger(pages):
    for part, facts in read_facts(ROOT / "figures").items():
        for figure in facts["figures"]:
            assert f"/figures/{figure}.png" in pages[f"gallery/{part}.md"]
    for id, row in load_claims().items():
        assert f'<tr id="{id}"' in pages[f"ledger/{row['source']}.md"]


def test_a_page_says_what_a_function_takes(pages):
    assert ".. autofunction:: brace_nb.codes.binarize" in pages["api/codes.md"]
    sys.path.insert(0, str(ROOT / "nbs/_book"))
    from brace_nb.codes import binarize
    from docs_of import add_parameters

    lines = ["First line with |bars| and `code`."]
    add_parameters(None, "function", "binarize", binarize, None, lines)
    assert lines[0] == r"First line with \|bars\| and `code`."
    assert any(line.strip().startswith("v: ") for line in lines) and "Returns:" in lines


def test_the_site_builds_without_a_warning(pages, tmp_path):
    build = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(SOURCE), str(tmp_path / "html")]
    done = subprocess.run([sys.executable, *build], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    front = (tmp_path / "html/index.html").read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)"', front)
