"""Assemble the pages and build the site; warnings are errors. What did not change is not built again."""

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import assemble  # noqa: E402
import play_pages  # noqa: E402
from sources import SOURCE  # noqa: E402

# Sphinx, with fewer searches for garbage among all that it imported and read
SPHINX = (
    "import gc, sys; gc.set_threshold(100_000, 50, 100); from sphinx.cmd.build import main; sys.exit(main())"
)


def print_reports(html: Path) -> None:
    "The hour and each report as a PDF beside its page, where there is a Chromium."
    browser = next(filter(None, map(shutil.which, play_pages.BROWSERS)), None)
    pages = [html / "nbs/one_hour.html", *sorted((html / "nbs/reports").glob("*.html"))]
    old = [p for p in pages if p.exists() and not is_newer(p.with_suffix(".pdf"), p)]
    if old and browser is None:
        print("the reports were not printed: no Chromium here (apt-get install chromium)")
        return
    for page in old:
        target = page.with_suffix(".pdf")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
        options += ["--virtual-time-budget=20000", f"--print-to-pdf={target}", page.resolve().as_uri()]
        done = subprocess.run([browser, *options], capture_output=True, text=True)
        if done.returncode or not target.exists():
            print(f"{page.stem} was not printed: {done.stderr.strip().splitlines()[-1:]}")
    if old:
        print(f"printed: {len(old)} pages below {(html / 'nbs').relative_to(assemble.ROOT)}")


def is_newer(path: Path, than: Path) -> bool:
    "Is a file there and newer than another?"
    return path.exists() and path.stat().st_mtime >= than.stat().st_mtime


def main() -> int:
    "Write the pages, let Sphinx make a site of them, and print the reports."
    assemble.main()
    html = SOURCE.with_name("html")
    if not (html / "searchindex.js").exists():  # the first time, or a build was interrupted
        print("building all pages, which takes some minutes")
        shutil.rmtree(html, ignore_errors=True)
    command = [sys.executable, "-c", SPHINX, "-q", "-W", "--keep-going", "-b", "html"]
    code = subprocess.run([*command, str(SOURCE), str(html)]).returncode
    if code:
        (html / "searchindex.js").unlink(missing_ok=True)  # warnings are told again
    else:
        print_reports(html)
        print(f"open {html.relative_to(assemble.ROOT)}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
