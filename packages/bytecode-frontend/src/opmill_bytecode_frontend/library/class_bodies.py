"""Class statements in captured code."""

from __future__ import annotations

import builtins
from typing import Any

import torch

from ..values.base import NotConstant, Value
from ..values.constant import ConstantValue, is_none
from ..values.functions import BuiltinValue, CellValue, FunctionValue, MethodValue, PartialValue
from ..values.made import DescriptorValue, NewClass, stand_in
from ..values.mapping import DictValue
from ..values.objects import ClassValue, find_in_mro
from ..values.sequence import TupleValue
from .dispatch import fold
from .registry import handles

NONE = ConstantValue(None)
FUNCTIONS = (FunctionValue, MethodValue, PartialValue, BuiltinValue)


@handles(builtins.__build_class__)
def build_class(vm: Any, body: Value, name: Value, *bases: Value, **keywords: Value) -> Value:
    """The body is interpreted as a function is; its names become the class. Where making the class runs code of the program (metaclasses,
    ``__init_subclass__``, ``__set_name__``), and where its instances are implemented in C, the statement runs natively."""
    label = name.constant()
    if not isinstance(body, FunctionValue):
        refuse(vm, label, "its body is no function")
    if keywords:
        refuse(vm, label, "a metaclass makes it")
    refuse_bases(vm, label, bases)
    frame = vm.make_frame(body, {}, vm.frame.depth + 1)
    vm.run(frame)
    namespace = {key: frame.locals[key] for key in frame.locals if key != "__classcell__"}
    return make_class(vm, label, list(bases), namespace, frame.locals.get("__classcell__"))


@handles(type)
def type_(vm: Any, value: Value, *parts: Value) -> Value:
    """The class of an object; or a class made of a name, bases and a dictionary."""
    if not parts:
        return vm.wrap(value.python_type())  # type: ignore[no-any-return]
    bases, table = parts if len(parts) == 2 else (NONE, NONE)
    if not isinstance(bases, TupleValue) or type(table) is not DictValue or not issubclass(value.python_type(), str):
        refuse(vm, "type()", "its arguments are no name, tuple and dictionary")
    assert isinstance(bases, TupleValue) and isinstance(table, DictValue)
    refuse_bases(vm, value.constant(), tuple(bases.values(vm)))
    namespace = {key.constant(): item for key, item in zip(table.key_values(vm), table.all_values(vm))}
    namespace.setdefault("__module__", vm.fresh(vm.frame.globals.get("__name__", "builtins")))
    return make_class(vm, value.constant(), bases.values(vm), namespace, namespace.pop("__classcell__", None))


def refuse_bases(vm: Any, label: str, bases: tuple[Value, ...]) -> None:
    """Where making the class runs code of the program, and where its instances are implemented in C."""
    if not all(isinstance(base, ClassValue) for base in bases):
        refuse(vm, label, "its bases are no classes")
    models = [base.obj for base in bases]  # type: ignore[attr-defined]
    if any(type(model) is not type for model in models):
        refuse(vm, label, "a metaclass makes it")
    if any(find_in_mro(model.__mro__, "__init_subclass__")[0] is not object for model in models):
        refuse(vm, label, "its base has an __init_subclass__")
    if any(issubclass(model, (torch.nn.Module, torch.Tensor, tuple, type)) for model in models):
        refuse(vm, label, "its base is a module, a tensor, a tuple or a metaclass")


def make_class(vm: Any, label: str, bases: list[Value], namespace: dict[str, Value], cell: Any) -> Value:
    """The tracked value of a class, whose model is made now."""
    if "__subclasshook__" in namespace:
        refuse(vm, label, "it has a __subclasshook__")
    models = [base.obj for base in bases]  # type: ignore[attr-defined]
    try:
        model = type(label, tuple(models), {key: stand_in(vm, value) for key, value in namespace.items()})
    except NotConstant as exc:
        refuse(vm, label, str(exc))
    except Exception as exc:
        return vm.throw_real(exc)  # type: ignore[no-any-return]
    made = NewClass(model, bases, namespace, cell)  # type: ignore[arg-type]
    vm.known[id(model)] = (model, made)
    if isinstance(cell, CellValue):
        cell.set(vm, made)
    return made


def refuse(vm: Any, name: str, why: str) -> None:
    vm.unsupported("FE063", f"the class statement of {name}", why, "define the class outside of the compiled function")


def _descriptor(kind: Any) -> None:
    @handles(kind)
    def make(vm: Any, *functions: Value, **named: Value) -> Value:
        parts = list(functions)
        if named or not all(isinstance(part, FUNCTIONS) or is_none(part) for part in parts) or not any(isinstance(part, FunctionValue) for part in parts):
            return fold(vm, kind, parts, named)
        return DescriptorValue(kind, parts)


for _kind in (property, classmethod, staticmethod):
    _descriptor(_kind)

__all__ = ["build_class"]
