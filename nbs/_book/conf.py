"""Sphinx settings of the site; `nbs/_book/assemble.py` writes the pages, `make book` runs both."""

import inspect
import sys
from functools import cache
from pathlib import Path

import sphinx
from sphinx.search.en import SearchEnglish

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from docs_of import add_parameters  # noqa: E402

project, author = "brace_nb", "the authors of brace_nb"
copyright = "2026, the authors of brace_nb. Apache-2.0"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.linkcode",
]
html_theme, html_title = "furo", "brace_nb"
html_static_path = ["_static"]
html_css_files, html_js_files = ["book.css"], ["ledger.js", "search_lines.js"]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(HERE / "_static/scorer.js")
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
    "footer_icons": [],
    "sidebar_hide_name": False,
}
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # summaries are fetched, which a page opened as a file may not
mathjax_path = "tex-svg.js"
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_block"]
myst_heading_anchors = 4
suppress_warnings = [
    "myst.header",  # lessons begin sections where the reader needs them
    "mystnb.unknown_mime_type",
    "misc.highlighting_failure",
    "ref.python",  # fields of several named tuples have one name
]
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
exclude_patterns = ["_static", "html"]


def linkcode_resolve(domain: str, info: dict) -> str | None:
    "The lesson that a public name is written in."
    module = sys.modules.get(info["module"])
    thing = getattr(module, info["fullname"].split(".")[0], None)
    home = inspect.getmodule(thing)
    source = Path(getattr(home, "__file__", "") or "x").read_text() if hasattr(home, "__file__") else ""
    if "File to edit: " not in source:
        return None
    notebook = source.split("File to edit: ")[1].split()[0].rstrip(".")
    return "../" + notebook.lstrip("./").replace(".ipynb", ".html")


def close_other_parts(app, pagename, templatename, context, doctree) -> None:
    "The sidebar opens the part that the reader is in; a page then holds tens of links instead of hundreds."
    full = context.get("toctree")

    def toctree(**options):
        return full(**(options | dict(collapse=True)))

    if full:
        context["toctree"] = toctree


class StemsOnce(SearchEnglish):
    "The same few thousand words return on every page."

    stem = cache(SearchEnglish.stem)


def setup(app: sphinx.application.Sphinx) -> None:
    "Arguments that are documented beside themselves become a list of parameters."
    app.add_search_language(StemsOnce)
    app.connect("autodoc-process-docstring", add_parameters, priority=100)
    app.connect("html-page-context", close_other_parts, priority=100)
