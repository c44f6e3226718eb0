"""A key that a dict does not have."""

from __future__ import annotations

from types import MappingProxyType

from ..guard import Absent
from ..storage import is_of
from ..texts import short
from .kind import Builder, Kind, Read


def _check(guard: Absent, read: Read) -> bool:
    value = read(guard.source)
    if is_of(value, MappingProxyType):
        return guard.key not in value
    return is_of(value, dict) and not dict.__contains__(value, guard.key)


def _compile(guard: Absent, into: Builder) -> None:
    into.leaf(guard.source, "absent", guard.key, KIND.cost)


def _describe(guard: Absent, read: Read) -> tuple[str, str]:
    value = read(guard.source)
    found = f"it is {short(value[guard.key])}" if is_of(value, (dict, MappingProxyType)) else f"a {type(value).__qualname__}"
    return f"no key {short(guard.key)}", found


KIND = Kind(Absent, 2, _check, _compile, _describe)
