"""Which keys a dict has, in order."""

from __future__ import annotations

from typing import Any

from ..guard import ANY_KEY, DictKeys
from ..storage import keys_of, length_of
from ..texts import short
from ..weak import WeakObject, living
from .kind import Builder, Kind, Read


def _check(guard: DictKeys, read: Read) -> bool:
    value = read(guard.source)
    found = keys_of(value)
    return length_of(value) == len(found) == len(guard.keys) and all(map(_same, found, guard.keys))


def _same(found: Any, key: Any) -> bool:
    return key is ANY_KEY or found is living(key) or (type(key) is not WeakObject and bool(found == key))


def _compile(guard: DictKeys, into: Builder) -> None:
    ways = tuple(None if key is ANY_KEY else type(key) is WeakObject for key in guard.keys)
    into.leaf(guard.source, "dict_keys", (tuple(guard.keys), () if set(ways) == {False} else ways), KIND.cost)


def _describe(guard: DictKeys, read: Read) -> tuple[str, str]:
    return f"keys {short(list(guard.keys))}", f"keys {short(keys_of(read(guard.source)))}"


KIND = Kind(DictKeys, 3, _check, _compile, _describe)
