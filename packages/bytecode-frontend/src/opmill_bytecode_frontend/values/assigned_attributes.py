"""Attributes that captured code assigns to classes of before the call: written when the graph has run, and read as they will be then."""

from __future__ import annotations

import enum
import types
from typing import Any

import torch

from ..interpretation.owners import exempt
from .base import MISSING, Machine, NotConstant, Value, find_in_mro, written_in_python
from .constant import ConstantValue
from .functions import FunctionValue
from .handle_ids import count_on, is_counter
from .mapping import DictValue

#: Classes whose attributes are read in other ways than along the MRO, or assumed by other guards.
READ_OTHERWISE = (tuple, torch.Tensor, enum.Enum, type)


class StandIn:
    """Takes a value's place in the dictionary of a class; the interpreter knows it as that value."""


def find_now(vm: Machine, mro: tuple[type, ...], name: str) -> tuple[Any, Any]:
    """``find_in_mro``, as captured code has left the classes: a stand-in is found for what it assigned."""
    changed = vm.effects.attributes
    if not changed:
        return find_in_mro(mro, name)
    for cls in mro:
        found = changed.get((id(cls), name))
        raw = cls.__dict__.get(name, MISSING) if found is None else found[2]
        if raw is not MISSING:
            return cls, raw
    return None, MISSING


def function_stand_in(value: FunctionValue) -> types.FunctionType:
    """A function that stands for one in the dictionary of a class: itself, or for one made in captured code a function of the same code."""
    if isinstance(real := value.real(), types.FunctionType):
        return real
    abstract = value.attrs.items.get("__isabstractmethod__")
    if abstract is not None and type(abstract[1]) is not ConstantValue:
        raise NotConstant(f"{value.describe()}, which says by an object whether it is abstract,")
    made = types.FunctionType(value.code, value.globals, value.name, None, tuple(types.CellType() for _ in value.code.co_freevars))
    made.__qualname__ = value.qualname
    made.__dict__.update({key: item.value for key, (_, item) in value.attrs.items.items() if type(item) is ConstantValue})
    return made


def assign(vm: Machine, cls: type, name: str, value: Value | None) -> None:
    """``type.__setattr__(cls, name, value)``; None: ``type.__delattr__``, of what the class itself has."""
    if not written_in_python(cls):
        vm.throw(TypeError, f"cannot set {name!r} attribute of immutable type {cls.__name__!r}")
    if is_counter(cls, name) and count_on(vm, value):
        return
    what = f"assignment to class attribute {cls.__qualname__}.{name}"
    if issubclass(cls, READ_OTHERWISE) or exempt(cls.__module__) or vm.is_made(cls):
        vm.unsupported("FE042", what, "its class is torch's, Python's, or of a kind that is assumed to stay as it is")
    if name[:2] == name[-2:] == "__":
        vm.unsupported("FE042", what, "it changes what operations on its objects mean")
    kinds = {type(find_in_mro(cls.__mro__, name)[1]), type(None) if value is None else value.python_type()}
    if any(hasattr(kind, "__get__") and (kind is not types.FunctionType or issubclass(cls, torch.nn.Module)) for kind in kinds):
        vm.unsupported("FE042", what, "it is a property or another descriptor", "assign such outside of the compiled function")
    raw: object = MISSING
    if value is not None:
        raw = function_stand_in(value) if isinstance(value, FunctionValue) else StandIn()
        vm.know(raw, value)
    vm.effects.store_attribute(cls, name, raw, value)
    for _, known in vm.known.values():
        if type(known) is DictValue and type(known.obj) is types.MappingProxyType and known.source.root.object is cls:
            show(known, name, value, vm.effects.attributes[id(cls), name][4])


def show(view: DictValue, name: str, new: Value | None, again: bool) -> None:
    """Shows in the dictionary of a class what captured code has assigned to an attribute."""
    if new is None or again:
        view.items.pop(name, None)
    if new is not None:
        view.items[name] = (ConstantValue(name), new)


__all__ = ["StandIn", "assign", "find_now"]
