"""Iterators of loops that a graph ended in: the code that goes on looks ahead in them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from opmill_guards.guard import Predicate, TypeIs
from opmill_guards.reference import COMPOSED, SEQUENCE_ITERATORS, TABLE_ITERATORS, Unreadable, ahead, iterated
from opmill_guards.source import Ahead, Inside, Local

from .base import Lazy, Machine, Value
from .constant import ConstantValue
from .continued import ContinuedGenerator, is_continued
from .iterators import STOP, ExternalIterator
from .sequence import TupleValue


class MovedIterator(ExternalIterator):
    """One whose items are looked at where they are, and which is moved when the graph has run. ``taken`` counts them; ``inner``: whether it
    is one of those that another was made of, which moves it."""

    inner = False
    taken = 0
    finished = False
    effect: Any = None

    def moves(self, vm: Machine, by: Callable[[Iterator[object], int], None]) -> None:
        """It goes on before anything else changes, as ``by`` does that."""
        effects, before = vm.effects, self.effect
        self.effect = by, [self, ConstantValue(self.taken + self.finished)], {}
        if before is None:
            effects.calls.insert(0, self.effect)
            effects.first = effects.first or self.effect
            return
        effects.calls = [self.effect if call is before else call for call in effects.calls]
        effects.first = self.effect if effects.first is before else effects.first
        effects.mutations += 1


def looked_at(vm: Machine, item: Value | Lazy) -> Value:
    """An item as a tracked value."""
    return vm.wrap(item.obj, item.source) if type(item) is Lazy else item


def is_ahead(item: object) -> bool:
    """Whether it is what an iterator gives, and was not looked at yet."""
    return type(item) is Lazy and type(item.source) is Ahead


class LoopIterator(MovedIterator):
    """That of a loop which a graph ended in: over a list, a tuple, the keys, values or items of a dict."""

    over: object = None
    """What it goes over, once it was asked for an item."""

    def next(self, vm: Machine) -> Value:
        return looked_at(vm, self.unread(vm))

    def unread(self, vm: Machine) -> Value | Lazy:
        """The next item, not looked at yet, or STOP: nothing is assumed of one that is not used."""
        if self.inner:
            return self.refused(vm)
        if self.finished:
            return STOP
        item = self.take(vm)
        self.moves(vm, move)
        return item

    def take(self, vm: Machine) -> Value | Lazy:
        """The same for who moves it."""
        try:
            self.obj.__reduce__()  # complains where the dict has changed
            self.over, left = iterated(self.obj), self.obj.__length_hint__() - self.taken
        except (RuntimeError, Unreadable):
            return self.refused(vm)
        if left > MOST_LEFT or any(getattr(each, "obj", None) is self.over for each in vm.effects.changed):
            return self.refused(vm)
        if left <= 0:
            self.finished = True
            steps = self.taken
            vm.guard(Predicate(self.source, lambda now: ends_after(now, steps), f"has {steps} items left"))
            return STOP
        item, source = ahead(self.obj, self.taken), Ahead(self.source, self.taken)
        vm.guard(TypeIs(source, type(item)))  # that there is one
        self.taken += 1
        return Lazy(item, source)

    def refused(self, vm: Machine) -> Value:
        return super().next(vm)


class ComposedIterator(MovedIterator):
    """That of a loop which a graph ended in: ``enumerate``, ``zip`` or ``map`` of such as others are, or ``enumerate`` and ``zip`` of each
    other."""

    parts: list[LoopIterator | ComposedIterator] | None = None
    others: list[Value]
    """The number of its next item, or the function that it calls."""

    def next(self, vm: Machine) -> Value:
        if self.finished or self.inner:
            return self.refused(vm)
        item = self.take(vm)
        self.moves(vm, move_parts if type(self.obj) is map else move)
        return looked_at(vm, item)

    def refused(self, vm: Machine) -> Value:
        return super().next(vm)

    def take(self, vm: Machine) -> Value | Lazy:
        """The next item, or STOP."""
        if self.parts is None:
            self.parts = self.taken_apart(vm)
        items: list[Value | Lazy] = []
        for part in self.parts:
            item = part.take(vm)
            if item is STOP:
                self.finished = True
                return item
            items.append(item)
        self.taken += 1
        if type(self.obj) is map:
            return vm.call(self.others[0], [looked_at(vm, item) for item in items], {})
        if type(self.obj) is enumerate:
            items.insert(0, vm.binary("+", self.others[0], ConstantValue(self.taken - 1)))
        return TupleValue(items)

    def taken_apart(self, vm: Machine) -> list[LoopIterator | ComposedIterator]:
        kind, given, *strict = self.obj.__reduce__()
        first, behind = {enumerate: (0, 1), zip: (0, len(given)), map: (1, len(given))}[kind]
        iterators, count = given[first:behind], len(given)
        if kind is not enumerate:  # which is always made of one iterator and a number
            vm.guard(Predicate(self.source, functools.partial(made_of, count), f"was made of {count}"))
        known = [id(each) in vm.known or type(each) not in (*LOOPED, enumerate, zip) for each in iterators]
        if strict or any(known) or len(set(map(id, iterators))) < len(iterators):
            self.refused(vm)
        parts = []
        for place, each in enumerate(iterators, first):
            source = Inside(self.source, place)
            vm.guard(TypeIs(source, type(each)))
            part = LoopIterator(each, source) if type(each) in LOOPED else ComposedIterator(each, source)
            part.inner = True
            parts.append(vm.know(each, part))
        self.others = [vm.wrap(given[place], Inside(self.source, place)) for place in {enumerate: (1,), zip: (), map: (0,)}[kind]]
        return parts


MOST_LEFT = 1000
"""Items of such a loop that a capture takes to itself at most."""
LOOPED = (*SEQUENCE_ITERATORS, *TABLE_ITERATORS)


def iterator_kind(obj: object, source: object) -> type[ExternalIterator]:
    """Which of them an iterator of before is: some lie on the stack of code that goes on behind a graph."""
    if is_continued(obj):
        return ContinuedGenerator
    if type(source) is not Local or not source.name.startswith(".stack"):
        return ExternalIterator
    return LoopIterator if type(obj) in LOOPED else ComposedIterator if type(obj) in COMPOSED else ExternalIterator


def ends_after(iterator: Any, steps: int) -> bool:
    """Whether it has so many items left."""
    try:
        iterator.__reduce__()
    except RuntimeError:
        return False
    return bool(iterator.__length_hint__() == steps)


def made_of(count: int, iterator: object) -> bool:
    """Whether a ``zip`` or a ``map`` was made of so many, and does not complain where one of them ends before another."""
    made = iterator.__reduce__()
    return len(made) == 2 and len(made[1]) == count


def move(iterator: Iterator[object], steps: int) -> None:
    """Takes so many items."""
    for _ in range(steps):
        next(iterator, None)


def move_parts(iterator: Any, steps: int) -> None:
    """Takes so many items of those that a ``map`` was made of, and calls nothing."""
    parts = iterator.__reduce__()[1][1:]
    for _ in range(steps):
        all(next(part, STOP) is not STOP for part in parts)
