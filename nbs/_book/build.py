"""Assemble the pages and build the site; warnings are errors. What did not change is not built again."""

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import assemble  # noqa: E402
from sources import SOURCE  # noqa: E402


def main() -> int:
    "Write the pages, then let Sphinx make a site of them."
    assemble.main()
    html = SOURCE.with_name("html")
    if not (html / "searchindex.js").exists():  # the first time, or a build was interrupted
        print("building all pages, which takes some minutes")
        shutil.rmtree(html, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    code = subprocess.run([*command, str(SOURCE), str(html)]).returncode
    if code:
        (html / "searchindex.js").unlink(missing_ok=True)  # warnings are told again
    else:
        print(f"open {html.relative_to(assemble.ROOT)}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
