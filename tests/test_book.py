"""The site: every lesson, experiment, figure, row and function is three clicks away; all is offline."""

import fcntl
import io
import json
import re
import subprocess
import sys
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from brace_nb.companion import read_facts, root

for package in ("sphinx", "furo", "myst_nb"):
    pytest.importorskip(package, reason="the site's packages are not installed; `make book` does it")

ROOT = root()
BOOK = ROOT / "data/derived/book"
LESSONS = [p for p in ROOT.glob("nbs/[0-9]_*/*.ipynb") if not p.name.startswith("zz_")]
EXPERIMENTS = sorted(ROOT.glob("nbs/experiments/*/*.ipynb"))
PARTS = [p.name.partition("_")[2] for p in sorted(ROOT.glob("nbs/[0-9]_*")) if "as_printed" not in p.name]


def ledger_rows():
    "The ledger as it was written last: id -> row."
    listed = json.loads((ROOT / "figures/claims.json").read_text(encoding="utf-8"))
    return {row["id"]: row for row in listed}


def make(script):
    "Run a script of the site; one process at a time, because tests run in several."
    BOOK.mkdir(parents=True, exist_ok=True)
    with (BOOK / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        call = [sys.executable, ROOT / f"nbs/_book/{script}.py"]
        done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def pages():
    "The pages before Sphinx, by path."
    make("assemble")
    return {p.relative_to(BOOK / "src").as_posix(): p.read_text(encoding="utf-8") for p in BOOK.rglob("*.md")}


def written():
    "When each page was written."
    files = (p for p in (BOOK / "src").rglob("*") if p.is_file() and p.suffix != ".pyc")
    return {p: p.stat().st_mtime_ns for p in files}


@pytest.fixture(scope="module")
def built(pages):
    "Times of the pages before and after `make book`, which writes them once more."
    before = written()
    make("build")
    return before, written()


@pytest.fixture(scope="module")
def site(built):
    "The built site; only what changed was built again."
    return BOOK / "html"


# --- pages


class Pictures(HTMLParser):
    "Alternative texts of the pictures of a page: None where there is none, words of the link that holds it."

    def __init__(self, text):
        super().__init__()
        self.found, self.link = [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "a":
            self.link = "thumb" in (attributes.get("class") or "")  # a picture beside its words
        if tag == "img":
            self.found.append(attributes.get("alt") or ("beside its words" if self.link else None))

    def handle_endtag(self, tag):
        self.link &= tag != "a"


def test_pictures_without_words_are_found():
    assert Pictures('<img src="x"><img src="x" alt="">').found == [None, None]
    assert Pictures('<a class="thumb"><img alt=""></a><img alt="">').found == ["beside its words", None]


def test_every_picture_of_the_site_has_an_alternative_text(site):
    found = {
        p.relative_to(site).as_posix(): Pictures(p.read_text(encoding="utf-8")).found
        for p in site.rglob("*.html")
    }
    assert sum(map(len, found.values())) > 500
    assert {name: words.count(None) for name, words in found.items() if None in words} == {}


def notebook(path):
    return json.loads((BOOK / "src" / path.relative_to(ROOT)).read_text(encoding="utf-8"))["cells"]


def test_every_lesson_and_experiment_has_a_page_that_says_how_to_run_it(pages):
    for path in (*LESSONS, *EXPERIMENTS):
        cells = notebook(path)
        text = "\n".join("".join(c["source"]) for c in cells)
        assert not re.search(r"^#\|", text, re.M), path
        assert cells[-1]["source"].startswith("---") and "/cite.md" in cells[-1]["source"], path
        assert f"<code>{path.relative_to(ROOT)}</code>" in cells[1]["source"], path


def test_an_experiment_shows_figures_parameters_provenance_and_verdicts(pages):
    rows = ledger_rows()
    for part, facts in read_facts(ROOT / "figures").items():
        for name, about in facts["experiments"].items():
            text = "\n".join("".join(c["source"]) for c in notebook(ROOT / f"nbs/experiments/{name}.ipynb"))
            for parameter in about["parameters"]:
                assert f"| `{parameter}` |" in text, name
            assert f"Profile `{about['profile']}`" in text
            for id in (id for id, row in rows.items() if row["experiment"] == name):
                assert f'ledger/{rows[id]["source"]}.html#{id}"' in text, id
        for figure in facts["figures"]:
            assert (BOOK / f"src/_static/figures/{figure}.csv").exists(), part


def test_every_figure_is_in_the_gallery_with_its_verdicts(pages):
    page, rows = pages["gallery/index.md"], ledger_rows()
    for part, facts in read_facts(ROOT / "figures").items():
        for figure, about in facts["figures"].items():
            card = re.search(
                rf'<figure class="card" id="{figure.replace("/", "-")}".*?</figure>', page, re.S
            )[0]
            assert f'data-part="{part}"' in card and f"small/{figure}.webp" in card
            verdicts = re.search(r'data-verdicts="([^"]*)"', card)[1].split()
            assert bool(verdicts) == any(id in rows for id in about["claims"])


def test_every_row_has_one_place_with_all_that_belongs_to_it(pages):
    rows = ledger_rows()
    page = "\n".join(
        pages[f"ledger/{source}.md"] for source in dict.fromkeys(r["source"] for r in rows.values())
    )
    found = re.findall(r'<tr id="([^"]+)".*?</tr>', page, re.S)
    assert sorted(found) == sorted(rows)
    for line in re.findall(r"<tr id=.*?</tr>", page, re.S):
        row = rows[re.search(r'id="([^"]+)"', line)[1]]
        assert f'data-kind="{row["kind"]}"' in line
        if row["experiment"]:
            assert f'href="../nbs/experiments/{row["experiment"]}.html"' in line
    shares = pages["ledger/index.md"]
    counted = [int(n) for n in re.findall(r"</a></td><td>(\d+)</td>", shares)]
    assert sum(counted) == len(rows)


def test_the_pages_of_functions_hold_every_public_name(pages):
    import importlib

    for part in PARTS:
        page, module = pages[f"api/{part}.md"], importlib.import_module(f"brace_nb.{part}")
        for name in module.__all__:
            documented = f"brace_nb.{part}.{name}\n" in page or f"## {name}\n" in page
            assert documented, f"{part}.{name}"


def test_every_part_has_a_picture_with_its_finding_and_where_it_is_from(pages):
    parts = [path for path in pages if path.startswith("parts/")]
    assert len(parts) == len(list(ROOT.glob("nbs/[0-9]_*"))) + 1  # one for the sources' own data
    for path in parts:
        shown = re.search(r":::{figure} /(\S+)\n:alt: (.+)\n:width: 100%\n\n(.+)\n:::", pages[path])
        picture, alt, caption = shown.groups()
        assert (BOOK / "src" / picture).exists() and len(alt) > 30, path
        assert len(caption) > 100 and re.search(r"From: \[.+\]\(/nbs/.+\.ipynb\)\.$", caption), path


def test_a_page_says_what_a_function_takes():
    sys.path.insert(0, str(ROOT / "nbs/_book"))
    from brace_nb.codes import binarize
    from docs_of import add_parameters

    lines = ["First line with |bars| and `code`."]
    add_parameters(None, "function", "binarize", binarize, None, lines)
    assert lines[0] == r"First line with \|bars\| and `code`."
    assert any(line.strip().startswith("v: ") for line in lines) and "Returns:" in lines


FORMULAS = {
    "Sum of the K largest over sqrt(K), O(n^2).": r"Sum of the $K$ largest over $\sqrt{K}$, $O(n^{2})$.",
    "1 - (1/F) sum_f sqrt(SST_f)": r"$1-(1/F)\,\sum _{f}\,\sqrt{\mathrm{SST}_{f}}$",
    "u_i + v_j <= c_ij, a 10 x 10 matrix": r"$u_{i}+v_{j}\le c_{ij}$, a $10\times 10$ matrix",
    "mean |x_i - y_i|^2 over i < j": r"mean $\vert x_{i}-y_{i}\vert ^{2}$ over $i\lt j$",
    "`S(K)` stays, and $S(K)$, F1, I/O, my_name": "`S(K)` stays, and $S(K)$, F1, I/O, my_name",
    "A t-test, T = 0.1 0.778 [0.758, 0.799] (see S-BRaCE)": (
        "A t-test, $T=0.1$ 0.778 [0.758, 0.799] (see S-BRaCE)"
    ),
}


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_in_plain_text_is_typeset(text):
    sys.path.insert(0, str(ROOT / "nbs/_book"))
    from mathematics import typeset

    assert typeset(text) == FORMULAS[text]
    assert typeset(FORMULAS[text]) == FORMULAS[text]  # once is enough


def test_formulas_of_docstrings_stand_where_sphinx_reads_them():
    sys.path.insert(0, str(ROOT / "nbs/_book"))
    from docs_of import _plain

    assert _plain("|x|^2 or P(x|y)+ of |bars|") == (
        r":math:`\vert x\vert ^{2}` or :math:`P(x\mid y)`\ + of \|bars\|"
    )


class Tags(HTMLParser):
    "The elements and their attributes of a piece of a page."

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, tuple(name for name, _ in attributes)))


def test_no_id_and_no_name_ends_a_link_or_begins_a_tag(monkeypatch):
    "Ids of rows and names of figures are text: the same elements and attributes as for a harmless one."
    sys.path.insert(0, str(ROOT / "nbs/_book"))
    import gallery_page
    import ledger_page
    import notebook_pages
    import part_pages

    monkeypatch.setattr(gallery_page, "size_of", lambda figure: (640, 480))
    harmless, hostile = "a.b", "a.b\"><script>alert`1`</script><i x='"
    monkeypatch.setattr(notebook_pages, "width_of", lambda figure: "50%")
    rows, tags = ledger_rows(), {}
    for id in (harmless, hostile):
        row = next(iter(rows.values())) | dict(id=id, experiment=f"codes/{id}", kind=id)
        figure = f"codes/{id}"
        about = dict(experiment="codes/tradeoff", alt=id)
        facts = dict(figures={figure: about})
        below = notebook_pages.with_captions(f"![c](../figures/{figure}.png)", {figure: [row]}, "")
        pieces = [
            ledger_page.line(row, [figure]),
            gallery_page.card(figure, about, [row], "codes"),
            *notebook_pages.answers([row]),
            below.partition("{raw} html")[2],
            part_pages.thumbnail(ROOT / "nbs/experiments/codes/tradeoff.ipynb", facts),
        ]
        tags[id] = Tags("\n".join(pieces)).found
    assert tags[harmless] == tags[hostile] and len(tags[harmless]) > 20


def test_the_finding_of_a_report_is_the_caption_and_its_alt_text_stays(monkeypatch):
    sys.path.insert(0, str(ROOT / "nbs/_book"))
    import notebook_pages

    monkeypatch.setattr(notebook_pages, "width_of", lambda figure: "50%")
    picture, command = (
        "![Dots fall by 3 [2, 4].](../../figures/a/b.png)",
        "[`make figures ONLY=a/b`](b.ipynb)",
    )
    page = notebook_pages.with_captions(f"{picture}\n\n*It falls.* {command}", {}, "")
    figure, below = page.split(":::\n", 1)
    assert ":alt: Dots fall by 3 [2, 4]." in figure and figure.endswith("\n\nIt falls.\n")
    assert below.endswith(f"```\n\n{command}") and "It falls" not in below
    assert notebook_pages.with_captions(picture, {}, "").count("Dots fall") == 2  # a lesson's caption


def test_a_picture_without_paper_keeps_all_but_the_ground():
    sys.path.insert(0, str(ROOT / "nbs/_book"))
    import matplotlib.pyplot as plt
    from gallery_page import without_paper

    from brace_nb.companion import use_style

    use_style()
    fig, ax = plt.subplots()
    ax.plot([0, 1], [0, 1], "o", color="black", markerfacecolor="white")
    ax.text(0.5, 0.2, "white", color="white")
    plt.close(fig)
    drawn = io.StringIO()
    fig.savefig(drawn, format="svg")
    svg = drawn.getvalue()
    clear = without_paper(svg)
    changed = [(a, b) for a, b in zip(svg.splitlines(), clear.splitlines(), strict=True) if a != b]
    assert changed == 2 * [('" style="fill: #ffffff"/>', '" style="fill: none"/>')]  # figure and axes
    assert "fill: #ffffff" in clear  # the marker and the text


def test_a_second_assembly_changes_nothing(built):
    before, after = built
    assert before == after


def test_a_report_has_its_verdicts_and_every_page_its_notebook(pages):
    cells = notebook(ROOT / "nbs/reports/sbrace.ipynb")
    text = "\n".join("".join(c["source"]) for c in cells)
    assert text.count('<a class="verdict') >= 79 and "../../ledger/sbrace.html#sbrace.fig.retrieval" in text
    assert "SourceReport(" not in text
    both = re.findall(r'<a class="verdict (\S+)" [^>]*>(\w+) [^<]* (?:both worlds|on \w+)</a>', text)
    assert both and all(color == first for color, first in both)
    for path in (
        *LESSONS,
        *EXPERIMENTS,
        ROOT / "nbs/one_hour.ipynb",
        *(ROOT / "nbs/reports").glob("*.ipynb"),
    ):
        name = path.relative_to(ROOT / "nbs")
        assert (BOOK / "src/_static/notebooks" / name).read_bytes() == path.read_bytes(), name


def test_helpers_are_folded_and_what_a_lesson_teaches_is_not():
    sys.path.insert(0, str(ROOT / "nbs/_book"))
    from notebook_pages import is_plumbing

    assert is_plumbing("#| export\ndef _check(x):\n    return x") and not is_plumbing(
        "def score(x):\n    return x"
    )
    assert not is_plumbing("_check(3)") and not is_plumbing("%time x")


def test_a_registry_is_a_table(pages):
    assert re.search(r"^\| name \| title \| formula \|", pages["api/ndim.md"], re.M)
    assert "| `mean_norm` |" in pages["api/ndim.md"]


# --- the built site


class Links:
    "Targets of links, each once, and the places that links can point to."

    def __init__(self, path):
        text = path.read_text(encoding="utf-8")
        self.targets = {unescape(t) for t in re.findall(r'<a\s[^>]*?\bhref="([^"]+)"', text)}
        self.ids = {unescape(i) for i in re.findall(r'\s(?:id|name)="([^"]*)"', text)}


def links_of(path, known):
    if path not in known:
        known[path] = Links(path)
    return known[path]


@cache
def resolved(folder, name):
    "A file, and whether it exists."
    path = (folder / name).resolve()
    return path, path.exists()


def targets(path, known):
    "(File, does it exist, place in it) of every link of a page that stays in the site."
    for href in links_of(path, known).targets:
        if not re.match(r"[a-z]+:|//", href):
            name, place = urldefrag(href)
            name = unquote(name.partition("?")[0])
            yield *resolved(path.parent, name or path.name), unquote(place)


def test_the_front_page_of_the_repository_leads_into_the_site(site):
    targets = re.findall(
        r"\]\(data/derived/book/html/([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")
    )
    assert len(targets) >= 5 and all((site / target).exists() for target in targets)


def test_everything_is_three_clicks_away_and_no_link_is_dead(site):
    start, known = (site / "index.html").resolve(), {}
    seen, dead, level, places = {start}, [], [start], set()
    for _ in range(3):
        following = []
        for path in level:
            for target, exists, place in targets(path, known):
                if not exists:
                    dead.append(f"{path.relative_to(site)} -> {target}")
                elif place and target.suffix == ".html" and place not in links_of(target, known).ids:
                    dead.append(f"{path.relative_to(site)} -> {target.name}#{place}")
                places.add((target, place))
                if target.suffix == ".html" and exists and target not in seen:
                    seen.add(target)
                    following.append(target)
        level = following
    assert not dead, dead[:10]
    wanted = {site / p.relative_to(ROOT).with_suffix(".html") for p in (*LESSONS, *EXPERIMENTS)}
    assert not {p.resolve() for p in wanted} - seen
    for id, row in ledger_rows().items():
        page = (site / f"ledger/{row['source']}.html").resolve()
        assert page in seen and id in links_of(page, known).ids
    functions = {(site / f"api/{part}.html").resolve() for part in PARTS}
    assert functions <= seen
    for facts in read_facts(ROOT / "figures").values():
        for figure in facts["figures"]:
            assert ((site / f"_static/figures/{figure}.png").resolve(), "") in places


def test_a_function_has_its_arguments_and_leads_to_its_lesson(site):
    text = (site / "api/codes.html").read_text(encoding="utf-8")
    entry = re.search(r'id="brace_nb\.codes\.binarize">.*?</dl>', text, re.S)[0]
    assert "nbs/2_codes/00_projection.html" in entry and "Parameters" in entry and "Returns" in entry


SHOWN = (
    "index.html",
    "gallery/index.html",
    "ledger/index.html",
    "ledger/rows.html",
    "ledger/thesis_6.html",
    "nbs/one_hour.html",
    "nbs/reports/sbrace.html",
    "parts/codes.html",
    "api/codes.html",
    "nbs/2_codes/00_projection.html",
    "nbs/experiments/codes/counterexample.html",
    *(f"play/{path.stem}.html" for path in sorted((ROOT / "nbs/_book/play").glob("*.md"))),
    "cite.html",
)


@pytest.mark.parametrize("scheme, width", [("light", 1400), ("dark", 390)])
@pytest.mark.parametrize("name", SHOWN)
def test_a_page_fits_and_asks_nothing_of_the_network(opened, name, scheme, width):
    page = opened(name, color_scheme=scheme, width=width)
    page.wait_for_load_state("load")
    assert page.evaluate("document.documentElement.scrollWidth") <= width + 1
    assert page.locator("h1").first.is_visible()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(int(x) for x in re.findall(r"\d+", background)[:3]) > 380
    assert bright == (scheme == "light")


def test_mathematics_is_drawn_without_the_network(opened, site):
    pages = sorted(site.glob("nbs/*/*.html"))
    with_math = next(p for p in pages if 'class="math notranslate' in p.read_text(encoding="utf-8"))
    page = opened(with_math.relative_to(site).as_posix())
    page.wait_for_selector("mjx-container svg", state="attached")


def test_a_printed_report_shows_what_is_folded(opened):
    page = opened("nbs/reports/brace.html")
    seen = "t => t.checkVisibility({ contentVisibilityAuto: true })"
    table = page.locator("details table").first
    assert not table.evaluate(seen)
    page.emulate_media(media="print")
    assert table.evaluate(seen)


def test_all_rows_are_filtered_and_the_filter_stays_in_the_address(opened):
    rows = ledger_rows()
    page = opened("ledger/rows.html", "?verdict=refuted")
    shown, count = page.locator(".ledger tbody tr:visible"), page.locator("#ledger-search output")
    refuted = [r for r in rows.values() if r["verdict"] == "refuted"]
    assert count.inner_text() == f"{len(refuted)} of {len(rows)} rows" and shown.count() == min(
        40, len(refuted)
    )
    page.get_by_label("source").select_option("Thesis, chapter 5")
    page.get_by_label("kind").select_option("claim")
    mine = sum(r["source"] == "thesis_5" and r["kind"] == "claim" for r in refuted)
    assert count.inner_text() == f"{mine} of {len(rows)} rows"
    page.get_by_label("words").fill("the front face must be considered")
    assert shown.count() == 1 and "5.7" in shown.first.inner_text()
    page.get_by_role("button", name="reset").click()
    assert count.inner_text() == f"{len(rows)} of {len(rows)} rows" and "?" not in page.url
    page.get_by_role("button", name="show all").click()
    assert shown.count() == len(rows)


def test_an_old_address_of_a_row_leads_to_its_place(opened):
    page = opened("ledger/rows.html", "#thesis.s5_7_5.derivation")
    page.wait_for_url(re.compile(r"thesis_5\.html#thesis\.s5_7_5\.derivation"))
    assert page.locator("[id='thesis.s5_7_5.derivation']").is_visible()


def test_the_rows_of_a_source_are_filtered(opened):
    mine = [r for r in ledger_rows().values() if r["source"] == "sbrace"]
    page = opened("ledger/sbrace.html")
    shown = page.locator(".ledger tbody tr:visible")
    assert shown.count() == len(mine)
    verdict = mine[0]["verdict"]
    page.get_by_label("verdict").select_option(verdict)
    assert 0 < shown.count() == sum(r["verdict"] == verdict for r in mine) < len(mine)


def test_the_ledger_and_the_gallery_stand_without_scripts(opened):
    page = opened("ledger/rows.html", java_script_enabled=False)
    assert page.get_by_role("link", name="S-BRaCE, the post").count() >= 1
    page = opened("ledger/thesis_5.html", java_script_enabled=False)
    mine = sum(r["source"] == "thesis_5" for r in ledger_rows().values())
    assert page.locator(".ledger tbody tr:visible").count() == mine
    page = opened("gallery/index.html", java_script_enabled=False)
    total = sum(len(facts["figures"]) for facts in read_facts(ROOT / "figures").values())
    assert page.locator(".card:visible").count() == total


def test_the_gallery_is_filtered(opened):
    page = opened("gallery/index.html")
    page.get_by_label("part", exact=True).select_option("ndim")
    facts = read_facts(ROOT / "figures")
    assert page.locator(".card:visible").count() == len(facts["ndim"]["figures"])
    page.get_by_label("words").fill("no such words")
    assert page.locator(".card:visible").count() == 0


def test_a_search_finds_a_function(opened):
    page = opened("search.html", "?q=binarize")
    page.wait_for_selector("#search-results li a")
    assert page.locator("#search-results li a[href*='api/codes.html']").count() >= 1
    page.wait_for_selector("#search-results .search-line")
    page = opened("search.html", "?q=cka")
    page.wait_for_selector("#search-results .search-line")
    first = page.locator("#search-results li").first.inner_text().lower()
    assert re.search(r"\bcka\b", first), first


def test_a_reader_gets_to_a_page_by_keyboard(opened):
    page = opened("index.html")
    link = page.get_by_role("link", name=re.compile("Nearest corner")).first
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#play-corner .bits")
    assert Path(page.url).name == "corner.html"


def test_the_front_page_names_statements_that_are_refuted():
    sys.path.insert(0, str(ROOT / "nbs/_book"))
    from assemble import REFUTED

    rows = ledger_rows()
    assert {rows[id]["verdict"] for id in REFUTED} == {"refuted"}


def test_the_workflow_runs_what_the_makefile_has():
    import yaml

    jobs = yaml.safe_load((ROOT / ".github/workflows/site.yml").read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands == ["bash .ci/run", "make alone", "make book"]
    packages = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8"))["jobs"][
        "packages"
    ]
    assert packages["steps"][-2]["run"] == "make alone"  # what is published was tried
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert {"alone", "book", "test", "lab"} <= set(targets) and (ROOT / ".ci/run").exists()
    uploads = [step["with"]["path"] for step in jobs["site"]["steps"] if "upload" in step.get("uses", "")]
    assert [ROOT / path for path in uploads] == [ROOT / "dist", BOOK / "html", BOOK / "html"]
