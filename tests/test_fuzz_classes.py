"""Every public method of the public classes x what it is given by mistake: as `test_fuzz` with functions."""

from __future__ import annotations

import copy
import importlib
import inspect
import warnings
from collections import Counter
from functools import cache

import numpy as np
import pytest
from fuzz_classes import CLASSES, LEFT_OUT, UNTOUCHED
from test_fuzz import BAD, is_wrong, listed, mistakes, verdict, worlds

from brace_nb.core import Entry

CHANGING = ("add", "fit", "fit_transform", "remove", "set_output", "set_params", "update", "use")
CALLED = ("__init__", "__call__")


def public_classes(part: str) -> dict:
    "Name -> class of a part."
    module = importlib.import_module(f"brace_nb.{part}")
    return {n: k for n in module.__all__ if isinstance(k := getattr(module, n), type)}


def own_function(kind: type, name: str):
    "A method that a class of the package defines, without its static or class wrapper; None for all else."
    owner = next((k for k in kind.__mro__ if name in vars(k)), None)
    if owner is None or not owner.__module__.startswith("brace_nb"):
        return None
    found = vars(owner)[name]
    found = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    return found if inspect.isfunction(found) else None


def methods_of(kind: type) -> set:
    "Names of the public methods that take arguments, inherited ones too; not of entries, which parts make."
    names = [n for n in dir(kind) if n in CALLED or not n.startswith("_")]
    if issubclass(kind, (tuple, Entry)):
        names = [n for n in names if n != "__init__"]
    functions = {n: f for n in names if (f := own_function(kind, n))}
    return {n for n, f in functions.items() if any(_is_data(p) for p in parameters(f)[1:])}


def parameters(function) -> list:
    return list(inspect.signature(function).parameters.values())


def _is_data(parameter) -> bool:
    "All but a switch: everything has a truth value."
    return parameter.default is not True and parameter.default is not False


def asked(part: str) -> set:
    "`Class.method` of all that must be called."
    return {f"{name}.{method}" for name, kind in public_classes(part).items() for method in methods_of(kind)}


def given(part: str) -> set:
    "`Class.method` of all that has an example."
    return {f"{name}.{method}" for name, (_, calls) in CLASSES[part].items() for method in calls}


def excused(part: str) -> set:
    "`Class.method` of what is left out by the name of the class or of the method."
    names = listed(LEFT_OUT[part])
    return {full for full in asked(part) if full in names or full.split(".")[0] in names}


def as_function(kind: type, make, method: str):
    "The class, or a method of an instance; of a new one for every call that changes it."
    if method == "__init__":
        return kind
    made = make()
    return (lambda **given: getattr(make(), method)(**given)) if method in CHANGING else getattr(made, method)


def fuzz(part: str):
    "(class, `Class.method`, argument, kind of mistake, what happened) of every call."
    for name, (make, calls) in CLASSES[part].items():
        kind = public_classes(part)[name]
        for method, first in calls.items():
            function, called = as_function(kind, make, method), own_function(kind, method)
            defaults = {p.name: p.default for p in parameters(called)}
            for world, example in worlds(first):
                for argument, own in example.items():
                    for mistake, value, oracle in mistakes(own):
                        wrong = is_wrong(mistake, method, argument, own, value, defaults.get(argument, ...))
                        arguments, value = copy.deepcopy(example), copy.deepcopy(value)
                        found, why = verdict(function, arguments, argument, value, oracle, wrong)
                        yield found, f"{name}.{method}", argument + world, mistake, why


@cache
def everything() -> list:
    "(part, class, `Class.method`, argument, kind, what happened) of every call, once."
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [(part, *found) for part in CLASSES for found in fuzz(part)]


@pytest.mark.parametrize("part", CLASSES)
def test_every_public_method_has_an_example_or_a_reason(part):
    "A new method is in neither, and this fails until it has an example, which asks for its guards."
    assert given(part) | excused(part) == asked(part)
    assert not given(part) & excused(part)
    known = asked(part) | set(public_classes(part))
    assert listed(LEFT_OUT[part]) <= known and listed(UNTOUCHED[part]) <= given(part)


@pytest.mark.parametrize("part", CLASSES)
def test_every_example_is_a_right_call(part):
    for name, (make, calls) in CLASSES[part].items():
        for method, first in calls.items():
            for _, example in worlds(first):
                as_function(public_classes(part)[name], make, method)(**copy.deepcopy(example))


def test_at_most_one_call_in_a_hundred_goes_wrong_without_a_name():
    left = {full for part in CLASSES for full in listed(UNTOUCHED[part])}
    found = [f for f in everything() if f[2] not in left]
    counts, bad = Counter(f[1] for f in found), [f for f in found if f[1] in BAD]
    unnamed = sum(f[1] == "unnamed" for f in everything())
    print(f"{len(found):,} calls: {dict(counts)}; without a name {unnamed} of {len(everything()):,} in all")
    assert len(found) >= 6000
    assert counts["equal"] > 400 and counts["named"] > 4000
    assert len(bad) <= 0.01 * len(found), bad[:20]


@pytest.mark.parametrize("part", CLASSES)
def test_no_method_is_left_without_guards(part):
    "More than three ways to fail without a name: those, and only those, that are excused."
    wrong = Counter(f[2] for f in everything() if f[0] == part and f[1] in BAD)
    assert {name for name, n in wrong.items() if n > 3} == listed(UNTOUCHED[part])
