"The printed code of chapter 6: that it fails as the ledger says, and where it happens to be right."

import numpy as np
import pytest
import torch

from brace_nb.as_printed.assignment_code import (
    line_offsets,
    printed_batch_mask,
    printed_gumbel,
    printed_loop_counter,
    printed_picking,
    repeated_picking,
    unscaled_recursion,
    zeros_cover,
)
from brace_nb.assignment import cost_of_picking, is_valid, recurse


def matrix(n, seed=0):
    return torch.rand(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_printed_picking_is_right_only_where_the_best_rows_are_sorted():
    x = torch.eye(4, dtype=torch.float64) + 0.1 * matrix(4)  # the best row of column j is row j
    torch.testing.assert_close(printed_picking(x), cost_of_picking(x))
    assert not torch.allclose(printed_picking(x[[2, 0, 3, 1]]), cost_of_picking(x[[2, 0, 3, 1]]))


def test_the_pickings_of_the_code_are_two_x_and_sums_of_maxima():
    x = matrix(5)
    torch.testing.assert_close(repeated_picking(x), 2 * x)
    torch.testing.assert_close(line_offsets(x)[1, 2], x[1].max() + x[:, 2].max())


def test_unscaled_recursion_equals_the_scaled_one_up_to_powers_of_two():
    x = matrix(6)
    ratio = unscaled_recursion(x, 4, 2.0, cost_of_picking) / recurse(x, 4, 2.0)
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))
    assert not unscaled_recursion(matrix(120).float(), 120, 1.0, cost_of_picking).isfinite().all()


def test_the_listings_return_what_is_no_assignment():
    torch.manual_seed(0)
    masks = torch.stack([printed_batch_mask(matrix(10, s)) for s in range(20)])
    assert (masks.sum(-1) > 1).any() and not is_valid(masks).all()  # rows are used twice
    assert printed_gumbel(matrix(10).float(), hard=False).all()


@pytest.mark.parametrize("cost, covers", [(1 - torch.eye(4), True), (torch.ones(4, 4), False)])
def test_the_sketch_of_the_hungarian_method_needs_single_zeros(cost, covers):
    assert zeros_cover(cost) is covers


def test_the_printed_counter_takes_the_smallest_multiple_of_at_least_three_minus_two():
    for n in range(1, 13):
        multiple = next(k for k in range(3, 3 + n) if k % n == 0)
        assert (printed_loop_counter(np.roll(np.arange(n), 1)) == multiple - 2).all()
