"""What builtin functions and types make of objects of the program, and of arguments that do not fit: in Python's order, as often, in its
words."""

from __future__ import annotations

import functools
import inspect
import operator
from collections import deque

import pytest
import torch
from differing import attempt, differs, told


class Index:
    def __index__(self):
        return len(told("ab"))


class Multiplied(Index):
    def __rmul__(self, other):
        return told("rmul")


class Rounded:
    def __round__(self, *digits):
        return told(("round", *digits))

    def __floor__(self):
        return told("floor")


class Ordered:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        return told((self.value, other.value)) and self.value < other.value


@functools.lru_cache
def cached(value):
    return value


def sorted_by(x, reverse):
    items = [Ordered(n) for n in (3, 1, 2, 1)]
    items.sort(reverse=reverse)
    return [item.value for item in items], x + 1


def changed_while_sorted(x):
    items = [2, 1]

    def key(value):
        items.append(told(len(items)))
        return value

    return attempt(lambda: items.sort(key=key)), items, x + 1


def floors(x):
    import math

    return math.floor(Rounded()), x + 1


class Called:
    def __call__(self, a, b: int = 2, *rest):
        return a


CALLED, NET = Called(), torch.nn.Identity()
PROGRAMS = {
    "repetition by an object": lambda x: ([1] * Index(), Index() * (1,), attempt(lambda: [1] * Multiplied()), attempt(lambda: [1] * 1.5), x + 1),
    "slices by objects": lambda x: ([1, 2, 3, 4][Index() :], (1, 2, 3)[: Index()], [1, 2, 3, 4][Index() :: Index()], x + 1),
    "rounding": lambda x: (round(Rounded()), round(Rounded(), 2), round(Rounded(), None), x + 1),
    "floor": floors,
    "comparisons while sorting": lambda x: sorted_by(x, False),
    "comparisons while sorting backwards": lambda x: sorted_by(x, True),
    "a list changed while it is sorted": changed_while_sorted,
    "names of attributes": lambda x: (attempt(lambda: getattr(x, 5)), attempt(lambda: getattr(x, 5, 1)), attempt(lambda: hasattr(Index(), None)), attempt(lambda: setattr(Index(), 1, 1)), x + 1),
    "views of dictionaries": lambda x: ({1: 2}.keys() - [1], {1: 2}.keys() & (1, 2), {1: 2}.items() | [(1, 3)], {1: 2}.keys() == {1}, attempt(lambda: {1: 2}.keys() < [1]), x + 1),
    "sets in sets": lambda x: ({1} in {frozenset({1})}, attempt(lambda: {frozenset({1})}.remove({2})), x + 1),
    "deques": lambda x: (attempt(lambda: deque(maxlen=-1)), attempt(lambda: deque(maxlen="a")), deque("abc", maxlen=2), x + 1),
    "what is called later": lambda x: (attempt(lambda: functools.partial(5)), attempt(lambda: map(int)), attempt(lambda: print(1, colour=2)), attempt(lambda: print(sep=3)), x + 1),
    "bounds": lambda x: (attempt(lambda: max(1, 2, default=3)), max([], default=3), min(3, 1), x + 1),
    "variables": lambda x: (attempt(lambda: vars(5)), sorted(vars()), x + 1),
    "identity": lambda x: (id(1) == id(1), id(x) == id(x), x + 1),
    "text": lambda x: (ascii("é"), ascii([1]), repr("é"), x + 1),
    "numbers": lambda x: (operator.index(True), operator.index(Index()), x + 1),
    "caches": lambda x: (attempt(lambda: cached([])), attempt(lambda: cached(([],))), cached(x) + 1),
    "methods without an object": lambda x: (attempt(lambda: set.union()), attempt(lambda: str.upper()), x + 1),
    "signatures": lambda x: (str(inspect.signature(CALLED)), str(inspect.signature(NET)), sorted(inspect.signature(NET.forward).parameters), NET(x)),
    "what is no class": lambda x: (attempt(lambda: isinstance(1, list[int])), attempt(lambda: issubclass(int, list[int])), isinstance(1, int | str), attempt(lambda: inspect.signature(5)), x + 1),
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_builtins_as_python_has_them(program):
    differs(program)
