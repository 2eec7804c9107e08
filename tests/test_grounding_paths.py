"Paths of embeddings: equal intervals, the same training in pieces, and walks."

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from brace_nb.grounding import TextStudents, path_movement, random_walk, training_path
from brace_nb.ndim import cube_loss


def tokens_of(n, rows):
    tokens = torch.randint(1, 19, (n, rows, 4), generator=torch.Generator().manual_seed(0))
    tokens[..., -1] = 19
    return tokens


def contrast(features):
    return cube_loss(features, "pairwise", "slice", 10.0)


def test_a_path_starts_untrained_and_keeps_equal_intervals():
    tokens, how = tokens_of(2, 9), dict(batch_size=4, learning_rate=1e-3)
    encoders = TextStudents([0, 1], 20, 6, 19, width=8)
    with torch.no_grad():
        before = encoders(tokens).flatten(0, 1)
    path = training_path(encoders, tokens, tokens, contrast, intervals=3, length=2, **how)
    other = TextStudents([0, 1], 20, 6, 19, width=8)
    longer = training_path(other, tokens, tokens, contrast, intervals=1, length=6, **how)
    assert path.shape == (4, 18, 6) and torch.equal(path[0], before)
    assert torch.allclose(path[-1], longer[-1], atol=1e-6)


def test_trainings_side_by_side_do_not_touch_each_other():
    "As the notebook on intervals has them: sums of losses of disjoint weights."
    tokens, how = tokens_of(2, 9), dict(batch_size=4, learning_rate=1e-3, intervals=2, length=5)

    def both(features):
        return contrast(features[:2]) + 3 * contrast(features[2:])

    alone = training_path(TextStudents([0, 1], 20, 6, 19, width=8), tokens, tokens, contrast, **how)
    together = TextStudents([0, 1, 0, 1], 20, 6, 19, width=8)
    path = training_path(together, tokens.repeat(2, 1, 1), tokens.repeat(2, 1, 1), both, **how)
    first, second = path.split(18, 1)
    assert torch.allclose(first, alone, atol=1e-5) and not torch.allclose(path[0, :18], path[-1, :18])
    assert torch.allclose(second, alone, atol=1e-2)  # Adam divides the scale out, but for its epsilon


def test_a_rotation_is_no_movement():
    x = F.normalize(torch.randn(40, 5, generator=torch.Generator().manual_seed(1)), dim=-1).double()
    turn, _ = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(2)).double())
    path = torch.stack([x, x @ turn, x @ turn])
    assert path_movement(path).max() < 1e-6


def test_a_walk_goes_equally_far():
    draw = torch.Generator().manual_seed(3)
    x = F.normalize(torch.randn(500, 16, generator=draw), dim=-1).double()
    path = torch.stack(
        [F.normalize(x + 0.1 * k * torch.randn(500, 16, generator=draw), dim=-1) for k in range(6)]
    )
    walked = random_walk(path)
    chords = walked.diff(dim=0)[2:].norm(dim=-1)  # each point's step is as long as its second interval's
    np.testing.assert_allclose(chords, np.tile(path_movement(path[:3])[1], (len(chords), 1)), atol=1e-5)
    moved = path_movement(walked).mean(1)
    assert torch.equal(walked[:3], path[:3]) and np.ptp(moved[2:]) < 0.1 * moved[2:].mean()
    assert torch.allclose(walked.norm(dim=-1), torch.ones(6, 500).double(), atol=1e-9)
    assert moved[2] == pytest.approx(moved[1], rel=0.2)
    with pytest.raises(ValueError, match="T>2"):
        random_walk(path[:2])
