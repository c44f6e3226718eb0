"""Which keys a dict has, in order."""

from __future__ import annotations

from ..guard import DictKeys
from ..storage import keys_of, length_of
from ..texts import short
from .kind import Builder, Kind, Read


def _check(guard: DictKeys, read: Read) -> bool:
    value = read(guard.source)
    found = keys_of(value)
    return length_of(value) == len(found) == len(guard.keys) and all(a is b or bool(a == b) for a, b in zip(found, guard.keys))


def _compile(guard: DictKeys, into: Builder) -> None:
    into.leaf(guard.source, "dict_keys", tuple(guard.keys), KIND.cost)


def _describe(guard: DictKeys, read: Read) -> tuple[str, str]:
    return f"keys {short(list(guard.keys))}", f"keys {short(keys_of(read(guard.source)))}"


KIND = Kind(DictKeys, 3, _check, _compile, _describe)
