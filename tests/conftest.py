"What all tests share: threads, the data, and a reason for each skipped GPU test."

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")


def pytest_collection_modifyitems(items):
    "Tests marked `gpu` are skipped, with the reason, where there is no CUDA device."
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def tuples():
    "The embedded emoji."
    from brace_nb.foundations import load_emoji

    return load_emoji()
