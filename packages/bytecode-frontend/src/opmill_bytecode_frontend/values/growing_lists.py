"""Lists of before the call of which nothing is assumed until more is done with them than to append and to read from the end."""

from __future__ import annotations

from typing import Any

from opmill_guards.guard import Length, Predicate
from opmill_guards.source import Item, Source

from .base import Lazy, Machine, Value
from .constant import ConstantValue
from .sequence import ListValue


class GrowingList(ListValue):
    """A history or a cache that gets longer with each call is one list for guards as long as its length does not matter. Whoever looks at
    ``items`` assumes the length; from then on it is a list like any other."""

    def __init__(self, vm: Machine, source: Source | None, obj: list[object]) -> None:
        self.vm = vm
        self.source = source
        self.obj: list[object] = obj
        self.appended: list[Value] = []
        self.from_end: dict[int, Value] = {}
        """Items of before the call by their place counted from the end, from 1 on."""
        self.all: list[Any] | None = None

    @property
    def items(self) -> list[Any]:
        if self.all is None:
            self.vm.guard(Length(self.source, len(self.obj)))
            self.all = [Lazy(v, Item(self.source, i)) for i, v in enumerate(self.obj)] + self.appended
        return self.all

    @items.setter
    def items(self, items: list[Any]) -> None:
        self.all = items

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
