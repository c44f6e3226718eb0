"""Iterators of loops that a graph ended in: the code that goes on looks ahead in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opmill_guards.guard import Predicate
from opmill_guards.reference import SEQUENCE_ITERATORS, TABLE_ITERATORS, Unreadable, ahead, iterated
from opmill_guards.source import Ahead, Local

from .base import Machine, Value
from .constant import ConstantValue
from .iterators import STOP, ExternalIterator


class LoopIterator(ExternalIterator):
    """That of a loop which a graph ended in: over a list, a tuple, the keys or the values of a dict. Its items are looked at where they
    are, and it is moved when the graph has run."""

    def __init__(self, obj: Any, source: Any) -> None:
        super().__init__(obj, source)
        self.taken = 0
        self.finished = False
        self.effect: Any = None
        self.over: object = None
        """What it goes over, once it was asked for an item."""

    def next(self, vm: Machine) -> Value:
        if self.finished:
            return STOP
        try:
            self.obj.__reduce__()  # complains where the dict has changed
            self.over, left = iterated(self.obj), self.obj.__length_hint__() - self.taken
        except (RuntimeError, Unreadable):
            return super().next(vm)
        if left > MOST_LEFT or any(getattr(each, "obj", None) is self.over for each in vm.effects.changed):
            return super().next(vm)
        if left <= 0:
            self.finished = True
            steps = self.taken
            vm.guard(Predicate(self.source, lambda now: ends_after(now, steps), f"has {steps} items left"))
            self.moves(vm)
            return STOP
        source = Ahead(self.source, self.taken)
        item = vm.wrap(ahead(self.obj, self.taken), source)
        self.taken += 1
        self.moves(vm)
        return item

    def moves(self, vm: Machine) -> None:
        """It goes on before anything else changes."""
        effects, before = vm.effects, self.effect
        self.effect = move, [self, ConstantValue(self.taken + self.finished)], {}
        if before is None:
            effects.calls.insert(0, self.effect)
            effects.first = effects.first or self.effect
            return
        effects.calls = [self.effect if call is before else call for call in effects.calls]
        effects.first = self.effect if effects.first is before else effects.first
        effects.mutations += 1


MOST_LEFT = 1000
"""Items of such a loop that a capture takes to itself at most."""
LOOPED = (*SEQUENCE_ITERATORS, *TABLE_ITERATORS)


def iterator_kind(obj: object, source: object) -> type[ExternalIterator]:
    """Which of the two an iterator of before is: the other one lies on the stack of code that goes on behind a graph."""
    in_loop = type(obj) in LOOPED and type(source) is Local and source.name.startswith(".stack")
    return LoopIterator if in_loop else ExternalIterator


def ends_after(iterator: Any, steps: int) -> bool:
    """Whether it has so many items left."""
    try:
        iterator.__reduce__()
    except RuntimeError:
        return False
    return bool(iterator.__length_hint__() == steps)


def move(iterator: Iterator[object], steps: int) -> None:
    """Takes so many items."""
    for _ in range(steps):
        next(iterator, None)
