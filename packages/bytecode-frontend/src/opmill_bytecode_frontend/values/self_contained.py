"""What methods read: whether one reads nothing but its object, so that what it says is the same as long as the object is; whether anything
that those of a class lead to may read an attribute by its name."""

from __future__ import annotations

import builtins
import types
from collections.abc import Iterator
from types import CodeType
from typing import Callable, cast

from opmill_fake_tensors.lazily import once_for_each_class

from ..interpretation.owners import exempt, installed

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


def mentions(cls: type, name: str) -> bool:
    """Whether code that the methods of a class lead to may read ``name`` of an object; code of the program that looks at all attributes at
    once may. Code of torch and of Python is not followed, nor what an object is written out or copied by."""
    texts, codes = _led_to(cls)
    return name in texts or any(_may_read(code, name) for code in codes)


_ALL_AT_ONCE = frozenset(("__dict__", "vars", "__getattribute__"))
_OF_TENSORS = ("builtins", "torch", "torch._C", "torch._tensor")
_OF_WHOLES = frozenset("__repr__ __str__ __format__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __deepcopy__ __copy__".split())


_Led = tuple[frozenset[str], tuple[CodeType, ...]]


@once_for_each_class
def _led_to(cls: type) -> _Led:
    """Texts among what the methods of a class lead to, and code."""
    texts: set[str] = set()
    codes: list[CodeType] = []
    todo: list[object] = [raw for base in cls.__mro__ if base.__module__ not in _OF_TENSORS for raw in _members(base)]
    seen: dict[int, object] = {}  # kept: what is met again has the same number
    while todo:
        raw = todo.pop()
        raw = getattr(raw, "__func__", raw)
        if id(raw) in seen:
            continue
        seen[id(raw)] = raw
        if isinstance(raw, str):
            texts.add(raw)
        elif type(raw) is property:
            todo += [raw.fget, raw.fset]
        elif type(raw) in (list, tuple, set, frozenset):
            todo += cast("tuple[object, ...]", raw)
        elif type(raw) is dict:
            todo += [*raw, *raw.values()]
        elif isinstance(raw, type) and not exempt(raw.__module__):
            todo += [*raw.__mro__[1:], *_members(raw)]
        elif type(raw) is types.FunctionType:
            own = list(_nested(raw.__code__))
            codes += own
            if not exempt(raw.__module__):
                todo += [raw.__globals__[word] for code in own for word in code.co_names if word in raw.__globals__]
                todo += [cell.cell_contents for cell in raw.__closure__ or () if not _is_empty(cell)]
                todo.append(getattr(raw, "__wrapped__", None))
    return frozenset(texts), tuple(codes)


def _members(cls: type) -> list[object]:
    return [raw for name, raw in vars(cls).items() if name not in _OF_WHOLES]


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _may_read(code: CodeType, name: str) -> bool:
    if not _ALL_AT_ONCE.isdisjoint(code.co_names) and not installed(code.co_filename):
        return True
    texts = [item for constant in code.co_consts for item in (constant if isinstance(constant, (tuple, frozenset)) else (constant,))]
    return name in texts or (name in code.co_names and ("attribute", name) in _reads(code))


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


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


__all__ = ["also_read", "mentions"]
