"""How long a builtin container is."""

from __future__ import annotations

from ..guard import Length
from ..storage import length_of
from .kind import Builder, Kind, Read


def _check(guard: Length, read: Read) -> bool:
    return length_of(read(guard.source)) == guard.length


def _compile(guard: Length, into: Builder) -> None:
    into.leaf(guard.source, "length", guard.length, KIND.cost)


def _describe(guard: Length, read: Read) -> tuple[str, str]:
    found = read(guard.source)
    length = length_of(found)
    return f"length {guard.length}", f"a {type(found).__qualname__}" if length is None else f"length {length}"


KIND = Kind(Length, 1, _check, _compile, _describe)
