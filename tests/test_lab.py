"""`make lab` opens at the index, with Jupyter's loopback and token, and links lead to lessons."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from browser import PATIENCE, started

from brace_nb.companion import root

ROOT = root()


def lab_command():
    "What `make lab` runs, without opening a browser, at any free port."
    lines = subprocess.run(
        ["make", "-n", "lab", "-o", ".venv/.installed"], cwd=ROOT, capture_output=True, text=True
    )
    line = next(line for line in lines.stdout.splitlines() if "jupyter lab" in line)
    _, *arguments = shlex.split(line)
    jupyter = str(Path(sys.executable).with_name("jupyter"))
    return [jupyter, *arguments, "--no-browser", "--ServerApp.port=0"]


def end(server):
    "End a server and its kernels, which would take their time."
    with contextlib.suppress(psutil.NoSuchProcess):
        for kernel in psutil.Process(server.pid).children(recursive=True):
            kernel.kill()
    server.kill()
    server.wait()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "The address that Jupyter prints, with its token."
    log = tmp_path_factory.mktemp("lab") / "log.txt"
    with log.open("w") as out:
        server = subprocess.Popen(lab_command(), cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        try:
            for _ in range(1800):
                found = re.search(r"http://(127\.0\.0\.1|localhost):\d+/lab\S*token=\w+", log.read_text())
                if found:
                    break
                server.wait(0.1) if server.poll() is not None else subprocess.run(["sleep", "0.1"])
            assert found, log.read_text()[-2000:]
            yield found[0]
        finally:
            end(server)


def tabs(page):
    return page.locator("#jp-main-dock-panel .lm-TabBar-tabLabel")


def test_the_lab_opens_at_the_index_with_its_picture(lab):
    assert "/lab/tree/nbs/index.ipynb" in lab
    with started() as browser:
        page = browser.new_page(viewport=dict(width=1400, height=1000))
        page.goto(lab + ("&" if "?" in lab else "?") + "reset", timeout=PATIENCE)  # what other tests opened
        page.locator(".jp-Notebook h1").first.wait_for(timeout=PATIENCE)
        assert tabs(page).all_inner_texts() == ["index.ipynb"]
        image = page.locator(".jp-Notebook img").first
        image.wait_for(timeout=PATIENCE)
        drawn = "document.querySelector('.jp-Notebook img').naturalWidth > 0"
        page.wait_for_function(drawn, timeout=PATIENCE)
        page.close()


def test_the_index_has_its_tables_before_anything_is_run():
    cells = json.loads((ROOT / "nbs/index.ipynb").read_text())["cells"]
    shown = [c for c in cells if "#| echo: false" in "".join(c["source"])]
    assert shown and all(c["outputs"] for c in shown)
    assert all(c["metadata"]["jupyter"]["source_hidden"] for c in shown)


def test_a_link_between_notebooks_leads_there(lab):
    address = lab.replace("nbs/index.ipynb", "nbs/experiments/foundations/encoder.ipynb")
    with started() as browser:
        page = browser.new_page(viewport=dict(width=1400, height=1000))
        page.goto(address, timeout=PATIENCE)
        page.locator(".jp-Notebook a", has_text="the curve").first.click(timeout=PATIENCE)
        tabs(page).filter(has_text="training.ipynb").first.wait_for(timeout=PATIENCE)
        page.close()
