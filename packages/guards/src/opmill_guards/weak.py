"""Objects of the program that guards ask for by identity, and do not keep alive.

An address alone would not do: the allocator gives it to the next object. A weak reference that is dead refers to nothing, so that what asks
for a dead object fails for ever."""

from __future__ import annotations

import enum
import weakref
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from .constants import is_constant
from .storage import is_of

DEAD: Any = type("Dead", (), {"__repr__": lambda self: "<an object that has died>"})()
"""What stands for an object that died; it is no object of a program."""
_LASTING = (type, ModuleType, BuiltinFunctionType, CodeType, enum.Enum)


class WeakObject(weakref.ref[Any]):
    """A weak reference of the guards' own. Equal to another, and to an object, exactly if both are one object that lives: the object is not
    asked. ``kind`` and ``made_of`` say what it was: its class; of a function its code, of a partial its function, held weakly as well."""

    __slots__ = ("_hash", "kind", "made_of")

    def __init__(self, obj: Any) -> None:
        self.kind = type(obj)
        self.made_of: Any = obj.__code__ if self.kind is FunctionType else weak(obj.func) if self.kind is partial else None
        self._hash = object.__hash__(obj)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        found = living(self)
        return found is not DEAD and found is living(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash


def lasts(obj: Any) -> bool:
    """Whether an object lives as long as the module, or the code, that defines it."""
    return is_of(obj, _LASTING)


def may_die(obj: Any) -> bool:
    """Whether the program may see an object die: a weak reference to it can be had, and no module has it for good."""
    kind = type(obj)
    if not kind.__weakrefoffset__ or lasts(obj) or (kind is frozenset and is_constant(obj)):
        return False
    return kind is not FunctionType or "<locals>" in obj.__qualname__


def weak(obj: Any) -> Any:
    """A `WeakObject` for an object that may die, others as they are."""
    return WeakObject(obj) if may_die(obj) else obj


def living(held: Any) -> Any:
    """The object that is held, weakly or not; ``DEAD`` where it has died."""
    if type(held) is not WeakObject:
        return held
    found = held()
    return DEAD if found is None else found


def kind_of_held(held: Any) -> type:
    """The class of what is held, or was."""
    return held.kind if type(held) is WeakObject else type(held)
