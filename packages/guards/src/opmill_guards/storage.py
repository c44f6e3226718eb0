"""Reading the builtin storage of containers, whatever their subclasses override, and whatever an object says that it is."""

from __future__ import annotations

from collections import OrderedDict, deque
from types import MappingProxyType
from typing import Any

_OF_ITEMS: tuple[Any, ...] = (tuple, list, set, frozenset, deque)


def is_of(value: Any, kind: Any) -> bool:
    """Whether the value is of a builtin class, as it is laid out in memory: `isinstance` asks the object, too, and one that stands for
    another says what that is, or fails where that is gone."""
    return issubclass(type(value), kind)


def keys_of(value: Any) -> list[Any]:
    """The keys of a dict (or of a class's dictionary) in its own order; TypeError for anything else."""
    if is_of(value, MappingProxyType):
        return list(value)
    return list(OrderedDict.__iter__(value) if is_of(value, OrderedDict) else dict.__iter__(value))


def items_of(value: Any) -> list[Any]:
    """The items of a tuple, list, set, frozenset or deque in its own order; TypeError for anything else."""
    for builtin in _OF_ITEMS:
        if is_of(value, builtin):
            return list(builtin.__iter__(value))
    raise TypeError(f"{type(value).__name__} is no builtin container of items")


def length_of(value: Any) -> int | None:
    """``len`` of the builtin storage, None for anything else."""
    for builtin in (*_OF_ITEMS, dict, MappingProxyType):
        if is_of(value, builtin):
            return int(builtin.__len__(value))
    return None
