"""How long peers take over how long we take, in the cells of tables A and C of the review of speed

    python tests/peers.py [WORD...]     only the lines that hold a word; two minutes of a processor for all

One thread, one instruction set (faiss is told to keep to it), processor time, rounds in turn: the median of
the ratios of the rounds and its interval. Below 1 the peer is faster. The clocks of the ledger are taken by
the experiments; this program repeats the review's own list of shapes, whatever a row asks.
"""

import sys
import time
from functools import partial

from brace_nb.core import use_one_instruction_set

use_one_instruction_set()

import faiss  # noqa: E402
import lap  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from scipy.optimize import linear_sum_assignment  # noqa: E402
from scipy.sparse import csr_array  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from brace_nb.assignment import assign, match_batch, sample_matrices  # noqa: E402
from brace_nb.codes import InvertedIndex, binarize, nearest  # noqa: E402
from brace_nb.companion import take_turns, time_ratio  # noqa: E402
from brace_nb.evaluation import cka_matrix, ranks  # noqa: E402
from brace_nb.ndim import cube, cube_loss  # noqa: E402

ROUNDS, SECONDS = 9, 0.3
RNG = np.random.default_rng(0)
faiss.SIMDConfig.set_level(faiss.SIMDLevel_AVX2)
faiss.omp_set_num_threads(1)


def costs(kind, h, w):
    if kind == "geometric":
        points = RNG.random((h + w, 2))
        return np.linalg.norm(points[:h, None] - points[h:], axis=2)
    if kind == "machol":
        return np.outer(np.arange(1.0, h + 1), np.arange(1.0, w + 1))
    x = RNG.random((h, w))
    if kind == "half forbidden":
        return np.where(RNG.random((h, w)) < 0.5, np.inf, x)
    return np.floor(10 * x) if kind == "integers" else x


def one_at_a_time(call, matrices):
    for c in matrices:
        call(c)


def alone():
    "A1, A2: one matrix after the other."
    sides = [(n, n) for n in (3, 5, 10, 20, 50, 100)] + [(100, 300), (500, 50), (20, 100), (300, 100)]
    shapes = [("uniform", s) for s in sides] + [("integers", (100, 100)), ("integers", (500, 500))]
    shapes += [("geometric", (500, 500)), ("machol", (10, 10)), ("machol", (100, 100))]
    shapes += [("half forbidden", (20, 100)), ("half forbidden", (500, 500))]
    solvers = {n: partial(getattr(lap, n), extend_cost=True) for n in ("lapjvr", "lapjvh", "lapjvs")}
    peers = {"SciPy": linear_sum_assignment} | solvers
    for kind, (h, w) in shapes:
        given = [costs(kind, h, w) for _ in range(int(np.clip(100_000 // (h * w), 2, 200)))]
        calls = peers | ({"lapjvc": lap.lapjvc} if h == w else {})
        turns = {m: partial(one_at_a_time, call, given) for m, call in calls.items()}
        yield f"A1 one matrix, {kind} {h} x {w}", partial(one_at_a_time, assign, given), turns


def batches():
    "A1: batches."
    shapes = [(k, (100, 300), 32) for k in ("uniform", "geometric")] + [("uniform", (10, 10), 64)]
    shapes += [("uniform", s, 32) for s in ((32, 32), (100, 100), (100, 20), (20, 100), (25, 500))]
    for kind, (h, w), count in [*shapes, ("integers", (100, 100), 32), ("integers", (100, 300), 32)]:
        given = np.stack([costs(kind, h, w) for _ in range(count)])
        turns = dict(SciPy=partial(one_at_a_time, linear_sum_assignment, given))
        for n in ("lapjvr", "lapjvh", "lapjvs"):
            turns[n] = partial(getattr(lap, f"{n}_batch"), given, extend_cost=True, n_threads=1)
        yield f"A1 batch of {count}, {kind} {h} x {w}", partial(assign, given), turns


def forbidden():
    "A2: the same matrices with one forbidden cell, over those without."
    for side in (10, 32, 100, 500):
        given = list(RNG.random((max(2, 20_000 // side**2), side, side)))
        with_one = [c.copy() for c in given]
        for c in with_one:
            c[0, 1] = np.inf
        plain = partial(one_at_a_time, assign, given)
        yield (
            f"A2 one forbidden cell, {side} x {side}",
            partial(one_at_a_time, assign, with_one),
            {"without": plain},
        )


def detr():
    "The loop of DETR's own code, with its tensors, over `match_batch`."

    def loop(cost, counts):
        found = [linear_sum_assignment(c[i]) for i, c in enumerate(cost.cpu().split(counts, -1))]
        return [tuple(torch.as_tensor(side, dtype=torch.int64) for side in pairs) for pairs in found]

    for images in (1, 2, 4, 16, 64):
        for queries, most in ((10, 1), (10, 5), (100, 5), (100, 30), (300, 30), (900, 100)):
            counts = np.random.default_rng(0).integers(0, most, images).tolist()
            cost = sample_matrices("detr", (images, queries, max(1, sum(counts))), 0)[..., : sum(counts)]
            turns = {"DETR's loop": partial(loop, cost, counts)}
            yield (
                f"DETR {images} x {queries}, to {most - 1} objects",
                partial(match_batch, cost, counts),
                turns,
            )


def rows():
    "A3, C: corners of rows."

    def plain(v):
        p = v.argsort(-1, descending=True)
        S = v.gather(-1, p).cumsum(-1) * torch.arange(1, v.shape[-1] + 1).rsqrt()
        keep = torch.arange(v.shape[-1]) <= S.argmax(-1, keepdim=True)
        return torch.zeros(v.shape, dtype=torch.bool).scatter_(-1, p, keep)

    g = torch.Generator().manual_seed(0)
    for dim in (16, 64, 256, 1024, 4096, 16384):
        z, k = torch.randn(400_000 // dim, dim, generator=g), torch.arange(1, dim + 1, dtype=torch.float64)
        falling = F.softplus(1.5 * z).sort(-1, descending=True).values
        kinds = dict(sparse=F.softplus(3 * z - 4), dense=F.softplus(1.5 * z), falling=falling)
        order, noise = z.argsort(-1), torch.rand(z.shape, generator=g)
        for name, size in (("flat", 0), ("flat to 1e-6", 1e-6), ("flat to 1e-3", 1e-3)):
            kinds[name] = (
                ((k.sqrt() - (k - 1).sqrt()) * (1 + size * (2 * noise - 1))).gather(-1, order).float()
            )
        for kind, v in kinds.items():
            turns = {"plain torch": partial(plain, v), "sort": partial(torch.sort, v)}
            yield f"A3 rows of {dim}, {kind}", partial(binarize, v), turns


def search():
    "A4, C: codes of 256 bits."
    for n in (10_000, 100_000, 1_000_000):
        codes = RNG.integers(0, 256, (n, 32), dtype=np.uint8)
        index = faiss.IndexBinaryFlat(256)
        index.add(codes)
        for count in (1, 10, 100):
            q = codes[:count] ^ (RNG.random((count, 32)) < 0.3).astype(np.uint8)
            turns = dict(faiss=partial(index.search, q, 10))
            yield f"A4 {count} of {n:,} codes", partial(nearest, q, codes, 10, "hamming"), turns


def sparse():
    "A9: inverted lists over the product of SciPy's stored entries and a partial sort."
    for dim, active in ((4096, 10), (4096, 40), (65536, 20)):
        columns = np.stack([RNG.choice(dim, active, replace=False) for _ in range(2000)])
        columns = np.concatenate([(columns + RNG.integers(dim)) % dim for _ in range(50)])
        begins = np.arange(0, columns.size + 1, active)
        cells = np.sort(columns, 1).ravel().astype(np.int32), begins.astype(np.int32)
        library = csr_array((np.ones(columns.size, np.float32), *cells), shape=(len(columns), dim))
        turned, index = library.T.tocsr(), InvertedIndex(library)

        def product(q, turned=turned):
            shared = q @ turned
            for start, stop in zip(shared.indptr, shared.indptr[1:]):
                np.argpartition(-shared.data[start:stop], 10)[:10]

        for count in (1, 100):
            q = library[:count]
            yield (
                f"A9 {count} sparse, {active} of {dim}",
                partial(index.search, q, 10),
                dict(SciPy=partial(product, q)),
            )


def cubes():
    "A5: cubes of the product and of Gram matrices, and losses, against plain torch."

    def halves(xs):
        names, n = "abcdef"[: len(xs)], len(xs) // 2
        sides = [
            torch.einsum(",".join(f"{c}z" for c in part) + "->" + part + "z", *mine)
            for part, mine in ((names[:n], xs[:n]), (names[n:], xs[n:]))
        ]
        return torch.tensordot(*sides, dims=([-1], [-1]))

    def plain_loss(xs):
        names, b = "abcd"[: len(xs)], len(xs[0])
        C = 10 * torch.einsum(
            ",".join(f"{c}z" for c in names) + "->" + names, *(F.normalize(x, dim=-1) for x in xs)
        )
        right = sum(torch.arange(b) * b**k for k in range(len(xs) - 1))
        return sum(F.cross_entropy(C.movedim(k, 0).reshape(b, -1), right) for k in range(len(xs))) / len(xs)

    def plain_gram(xs, unit=True):
        n, total = len(xs), float(len(xs))
        if not unit:
            assert all(x.sum().isfinite() for x in xs)
            squares = [x.square().sum(-1) for x in xs]
            total = sum(q.reshape([len(q) if k == a else 1 for k in range(n)]) for a, q in enumerate(squares))
        for a in range(n):
            for b in range(a + 1, n):
                shape = [len(x) if k in (a, b) else 1 for k, x in enumerate(xs)]
                total = total + 2 * (xs[a] @ xs[b].T).reshape(shape)
        return total.clamp(min=0).sqrt() / n

    def both_ways(loss, xs):
        xs = [x.clone().requires_grad_() for x in xs]
        torch.autograd.grad(loss(xs), xs)

    for n, b in ((6, 8), (6, 6), (4, 16), (4, 32), (3, 64)):
        xs = F.normalize(torch.randn(n, b, 512), dim=-1).unbind()
        ours = partial(cube, xs, "einsum", normalize=False)
        yield f"A5 product of {n} x {b}", ours, {"halves": partial(halves, xs)}
    for n, b in ((4, 16), (4, 32), (3, 64), (6, 8), (5, 10)):
        xs = F.normalize(torch.randn(n, b, 512), dim=-1).unbind()
        ours = partial(cube, xs, "mean_norm", normalize=False)
        assert torch.allclose(ours(), plain_gram(xs), atol=1e-5)
        turns = {"plain, of unit rows": partial(plain_gram, xs), "of any": partial(plain_gram, xs, False)}
        yield f"A5 Gram cube of {n} x {b}", ours, turns
    for n, b in ((2, 16), (2, 64), (2, 512), (3, 16), (3, 32), (3, 64), (3, 128), (3, 256), (4, 16), (4, 32)):
        xs = torch.randn(n, b, 128).unbind()
        ours = partial(both_ways, partial(cube_loss, measure="einsum", scale=10.0), xs)
        yield f"A5 loss of a product, {n} x {b}", ours, {"einsum": partial(both_ways, plain_loss, xs)}


def others():
    "A6, A8, C: greedy_delta over the exact solver, ranks, CKA."
    for shape in ((1024, 32, 32), (64, 100, 100), (1024, 10, 10)):
        x = RNG.random(shape)
        yield (
            f"A6 exact {shape}",
            partial(assign, x),
            dict(greedy_delta=partial(assign, x, method="greedy_delta")),
        )
    for n in (100, 300, 1000, 3000):
        S = torch.randn(n, n)
        turns = {"one comparison": lambda S=S: (S >= S.diagonal()[:, None]).sum(1)}
        yield f"A8 ranks {n} x {n}", partial(ranks, S), turns
    for layers, n, width in ((20, 512, 256), (50, 128, 512), (20, 200, 4000), (20, 1024, 64)):
        X = [torch.randn(n, width) for _ in range(layers)]

        def batched(X=X, n=n):
            K = torch.stack([x - x.mean(0) for x in X])
            G = (K @ K.mT).flatten(1)
            H = G @ G.T
            return H / torch.outer(H.diagonal(), H.diagonal()).sqrt()

        yield (
            f"C CKA of {layers} layers, {n} x {width}",
            partial(cka_matrix, X, X),
            {"Gram and one product": batched},
        )


def main(words):
    torch.manual_seed(0)
    for group in (alone, batches, forbidden, detr, rows, search, sparse, cubes, others):
        for name, ours, peers in group():
            if words and not any(word in name for word in words):
                continue
            times = take_turns(dict(ours=ours) | peers, ROUNDS, time.process_time, SECONDS)
            told = (f"{peer} {time_ratio(times[peer], times['ours'])}" for peer in peers)
            print(f"{name}: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
