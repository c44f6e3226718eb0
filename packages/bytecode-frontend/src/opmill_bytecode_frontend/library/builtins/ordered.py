"""Heaps and sorted lists: what Python implements in C for them, over tracked values and with the program's own comparisons."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, MutableSequence
from typing import TYPE_CHECKING, Any, Protocol

from opmill_guards.source import Pinned

from ...values.base import Value
from ...values.sequence import ListValue
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


class Ordered(Protocol):
    """What has an order among its like."""

    def __lt__(self, other: Any, /) -> bool: ...


Before = Callable[[Ordered, Ordered], bool]
Key = Callable[[Ordered], Ordered]


# ---- heaps: the smallest item is first, the children of item i are items 2i+1 and 2i+2 -----------------------------------------------


def rise(heap: list[Ordered], start: int, place: int, before: Before) -> None:
    """The item at ``place`` changes places with its parents, up to ``start``, for as long as it comes before them."""
    item = heap[place]
    while place > start:
        parent = (place - 1) >> 1
        if not before(item, heap[parent]):
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def sink(heap: list[Ordered], start: int, before: Before) -> None:
    """The item at ``start`` goes down to a leaf, the earlier child always takes its place; from there it rises to where it belongs."""
    end, place, item = len(heap), start, heap[start]
    child = 2 * start + 1
    while child < end:
        other = child + 1
        if other < end and not before(heap[child], heap[other]):
            child = other
        heap[place] = heap[child]
        place, child = child, 2 * child + 1
    heap[place] = item
    rise(heap, start, place, before)


def less(one: Ordered, other: Ordered) -> bool:
    """The order of heaps with the smallest first."""
    return one < other


def more(one: Ordered, other: Ordered) -> bool:
    """The order of heaps with the largest first."""
    return other < one


def build(heap: list[Ordered], before: Before = less) -> None:
    """Makes a heap of a list."""
    for place in range(len(heap) // 2 - 1, -1, -1):
        sink(heap, place, before)


def push(heap: list[Ordered], item: Ordered) -> None:
    """``heapq.heappush``."""
    heap.append(item)
    rise(heap, 0, len(heap) - 1, less)


def pop(heap: list[Ordered], before: Before = less) -> Ordered:
    """Takes the first item of a heap."""
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    return replace(heap, last, before) if heap else last


def replace(heap: list[Ordered], item: Ordered, before: Before = less) -> Ordered:
    """Takes the first item of a heap and puts another into it."""
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    sink(heap, 0, before)
    return first


def push_and_pop(heap: list[Ordered], item: Ordered) -> Ordered:
    """``heapq.heappushpop``."""
    return replace(heap, item) if heap and heap[0] < item else item


def build_max(heap: list[Ordered]) -> None:
    """Makes a heap of a list with the largest first."""
    build(heap, more)


def pop_max(heap: list[Ordered]) -> Ordered:
    """Takes the largest item of a heap."""
    return pop(heap, more)


def replace_max(heap: list[Ordered], item: Ordered) -> Ordered:
    """The same with the largest."""
    return replace(heap, item, more)


# ---- sorted lists --------------------------------------------------------------------------------------------------------------------


def place_after(a: MutableSequence[Ordered], x: Ordered, lo: int = 0, hi: int | None = None, *, key: Key | None = None) -> int:
    """Where ``x`` goes behind all that are not greater."""
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


def place_before(a: MutableSequence[Ordered], x: Ordered, lo: int = 0, hi: int | None = None, *, key: Key | None = None) -> int:
    """Where ``x`` goes before all that are not less."""
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


def insert_after(a: MutableSequence[Ordered], x: Ordered, lo: int = 0, hi: int | None = None, *, key: Key | None = None) -> None:
    """``bisect.insort_right``."""
    a.insert(place_after(a, x if key is None else key(x), lo, hi, key=key), x)


def insert_before(a: MutableSequence[Ordered], x: Ordered, lo: int = 0, hi: int | None = None, *, key: Key | None = None) -> None:
    """``bisect.insort_left``."""
    a.insert(place_before(a, x if key is None else key(x), lo, hi, key=key), x)


IN_PYTHON: dict[str, object] = {
    "heapify": build, "heappush": push, "heappop": pop, "heapreplace": replace, "heappushpop": push_and_pop,
    "_heapify_max": build_max, "_heappop_max": pop_max, "_heapreplace_max": replace_max,
    "bisect_right": place_after, "bisect_left": place_before, "insort_right": insert_after, "insort_left": insert_before,
}  # fmt: skip


def in_python(function: object, name: str) -> Callable[..., Value]:
    """A handler for a function of C: interprets ``function``, which does the same in Python. ``name``: what messages call it."""

    def handler(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
        if name in vars(heapq) and not (args and isinstance(args[0], ListValue) and issubclass(args[0].python_type(), list)):
            vm.unsupported("FE011", f"call of {name} on something other than a list")
        return vm.call(vm.wrap(function, Pinned(function, name)), list(args), kwargs)

    return handler


for _name, _function in IN_PYTHON.items():
    for _module in (heapq, bisect):
        if hasattr(_module, _name):
            handles(getattr(_module, _name))(in_python(_function, _name))
