"""Two sources that give one object."""

from __future__ import annotations

from ..guard import SameObject
from ..source import Source
from .kind import Builder, Kind, Read


def _sources(guard: SameObject) -> tuple[Source, ...]:
    return guard.source, guard.other


def _check(guard: SameObject, read: Read) -> bool:
    return read(guard.source) is read(guard.other)


def _compile(guard: SameObject, into: Builder) -> None:
    into.relation("same", None, _sources(guard))


def _describe(guard: SameObject, read: Read) -> tuple[str, str]:
    return f"the same object as {guard.other}", "another object"


KIND = Kind(SameObject, 20, _check, _compile, _describe, _sources)
