"""Which keys a dict has, in order."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType
from typing import Any

from ..guard import DictKeys
from .kind import Builder, Kind, Read, short


def _keys(value: Any) -> list[Any]:
    if isinstance(value, OrderedDict):
        return list(OrderedDict.__iter__(value))
    if isinstance(value, MappingProxyType):
        return list(value)
    return list(dict.__iter__(value))


def _check(guard: DictKeys, read: Read) -> bool:
    found = _keys(read(guard.source))
    return len(found) == len(guard.keys) and all(a is b or bool(a == b) for a, b in zip(found, guard.keys))


def _compile(guard: DictKeys, into: Builder) -> None:
    into.leaf(guard.source, "dict_keys", tuple(guard.keys), KIND.cost)


def _describe(guard: DictKeys, read: Read) -> tuple[str, str]:
    return f"keys {short(list(guard.keys))}", f"keys {short(_keys(read(guard.source)))}"


KIND = Kind(DictKeys, 3, _check, _compile, _describe)
