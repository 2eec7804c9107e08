"""The fused kernels without a card: in NumPy everywhere, in Triton's interpreter and compiler where it is.

`made_triton` runs a kernel program by program; what it does not know (types, registers) Triton's own compiler
checks, which needs no card either.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import made_triton
import numpy as np
import pytest
import torch
from made_device import simulated_gpu

from brace_nb.assignment import fused_kernels, recurse, selections

parallel_best, parallel_delta = selections.parallel_best, selections.parallel_delta

FUSED = ["plain", "ties", "forbidden", "tiny", "huge"]


def scores_of(kind, shape, dtype):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    if kind == "forbidden":
        return torch.where(x < 0.4, -torch.inf, x)
    far = 126 if dtype == torch.float32 else 1022
    return dict(ties=(4 * x).floor(), tiny=x * 2.0 ** (-far - 4), huge=x * 2.0**far).get(kind, x)


def in_numpy(kernel, x, *values):
    "A fused kernel by the stand-in for Triton's language."
    found = np.zeros(x.shape[:2], np.int64)
    arrays = [x.numpy(), found, *(np.array([v], x.numpy().dtype) for v in values[:1])]
    double = (x.dtype == torch.float64,) if values else ()
    made_triton.run(
        kernel, len(x), arrays, *values[1:], *x.shape[1:], *fused_kernels.tile_of(x.shape), *double
    )
    return torch.from_numpy(found)


def in_triton(kernel, x, *values):
    "The same by Triton's own interpreter."
    import triton
    import triton.language

    fused_kernels.tl, found = triton.language, torch.zeros(x.shape[:2], dtype=torch.int64)
    weight, double = [torch.tensor([v], dtype=x.dtype) for v in values[:1]], x.dtype == torch.float64
    sizes, more = (*x.shape[1:], *fused_kernels.tile_of(x.shape)), dict(double=double) if values else {}
    triton.jit(kernel)[(len(x),)](x, found, *weight, *values[1:], *sizes, **more)
    return found


def check_fused(run, kind, shape, dtype):
    "Fused kernels do what the tensor operations do, ties and forbidden cells included."
    x = scores_of(kind, shape, dtype)
    if shape[1] <= shape[2]:
        assert torch.equal(run(fused_kernels.gap_greedy, x), parallel_delta(x, 2))
    assert torch.equal(run(fused_kernels.recursive_greedy, x, 1.0, 0), parallel_best(x))
    if kind != "forbidden":  # those are filled with finite scores before a recursion
        weight = 0.25 if kind == "huge" else 0.5
        expected = parallel_best(recurse(x, 6, 1 / weight))
        assert torch.equal(run(fused_kernels.recursive_greedy, x, weight, 6), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", FUSED)
def test_a_fused_kernel_does_what_the_tensor_operations_do(kind, dtype):
    for shape in ((3, 4, 7), (3, 6, 6), (2, 5, 2)):
        check_fused(in_numpy, kind, shape, dtype)


needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="needs Triton, which comes with the CUDA builds of torch"
)


@needs_triton
def test_fused_kernels_in_the_interpreter_of_triton():
    "In a process of its own: the interpreter changes `triton.language` for good."
    check = "check_fused(in_triton, kind, (2, 4, 7), torch.float64)"
    code = f"from test_assignment_fused import *\nfor kind in FUSED: {check}"
    told = os.environ | dict(TRITON_INTERPRET="1")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent, env=told)


@needs_triton
@pytest.mark.parametrize("type", ["fp32", "fp64"])
def test_triton_compiles_the_fused_kernels_without_a_card(type, monkeypatch):
    import triton
    import triton.language
    from triton.backends.compiler import GPUTarget

    monkeypatch.setattr(fused_kernels, "tl", triton.language)
    tile = dict(N=16, M=16)
    known = {"scores": "*" + type, "weight": "*" + type, "found": "*i64"}
    for kernel, told in (
        (fused_kernels.gap_greedy, {}),
        (fused_kernels.recursive_greedy, {"double": type == "fp64"}),
    ):
        made = triton.jit(kernel)
        constants = tile | told
        kinds = {k: "constexpr" if k in constants else known.get(k, "i32") for k in made.arg_names}
        places = {(made.arg_names.index(k),): v for k, v in constants.items()}
        source = triton.compiler.ASTSource(made, kinds, constexprs=places)
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


def test_fused_kernels_are_for_tensors_of_a_gpu_that_fit():
    assert fused_kernels.tile_of((9, 100, 20)) == (128, 32) and fused_kernels.tile_of((1, 1)) == (2, 2)
    assert not fused_kernels.can_fuse(torch.zeros(2, 4, 4))
    with simulated_gpu():
        assert not fused_kernels.can_fuse(torch.zeros(2, 4, 4).to("cuda"))  # no driver behind it


@pytest.mark.gpu
@needs_triton
@pytest.mark.parametrize("kind", FUSED)
def test_a_fused_kernel_on_cuda(kind):
    x = scores_of(kind, (5, 20, 33), torch.float64)
    assert fused_kernels.can_fuse(x.cuda())
    assert torch.equal(fused_kernels.fused_gap_greedy(x.cuda()).cpu(), parallel_delta(x, 2))
    assert torch.equal(fused_kernels.fused_recursive(x.cuda()).cpu(), parallel_best(x))
