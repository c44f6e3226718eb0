"""The exact type of a value."""

from __future__ import annotations

from ..guard import TypeIs
from .kind import Builder, Kind, Read


def _check(guard: TypeIs, read: Read) -> bool:
    return type(read(guard.source)) is guard.type


def _compile(guard: TypeIs, into: Builder) -> None:
    into.leaf(guard.source, "type", guard.type, KIND.cost)


def _describe(guard: TypeIs, read: Read) -> tuple[str, str]:
    return f"type {guard.type.__qualname__}", f"type {type(read(guard.source)).__qualname__}"


KIND = Kind(TypeIs, 0, _check, _compile, _describe)
