"""What a Python function tells of an object, as long as that is what it was."""

from __future__ import annotations

from ..guard import Remembered
from ..texts import short
from .kind import Builder, Kind, Read


def _check(guard: Remembered, read: Read) -> bool:
    return bool(guard.function(read(guard.source)))


def _compile(guard: Remembered, into: Builder) -> None:
    into.leaf(guard.source, "remember", (guard.function, guard.names, guard.settled, guard.reads), KIND.cost)


def _describe(guard: Remembered, read: Read) -> tuple[str, str]:
    return guard.label, short(read(guard.source))


KIND = Kind(Remembered, 20, _check, _compile, _describe)
