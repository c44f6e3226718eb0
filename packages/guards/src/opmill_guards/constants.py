"""Constants: which values :class:`opmill_guards.guard.Equals` takes, and when two of them are the same."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

ATOMS = frozenset({int, bool, str, bytes, float, complex, type(None), type(Ellipsis)})
_TORCH_ATOMS = frozenset({"dtype", "device", "layout", "memory_format"})


def _is_torch(type_: type, names: frozenset[str]) -> bool:
    return type_.__module__ == "torch" and type_.__name__ in names


def is_constant(value: Any) -> bool:
    """Whether ``value`` is of an exact type whose instances never change, all the way down."""
    exact = type(value)
    if exact in ATOMS or _is_torch(exact, _TORCH_ATOMS):
        return True
    if exact in (tuple, frozenset) or _is_torch(exact, frozenset({"Size"})):
        return all(is_constant(item) for item in value)
    return False


def holds_set(value: Any) -> bool:
    """Whether a frozenset is somewhere in this constant (compared in Python: its elements by type too)."""
    return isinstance(value, frozenset) or (isinstance(value, tuple) and any(holds_set(item) for item in value))


def key(value: Any) -> Any:
    """A hashable that is equal for two constants exactly when they are the same: by exact type, and floats by bits."""
    exact = type(value)
    if exact is float:
        return exact, struct.pack("d", value)
    if exact is complex:
        return exact, struct.pack("dd", value.real, value.imag)
    if exact is frozenset:
        return exact, frozenset(Counter(key(item) for item in value).items())
    if isinstance(value, tuple):
        return exact, tuple(key(item) for item in value)
    return exact, value


def same(a: Any, b: Any) -> bool:
    """Same exact type and equal value; floats by bits, so NaN is itself and -0.0 is not 0.0."""
    return type(a) is type(b) and key(a) == key(b)
