"""Every public function x what it is given by mistake: a right value, or an error that names the mistake."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import linecache
import math
import traceback
import warnings
from collections import Counter
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from fuzz_examples import EXAMPLES, LEFT_OUT

import brace_nb

PACKAGE = Path(brace_nb.__file__).parent
OURS = (ValueError, TypeError)
LABELS = ("labels", "owner", "captions")  # numbers or texts
ROUNDED = ("background",)  # a fraction is rounded
MISSING = (("near_and_far", "distances"),)  # NaN means that a token does not count
DRAWN = ("gumbel_rounds", "straight_through_assignment", "prequential_losses")  # random numbers by precision
ABOVE_ZERO = ("scale", "temperature", "learning_rate", "std", "alpha", "coldest", "factor", "beta")
FREE_TEXT = ("text", "name", "value", "metric", "error")  # any text is a right one
SIGNED = ("value", "least")  # whole numbers that may be negative


def raised_by_us(error: Exception) -> bool:
    "Is it a `raise` statement of the package that the error comes from?"
    *_, last = traceback.walk_tb(error.__traceback__)
    file, line = last[0].f_code.co_filename, last[1]
    return isinstance(error, OURS) and PACKAGE in Path(file).parents and line in raise_lines(file)


@cache
def raise_lines(file: str) -> frozenset:
    "Numbers of the lines on which a module raises."
    tree = ast.parse("".join(linecache.getlines(file)))
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Raise)]
    return frozenset(i for n in found for i in range(n.lineno, n.end_lineno + 1))


def numbers(result) -> list:
    "All numbers of a result, as float64 arrays."
    if isinstance(result, torch.Tensor):
        return numbers(result.detach().cpu().to(torch.float64 if not result.is_complex() else None).numpy())
    if isinstance(result, np.ndarray):
        return [] if result.dtype.kind in "USOV" else [result.astype(np.float64)]
    if isinstance(result, (bool, int, float, np.generic)):
        return numbers(np.asarray(result))
    if isinstance(result, dict):
        result = list(result.values())
    if is_dataclass(result):
        result = [getattr(result, f.name) for f in fields(result)]
    if inspect.isgenerator(result):
        result = list(result)
    if isinstance(result, (list, tuple)):
        return [n for part in result for n in numbers(part)]
    return []


def finite(result) -> bool:
    "Is there no NaN and no infinity in it?"
    return all(np.isfinite(n).all() for n in numbers(result))


def alike(a, b) -> bool:
    "The same numbers up to half precision; where the one is not finite, nothing false is said."
    a, b = numbers(a), numbers(b)
    if len(a) != len(b) or any(x.shape != y.shape for x, y in zip(a, b)):
        return False
    for x, y in zip(a, b):
        known = np.isfinite(x) & np.isfinite(y)
        size = max(np.abs(y[known]).max(initial=0), 1e-41)  # below that float32 has no numbers
        if (np.abs(x[known] - y[known]) > 0.02 * size).any():
            return False
    return True


def like_example(x, example):
    "An array in the world of the example."
    return torch.from_numpy(x) if isinstance(example, torch.Tensor) else x


def float_arrays(example):
    "(Kind of mistake, what to pass, the same numbers in float64 or None) for an array of numbers."
    x = np.array(example, np.float64)
    top = max(np.abs(x).max(initial=0), 1e-300)
    wrong = x.copy()
    for kind, value in (("NaN", np.nan), ("inf", np.inf), ("minus inf", -np.inf)):
        wrong = x.copy()
        wrong.flat[0] = value
        yield kind, like_example(wrong, example), None
    for kind, dtype, factor in (
        ("int8", np.int8, 20 / top),
        ("float16", np.float16, 1),
        ("float32", np.float32, 1),
        ("1e38", np.float32, 1e38 / top),
        ("1e38 in float64", np.float64, 1e300 / top),
        ("denormal", np.float32, 1e-40 / top),
    ):
        with np.errstate(all="ignore"):
            made = (x * factor).astype(dtype)
        yield kind, like_example(made, example), like_example(made.astype(np.float64), example)
    yield "list", x.tolist(), example
    yield from shapes(example)
    yield "complex", like_example(x + 1j, example), None
    yield "text in it", x.astype(str), None
    yield "objects", np.full(x.shape, None), None


def shapes(example):
    "Empty, one row, mismatched rows or columns, another number of axes."
    yield "empty", example[:0], None
    yield "one row", example[:1], None
    yield "a row less", example[:-1], None
    yield "no axis", example.reshape(-1)[0] if math.prod(example.shape) else example, None
    yield "an axis more", example[None], None
    yield "flat", example.reshape(-1), None
    if example.ndim > 1:
        yield "a column less", example[..., :-1], None
        yield "no columns", example[..., :0], None


def whole_arrays(example):
    "The same for whole numbers, codes and masks."
    x = np.array(example)
    if x.dtype.kind == "U":
        yield from shapes(example)
        return
    yield "floats", like_example(x + 0.5, example), None
    yield "NaN", like_example(np.where(np.arange(x.size).reshape(x.shape) == 0, np.nan, x), example), None
    if x.dtype != bool:
        yield "negative", like_example(-x.astype(np.int64) - 1, example), None
        yield "far too large", like_example(x.astype(np.int64) + 5000, example), None
    yield "list", x.tolist(), example
    yield from shapes(example)
    yield "complex", like_example(x + 1j, example), None
    yield "text in it", x.astype(str), None
    yield "objects", np.full(x.shape, None), None


ANYTHING = [("None", None), ("text", "no such"), ("dict", {"a": 1}), ("object", object()), ("complex", 2j)]


def scalars(example):
    "(Kind, value, None) for a number."
    wrong = [("NaN", math.nan), ("list", [1, 2]), ("empty", []), ("array", np.zeros(3)), *ANYTHING]
    if isinstance(example, int):
        wrong += [
            ("negative", -1),
            ("very negative", -(10**6)),
            ("zero", 0),
            ("fraction", 1.5),
            ("inf", math.inf),
        ]
    else:
        wrong += [("negative", -1.0), ("zero", 0.0), ("inf", math.inf), ("-inf", -math.inf), ("1e38", 1e38)]
        wrong += [("denormal", 1e-310)]
    for kind, value in wrong:
        yield kind, value, None


def mistakes(example):
    "(Kind, what to pass, oracle) for one argument, by what its example is."
    if isinstance(example, (np.ndarray, torch.Tensor)):
        real = (
            isinstance(example, torch.Tensor)
            and example.is_floating_point()
            or (isinstance(example, np.ndarray) and example.dtype.kind == "f")
        )
        yield from float_arrays(example) if real else whole_arrays(example)
        yield from ((kind, value, None) for kind, value in ANYTHING)
        yield from (
            (kind, value, None) for kind, value in (("number", 3), ("float", 0.5), ("empty list", []))
        )
    elif isinstance(example, bool):
        return  # everything has a truth value
    elif isinstance(example, (int, float)):
        yield from scalars(example)
    elif isinstance(example, str):
        wrong = ("number", 3), ("empty", []), ("bytes", b"x"), ("NaN", math.nan), *ANYTHING
        yield from ((kind, value, None) for kind, value in wrong)
    elif isinstance(example, (list, tuple)):
        yield from sequences(example)
    elif isinstance(example, dict):
        wrong = ("number", 3), ("empty", {}), ("list", [1]), ("text", "x"), ("None", None)
        yield from ((kind, value, None) for kind, value in wrong)
        for key in [*example][:1]:
            yield from ((kind, example | {key: v}, None) for kind, v, _ in mistakes(example[key]))
    else:
        wrong = ("number", 3), ("NaN", math.nan), ("empty", []), ("array", np.zeros(3)), *ANYTHING
        yield from ((kind, value, None) for kind, value in wrong)


def sequences(example):
    "The same for a list: of the whole, and of its first entry."
    yield "empty", type(example)(), None
    yield "one entry", example[:1], None
    yield from ((kind, value, None) for kind, value in (("number", 3), ("NaN", math.nan), *ANYTHING))
    if example:
        for kind, value, oracle in mistakes(example[0]):
            right = None if oracle is None else type(example)([oracle, *example[1:]])
            yield f"{kind} in front", type(example)([value, *example[1:]]), right


def is_wrong(kind: str, called: str, name: str, example, value, default) -> bool:
    "May no finite number come of it?"
    if value is default or value is None and default is None:
        return False
    if kind == "fraction" and name in ROUNDED or kind == "NaN" and (called, name) in MISSING:
        return False
    if kind == "text in front" and isinstance(example[0], str) or kind == "text in it" and name in LABELS:
        return False
    kind = kind.replace(" in front", "")
    if kind in ("NaN", "complex", "objects", "object", "text in it"):
        return True
    if kind in ("negative", "very negative", "zero") and name in ABOVE_ZERO:
        return True
    if kind in ("negative", "very negative") and isinstance(example, int):
        return name not in SIGNED
    if kind == "text":
        return not (isinstance(example, str) and name in FREE_TEXT)
    return kind in ("None", "dict", "fraction") and not isinstance(example, (list, dict))


def verdict(function, arguments, name, value, oracle, wrong) -> tuple:
    "(class, what happened)"
    try:
        result = function(**arguments | {name: value})
        result = list(result) if inspect.isgenerator(result) else result
    except Exception as error:
        if raised_by_us(error):
            return "named", ""
        return "unnamed", f"{type(error).__name__}: {str(error)[:90]!r}"
    if wrong:
        return ("accepted", f"{result!r:.80}") if finite(result) else ("not finite", "")
    if oracle is None:
        return ("value" if finite(result) else "not finite"), ""
    try:
        right = function(**arguments | {name: oracle})
        right = list(right) if inspect.isgenerator(right) else right
    except Exception:  # there is no right value
        return "value", ""
    return ("equal", "") if alike(result, right) else ("different", f"{result!r:.60} for {right!r:.60}")


def worlds(example: dict):
    "The arguments, and the same with tensors for arrays where there are arrays."
    yield "", example
    arrays = {k: v for k, v in example.items() if isinstance(v, np.ndarray) and v.dtype.kind in "fiub"}
    if arrays:
        yield " (torch)", example | {k: torch.from_numpy(v.copy()) for k, v in arrays.items()}


def fuzz(part: str):
    "(class, function, argument, kind, what happened) of every call."
    module = importlib.import_module(f"brace_nb.{part}")
    for called, first in EXAMPLES[part].items():
        function = getattr(module, called)
        defaults = {k: p.default for k, p in inspect.signature(function).parameters.items()}
        for world, example in worlds(first):
            for name, own in example.items():
                if part == "core" and name == "name":
                    continue  # of the error only
                for kind, value, oracle in mistakes(own):
                    wrong = is_wrong(kind, called, name, own, value, defaults.get(name, inspect._empty))
                    arguments = copy.deepcopy(example)
                    oracle = None if called in DRAWN else oracle
                    found, why = verdict(function, arguments, name, copy.deepcopy(value), oracle, wrong)
                    yield found, called + world, name, kind, why


BAD = ("unnamed", "accepted", "different")  # another's error; a finite answer to nonsense; a wrong number


@cache
def everything() -> list:
    "(part, class, function, argument, kind, what happened) of every call, once."
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [(part, *found) for part in EXAMPLES for found in fuzz(part)]


def listed(names) -> set:
    return {n for group in names for n in group.split()}


@pytest.mark.parametrize("part", EXAMPLES)
def test_every_public_function_has_an_example_or_a_reason(part):
    module = importlib.import_module(f"brace_nb.{part}")
    public = {n for n in module.__all__ if callable(getattr(module, n)) and n[0].islower()}
    public |= {"ArrayRule"} if part == "core" else set()
    assert set(EXAMPLES[part]) | listed(LEFT_OUT[part]) == public
    assert not set(EXAMPLES[part]) & listed(LEFT_OUT[part])


@pytest.mark.parametrize("part", EXAMPLES)
def test_every_example_is_a_right_call(part):
    module = importlib.import_module(f"brace_nb.{part}")
    for name, example in EXAMPLES[part].items():
        for _, arguments in worlds(example):
            getattr(module, name)(**copy.deepcopy(arguments))


def test_at_most_one_call_in_a_hundred_goes_wrong_without_a_name():
    found = everything()
    counts, bad = Counter(f[1] for f in found), [f for f in found if f[1] in BAD]
    print(f"{len(found):,} calls: {dict(counts)}")
    assert len(found) >= 10_000
    assert counts["equal"] > 1000 and counts["named"] > 5000
    assert len(bad) <= 0.01 * len(found), bad[:20]


@pytest.mark.parametrize("part", EXAMPLES)
def test_no_function_is_left_without_guards(part):
    "A function whose guards are gone fails in more than three ways."
    wrong = Counter(f[2] for f in everything() if f[0] == part and f[1] in BAD)
    assert not {name: n for name, n in wrong.items() if n > 3}
