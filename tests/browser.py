"A real browser for the pages to play with and for the site; tests skip, with the cure, where there is none."

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 120_000  # Milliseconds: a busy machine is slow
CURE = "no browser: `apt-get install chromium`, or set BRACE_NB_BROWSER to a Chromium or Chrome"


def executable() -> str | None:
    "The browser of this machine."
    told = os.environ.get("BRACE_NB_BROWSER")
    return told or next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def started():
    "A browser, headless; it ends with the block."
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; `make test` does it"
    )
    path = executable()
    if path is None:
        pytest.skip(CURE)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Watched:
    "A page that remembers what went wrong and what left the folder."

    def __init__(self, browser, width=1200, height=900, **options):
        self.page = browser.new_page(viewport=dict(width=width, height=height), **options)
        self.page.set_default_timeout(PATIENCE)
        self.errors, self.outside = [], []
        self.page.on("console", self._say)
        self.page.on("pageerror", self._fail)
        self.page.on("request", self._ask)
        self.page.on("requestfailed", self._miss)

    def _say(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _fail(self, error):
        self.errors.append(str(error))

    def _ask(self, request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.outside.append(request.url)

    def _miss(self, request):
        self.errors.append(f"not found: {request.url}")

    def open(self, path: Path, query: str = ""):
        "Go to a file."
        self.page.goto(path.resolve().as_uri() + query)
        return self.page

    def check(self):
        "Nothing went wrong and nothing was asked of the network."
        assert not self.errors, self.errors[:5]
        assert not self.outside, self.outside[:5]


def call(page, function: str, inputs):
    "A function of a page on every one of many inputs, in one round trip; NaN and infinity as words."
    source = "([f, xs]) => JSON.stringify(xs.map(new Function('return ' + f)()), (k, v) => "
    source += "typeof v === 'number' && !Number.isFinite(v) ? String(v) : v)"
    return json.loads(page.evaluate(source, [function, inputs]))
