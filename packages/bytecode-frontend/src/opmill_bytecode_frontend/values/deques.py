"""``collections.deque``."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

from opmill_guards.source import Source

from .base import Machine, Value
from .constant import ConstantValue
from .iterators import STOP, ItemsIterator
from .sequence import ListValue, SequenceValue, whole

ITERATOR: type = type(iter(collections.deque()))
REVERSED: type = type(reversed(collections.deque()))


def longest(vm: Machine, maxlen: Value) -> int | None:
    """The bound that a deque is given; None: it has none."""
    if maxlen.python_type() is type(None):
        return None
    if not issubclass(maxlen.python_type(), int):
        vm.throw(TypeError, "an integer is required")
    number = whole(vm, maxlen)
    if number < 0:
        vm.throw(ValueError, "maxlen must be non-negative")
    return number


class DequeValue(ListValue):
    """A deque, perhaps of bounded length."""

    cls = collections.deque

    def __init__(self, items: list[Any], source: Source | None = None, obj: object = None, maxlen: int | None = None) -> None:
        super().__init__(items if maxlen is None else items[max(0, len(items) - maxlen) :], None, source, obj)
        self.maxlen = maxlen
        self.version = 0
        """How often items were added, taken or moved."""

    def make(self, items: list[Value]) -> SequenceValue:
        return DequeValue(items, maxlen=self.maxlen)

    def changed(self, vm: Machine) -> Value:
        self.version += 1
        if self.maxlen is not None and len(self.items) > self.maxlen:
            del self.items[: len(self.items) - self.maxlen]
        return super().changed(vm)

    def walk(self, kind: type, position: Callable[[int], int]) -> Value:
        """An iterator that gives the item at ``position(i)`` and notices changes."""
        version = self.version

        def read(vm: Machine, i: int) -> Value:
            if version != self.version and i <= len(self.items):
                vm.throw(RuntimeError, "deque mutated during iteration")
            return self.item(vm, position(i)) if i < len(self.items) else STOP

        return ItemsIterator(read, kind, walks=(self, lambda: version == self.version), maker=reversed if kind is REVERSED else iter)

    def iterate(self, vm: Machine) -> Value:
        return self.walk(ITERATOR, lambda i: i)

    def m___reversed__(self, vm: Machine) -> Value:
        return self.walk(REVERSED, lambda i: len(self.items) - 1 - i)

    def places(self, vm: Machine, start: int = 0) -> Iterator[tuple[int, Value]]:
        version = self.version
        for place in super().places(vm, start):
            yield place
            self.unchanged(vm, version, RuntimeError)

    def unchanged(self, vm: Machine, version: int, error: type[Exception]) -> None:
        """What a comparison changes is noticed after it."""
        if version != self.version:
            vm.throw(error, "deque mutated during iteration")

    def m_remove(self, vm: Machine, value: Value) -> Value:
        version = self.version
        for i, item in super().places(vm):
            equal = vm.equal(item, value)
            self.unchanged(vm, version, IndexError)
            if equal:
                self.take(vm, i)
                return ConstantValue(None)
        self.is_not_in(vm, value)

    def no_index(self, kind: str) -> str:
        return f"sequence index must be integer, not {kind!r}"

    def m___getitem__(self, vm: Machine, key: Value) -> Value:
        return self.item(vm, self.index_of(vm, key))

    def m___setitem__(self, vm: Machine, key: Value, value: Value) -> Value:
        self.items[self.index_of(vm, key)] = value
        return super().changed(vm)

    def m___delitem__(self, vm: Machine, key: Value) -> Value:
        del self.items[self.index_of(vm, key)]
        return self.changed(vm)

    def m___add__(self, vm: Machine, other: Value) -> Value:
        return super().m___add__(vm, other) if isinstance(other, DequeValue) else ConstantValue(NotImplemented)

    def m_extend(self, vm: Machine, other: Value) -> Value:
        self.items.extend(vm.unpack(other))
        return self.changed(vm)

    def m_appendleft(self, vm: Machine, value: Value) -> Value:
        self.items.insert(0, value)
        if self.maxlen is not None:
            del self.items[self.maxlen :]
        return self.changed(vm)

    def m_extendleft(self, vm: Machine, other: Value) -> Value:
        for value in list(vm.unpack(other)):
            self.m_appendleft(vm, value)
        return ConstantValue(None)

    def m_insert(self, vm: Machine, index: Value, value: Value) -> Value:
        if self.maxlen is not None and len(self.items) >= self.maxlen:
            vm.throw(IndexError, "deque already at its maximum size")
        return super().m_insert(vm, index, value)

    def m_pop(self, vm: Machine) -> Value:  # type: ignore[override]
        return self.take_end(vm, -1)

    def m_popleft(self, vm: Machine) -> Value:
        return self.take_end(vm, 0)

    def take_end(self, vm: Machine, place: int) -> Value:
        if not self.items:
            vm.throw(IndexError, "pop from an empty deque")
        return self.take(vm, place)

    def m_rotate(self, vm: Machine, n: Value = ConstantValue(1)) -> Value:
        if self.items:
            steps = whole(vm, n) % len(self.items)
            self.items[:] = self.items[len(self.items) - steps :] + self.items[: len(self.items) - steps]
        return self.changed(vm)

    def getattr(self, vm: Machine, name: str) -> Value:
        return ConstantValue(self.maxlen) if name == "maxlen" else super().getattr(vm, name)


__all__ = ["DequeValue", "longest"]
