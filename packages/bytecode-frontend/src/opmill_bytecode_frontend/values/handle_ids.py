"""What torch numbers the handles of hooks by: one counter for all, from which each call takes the next numbers."""

from __future__ import annotations

from collections.abc import Container
from typing import Callable, Hashable, NamedTuple

import torch
from torch.nn.modules import module
from torch.utils.hooks import RemovableHandle

from opmill_guards.source import Attr, InstanceDict, Item, Pinned, Referent, Source

from .base import Machine, Value
from .constant import ConstantValue

COUNTER = "next_id"
SOURCE = Attr(Pinned(RemovableHandle, RemovableHandle.__qualname__), COUNTER)
TABLES = frozenset(name for name, held in vars(torch.nn.Module()).items() if "hook" in name and isinstance(held, dict))
"""The dictionaries of a module whose keys are such numbers."""
GLOBAL_TABLES = [held for name, held in vars(module).items() if name.startswith("_global_") and "hook" in name and isinstance(held, dict)]
"""Those that are for all modules."""


def claim(count: int) -> int:
    """The first of so many numbers that nobody else is given."""
    first = RemovableHandle.next_id
    RemovableHandle.next_id = first + count
    return first


class HandleKey(NamedTuple):
    """A key that no dictionary of hooks has from before the call."""

    offset: int


class IdOfHandle(Value):
    """The number of a handle: among hooks a key that is not assumed. All else is asked of it as of another int that changes."""

    vm: Machine
    told_later = True

    def python_type(self) -> type:
        return int

    def number(self) -> Value:
        """It as an int that changes from call to call."""
        raise NotImplementedError

    def key(self, vm: Machine) -> Hashable:
        return vm.key(self.number())

    def constant(self) -> object:
        return self.number().constant()

    def truth(self, vm: Machine) -> bool:
        return vm.truth(self.number())

    def as_operand(self, vm: Machine) -> Value:
        return self.number()

    as_subscript = as_operand

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if not hasattr(int, name):  # ``+=`` of an int is ``+``
            return None
        return self.number().special(vm, name, [other.number() if isinstance(other, IdOfHandle) else other for other in args])

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return self.number().find_method(name)

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.number().method(vm, name, args, kwargs)

    def getattr(self, vm: Machine, name: str) -> Value:
        return self.number().getattr(vm, name)


class HandleId(IdOfHandle):
    """The number that the counter has after ``offset`` handles that captured code made, computed from what the counter was."""

    def __init__(self, vm: Machine, offset: int) -> None:
        self.vm = vm
        self.offset = offset

    def as_told(self) -> object:
        return RemovableHandle.next_id + self.offset

    def number(self) -> Value:
        before = RemovableHandle.next_id
        return self.vm.recorder.computed_input(before + self.offset, f"({{0}} + {self.offset})", {SOURCE: before})

    def key_of_hook(self) -> HandleKey:
        return HandleKey(self.offset)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        other = args[0] if args else None
        if name == "__add__" and type(other) is ConstantValue and type(other.value) is int and other.value > 0:
            return HandleId(vm, self.offset + other.value)
        if name in ("__eq__", "__ne__") and type(other) is HandleId:
            return ConstantValue((other.offset == self.offset) is (name == "__eq__"))
        return super().special(vm, name, args)


class GivenId(IdOfHandle):
    """The number of a handle of before the call."""

    def __init__(self, vm: Machine, obj: int, source: Source) -> None:
        self.vm = vm
        self.obj = obj
        self.source = source

    def as_told(self) -> object:
        return self.obj

    def number(self) -> Value:
        return self.vm.wrap(self.obj, self.source)


def holds_hooks(table: object, source: Source | None, modules: Container[object]) -> bool:
    """Whether a dictionary, which was found there, is one for hooks. ``modules``: where there are modules."""
    if type(source) is Referent and leads_to_hooks(source.base):
        return True
    of_module = type(source) is Item and source.key in TABLES and type(source.base) is InstanceDict and source.base.base in modules
    return of_module or is_of_all_modules(table)


def leads_to_hooks(source: Source) -> bool:
    """Whether what is found there is a weak reference of a handle to a dictionary of hooks."""
    held = source.base if type(source) is Item and type(source.key) is int else source
    return type(held) is Item and type(held.base) is InstanceDict and held.key in ("hooks_dict_ref", "extra_dict_ref")


def is_of_all_modules(table: object) -> bool:
    """Whether a dictionary is one for hooks of all modules."""
    return any(table is each for each in GLOBAL_TABLES)


def is_counter(cls: type, name: str) -> bool:
    """Whether an attribute of a class is the counter."""
    return cls is RemovableHandle and name == COUNTER


def next_id(vm: Machine) -> HandleId:
    """What the counter is, as captured code has left it."""
    return HandleId(vm, vm.effects.handles)


def count_on(vm: Machine, value: Value | None) -> bool:
    """Writes the counter, where that is a handle more."""
    if not isinstance(value, HandleId) or value.offset < vm.effects.handles:
        return False
    vm.effects.handles = value.offset
    return True


__all__ = [
    "SOURCE",
    "GivenId",
    "HandleId",
    "HandleKey",
    "IdOfHandle",
    "claim",
    "count_on",
    "holds_hooks",
    "is_counter",
    "is_of_all_modules",
    "leads_to_hooks",
    "next_id",
]
