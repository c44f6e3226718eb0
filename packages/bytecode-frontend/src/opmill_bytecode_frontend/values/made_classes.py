"""Classes made in captured code, and the descriptors in their bodies.

While code is captured, a *model* stands for such a class: a real class with the same name, bases and methods, in whose dictionary stand-ins
take the place of what has no constant. Lookup, ``isinstance``, ``super`` and the data model see the model; what leaves the capture is a
class that each call makes anew."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Hashable, Sequence
from typing import Any

from .assigned_attributes import StandIn, function_stand_in
from .base import MISSING, Machine, NotConstant, Value
from .classes import ClassValue
from .constant import ConstantValue
from .functions import CellValue, Closure, FunctionValue
from .mapping import DictValue, SetValue
from .objects import ObjectValue
from .sequence import ListValue, TupleValue

#: Objects in a class's body that tell Python's library what to make of a name.
TOLD = (dataclasses.Field, enum.auto)


class NewClass(ClassValue):
    """A class made in captured code. ``obj`` is its model. Each call makes it by ``maker(*given, name, bases, namespace, **named)``, where
    ``namespace`` is what the body of a class statement left behind; without one by ``maker(*given, **named)``. ``steps``: what happened to
    the class afterwards."""

    def __init__(
        self,
        model: type,
        maker: object,
        given: list[Value],
        bases: Sequence[Value],
        namespace: dict[str, Value] | None,
        named: dict[str, Value],
        cell: CellValue | None = None,
    ) -> None:
        super().__init__(model)
        self.maker = maker
        self.given = given
        self.bases = bases
        self.namespace = namespace
        self.named = named
        self.cell = cell
        """The one that ``super()`` and ``__class__`` of its methods read."""
        self.steps: list[tuple[object, list[Value]]] = []
        """Functions that were called with the class and more arguments."""

    def constant(self) -> object:
        raise NotConstant(f"class {self.obj.__qualname__}, which is made in captured code,")

    def real(self) -> object:
        return MISSING

    def key(self, vm: Machine) -> Hashable:
        return self

    def keep(self, vm: Machine, name: str, value: Value | None) -> None:
        what = f"assignment to class attribute {self.obj.__qualname__}.{name}"
        if name[:2] == name[-2:] == "__":
            vm.unsupported("FE042", what, "it changes what operations on its objects mean")
        try:
            found = [] if value is None else [stand_in(vm, value)]
        except NotConstant as exc:
            vm.unsupported("FE042", what, str(exc))
        change = type.__setattr__ if found else type.__delattr__
        change(self.obj, name, *found)
        self.steps.append((change, [ConstantValue(name), *([] if value is None else [value])]))


class DescriptorValue(Value):
    """A property, class method or static method of functions made in captured code."""

    def __init__(self, kind: Any, parts: list[Value]) -> None:
        self.kind = kind
        self.parts = parts

    def python_type(self) -> type:
        return self.kind

    def getattr(self, vm: Machine, name: str) -> Value:
        if self.kind is property and name in ("getter", "setter", "deleter"):
            place = ("getter", "setter", "deleter").index(name)
            return Closure(lambda vm, function: self.replaced(place, function))
        if self.kind is property and name in ("fget", "fset", "fdel"):
            return dict(zip(("fget", "fset", "fdel"), self.parts)).get(name, ConstantValue(None))
        if self.kind is not property and name in ("__func__", "__wrapped__"):
            return self.parts[0]
        if name == "__doc__" or (self.kind is not property and name in functools.WRAPPER_ASSIGNMENTS):
            return vm.getattr(self.parts[3] if name == "__doc__" and len(self.parts) > 3 else self.parts[0], name)
        return super().getattr(vm, name)

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.call(self.parts[0], args, kwargs) if self.kind is staticmethod else super().call(vm, args, kwargs)

    def replaced(self, place: int, function: Value) -> DescriptorValue:
        """The property with another function for reading (0), writing (1) or deleting (2)."""
        parts = [*self.parts, *[ConstantValue(None)] * 3][: max(3, len(self.parts))]
        parts[place] = function
        return DescriptorValue(property, parts)


def stand_in(vm: Machine, value: Value, inside: bool = False) -> object:
    """What stands for a value in the dictionary of a model; the interpreter knows it as that value. ``inside``: whether it is part of
    another value there."""
    if type(value) is ConstantValue:
        return value.value
    if isinstance(value, DescriptorValue):
        made: object = value.kind(*[stand_in(vm, part, True) for part in value.parts])
        vm.know(made, value)
        return made
    if isinstance(value, TupleValue) and value.cls is tuple and not value.items:
        return ()  # there is one of it only: nobody asks what it stands for
    real = value.real()
    if real is not MISSING:
        if type(vm.hook(type(real), "__set_name__")) is types.FunctionType:
            raise NotConstant(f"{value.describe()}, which is told its name,")
        return real
    made = StandIn()
    if isinstance(value, FunctionValue):
        made = function_stand_in(value)
    elif isinstance(value, NewClass):
        return value.obj
    elif isinstance(value, TupleValue) and value.items:
        made = value.assembled([stand_in(vm, item, True) for item in value.values(vm)])
    elif isinstance(value, ListValue) and value.cls is list:
        made = [stand_in(vm, item, True) for item in value.values(vm)]
    elif type(value) is SetValue and value.cls is set:
        made = {stand_in(vm, item, True) for item in value.items.values()}
    elif type(value) is DictValue and value.cls is dict:
        made = {stand_in(vm, key, True): stand_in(vm, item, True) for key, item in zip(value.key_values(vm), value.all_values(vm))}
    elif isinstance(value, ObjectValue) and value.cls in TOLD:
        if inside:  # asked from there it would be the one of before the library changed it
            raise NotConstant(f"{value.describe()}, which is in something else, too,")
        made = object.__new__(value.cls)
        for name, item in [*value.slots.items(), *((key, item) for key, (_, item) in value.attrs.items.items() if value.has_dict())]:
            object.__setattr__(made, name, stand_in(vm, item, True))
        return made  # the library changes it
    elif any(vm.hook(value.python_type(), name) is not MISSING for name in ("__get__", "__set__", "__delete__", "__set_name__")):
        raise NotConstant(f"{value.describe()}, which is asked for what it stands for,")
    elif value.python_type().__hash__ is None:
        raise NotConstant(f"{value.describe()}, which has no hash,")
    vm.know(made, value)
    return made


__all__ = ["DescriptorValue", "NewClass", "stand_in"]
