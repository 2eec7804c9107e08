"""Triton's language in NumPy, as far as the fused kernels use it: a program is a call of the kernel.

So their logic is tried on a machine without a GPU and without Triton.
"""

import types

import numpy as np


class Place:
    "A pointer into a flat array, or a block of pointers."

    def __init__(self, flat, at=0):
        self.flat, self.at = flat, at

    def __add__(self, steps):
        return Place(self.flat, self.at + steps)


def load(place, mask=True, other=0):
    at, mask = np.broadcast_arrays(place.at, mask)
    return np.where(mask, place.flat[np.where(mask, at, 0)], np.asarray(other, place.flat.dtype))[()]


def store(place, value, mask=True):
    at, value, mask = np.broadcast_arrays(place.at, value, mask)
    place.flat[at[mask]] = value[mask]


def where(chosen, a, b):
    kinds = {v.dtype for v in (a, b) if isinstance(v, np.ndarray | np.generic)}
    return np.where(chosen, a, b).astype(max(kinds, default=np.float32))[()]


def arange(start, stop):
    assert stop & stop - 1 == 0, "the sides of a tile are powers of two"
    return np.arange(start, stop, dtype=np.int32)


def cast(x, dtype, bitcast=False):
    x = np.asarray(x)
    return (x.view(dtype) if bitcast else x.astype(dtype))[()]


def largest(x, axis, keep_dims=False):
    return np.max(x, axis, keepdims=keep_dims)


def argmax(x, axis):
    return np.argmax(x, axis).astype(np.int32)


LANGUAGE = dict(load=load, store=store, where=where, arange=arange, cast=cast, argmax=argmax)
LANGUAGE |= dict(max=largest, sum=np.sum, abs=np.abs, minimum=np.minimum, full=np.full)
LANGUAGE |= {name: getattr(np, name) for name in ("int32", "int64", "float32", "float64")}


def run(kernel, programs, arrays, *values):
    "All programs of a kernel, one after the other, on NumPy arrays."
    language = types.SimpleNamespace(**LANGUAGE)
    kernel = types.FunctionType(kernel.__code__, kernel.__globals__ | {"tl": language})
    places = [Place(a.reshape(-1)) for a in arrays]
    with np.errstate(invalid="ignore", over="ignore"):  # outside the matrix there is -inf - -inf
        for number in range(programs):
            language.program_id = {0: number}.__getitem__
            kernel(*places, *values)
