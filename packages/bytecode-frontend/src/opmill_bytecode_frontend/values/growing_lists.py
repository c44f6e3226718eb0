"""Lists of before the call of which nothing is assumed until more is done with them than to append and to read from the end."""

from __future__ import annotations

import collections
import operator
import sys
from collections.abc import Callable, Hashable, Sized
from typing import Any

from msgspec import Struct, structs

from opmill_guards.guard import Length, Predicate
from opmill_guards.source import Item, Source
from opmill_guards.storage import length_of

from .base import COMPARISONS, Lazy, Machine, Value
from .constant import ConstantValue
from .deques import DequeValue
from .sequence import ListValue


class LengthOfList(Value):
    """How many items a list has that had other numbers of them at other calls: comparisons assume no more than their outcome."""

    symbolic = True

    def __init__(self, vm: Machine, owner: GrowingList, more: int) -> None:
        self.vm, self.owner, self.more = vm, owner, more

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"the length of {self.owner.source}"

    def constant(self) -> int:
        self.vm.guard(Length(self.owner.source, len(self.owner.obj)))
        return min(len(self.owner.obj) + self.more, self.owner.longest)

    def truth(self, vm: Machine) -> bool:
        return self.decide(vm, "__ne__", 0)

    def key(self, vm: Machine) -> Hashable:
        return self.constant()

    def decide(self, vm: Machine, name: str, other: int) -> bool:
        """The outcome of a comparison, which is assumed."""
        compared = Compared(name, other, self.more, self.owner.longest)
        outcome = compared(self.owner.obj)
        assumed = compared if outcome else structs.replace(compared, name=NEGATED[name])
        vm.guard(Predicate(self.owner.source, assumed, str(assumed)))
        return outcome

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return (lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)) if hasattr(int, name) else None

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        other = args[0].value if len(args) == 1 and type(args[0]) is ConstantValue else None
        if name in COMPARISONS and type(other) is int and not kwargs:
            return ConstantValue(self.decide(vm, name, other))
        return ConstantValue(self.constant()).method(vm, name, args, kwargs)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        return self.method(vm, name, args, {}) if name in COMPARISONS else ConstantValue(self.constant()).special(vm, name, args)

    def getattr(self, vm: Machine, name: str) -> Value:
        return ConstantValue(self.constant()).getattr(vm, name)


class Compared(Struct, frozen=True):
    """Whether the length that a list gets with ``more`` items, of which no more than ``longest`` stay, compares so with a number."""

    name: str
    other: int
    more: int
    longest: int

    def __call__(self, now: Sized) -> bool:
        length = min((length_of(now) or 0) + self.more, self.longest)
        return bool(getattr(operator, self.name)(length, self.other))

    def __str__(self) -> str:
        return f"has a length {f'+ {self.more} ' if self.more else ''}{COMPARISONS[self.name]} {self.other}"


NEGATED = {"__lt__": "__ge__", "__ge__": "__lt__", "__gt__": "__le__", "__le__": "__gt__", "__eq__": "__ne__", "__ne__": "__eq__"}


class GrowingList(ListValue):
    """A history or a cache that gets longer with each call is one list for guards as long as its length does not matter. Whoever looks at
    ``items`` assumes the length; from then on it is a list like any other."""

    def __init__(self, vm: Machine, source: Source | None, obj: list[object] | collections.deque[object]) -> None:
        self.vm = vm
        self.source = source
        self.obj: list[object] | collections.deque[object] = obj
        self.appended: list[Value] = []
        self.from_end: dict[int, Value] = {}
        """Items of before the call by their place counted from the end, from 1 on."""
        self.all: list[Any] | None = None
        self.longest = sys.maxsize
        """How many items there may be."""

    @property
    def items(self) -> list[Any]:
        if self.all is None:
            self.vm.guard(Length(self.source, len(self.obj)))
            self.all = [Lazy(v, Item(self.source, i)) for i, v in enumerate(self.obj)] + self.appended
            del self.all[: max(0, len(self.all) - self.longest)]
        return self.all

    @items.setter
    def items(self, items: list[Any]) -> None:
        self.all = items

    def looked_at(self) -> list[object]:
        return [*self.from_end.values(), *self.appended] if self.all is None else self.all

    @property
    def only_grew(self) -> bool:
        """Whether the length is not assumed: ``appended`` is all that changed."""
        return self.all is None

    def __repr__(self) -> str:
        return f"GrowingList({self.source})"

    def truth(self, vm: Machine) -> bool:
        if self.all is not None:
            return bool(self.all)
        if not self.appended:
            vm.guard(Predicate(self.source, bool, "not empty") if self.obj else Length(self.source, 0))
        return bool(self.appended or self.obj)

    def m___len__(self, vm: Machine) -> Value:
        if self.all is None and self.source in vm.varying.lengths:
            return LengthOfList(vm, self, len(self.appended))
        return super().m___len__(vm)

    def m_append(self, vm: Machine, value: Value) -> Value:
        (self.appended if self.all is None else self.all).append(value)
        return self.changed(vm)

    def m_extend(self, vm: Machine, other: Value) -> Value:
        more = list(vm.unpack(other, sized=True))  # of itself, perhaps: then the length is assumed now
        (self.appended if self.all is None else self.all).extend(more)
        return self.changed(vm)

    def m___getitem__(self, vm: Machine, key: Value) -> Value:
        place = -key.value if self.all is None and type(key) is ConstantValue and type(key.value) is int else 0
        if 0 < place <= len(self.appended):
            return self.appended[-place]
        before = place - len(self.appended)
        if place > 0 and before <= len(self.obj):
            if before not in self.from_end:
                self.from_end[before] = vm.wrap(self.obj[-before], Item(self.source, -before))
            return self.from_end[before]
        return super().m___getitem__(vm, key)


class GrowingDeque(GrowingList, DequeValue):
    """A deque that had other lengths at other calls. Nothing is assumed of what falls out of a bounded one at its other end."""

    def __init__(self, vm: Machine, source: Source | None, obj: collections.deque[object]) -> None:
        super().__init__(vm, source, obj)
        self.maxlen = obj.maxlen
        self.longest = sys.maxsize if obj.maxlen is None else obj.maxlen
        self.version = 0

    def changed(self, vm: Machine) -> Value:
        if not self.only_grew:
            return super().changed(vm)
        self.version += 1
        return ListValue.changed(self, vm)

    def m___getitem__(self, vm: Machine, key: Value) -> Value:
        """From the end, as far as what was appended goes, and what is not pushed out by it."""
        place = key.value if type(key) is ConstantValue else None
        if self.all is None and type(place) is int and -min(len(self.obj) + len(self.appended), self.longest) <= place < 0:
            return super().m___getitem__(vm, key)
        return DequeValue.m___getitem__(self, vm, key)

    def truth(self, vm: Machine) -> bool:
        return self.longest > 0 and super().truth(vm)
