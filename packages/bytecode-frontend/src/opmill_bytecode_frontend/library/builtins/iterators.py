"""Builtin iterators: ``enumerate``, ``zip``, ``map``, ``filter``, ``reversed``, as Python generators over tracked values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...values.base import Machine, Value, class_has
from ...values.constant import ConstantValue
from ...values.iterators import STOP, ItemsIterator, PythonIterator
from ...values.sequence import TupleValue, demanded_index
from ..registry import handles
from . import unfinished

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


@handles(enumerate)
def enumerate_(vm: Interpreter, items: Value, start: Value = ConstantValue(0)) -> Value:
    """``enumerate()``."""
    i = demanded_index(vm, start).constant()
    inner = vm.iterate(items)

    def make(vm: Machine) -> Iterator[Value]:
        nonlocal i
        while (item := vm.next(inner)) is not STOP:
            i += 1
            yield TupleValue([ConstantValue(i - 1), item])

    return PythonIterator(make, enumerate, lambda: [inner, ConstantValue(i)])


@handles(zip)
def zip_(vm: Interpreter, *iterables: Value, strict: Value = ConstantValue(False)) -> Value:
    """``zip()``; with ``strict`` it raises where one is shorter."""
    inner = [vm.iterate(v) for v in iterables]

    def make(vm: Machine) -> Iterator[Value]:
        while inner:
            row = []
            for i, it in enumerate(inner):
                item = vm.next(it)
                if item is STOP:
                    longer = [] if i or not vm.truth(strict) else [o for o in range(1, len(inner)) if vm.next(inner[o]) is not STOP][:1]
                    if longer or (i and vm.truth(strict)):
                        other, what = (longer[0], "longer") if longer else (i, "shorter")
                        vm.throw(ValueError, f"zip() argument {other + 1} is {what} than argument{' ' if other == 1 else 's 1-'}{other}")
                    return
                row.append(item)
            yield TupleValue(row)

    return PythonIterator(make, zip, lambda: list(inner), unfinished.zip_strict if vm.truth(strict) else zip)


@handles(map)
def map_(vm: Interpreter, fn: Value, *iterables: Value) -> Value:
    """``map()``: the function is called when an item is asked for."""
    if not iterables:
        vm.throw(TypeError, "map() must have at least two arguments.")
    inner = [vm.iterate(v) for v in iterables]

    def make(vm: Machine) -> Iterator[Value]:
        while True:
            row = []
            for it in inner:
                item = vm.next(it)
                if item is STOP:
                    return
                row.append(item)
            yield vm.call(fn, row, {})

    return PythonIterator(make, map, lambda: [fn, *inner])


@handles(filter)
def filter_(vm: Interpreter, fn: Value, items: Value) -> Value:
    """``filter()``; None keeps what is true."""
    inner = vm.iterate(items)
    plain = isinstance(fn, ConstantValue) and fn.value is None

    def make(vm: Machine) -> Iterator[Value]:
        while (item := vm.next(inner)) is not STOP:
            if vm.truth(item if plain else vm.call(fn, [item], {})):
                yield item

    return PythonIterator(make, filter, lambda: [fn, inner])


@handles(reversed)
def reversed_(vm: Interpreter, items: Value) -> Value:
    """``reversed()``: by ``__reversed__``, or by length and positions."""
    if isinstance(items, ConstantValue) and isinstance(items.value, (range, str, bytes, tuple)):
        return items.m___reversed__(vm)
    result = items.special(vm, "__reversed__", [])
    if result is not None:
        return result
    cls = items.python_type()
    if not class_has(vm, items, "__getitem__") or class_has(vm, items, "__reversed__"):
        vm.throw(TypeError, f"{cls.__name__!r} object is not reversible")
    length = items.special(vm, "__len__", [])
    if length is None:
        vm.throw(TypeError, f"object of type {cls.__name__!r} has no len()")
    n = length.constant()

    def read(vm: Machine, i: int) -> Value:
        return vm.getitem(items, ConstantValue(n - 1 - i)) if i < n else STOP

    return ItemsIterator(read, reversed)
