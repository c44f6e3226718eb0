"""Objects of NumPy's own classes: what its functions keep of their arguments, and walks over positions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...values.arrays import ArrayValue, is_symbolic
from ...values.base import Machine, NotConstant, Value
from ...values.constant import ConstantValue
from ...values.iterators import STOP, IteratorValue
from ...values.sequence import TupleValue
from .asking import ask, refuse
from .sizes import assume, changing

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


class Converter(Value):
    """``_array_converter(*arrays)``, of arrays alone: they are what they are, and so are results."""

    def __init__(self, cls: type, arrays: list[Value]) -> None:
        self.cls, self.arrays = cls, arrays

    def python_type(self) -> type:
        return self.cls

    def getattr(self, vm: Any, name: str) -> Value:
        if name == "scalar_input":
            return TupleValue([ConstantValue(False) for _ in self.arrays])
        return super().getattr(vm, name)

    def m___getitem__(self, vm: Interpreter, at: Value) -> Value:
        return TupleValue(list(self.arrays)).method(vm, "__getitem__", [at], {})

    def m___len__(self, vm: Interpreter) -> Value:
        return ConstantValue(len(self.arrays))

    def m_as_arrays(self, vm: Interpreter, **told: Value) -> Value:
        return TupleValue(list(self.arrays))

    def m_wrap(self, vm: Interpreter, result: Value, to_scalar: Value | None = None) -> Value:
        if not isinstance(result, ArrayValue) or (to_scalar is not None and vm.truth(to_scalar)):
            return refuse(vm, "_array_converter", "its result is no array")
        return result


class Broadcast(Value):
    """``numpy.broadcast(*arrays)``, of which the program asks how large the result would be."""

    def __init__(self, cls: type, made: object) -> None:
        self.cls, self.made = cls, made

    def python_type(self) -> type:
        return self.cls

    def getattr(self, vm: Machine, name: str) -> Value:
        if name not in ("shape", "size", "ndim", "nd", "numiter"):
            vm.unsupported("FE085", f"{name} of numpy.broadcast", "there is no program of torch for it")
        return vm.fresh(getattr(self.made, name))


class Walk(IteratorValue):
    """``numpy.ndindex(*shape)``, or ``numpy.ndenumerate(array)``."""

    def __init__(self, cls: type, places: Iterator[tuple[int, ...]], array: ArrayValue | None) -> None:
        self.cls, self.places, self.array = cls, places, array

    def python_type(self) -> type:
        return self.cls

    def next(self, vm: Machine) -> Value:
        place = next(self.places, None)
        if place is None:
            return STOP
        where = TupleValue([ConstantValue(n) for n in place])
        return where if self.array is None else TupleValue([where, self.array.method(vm, "__getitem__", [where], {})])


def walk(vm: Interpreter, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What the class makes; None for other classes."""
    if cls.__module__ != "numpy" or cls.__name__ not in ("ndindex", "ndenumerate") or kwargs:
        return None
    if cls.__name__ == "ndenumerate":
        if len(args) != 1 or not isinstance(args[0], ArrayValue) or is_symbolic(args[0].inner.fake):
            return None
        return Walk(cls, itertools.product(*map(range, args[0].like.shape)), args[0])
    try:
        given = [vm.plain(a) for a in args]
    except NotConstant:
        return None
    shape = given[0] if len(given) == 1 and isinstance(given[0], tuple) else tuple(given)
    return Walk(cls, itertools.product(*map(range, shape)), None) if all(type(n) is int and n >= 0 for n in shape) else None


def converter(vm: Interpreter, cls: type, args: list[Value]) -> Value | None:
    """What the class makes; None for other classes, and for other arguments."""
    if cls.__name__ not in ("_array_converter", "broadcast") or not all(isinstance(a, ArrayValue) and not a.is_number for a in args):
        return None
    if cls.__name__ == "_array_converter":
        return Converter(cls, args)
    assume(vm, changing(vm, args))
    return Broadcast(cls, ask(vm, cls, "broadcast", args, {}))


__all__ = ["converter", "walk"]
