"""Sources that all give different objects."""

from __future__ import annotations

from ..guard import AllDistinct
from ..source import Source
from .kind import Builder, Kind, Read


def _sources(guard: AllDistinct) -> tuple[Source, ...]:
    return guard.sources


def _check(guard: AllDistinct, read: Read) -> bool:
    return len({id(value) for value in [read(source) for source in guard.sources]}) == len(guard.sources)


def _compile(guard: AllDistinct, into: Builder) -> None:
    into.relation("distinct", None, guard.sources)


def _describe(guard: AllDistinct, read: Read) -> tuple[str, str]:
    seen: dict[int, Source] = {}
    for source in guard.sources:
        other = seen.setdefault(id(read(source)), source)
        if other is not source:
            return "different objects", f"{other} is {source}"
    return "different objects", "different objects"


KIND = Kind(AllDistinct, 21, _check, _compile, _describe, _sources)
