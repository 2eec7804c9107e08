"""In a server: eight threads from the first call on, and four forks, give the answers of one thread."""

from __future__ import annotations

import copy
import hashlib
import importlib
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import PurePath

import numpy as np
import pytest
import torch

THREADS, FORKS, ROUNDS, SECONDS = 8, 4, 2, 60

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")


def calls() -> dict:
    "What a server would call; large enough for more than one thread of the library."
    from brace_nb.assignment import assign, assign_many, match_batch
    from brace_nb.codes import CodeIndex, binarize, binarize_at_most, nearest, pack, ternarize
    from brace_nb.evaluation import cka, mean_average_precision, ranks
    from brace_nb.ndim import cube_loss

    rng = np.random.default_rng(31)
    rows, costs = rng.exponential(size=(20_000, 64)), rng.random((300, 20, 30))
    ragged = [rng.random((n, m)) for n, m in rng.integers(1, 30, (60, 2))]
    forbidden = np.where(rng.random(costs.shape) < 0.05, np.inf, costs)
    scores, right = rng.random((400, 500)).round(2), rng.random((400, 500)) < 0.02
    right[:, 0] = True
    codes = pack(rng.random((3000, 256)) < 0.1)
    index = CodeIndex(256)
    index.add(np.arange(len(codes)), codes)
    layers, others = rng.normal(size=(2, 5, 100, 40))
    boxes = torch.from_numpy(rng.random((16, 50, 56))), [0, 1, 5, 8] * 4
    views = torch.from_numpy(rng.normal(size=(3, 60, 32)))

    def loss(measure, **options):
        xs = [x.clone().requires_grad_() for x in views]
        value = cube_loss(xs, measure, scale=5.0, **options)
        value.backward()
        return value.detach(), *(x.grad for x in xs)

    return dict(
        binarize=lambda: binarize(rows),
        ternarize=lambda: ternarize(rows - 1),
        binarize_at_most=lambda: binarize_at_most(rows[:2000], 5),
        nearest=lambda: nearest(codes[:200], codes, 10),
        nearest_to_one=lambda: nearest(codes[:1], codes, 10),
        search=lambda: index.search(codes[:50], 5),
        assign=lambda: assign(costs),
        assign_approximately=lambda: assign(costs, method="greedy_delta"),
        assign_forbidden=lambda: assign(forbidden),
        assign_many=lambda: assign_many(ragged),
        match_batch=lambda: match_batch(*boxes),
        cka=lambda: [cka(a, b) for a, b in zip(layers, others)],
        ranks=lambda: ranks(scores, right),
        mean_average_precision=lambda: mean_average_precision(scores, right),
        held_product=lambda: loss("einsum"),
        one_walk=lambda: loss("pairwise"),
        streamed=lambda: loss("pairwise", streaming=True, label_smoothing=0.1),
    )


def examples() -> dict:
    "Every public function, called as in its example of the fuzz."
    from fuzz_examples import EXAMPLES

    def call(part, name):
        function = getattr(importlib.import_module(f"brace_nb.{part}"), name)
        return function(**copy.deepcopy(EXAMPLES[part][name]))

    return {f"{part}.{name}": partial(call, part, name) for part in EXAMPLES for name in EXAMPLES[part]}


def digest(result) -> str:
    "Of all bytes of a result."
    return hashlib.sha256(pickle.dumps(arrays(result))).hexdigest()


def arrays(result):
    "Tuples, tables, tensors, arrays and numbers as lists and bytes; of others type and fields."
    if isinstance(result, torch.Tensor):
        return result.detach().numpy().tobytes()
    if isinstance(result, (np.ndarray, np.generic, int, float)):
        return np.asarray(result).tobytes()
    if isinstance(result, str | bytes | None | PurePath):
        return str(result)
    if isinstance(result, torch.nn.Module):
        return arrays(result.state_dict())
    if isinstance(result, dict):
        return arrays(list(result.items()))
    if isinstance(result, Iterable):
        return [arrays(r) for r in result]
    return type(result).__name__, arrays({k: v for k, v in getattr(result, "__dict__", {}).items()})


def answers(functions: dict, first: int = 0) -> dict:
    "All calls, from another first one on."
    names = list(functions)
    return {name: digest(functions[name]()) for name in names[first:] + names[:first]}


def in_a_fork(functions: dict, want: dict, first: int) -> int:
    "Process that ends with the number of answers that are wrong."
    child = os.fork()
    if child:
        return child
    try:
        found = answers(functions, first)
        os._exit(sum(found[name] != want[name] for name in want))
    finally:
        os._exit(99)


def exits(children: list) -> list:
    "Exit codes; of one that hangs -9."
    until, codes = time.monotonic() + SECONDS, []
    for child in children:
        done, status = 0, 0
        while not done:
            done, status = os.waitpid(child, os.WNOHANG)
            if not done and time.monotonic() > until:
                os.kill(child, 9)
            time.sleep(0.02)
        codes.append(os.waitstatus_to_exitcode(status))
    return codes


def serve(functions):
    "The threads come first: they meet every kernel, pool and lazy import for the first time together."
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda i: answers(functions, 2 * i), range(ROUNDS * THREADS)))
    want = answers(functions)
    wrong = sorted({name for answer in found for name in want if answer[name] != want[name]})
    assert not wrong, f"threads answer differently: {wrong}"
    children = [in_a_fork(functions, want, 4 * i) for i in range(FORKS)]
    codes = exits(children)
    assert codes == [0] * FORKS, f"forks: wrong answers (99: an error, -9: it hangs): {codes}"
    assert answers(functions) == want


@pytest.mark.parametrize("which", ["calls", "examples"])
def test_eight_threads_and_four_forks_answer_as_one(which):
    "In a process of its own, which no other test has warmed."
    program = [sys.executable, "-W", "ignore", __file__, which]
    environment = os.environ | dict(OMP_NUM_THREADS="2")
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


if __name__ == "__main__":
    serve(globals()[sys.argv[1]]())
