"""Heaps and sorted lists as Python's C code has them: contents, results, exceptions, and the order of comparisons."""

from __future__ import annotations

import bisect
import collections
import heapq
from random import Random
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.library.builtins.ordered import IN_PYTHON

SEEDS = range(40)


class Noted:
    """Compares and writes that down."""

    def __init__(self, value: int, log: list[Any]) -> None:
        self.value, self.log = value, log

    def __lt__(self, other: Noted) -> bool:
        self.log.append((self.value, other.value))
        return self.value < other.value


def outcome(function: Any, items: list[int], *args: Any) -> Any:
    log: list[Any] = []
    noted = [Noted(n, log) for n in items]
    try:
        result = function(noted, *[Noted(a, log) if type(a) is int else a for a in args])
    except Exception as exc:
        result = type(exc).__name__, str(exc)
    return getattr(result, "value", result), [n.value for n in noted], log


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_comparisons_in_the_same_order(seed: int) -> None:
    choices = Random(seed)
    items = [choices.randrange(9) for _ in range(choices.randrange(14))]
    new = choices.randrange(9)
    heap = [n.value for n in sorted((Noted(n, []) for n in items), key=lambda n: n.value)]
    for name, function in IN_PYTHON.items():
        module = heapq if hasattr(heapq, name) else bisect
        takes = [new] if name not in ("heapify", "heappop", "_heapify_max", "_heappop_max") else []
        start = items if name.endswith(("heapify", "heapify_max")) else heap[::-1] if name.endswith("max") else heap
        assert outcome(function, start, *takes) == outcome(getattr(module, name), start, *takes), name


def heaps(x: Any, k: int) -> Any:
    q = [3, 1, k, 2, 5]
    heapq.heapify(q)
    heapq.heappush(q, 0)
    m = heapq.heappop(q) + heapq.heappushpop(q, 4) + heapq.heapreplace(q, 9)
    return x + m, q, heapq.nsmallest(2, q), heapq.nlargest(2, q, key=lambda n: -n), list(heapq.merge([1, 4], [2, 3]))


def sorted_lists(x: Any, k: int) -> Any:
    a = [1, 3, 5]
    bisect.insort(a, k)
    bisect.insort_left(a, 3, key=lambda n: n % 4)
    return x * bisect.bisect(a, 3), bisect.bisect_left(a, 3, 1), bisect.bisect_right((1, 2, 2), 2, hi=2), a


def too_few(x: Any, k: int) -> Any:
    return x, heapq.heappop([])


def below(x: Any, k: int) -> Any:
    return x, bisect.bisect([1], 1, -1)


@pytest.mark.parametrize("fn", [heaps, sorted_lists, too_few, below], ids=lambda fn: fn.__name__)
def test_captured_whole(fn: Any) -> None:
    def result(how: Any) -> Any:
        try:
            return str(how(torch.ones(2), 4))
        except Exception as exc:
            return type(exc).__name__, str(exc)

    compiled = capture(fn, "eager", fullgraph=True)
    assert result(compiled) == result(fn) == result(compiled)


class Asked:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __lt__(self, other: Asked) -> bool:
        return bool(self.x.sum().item() < other.x.sum().item())


def test_comparisons_may_break() -> None:
    def fn(x: Any) -> Any:
        heap: list[Any] = []
        for factor in (3, 1, 2):
            heapq.heappush(heap, Asked(x * factor))
        return [heapq.heappop(heap).x + 1 for _ in range(3)]

    x = torch.ones(2)
    assert torch.equal(torch.stack(capture(fn, "eager")(x)), torch.stack(fn(x)))


def test_a_heap_is_a_list() -> None:
    def f(x: Any) -> Any:
        try:
            return heapq.heappop(collections.deque([1])), x
        except TypeError as error:
            return str(error), x

    assert capture(f, "eager")(torch.ones(1))[0] == f(torch.ones(1))[0]
