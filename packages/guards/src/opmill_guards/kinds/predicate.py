"""What only a Python function can tell."""

from __future__ import annotations

from ..guard import Predicate
from ..texts import short
from .kind import Builder, Kind, Read


def _check(guard: Predicate, read: Read) -> bool:
    return bool(guard.function(read(guard.source)))


def _compile(guard: Predicate, into: Builder) -> None:
    into.leaf(guard.source, "call", guard.function, KIND.cost)


def _describe(guard: Predicate, read: Read) -> tuple[str, str]:
    return guard.label, short(read(guard.source))


KIND = Kind(Predicate, 40, _check, _compile, _describe)
