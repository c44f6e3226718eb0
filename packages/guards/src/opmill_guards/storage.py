"""Reading the builtin storage of containers, whatever their subclasses override."""

from __future__ import annotations

from collections import OrderedDict, deque
from types import MappingProxyType
from typing import Any

_OF_ITEMS: tuple[Any, ...] = (tuple, list, set, frozenset, deque)


def keys_of(value: Any) -> list[Any]:
    """The keys of a dict (or of a class's dictionary) in its own order; TypeError for anything else."""
    if isinstance(value, MappingProxyType):
        return list(value)
    return list(OrderedDict.__iter__(value) if isinstance(value, OrderedDict) else dict.__iter__(value))


def items_of(value: Any) -> list[Any]:
    """The items of a tuple, list, set, frozenset or deque in its own order; TypeError for anything else."""
    for builtin in _OF_ITEMS:
        if isinstance(value, builtin):
            return list(builtin.__iter__(value))
    raise TypeError(f"{type(value).__name__} is no builtin container of items")


def length_of(value: Any) -> int | None:
    """``len`` of the builtin storage, None for anything else."""
    for builtin in (*_OF_ITEMS, dict, MappingProxyType):
        if isinstance(value, builtin):
            return int(builtin.__len__(value))
    return None
