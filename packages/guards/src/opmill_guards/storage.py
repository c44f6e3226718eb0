"""Reading the builtin storage of containers, whatever their subclasses override."""

from __future__ import annotations

from collections import OrderedDict, deque
from types import MappingProxyType
from typing import Any


def keys_of(value: Any) -> list[Any]:
    """The keys of a dict (or of a class's dictionary) in its own order; TypeError for anything else."""
    if isinstance(value, MappingProxyType):
        return list(value)
    return list(OrderedDict.__iter__(value) if isinstance(value, OrderedDict) else dict.__iter__(value))


def length_of(value: Any) -> int | None:
    """``len`` of the builtin storage, None for anything else."""
    builtins: tuple[Any, ...] = (tuple, list, dict, set, frozenset, deque, MappingProxyType)
    for builtin in builtins:
        if isinstance(value, builtin):
            return int(builtin.__len__(value))
    return None
