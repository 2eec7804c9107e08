"The reference implementation of BRaCE as the post prints it: right on matrices, and on nothing else."

import pytest
import torch

from brace_nb.as_printed.codes import project_positive_vector_to_binary
from brace_nb.codes import corners


def rows(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dim", [1, 2, 5, 10])
def test_on_matrices_it_finds_the_best_of_all_corners(dim):
    v, every = rows(50, dim), corners(dim).double()
    best = (v @ (every / every.norm(dim=-1, keepdim=True)).T).amax(-1)
    code = project_positive_vector_to_binary(v)
    assert torch.allclose((v * code).sum(-1) / code.sum(-1).sqrt(), best)


@pytest.mark.parametrize(
    "shape, error", [((8,), IndexError), ((2, 3, 8), RuntimeError), ((2, 8, 8), RuntimeError)]
)
def test_other_leading_axes_raise(shape, error):
    with pytest.raises(error):
        project_positive_vector_to_binary(rows(*shape))
