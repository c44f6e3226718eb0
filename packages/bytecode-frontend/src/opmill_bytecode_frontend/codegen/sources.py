"""Sources as Python expressions over the compiled function's parameters and its table of constants."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from opmill_guards import instance_dict
from opmill_guards.reference import ahead, inside, value_at
from opmill_guards.source import (
    Ahead,
    Attr,
    CellContents,
    ContextValue,
    DictKeyAt,
    DictValueAt,
    Inside,
    InstanceDict,
    Item,
    Local,
    Pinned,
    Referent,
    TensorProperty,
    TypeOf,
)
from opmill_guards.weak import WeakObject, may_die

from ..assumptions.called import CALLED, NAME
from ..breaks.continuation import parameter_name
from ..resume import is_of_stack
from ..values.constant import LITERALS

if TYPE_CHECKING:
    pass


class Stub(Struct, frozen=True):
    """A function beside the generated one: its statements stand for instructions of ``code``, whose name and file it shows; ``globals``:
    those of its frames."""

    code: types.CodeType
    globals: dict[str, object]
    parameters: list[str]
    lines: list[str]


SHORT_NAME = re.compile(r"\w{0,58}", re.ASCII)


def is_single(obj: Any) -> bool:
    """Whether there is one object of this value, whoever makes it: a value known by equality is then known by identity, too."""
    kind = type(obj)
    if kind is int:
        return -5 <= obj <= 256
    return obj is None or kind is bool or obj is ... or (kind in (str, bytes) and not obj)


def is_interned(obj: object) -> bool:
    """Whether a short literal of this value gives this very object, as programs may ask with ``is``: the compiler interns what looks like a
    name. There may be others that are equal."""
    if type(obj) is bytes and len(obj) < 2:
        return True
    return is_single(obj) or (type(obj) is str and SHORT_NAME.fullmatch(obj) is not None and sys.intern(obj) is obj)


class Constants:
    """Objects that the generated text refers to by name: ``c0``, ``c1``, ...; ``stubs``: functions that it refers to, made with it."""

    def __init__(self) -> None:
        self.table: dict[str, object] = {}
        self.stubs: dict[str, Stub] = {}
        self._names: dict[int, str] = {}
        self._weak: dict[int, str] = {}

    def key(self, obj: object) -> str:
        """Text for an object of this value, where it does not matter which one."""
        if type(obj) in LITERALS and type(obj) not in (float, complex) and len(repr(obj)) < 60 and obj is not NotImplemented:
            return repr(obj)
        return self.weak(obj)

    def name(self, obj: object) -> str:
        """Text for this very object: a literal only where Python has one object of that value."""
        if is_interned(obj):
            return repr(obj)
        found = self._names.get(id(obj))
        if found is None:
            found = self._names[id(obj)] = f"_c{len(self.table)}"
            self.table[found] = obj
        return found

    def weak(self, obj: object) -> str:
        """Text for this very object, which the generated code does not keep where it may die: right at the beginning alone, when the guards
        have found it."""
        if not may_die(obj):
            return self.name(obj)
        found = self._weak.get(id(obj))
        if found is None:
            found = self._weak[id(obj)] = f"{self.name(WeakObject(obj))}()"
        return found

    def rename(self, obj: object, text: str) -> None:
        """From now on ``text`` stands for this object."""
        self._names[id(obj)] = text

    def define(self, stub: Stub) -> str:
        name = f"_f{len(self.stubs)}"
        self.stubs[name] = stub
        return name


def from_stack(names: Iterable[str]) -> list[str]:
    """Of the parameters of a resume function those whose values were on the stack, as they are called in generated text: an exception
    that leaves a function lets go of what is there, but knows the frame and its variables."""
    return [parameter_name(name) for name in names if is_of_stack(name)]


def expression(source: Any, constants: Constants, overridden: Mapping[Any, type] = MappingProxyType({})) -> str:
    """The Python expression that reads a source. ``overridden``: sources of objects whose class has a
    ``__getitem__`` of its own, or is told of each function, and the builtin class whose one is meant."""
    kind = type(source)
    if kind is Local:
        return NAME if source == CALLED else parameter_name(source.name)
    if kind is Pinned:
        return constants.weak(source.object) if source.mortal else constants.name(source.object)
    base = expression(source.base, constants, overridden)
    if kind is Attr:
        return f"{base}.{source.name}"
    if kind is InstanceDict:
        plain = (
            type(source.base) is Pinned and type(getattr(type(source.base.object), "__getattribute__", None)) is types.WrapperDescriptorType
        )
        return f"{base}.__dict__" if plain else f"{constants.name(instance_dict)}({base})"  # a class's own lookup may give another
    if kind is Item and source.base in overridden:
        return f"{constants.name(overridden[source.base])}.__getitem__({base}, {constants.key(source.key)})"
    if kind is Item:
        return f"{base}[{constants.key(source.key)}]"
    if kind is Referent:
        return f"{base}()"
    if kind is CellContents:
        return f"{base}.cell_contents"
    if kind is DictKeyAt:
        return f"list({base})[{source.position}]"
    if kind is DictValueAt:
        return f"{constants.name(value_at)}({base}, {source.position})"
    if kind is Ahead:
        return f"{constants.name(ahead)}({base}, {source.distance})"
    if kind is Inside:
        return f"{constants.name(inside)}({base}, {source.position})"
    if kind is ContextValue:
        return f"{base}.get()"
    if kind is TensorProperty and source.base in overridden:
        base = f"{constants.name(torch.Tensor.as_subclass)}({base}, {constants.name(torch.Tensor)})"
    if kind is TensorProperty:
        return f"{base}.{source.property}({source.dim})"
    assert kind is TypeOf, source
    return f"type({base})"
