"One bit per dimension."

import importlib

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from made_codes import random_codes

from brace_nb.codes import active_bits, pack, pack_ternary, packing, unpack, unpack_ternary


@given(arrays(bool, array_shapes(min_dims=1, max_dims=3, max_side=21)))
def test_pack_is_the_plain_bit_order_and_comes_back(codes):
    packed, dim = pack(codes), codes.shape[-1]
    assert packed.dtype == np.uint8 and packed.shape == (*codes.shape[:-1], -(-dim // 8))
    for place in np.ndindex(codes.shape):
        assert codes[place] == bool(packed[place[:-1]][place[-1] // 8] >> place[-1] % 8 & 1)
    assert (unpack(packed, dim) == codes).all() and unpack(packed, dim).dtype == bool
    tensor = pack(torch.from_numpy(codes))
    assert (
        isinstance(tensor, torch.Tensor)
        and (tensor.numpy() == packed).all()
        and (unpack(tensor, dim).numpy() == codes).all()
    )


@given(arrays(np.int8, array_shapes(min_dims=1, max_dims=3, max_side=21), elements=st.integers(-1, 1)))
def test_pack_ternary_holds_two_halves_and_comes_back(codes):
    packed, dim = pack_ternary(codes), codes.shape[-1]
    half = packed.shape[-1] // 2
    assert (unpack(packed[..., :half], dim) == (codes == 1)).all() and (
        unpack(packed[..., half:], dim) == (codes == -1)
    ).all()
    assert (unpack_ternary(packed, dim) == codes).all() and unpack_ternary(packed, dim).dtype == np.int8
    assert (unpack_ternary(pack_ternary(torch.from_numpy(codes)), dim).numpy() == codes).all()


@given(arrays(bool, array_shapes(min_dims=1, max_dims=3, max_side=70)))
def test_active_bits_dense_packed_and_torch(codes):
    expected = codes.sum(-1)
    assert (active_bits(codes) == expected).all() and (active_bits(pack(codes)) == expected).all()
    assert (active_bits(pack(torch.from_numpy(codes))).numpy() == expected).all()


def test_counting_bits_without_numpy_2(monkeypatch):
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    old = importlib.util.module_from_spec(packing.__spec__)
    packing.__spec__.loader.exec_module(old)
    codes = random_codes(50, 100)
    assert (old.active_bits(pack(codes)) == codes.sum(-1)).all()


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: pack(np.zeros((2, 8))), "bool; got float64"),
        (lambda: pack(torch.zeros(2, 8)), "bool; got float32"),
        (lambda: unpack(np.zeros((2, 2), bool), 9), "packed must be uint8; got bool"),
        (lambda: unpack(np.zeros((2, 2), np.uint8), 17), "17 dimensions pack into 3 bytes; got 2"),
        (lambda: unpack(np.full((2, 2), 255, np.uint8), 9), "bits after dimension 9 must be 0"),
        (lambda: pack_ternary(np.zeros((2, 8))), "int8; got float64"),
        (lambda: pack_ternary(np.full((2, 8), 2, np.int8)), "from 2 to 2"),
        (lambda: unpack_ternary(np.zeros((2, 3), np.uint8), 9), "4 bytes; got 3"),
        (lambda: unpack_ternary(np.full((2, 2), 1, np.uint8), 8), "+1 and -1 at once"),
        (lambda: active_bits(np.zeros((2, 8))), "got float64"),
    ],
)
def test_packing_refuses(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value)


def test_packing_takes_lists_frames_and_views():
    codes = random_codes(6, 11)
    for same in codes.tolist(), pd.DataFrame(codes), codes[::-1][::-1], codes[::-1].copy()[::-1]:
        assert (pack(same) == pack(codes)).all() and (active_bits(same) == codes.sum(-1)).all()
    packed, ternary = pack(codes), codes.astype(np.int8) * np.array([1, -1] * 5 + [1], np.int8)
    for same in packed[::-1][::-1], pd.DataFrame(packed), np.lib.stride_tricks.as_strided(packed):
        assert (unpack(same, 11) == codes).all()
    assert (pack_ternary(ternary[:, ::-1]) == pack_ternary(ternary[:, ::-1].copy())).all()
