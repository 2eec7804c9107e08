"Analogies in plain loops, and pairs of a relation."

import pytest
import torch
from torch.nn import functional as F

from brace_nb.grounding import RELATIONS, analogy_hits, parallelism, relation_pairs


def in_loops(x, pairs, steps):
    hits, alone = [], []
    for i, j in pairs.tolist():
        row = []
        for a, b in pairs.tolist():
            if (i, j) == (a, b):
                row.append(False)
                continue
            there = steps[j] - steps[i] + x[a]
            scores = [float(there @ v) if k not in (i, j, a) else -1e9 for k, v in enumerate(x)]
            row.append(scores.index(max(scores)) == b)
        hits.append(row)
        near = [float(x[i] @ v) if k != i else -1e9 for k, v in enumerate(x)]
        alone.append(near.index(max(near)) == j)
    return torch.tensor(hits), torch.tensor(alone)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hits_are_those_of_loops(seed):
    draw = torch.Generator().manual_seed(seed)
    x = F.normalize(torch.randn(14, 3, generator=draw), dim=-1).double()
    x[6:10] = F.normalize(x[0:4] + 0.7 * x[13], dim=-1)
    steps = F.normalize(torch.randn(14, 3, generator=draw), dim=-1).double()
    pairs = torch.tensor([[0, 6], [1, 7], [2, 8], [3, 9]])
    for s in (x, steps):
        hits, alone = analogy_hits(x, pairs, s)
        expected = in_loops(x, pairs, s)
        assert torch.equal(hits, expected[0]) and torch.equal(alone, expected[1])
    assert torch.equal(analogy_hits(x, pairs)[0], analogy_hits(x, pairs, x)[0])


def test_two_pairs_that_share_their_second_are_no_analogy():
    x = F.normalize(torch.eye(5) + 0.1, dim=-1)
    hits, _ = analogy_hits(x, torch.tensor([[0, 4], [1, 4], [2, 3]]))
    assert not hits[0, 1] and not hits[1, 0]


def test_parallelism_is_the_mean_cosine_of_different_steps():
    draw = torch.Generator().manual_seed(0)
    x, pairs = torch.randn(9, 4, generator=draw).double(), torch.tensor([[0, 1], [2, 3], [4, 5], [6, 8]])
    step = [F.normalize(x[b] - x[a], dim=0) for a, b in pairs.tolist()]
    cosines = [float(step[i] @ step[j]) for i in range(4) for j in range(4) if i != j]
    assert parallelism(x, pairs) == pytest.approx(sum(cosines) / 12, abs=1e-9)


def test_pairs_differ_by_what_the_relation_exchanges():
    names = [
        "man cook",
        "woman cook",
        "man",
        "woman",
        "cook: facing right",
        "cook",
        "one o’clock",
        "one-thirty",
    ]
    assert relation_pairs(names, "gender").tolist() == [[0, 1]]
    assert relation_pairs(names, "facing right").tolist() == [[5, 4]]
    assert relation_pairs(names, "half past").tolist() == [[6, 7]]
    assert relation_pairs(["apple"], "gender").shape == (0, 2)
    assert set(RELATIONS) >= {"gender", "genders"}
