"""A constant."""

from __future__ import annotations

from ..constants import holds_set, is_constant, same
from ..errors import GuardError
from ..guard import Equals
from ..texts import short
from .kind import Builder, Kind, Read


def _check(guard: Equals, read: Read) -> bool:
    return same(read(guard.source), guard.value)


def _prepare(guard: Equals) -> Equals:
    if not is_constant(guard.value):
        raise GuardError(
            "GU001",
            what=f"{short(guard.value)} is no constant",
            where=str(guard.source),
            why=f"a {type(guard.value).__qualname__} may change or compare as it likes.",
            hint="Guard what is in it, or use Is or Predicate.",
        )
    return guard


def _compile(guard: Equals, into: Builder) -> None:
    value = guard.value
    if holds_set(value):
        into.leaf(guard.source, "call", lambda found: same(found, value), KIND.cost + 50)
    else:
        into.leaf(guard.source, "equals", value, KIND.cost)


def _describe(guard: Equals, read: Read) -> tuple[str, str]:
    found = read(guard.source)
    if type(found) is not type(guard.value):
        return f"{short(guard.value)} ({type(guard.value).__qualname__})", f"{short(found)} ({type(found).__qualname__})"
    return short(guard.value), short(found)


KIND = Kind(Equals, 1, _check, _compile, _describe, prepare=_prepare)
