"""Members of enumerations, and other objects that are known by identity: what they are is settled when they are made."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable

from opmill_guards.guard import Is
from opmill_guards.source import Attr, Pinned

from .base import Machine, Value, find_in_mro
from .constant import ConstantValue
from .objects import ObjectValue

SET_LATER = frozenset(("default", "default_factory", "metadata"))
"""What programs set in the fields of a dataclass once it is made."""


class EnumValue(ObjectValue):
    """An enum member: an object by identity, and the str or int that it may be as well."""

    def constant(self) -> object:
        return self.obj

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return ConstantValue(self.obj).find_method(name)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        owner, raw = find_in_mro(self.cls.__mro__, name)
        if type(raw) is types.FunctionType and owner.__module__ != "enum":
            return super().special(vm, name, args)
        return ConstantValue(self.obj).special(vm, name, args)

    def key(self, vm: Machine) -> Hashable:
        return self.obj

    def generic_getattr(self, vm: Machine, name: str) -> Value:
        if name in ("value", "name", "_value_", "_name_"):
            found = getattr(self.obj, name)
            if type(found) in (list, dict, set):  # which is read where it is: a program may write to it
                return self.instance_attribute(vm, "_value_")
            return vm.fresh(found)
        raw = getattr(type(self.obj), name, None)
        if callable(raw) and not hasattr(raw, "__code__"):
            return ConstantValue(self.obj).getattr(vm, name)
        return super().generic_getattr(vm, name)


class FrozenObject(ObjectValue):
    """What describes a class or a function and is never changed once made: known by identity, its parts without guards but for what a
    program may set in a field."""

    def constant(self) -> object:
        return self.obj

    def generic_getattr(self, vm: Machine, name: str) -> Value:
        raw = find_in_mro(self.cls.__mro__, name)[1]
        of_cpp = isinstance(raw, property) and not isinstance(raw.fget, types.FunctionType)
        return self.read_slot(vm, name) if of_cpp else super().generic_getattr(vm, name)

    def read_slot(self, vm: Machine, name: str) -> Value:
        if name not in self.slots:
            try:
                value = getattr(self.obj, name)
            except AttributeError as exc:
                vm.throw_real(exc)
            if name in SET_LATER and self.source is not None:
                vm.guard(Is(Attr(self.source, name), value))
            self.slots[name] = vm.wrap(value, Pinned(value, f"{self.source}.{name}"))
        return self.slots[name]


__all__ = ["EnumValue", "FrozenObject"]
