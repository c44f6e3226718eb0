"""Class statements in captured code."""

from __future__ import annotations

import builtins
import collections
import dataclasses
import enum
import functools
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, NoReturn, TypeVar

import torch

from ...interpretation.owners import exempt
from ...values.assigned_attributes import StandIn
from ...values.base import MISSING, NotConstant, Value, find_in_mro
from ...values.classes import ClassValue
from ...values.constant import ConstantValue, is_none
from ...values.functions import BuiltinValue, CellValue, FunctionValue, MethodValue, PartialValue
from ...values.made_classes import DescriptorValue, NewClass, stand_in
from ...values.mapping import DictValue
from ...values.sequence import TupleValue
from ..dispatch import fold
from ..registry import handles, named

if TYPE_CHECKING:
    from ...interpretation.frame import Frame
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)
Made = TypeVar("Made")
FUNCTIONS = (FunctionValue, MethodValue, PartialValue, BuiltinValue)
#: Methods of an enumeration that making its members calls.
MAKING_MEMBERS = frozenset("__new__ __init__ _generate_next_value_ _missing_ _ignore_ __init_subclass__".split())


@handles(builtins.__build_class__)
def build_class(vm: Interpreter, body: Value, name: Value, *bases: Value, **keywords: Value) -> Value:
    """The body is interpreted as a function is; its names become the class, as the metaclass says. What Python's own metaclasses and hooks
    do is done to the model, and at each call; a metaclass of the program is interpreted. Where ``__init_subclass__`` or ``__set_name__`` of
    the program would run, and where instances are implemented in C, the statement runs natively."""
    label = name.constant()
    if not isinstance(body, FunctionValue):
        refuse(vm, label, "its body is no function")
    explicit = keywords.pop("metaclass", None)
    resolved = [entry for base in bases for entry in mro_entries(vm, label, base, bases)]
    meta = metaclass_of(vm, label, explicit, resolved)
    refuse_bases(vm, label, resolved)
    if not exempt(meta.__module__) and find_in_mro(meta.__mro__, "__prepare__")[0] is not type:
        refuse(vm, label, "its metaclass has a __prepare__")
    frame = vm.make_frame(body, {}, vm.frame.depth + 1)
    cell = vm.run(frame).value
    if issubclass(meta, enum.EnumMeta) and stores_again(frame):
        refuse(vm, label, "its body gives a name twice")
    namespace = {key: frame.locals[key] for key in frame.locals}
    if len(resolved) != len(bases) or any(a is not b for a, b in zip(resolved, bases)):
        namespace["__orig_bases__"] = TupleValue(list(bases))
    made = made_by_metaclass(vm, meta, label, resolved, namespace, keywords)
    if isinstance(cell, CellValue) and cell.content is not made and issubclass(made.python_type(), type):
        refuse(vm, label, "its metaclass does not hand __classcell__ on")
    return made


def stores_again(frame: Frame) -> bool:
    """Whether the body of an enumeration may store one name more than once, or delete one: the table that it fills sees each time."""
    stored = [ins.argval for ins in frame.prepared.instructions if ins.opname == "STORE_NAME"]
    other = any(ins.opname == "DELETE_NAME" for ins in frame.prepared.instructions)
    return len(set(stored)) < len(stored) or other or bool(frame.turns)


def mro_entries(vm: Interpreter, label: str, base: Value, bases: tuple[Value, ...]) -> list[ClassValue]:
    """The classes that an expression among the bases stands for."""
    if isinstance(base, ClassValue):
        return [base]
    real = base.real()
    entries: Any = getattr(real, "__mro_entries__", None)
    if entries is None or not exempt(type(real).__module__) or not all(isinstance(b, ClassValue) or b.real() is not MISSING for b in bases):
        refuse(vm, label, "its bases are no classes")
    found = entries(tuple(b.obj if isinstance(b, ClassValue) else b.real() for b in bases))
    return classes(vm, label, list(map(vm.wrap, found)))


def classes(vm: Interpreter, label: str, bases: list[Value]) -> list[ClassValue]:
    """The bases of a class statement, which must be classes."""
    found = [base for base in bases if isinstance(base, ClassValue)]
    if len(found) < len(bases):
        refuse(vm, label, "its bases are no classes")
    return found


def metaclass_of(vm: Interpreter, label: str, explicit: Value | None, bases: list[ClassValue]) -> type:
    """The most derived of the metaclasses that take part."""
    if explicit is not None and not isinstance(explicit, ClassValue):
        refuse(vm, label, "its metaclass is no class")
    models = [base.obj for base in bases]
    winner: type = explicit.obj if explicit is not None else type(models[0]) if models else type
    for kind in map(type, models):
        if issubclass(kind, winner):
            winner = kind
        elif not issubclass(winner, kind):
            message = (
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass of the metaclasses of all its bases"
            )
            vm.throw(TypeError, message)
    return winner


def refuse_bases(vm: Interpreter, label: str, bases: list[ClassValue]) -> None:
    """Where making the class runs hooks of the program, and where its instances are implemented in C."""
    models = [base.obj for base in bases]
    for model in models:
        vm.hook(model, "__init_subclass__")  # which nobody gives it later
    if not all(exempt(find_in_mro(model.__mro__, "__init_subclass__")[0].__module__) for model in models):
        refuse(vm, label, "its base has an __init_subclass__")
    if any(issubclass(model, (torch.nn.Module, torch.Tensor, tuple)) for model in models):
        refuse(vm, label, "its base is a module, a tensor or a tuple")


@handles(type)
def type_(vm: Interpreter, value: Value, *parts: Value, **keywords: Value) -> Value:
    """The class of an object; or a class made of a name, bases and a dictionary."""
    if not parts:
        if keywords:
            vm.throw(TypeError, "type() takes no keyword arguments")
        return vm.wrap(value.python_type())
    return from_parts(vm, type, False, keywords, value, *parts)


@handles(type.__new__)
def new_type(vm: Interpreter, meta: ClassValue, name: Value, bases: Value, table: Value, **keywords: Value) -> Value:
    """``type.__new__``, which a metaclass of the program calls."""
    return from_parts(vm, meta.obj, True, keywords, name, bases, table)


def from_parts(
    vm: Interpreter, meta: type, bare: bool, keywords: dict[str, Value], name: Value, bases: Value = NONE, table: Value = NONE
) -> Value:
    """A class of a name, bases and a dictionary; ``bare``: what the metaclass says of it has been done, or is done by others."""
    if not isinstance(bases, TupleValue) or type(table) is not DictValue or not issubclass(name.python_type(), str):
        refuse(vm, "type()", "its arguments are no name, tuple and dictionary")
    assert isinstance(bases, TupleValue) and isinstance(table, DictValue)
    label = name.constant()
    given = classes(vm, label, bases.values(vm))
    meta = metaclass_of(vm, label, vm.wrap(meta), given)
    refuse_bases(vm, label, given)
    namespace = {key.constant(): item for key, item in zip(table.key_values(vm), table.all_values(vm))}
    namespace.setdefault("__module__", vm.fresh(vm.frame.globals.get("__name__", "builtins")))
    return (
        make_class(vm, type.__new__, meta, label, given, namespace, keywords)
        if bare
        else made_by_metaclass(vm, meta, label, given, namespace, keywords)
    )


def made_by_metaclass(
    vm: Interpreter, meta: type, label: str, bases: list[ClassValue], namespace: dict[str, Value], keywords: dict[str, Value]
) -> Value:
    """``meta(label, bases, namespace, **keywords)``."""
    if not exempt(meta.__module__):
        table = DictValue({key: (ConstantValue(key), item) for key, item in namespace.items()})
        return vm.call(vm.wrap(meta), [ConstantValue(label), TupleValue(list[Value](bases)), table], keywords)
    if issubclass(meta, enum.EnumMeta):
        refuse_members(vm, label, bases, namespace)
    return make_class(vm, prepared, meta, label, bases, namespace, keywords)


def refuse_members(vm: Interpreter, label: str, bases: list[ClassValue], namespace: dict[str, Value]) -> None:
    """Where making the members of an enumeration runs code of the program, or needs what is not known."""
    own = [namespace, *(vars(cls) for base in bases for cls in base.obj.__mro__ if not exempt(cls.__module__))]
    if any(MAKING_MEMBERS & names.keys() for names in own):
        refuse(vm, label, "making its members runs methods of the program")
    for name, item in namespace.items():
        if not isinstance(item, (FunctionValue, DescriptorValue)) and item.python_type() is not enum.auto and name[:2] != "__":
            try:
                vm.plain(item)
            except NotConstant as exc:
                refuse(vm, label, f"the value of {name} is {exc}")


def prepared(meta: type, name: str, bases: tuple[type, ...], namespace: Mapping[str, object], **keywords: object) -> object:
    """A class of these names, made as by a class statement."""
    table = meta.__prepare__(name, bases, **keywords)
    for key, value in namespace.items():
        table[key] = value
    return meta(name, bases, table, **keywords)


def make_class(
    vm: Interpreter,
    maker: Callable[..., object],
    meta: type,
    label: str,
    bases: list[ClassValue],
    namespace: dict[str, Value],
    keywords: dict[str, Value],
) -> Value:
    """The tracked value of a class, whose model is made now."""
    cell: Any = namespace.pop("__classcell__", None)
    if "__subclasshook__" in namespace:
        refuse(vm, label, "it has a __subclasshook__")
    if not issubclass(kind := namespace.get("__qualname__", ConstantValue(label)).python_type(), str):
        vm.throw(TypeError, f"type __qualname__ must be a str, not {kind.__name__}")
    models = tuple(base.obj for base in bases)

    def step() -> Any:
        made: dict[int, object] = {}  # one object under two names is one for those who look
        names = {key: stand_in_once(vm, value, made) for key, value in namespace.items()}
        if type(names.get("__slots__")) is StandIn:
            raise NotConstant("what its __slots__ holds is not known")
        return maker(meta, label, models, names, **{key: vm.plain(item) for key, item in keywords.items()})

    model = done_to_models(vm, label, step)
    made = vm.know(model, NewClass(model, maker, [vm.wrap(meta)], bases, namespace, keywords, cell))
    if isinstance(cell, CellValue):
        cell.set(vm, made)
    elif cell is not None:
        vm.throw(TypeError, f"__classcell__ must be a nonlocal cell, not {cell.python_type()!r}")
    return made


def stand_in_once(vm: Interpreter, value: Value, made: dict[int, object]) -> object:
    """What stands for a value while a real class is made; the same for the same value. ``made``: those so far, by id."""
    if id(value) not in made:
        made[id(value)] = stand_in(vm, value)
    return made[id(value)]


def done_to_models(vm: Interpreter, label: str, step: Callable[[], Made]) -> Made:
    """What a step gives that makes or changes models: it may raise what it raises for the program's own classes, and needs constants."""
    try:
        return step()
    except NotConstant as exc:
        return refuse(vm, label, str(exc))
    except Exception as exc:
        return vm.throw_real(exc)


def refuse(vm: Interpreter, name: str, why: str) -> NoReturn:
    """Ends the graph at a class statement."""
    vm.unsupported("FE063", f"the class statement of {name}", why, "define the class outside of the compiled function")


def made_by_function(vm: Interpreter, function: Callable[..., type], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A class that a function of Python's library makes of constants; it says that it is of the module that calls."""
    kwargs = {"module": vm.fresh(vm.frame.globals.get("__name__", "__main__")), **kwargs}
    model = done_to_models(vm, function.__qualname__, lambda: function(*map(vm.plain, args), **{k: vm.plain(v) for k, v in kwargs.items()}))
    return vm.know(model, NewClass(model, function, args, [], None, kwargs))


@named("collections.namedtuple")
def named_tuple(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``collections.namedtuple``: a class, made by the real function."""
    return made_by_function(vm, collections.namedtuple, list(args), kwargs)


def _decorator(function: Callable[..., object]) -> None:
    what = f"{function.__module__}.{function.__qualname__}"

    @named(what)
    def decorated(vm: Interpreter, cls: Value, *args: Value) -> Value:
        """What a decorator of Python's library does with a class: done to the model, and by each call to its own."""
        if not isinstance(cls, NewClass):
            vm.unsupported("FE042", f"{what}() of {cls.describe()}", "it changes what existed before the call")
        assert isinstance(cls, NewClass)
        model, label = cls.obj, cls.obj.__qualname__
        if done_to_models(vm, label, lambda: function(model, *map(vm.plain, args))) is not model:
            refuse(vm, label, "its decorator makes another class of it")
        cls.steps.append((function, list(args)))
        return cls


for _function in (dataclasses._process_class, functools.total_ordering, typing.runtime_checkable, typing.final):  # type: ignore[attr-defined]
    _decorator(_function)


def _descriptor(kind: object) -> None:
    @handles(kind)
    def make(vm: Interpreter, *functions: Value, **named: Value) -> Value:
        parts = list(functions)
        if (
            named
            or not all(isinstance(part, FUNCTIONS) or is_none(part) for part in parts)
            or not any(isinstance(part, FunctionValue) for part in parts)
        ):
            return fold(vm, kind, parts, named)
        return DescriptorValue(kind, parts)


for _kind in (property, classmethod, staticmethod):
    _descriptor(_kind)

__all__ = ["build_class", "made_by_function"]
