"""How long a builtin container is."""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import Any

from ..guard import Length
from .kind import Builder, Kind, Read


def _length(value: Any) -> int | None:
    for builtin in (tuple, list, dict, set, frozenset, deque, MappingProxyType):
        if isinstance(value, builtin):
            return int(builtin.__len__(value))  # type: ignore[attr-defined]
    return None


def _check(guard: Length, read: Read) -> bool:
    return _length(read(guard.source)) == guard.length


def _compile(guard: Length, into: Builder) -> None:
    into.leaf(guard.source, "length", guard.length, KIND.cost)


def _describe(guard: Length, read: Read) -> tuple[str, str]:
    found = read(guard.source)
    length = _length(found)
    return f"length {guard.length}", f"a {type(found).__qualname__}" if length is None else f"length {length}"


KIND = Kind(Length, 1, _check, _compile, _describe)
