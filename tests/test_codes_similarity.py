"Similarities of codes against plain loops."

import math
import platform
from fractions import Fraction

import numba
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from made_codes import random_codes, random_ternary

from brace_nb.codes import (
    active_bits,
    cosine_similarity,
    hamming_similarity,
    jaccard,
    nearest,
    pack,
    pack_ternary,
    similarity_by_product,
    ternary_jaccard,
    unpack,
)

SIMILARITY = dict(jaccard=jaccard, hamming=hamming_similarity, cosine=cosine_similarity)


def plain(x, y, measure):
    "One pair with Python integers and fractions."
    both, n, k = sum(int(p) and int(q) for p, q in zip(x, y)), sum(map(int, x)), sum(map(int, y))
    if measure == "jaccard":
        return float(Fraction(both, n + k - both)) if n + k - both else 1.0
    if measure == "hamming":
        return 1 - sum(bool(p) != bool(q) for p, q in zip(x, y)) / len(x)
    return both / math.sqrt(n * k) if n * k else float(n == k)


def plain_ternary(x, y):
    agree = sum(p == q != 0 for p, q in zip(x, y))
    disagree = sum(p == -q != 0 for p, q in zip(x, y))
    union = sum(p != 0 or q != 0 for p, q in zip(x, y))
    return (agree - disagree) / union if union else 1.0


two_sets = st.integers(1, 140).flatmap(
    lambda d: st.tuples(*[arrays(bool, st.tuples(st.integers(0, 5), st.just(d))) for _ in range(2)])
)
two_ternary = st.integers(1, 70).flatmap(
    lambda d: st.tuples(
        *[
            arrays(np.int8, st.tuples(st.integers(0, 4), st.just(d)), elements=st.integers(-1, 1))
            for _ in range(2)
        ]
    )
)


@settings(max_examples=60, deadline=None)
@given(two_sets, st.sampled_from(list(SIMILARITY)))
def test_similarity_of_all_pairs_equals_the_plain_loop(sets, measure):
    a, b = sets
    expected = np.array([[plain(x, y, measure) for y in b] for x in a]).reshape(len(a), len(b))
    found = SIMILARITY[measure](a, b)
    assert (
        found.dtype == np.float32
        and found.shape == expected.shape
        and np.allclose(found, expected, rtol=2e-7, atol=0)
    )
    if measure != "cosine":
        assert (found == expected.astype(np.float32)).all()
    options = dict(dim=a.shape[1]) if measure == "hamming" else {}
    assert (SIMILARITY[measure](pack(a), pack(b), **options) == found).all()
    tensor = SIMILARITY[measure](torch.from_numpy(a), torch.from_numpy(b))
    assert isinstance(tensor, torch.Tensor) and (tensor.numpy() == found).all()
    product = similarity_by_product(torch.from_numpy(a), torch.from_numpy(b), measure, a.shape[1])
    assert np.allclose(product.numpy(), found, rtol=2e-7, atol=0) and (
        measure == "cosine" or (product.numpy() == found).all()
    )


@settings(max_examples=60, deadline=None)
@given(two_ternary)
def test_ternary_jaccard_equals_the_plain_loop(sets):
    a, b = sets
    expected = (
        np.array([[plain_ternary(x.tolist(), y.tolist()) for y in b] for x in a])
        .reshape(len(a), len(b))
        .astype(np.float32)
    )
    found = ternary_jaccard(a, b)
    assert (found == expected).all() and (ternary_jaccard(pack_ternary(a), pack_ternary(b)) == found).all()
    assert (ternary_jaccard(torch.from_numpy(a), torch.from_numpy(b)).numpy() == found).all()
    assert (
        similarity_by_product(torch.from_numpy(a), torch.from_numpy(b), "jaccard", a.shape[1]).numpy()
        == found
    ).all()
    nonzero = a.any(-1)[:, None] | b.any(-1)
    assert (ternary_jaccard(a, -b)[nonzero] == -found[nonzero]).all()


@settings(max_examples=40, deadline=None)
@given(arrays(bool, st.tuples(st.integers(1, 6), st.integers(1, 100))), st.randoms(use_true_random=False))
def test_similarities_are_symmetric_bounded_and_ignore_the_order_of_dimensions(codes, random):
    order = list(range(codes.shape[1]))
    random.shuffle(order)
    for similarity in SIMILARITY.values():
        s = similarity(codes, codes)
        assert (s == s.T).all() and (s.diagonal() == 1).all() and (s >= 0).all() and (s <= 1).all()
        assert (similarity(codes[:, order], codes[:, order]) == s).all()
    equal = (codes[:, None] == codes).all(-1)
    assert ((jaccard(codes, codes) == 1) == equal).all() and (
        (hamming_similarity(codes, codes) == 1) == equal
    ).all()
    assert (ternary_jaccard(codes.astype(np.int8), codes.astype(np.int8)) == jaccard(codes, codes)).all()


@settings(max_examples=40, deadline=None)
@given(arrays(bool, st.tuples(st.just(3), st.integers(1, 40))), st.integers(1, 60))
def test_silent_dimensions_move_hamming_but_not_jaccard(codes, silent):
    longer = np.concatenate([codes, np.zeros((3, silent), bool)], -1)
    assert (jaccard(longer, longer) == jaccard(codes, codes)).all() and (
        hamming_similarity(longer, longer) >= hamming_similarity(codes, codes)
    ).all()


def test_empty_codes_and_empty_sets():
    none, one = np.zeros((1, 9), bool), np.eye(1, 9, dtype=bool)
    assert (
        jaccard(none, none) == 1
        and cosine_similarity(none, none) == 1
        and ternary_jaccard(none.view(np.int8), none.view(np.int8)) == 1
    )
    assert (
        jaccard(none, one) == 0
        and cosine_similarity(none, one) == 0
        and hamming_similarity(none, one) == np.float32(8 / 9)
    )
    assert (
        jaccard(one[:0], one).shape == (0, 1)
        and jaccard(one, one[:0]).shape == (1, 0)
        and jaccard(np.zeros((0, 3, 9), bool), one).shape == (0, 3, 1)
    )


def test_the_example_of_the_post():
    for dim, similar in (4, 0.5), (256, 0.9921875):
        a, b = np.zeros((2, 1, dim), bool)
        a[0, 0] = b[0, -1] = True
        assert hamming_similarity(a, b) == similar and jaccard(a, b) == 0


@pytest.mark.parametrize(
    "lead_a, lead_b", [((), ()), ((3,), (3,)), ((3,), ()), ((), (2, 3)), ((2, 1), (1, 3)), ((200,), (200,))]
)
def test_leading_axes_are_batches(lead_a, lead_b):
    a, b = random_codes(*lead_a, 5, 70, seed=1), random_codes(*lead_b, 4, 70, seed=2)
    s, lead = jaccard(a, b), np.broadcast_shapes(lead_a, lead_b)
    wide_a, wide_b = np.broadcast_to(a, (*lead, 5, 70)), np.broadcast_to(b, (*lead, 4, 70))
    assert s.shape == (*lead, 5, 4)
    for i in np.ndindex(lead):
        assert (s[i] == jaccard(wide_a[i], wide_b[i])).all()
    t = ternary_jaccard(a.astype(np.int8), b.astype(np.int8))
    assert (t == s).all()


def test_row_by_row():
    a, b = random_codes(300, 130, seed=1), random_codes(300, 130, seed=2)
    assert (jaccard(a[:, None], b[:, None])[:, 0, 0] == jaccard(a, b).diagonal()).all()


@pytest.mark.parametrize("dim", [64, 256, 1000, 4096])
def test_blocks_threads_and_layout_change_nothing(dim):
    a, b = random_codes(150, dim, seed=3), random_codes(1500, dim, seed=4)
    x, y = a.astype(np.int64), b.astype(np.int64)
    both = x @ y.T
    expected = (both / (x.sum(-1)[:, None] + y.sum(-1) - both)).astype(np.float32)
    threads = torch.get_num_threads()
    try:
        for n in 1, 3:
            torch.set_num_threads(n)
            assert (jaccard(a, b) == expected).all()
    finally:
        torch.set_num_threads(threads)
    fixed = np.asfortranarray(pack(b))
    fixed.flags.writeable = False
    assert (jaccard(pack(a)[::-1], fixed) == expected[::-1]).all()


def test_different_fractions_stay_different_in_float32_up_to_4096():
    u = np.concatenate([np.full(n + 1, n) for n in (4093, 4094, 4095, 4096)])
    i = np.concatenate([np.arange(n + 1) for n in (4093, 4094, 4095, 4096)])
    different = len({Fraction(int(p), int(q)) for p, q in zip(i, u)})
    assert len(np.unique(i.astype(np.float32) / u.astype(np.float32))) == different
    assert np.float32(2895 / 4096) != np.float32(2894 / 4095)


def test_the_kernel_counts_with_the_instruction_of_the_machine():
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("reads x86 assembly")
    from brace_nb.codes.similarity_kernels import pairs

    kernel = numba.njit(nogil=True, error_model="numpy")(pairs.py_func)
    one = np.ones((1, 1, 4), np.uint64)
    kernel(one, np.full((1, 1), 4, np.int32), one[None], 0, 256, np.empty((1, 1, 1), np.float32))
    assert "popcnt" in "".join(kernel.inspect_asm().values())


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda c: jaccard(c, pack(c)), "got bool and uint8"),
        (lambda c: jaccard(c.astype(float), c.astype(float)), "got float64 and float64"),
        (lambda c: jaccard(c, torch.from_numpy(c)), "got one of each"),
        (lambda c: jaccard(c[0], c), "must have the shape (..., "),
        (lambda c: jaccard(c, c[:, :3]), "got 20 and 3"),
        (lambda c: jaccard(c[:, :0], c[:, :0]), "D>0); got"),
        (lambda c: hamming_similarity(c, c, dim=19), "19 dimensions were announced"),
        (lambda c: hamming_similarity(pack(c), pack(c), dim=16), "16 dimensions were announced"),
        (lambda c: hamming_similarity(pack(c), pack(c), dim=25), "25 dimensions were announced"),
        (lambda c: ternary_jaccard(c, c), "got bool and bool"),
        (lambda c: ternary_jaccard(c.astype(np.int8), c[:, :3].astype(np.int8)), "same width"),
        (lambda c: ternary_jaccard(c.astype(np.int8) * 2, c.astype(np.int8)), "must hold -1, 0 and 1 only"),
        (lambda c: ternary_jaccard(pack(c), pack(c)), "even number of bytes"),
    ],
)
def test_similarities_refuse(call, says):
    with pytest.raises(ValueError) as error:
        call(random_codes(4, 20, density=0.5))
    assert says in str(error.value)


def test_similarities_take_lists_frames_and_views():
    a, b = random_codes(7, 30, seed=1), random_codes(5, 30, seed=2)
    expected = jaccard(a, b)
    for x, y in ((a.tolist(), b.tolist()), (pd.DataFrame(a), b), (a[::-1][::-1], b)):
        assert isinstance(jaccard(x, y), np.ndarray) and (jaccard(x, y) == expected).all()
    assert (jaccard(a[:, ::-1], b[:, ::-1]) == expected).all()


def test_product_takes_packed_codes():
    a, b = random_codes(2, 7, 24, density=0.5), random_codes(2, 5, 24, density=0.5)
    for measure, similarity in SIMILARITY.items():
        packed = similarity_by_product(torch.from_numpy(pack(a)), torch.from_numpy(pack(b)), measure, 24)
        assert np.allclose(packed.numpy(), similarity(a, b), rtol=3e-7, atol=0)


# ---------------------------------------------------------------- other devices
@pytest.mark.gpu
def test_cuda_equals_cpu():
    a, b, t = (
        random_codes(2, 60, 100, seed=13),
        random_codes(2, 50, 100, seed=14),
        random_ternary(40, 100, seed=15),
    )

    def on(x):
        return torch.from_numpy(x).cuda()

    assert (
        pack(on(a)).is_cuda
        and (unpack(pack(on(a)), 100).cpu().numpy() == a).all()
        and (active_bits(pack(on(a))).cpu().numpy() == a.sum(-1)).all()
    )
    for name, f in SIMILARITY.items():
        expected = f(a, b)
        for x, y, options in (a, b, {}), (pack(a), pack(b), dict(dim=100) if name == "hamming" else {}):
            found = f(on(x), on(y), **options)
            assert found.is_cuda and np.allclose(found.cpu().numpy(), expected, rtol=3e-7, atol=0)
    assert ternary_jaccard(on(t), on(t)).is_cuda and np.allclose(
        ternary_jaccard(on(t), on(t)).cpu().numpy(), ternary_jaccard(t, t), rtol=3e-7
    )
    assert (nearest(on(a[0]), on(b[0]), 7)[0].cpu().numpy() == nearest(a[0], b[0], 7)[0]).all()
