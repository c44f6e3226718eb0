"""Classes that may be registered with abstract ones: what ``isinstance`` says of these depends on more than the classes of objects."""

from __future__ import annotations

import abc
import typing
from typing import TYPE_CHECKING

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

if TYPE_CHECKING:
    from .machine import Interpreter


class Registrations:
    """A guard's question: whether abstract classes still say no where they did. Yes is for ever; what makes a no a yes moves a number on
    that all of them share, so that a call compares this alone."""

    __slots__ = ("asked", "number")

    def __init__(self) -> None:
        self.asked: set[tuple[type, type]] = set()
        self.number = abc.get_cache_token()

    def __call__(self, number: typing.Callable[[], object]) -> bool:
        if (now := number()) == self.number:
            return True
        if any(issubclass(kind, cls) for kind, cls in self.asked):
            return False
        self.number = now
        return True


def denied(vm: Interpreter, kind: type, cls: object) -> None:
    """Assumes that a class, which is none of an abstract one's or of those of a union, is not registered with it."""
    for each in typing.get_args(cls) or (cls,):
        if isinstance(each, abc.ABCMeta) and not getattr(each, "_is_protocol", False):
            if vm.registrations is None:
                vm.registrations = Registrations()
                source = Pinned(abc.get_cache_token, "abc.get_cache_token()")
                vm.guard(Predicate(source, vm.registrations, "says that no class was registered with an abstract one"))
            vm.registrations.asked.add((kind, each))


__all__ = ["Registrations", "denied"]
