"What all tests share: threads, the data, and a reason for each skipped GPU test."

import gc
import os
import signal

import pytest

from brace_nb.core import use_one_instruction_set

use_one_instruction_set()
os.environ["NUMBA_NUM_THREADS"] = "2"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes import the same modules
os.environ.pop("RETIME", None)  # what it does is tested; `RETIME=1 make test` asks only how long this takes
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # by a shell, of what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
# To search a million imported objects for garbage took a seventh of the time.
gc.set_threshold(100_000, 50, 100)

# The files that take longest: they come first, so that at the end no worker is left alone with one of them.
FIRST = (
    "test_portable test_book test_engine test_paper test_project test_dependencies test_companion"
).split()


def pytest_collection_modifyitems(items):
    "The longest files first; tests marked `gpu` are skipped, with the reason, where there is no CUDA device."
    import torch

    gc.freeze()

    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else len(FIRST))
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def tuples():
    "The embedded emoji."
    from brace_nb.foundations import load_emoji

    return load_emoji()


@pytest.fixture(scope="module")
def browser():
    "A browser; tests skip, with the cure, where there is none."
    from browser import started

    with started() as found:
        yield found


@pytest.fixture
def opened(browser, site):
    "Open a page of the site; at the end nothing may have gone wrong or left the folder."
    from browser import Watched

    watched = []

    def go(name, query="", **options):
        watched.append(Watched(browser, **options))
        return watched[-1].open(site / name, query)

    yield go
    for page in watched:
        page.check()
        page.page.close()


@pytest.fixture(scope="module")
def text_tower():
    "A small text tower, its tokenizer, the ids of its words."
    from made_tower import text_tower

    return text_tower()
