"""Whether a method reads nothing but the object that it is a method of: what it says is then the same as long as the object is."""

from __future__ import annotations

import builtins
import types
from collections.abc import Iterator
from types import CodeType
from typing import Callable

_PURE = frozenset(
    "AttributeError NotImplementedError RuntimeError TypeError ValueError AssertionError dict enumerate getattr hasattr isinstance len list"
    " all any bool int float str frozenset range repr reversed set sorted sum super tuple type zip".split()
)
_DEEPEST = 12


def also_read(cls: type, name: str) -> tuple[object, ...] | None:
    """What method ``name`` reads besides the attributes of its object: attributes of the class. None where it may read anything else, or
    change something."""
    found: list[object] = []
    return tuple(found) if _follow(cls, name, found, set(), 0) else None


def _follow(cls: type, name: str, found: list[object], seen: set[str], depth: int) -> bool:
    if name in seen:
        return True
    seen.add(name)
    if depth > _DEEPEST:
        return False
    for owner in cls.__mro__:
        if owner.__module__ == "builtins" or owner.__name__ == "TensorBase" or name not in vars(owner):
            continue
        raw = vars(owner)[name]
        if owner.__module__ == "torch._tensor" and type(raw) is not property:
            return False  # of tensors: may be an operator
        if not _follow_attribute(cls, raw, found, seen, depth):
            return False
    return True


def _follow_attribute(cls: type, raw: object, found: list[object], seen: set[str], depth: int) -> bool:
    if type(raw) is types.MemberDescriptorType:
        return True
    if type(raw) is property:
        raw = raw.fget
    raw = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
    if type(raw) is types.FunctionType:
        return raw.__closure__ is None and all(_follow_name(cls, *read, raw, found, seen, depth) for read in _reads(raw.__code__))
    if callable(raw) or hasattr(type(raw), "__get__"):
        return False
    found.append(raw)
    return True


def _follow_name(cls: type, kind: str, name: str, function: Callable[..., object], found: list[object], seen: set[str], depth: int) -> bool:
    if kind == "attribute":
        return _follow(cls, name, found, seen, depth + 1)
    if kind != "global":
        return False
    if name in function.__globals__:
        return isinstance(function.__globals__[name], type)
    return name in _PURE and hasattr(builtins, name)


def _reads(code: CodeType) -> Iterator[tuple[str, str]]:
    """What code reads by name: of the module, or of an object; anything else as ``other``."""
    import dis

    for instruction in dis.get_instructions(code):
        name, text = instruction.opname, str(instruction.argval)
        if name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            yield "attribute", text
        elif name == "LOAD_GLOBAL":
            yield "global", text
        elif name.startswith(("STORE_ATTR", "STORE_GLOBAL", "DELETE_ATTR", "IMPORT", "LOAD_NAME")):
            yield "other", text
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _reads(constant)


__all__ = ["also_read"]
