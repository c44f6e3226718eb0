"""Builtin functions, and single functions of the standard library."""

from __future__ import annotations

import _thread
import functools
import inspect
import itertools
import operator
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

from ...interpretation.owners import exempt
from ...interpretation.registrations import denied
from ...values.base import COMPARISONS, MISSING, Lazy, Machine, NotConstant, ProgramKey, Value, class_has, content, is_callable
from ...values.classes import ClassValue, ModuleObject
from ...values.constant import ConstantValue, is_none
from ...values.floating import FloatNumber, as_float
from ...values.functions import BuiltinValue, Closure, FunctionValue, MethodValue
from ...values.iterators import STOP, PythonIterator
from ...values.mapping import DictValue, SetValue
from ...values.number import extreme_of_data
from ...values.objects import ObjectValue, checked_length, find_in_mro
from ...values.opaque import AddressValue, ThreadNumber
from ...values.sequence import ListValue, SequenceValue, TupleValue, sort_values
from ...values.sets import to_keys
from ...values.tensor import SAID, TensorValue
from ...values.wrapped import is_wrapped
from ..dispatch import fold
from ..registry import handles, handles_objects_of, named
from ..standard.whole_numbers import remainder_of_power, rounded_to
from . import unfinished
from .iteration import each
from .protocols import fits, is_asked_of_instances, is_real_instance

if TYPE_CHECKING:
    from ...interpretation.frame import Frame
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


def at_most(vm: Machine, name: str, most: int, given: int) -> None:
    """Raises what builtins say that are given more arguments than they take."""
    if given > most:
        vm.throw(TypeError, f"{name} expected at most {most} argument{'s' * (most != 1)}, got {given}")


@handles(len)
def len_(vm: Interpreter, value: Value) -> Value:
    """``len()``: by ``__len__`` of the class."""
    result = value.special(vm, "__len__", [])
    if result is None:
        return vm.throw(TypeError, f"object of type {value.python_type().__name__!r} has no len()")
    return checked_length(vm, result) if isinstance(value, ObjectValue) else result


def attribute_name(vm: Interpreter, name: Value) -> str:
    """The name of an attribute, which must be a text."""
    if not issubclass(name.python_type(), str):
        vm.throw(TypeError, f"attribute name must be string, not {name.python_type().__name__!r}")
    return content(name).constant()


@handles(getattr)
def getattr_(vm: Interpreter, owner: Value, name: Value, *default: Value) -> Value:
    """``getattr()``; with a default it takes the place of an AttributeError."""
    at_most(vm, "getattr", 3, 2 + len(default))
    wanted = attribute_name(vm, name)
    if not default:
        return vm.getattr(owner, wanted)
    found = vm.attempt(lambda: vm.getattr(owner, wanted), AttributeError)
    if found is None:
        return default[0]
    return found


@handles(hasattr)
def hasattr_(vm: Interpreter, owner: Value, name: Value) -> Value:
    """``hasattr()``: whether reading it raises no AttributeError."""
    wanted = attribute_name(vm, name)
    return ConstantValue(vm.attempt(lambda: vm.getattr(owner, wanted), AttributeError) is not None)


@handles(setattr)
def setattr_(vm: Interpreter, owner: Value, name: Value, value: Value) -> Value:
    """``setattr()``."""
    vm.setattr(owner, attribute_name(vm, name), value)
    return NONE


@handles(delattr)
def delattr_(vm: Interpreter, owner: Value, name: Value) -> Value:
    """``delattr()``."""
    owner.delattr(vm, attribute_name(vm, name))
    return NONE


def is_instance(vm: Interpreter, value: Value, cls: Any) -> bool:
    """``isinstance``, by the program's ``__instancecheck__`` where its class has one."""
    if isinstance(cls, tuple):
        return any(is_instance(vm, value, c) for c in cls)
    check = written_check(vm, cls, "__instancecheck__")
    if check is not None:
        return value.python_type() is cls or vm.truth(vm.call(vm.wrap(check), [vm.wrap(cls), value], {}))
    found = is_instance_of(vm, value, cls)
    if not found:
        denied(vm, value.python_type(), cls)
    return found


def is_instance_of(vm: Interpreter, value: Value, cls: Any) -> bool:
    """``isinstance`` by the class of the object, and what it says that its class is."""
    real = value.real()
    try:
        if is_asked_of_instances(cls, value.python_type()):
            return fits(vm, value, cls)
        if isinstance(value, TensorValue):
            if cls in (torch.Tensor, torch._C.TensorBase, object):
                return True
            if cls is torch.nn.Buffer:
                return value.says(vm, SAID[cls])
            if cls is torch.nn.Parameter and real is MISSING and value.says(vm, SAID[cls]):
                return True
            if isinstance(cls, type) and issubclass(cls, torch.nn.Parameter):
                return isinstance(value.fake, cls) if is_wrapped(value) else issubclass(value.cls, cls)
            return isinstance(value.fake, cls) if real is MISSING else isinstance(real, cls)
        if isinstance(value, ObjectValue) and says_its_class(value.cls):
            said = plain_classes(vm, vm.getattr(value, "__class__"))
            return issubclass(value.cls, cls) or issubclass(said, cls)
        if (obj := value.obj if isinstance(value, BuiltinValue) else real) is not MISSING:
            return is_real_instance(vm, obj, cls)
        return issubclass(value.python_type(), cls) if isinstance(cls, type) else isinstance_of(value.python_type(), cls)
    except Exception as exc:
        return vm.throw_real(exc)


def isinstance_of(kind: type, cls: Any) -> bool:
    """Whether an object of a class is an instance of ``cls``, which is no class: a union, a generic, or a mistake that the error is
    about."""
    isinstance(None, cls)
    return issubclass(kind, cls)


def written_check(vm: Interpreter, cls: object, name: str) -> types.FunctionType | None:
    """The function of the program that its metaclass has for ``isinstance`` or ``issubclass``, or None."""
    owner = find_in_mro(type(cls).__mro__, name)[0]
    found = vm.hook(type(cls), name)
    return found if type(found) is types.FunctionType and not exempt(owner.__module__) else None


def says_its_class(cls: type) -> bool:
    """Whether ``__class__`` of an instance is an answer of its own: that of a proxy."""
    hook = find_in_mro(cls.__mro__, "__getattribute__")[1]
    return isinstance(find_in_mro(cls.__mro__, "__class__")[1], property) or type(hook) is types.FunctionType


def plain_classes(vm: Interpreter, classes: Value) -> Any:
    """What ``isinstance`` and ``issubclass`` are given, as real classes."""
    if isinstance(classes, SequenceValue):
        return tuple(plain_classes(vm, c) for c in classes.values(vm))
    return classes.obj if isinstance(classes, ClassValue) else classes.constant()


@handles(isinstance)
def isinstance_(vm: Interpreter, value: Value, classes: Value) -> Value:
    """``isinstance()``, by ``__instancecheck__`` where a class has one."""
    return ConstantValue(is_instance(vm, value, plain_classes(vm, classes)))


@handles(issubclass)
def issubclass_(vm: Interpreter, cls: Value, classes: Value) -> Value:
    """``issubclass()``, by ``__subclasscheck__`` where a class has one."""
    return ConstantValue(is_subclass(vm, cls, plain_classes(vm, classes)))


def is_subclass(vm: Interpreter, given: Value, classes: Any) -> bool:
    """``issubclass``, by the program's ``__subclasscheck__`` where there is one."""
    if isinstance(classes, tuple):
        return any(is_subclass(vm, given, c) for c in classes)
    check = written_check(vm, classes, "__subclasscheck__")
    if check is not None:
        return vm.truth(vm.call(vm.wrap(check), [vm.wrap(classes), given], {}))
    cls = plain_classes(vm, given)
    try:
        found = issubclass(cls, classes)
    except Exception as exc:
        return vm.throw_real(exc)
    if not found:
        denied(vm, cls, classes)
    return found


@handles(callable)
def callable_(vm: Interpreter, value: Value) -> Value:
    """``callable()``: whether the class has ``__call__``."""
    return ConstantValue(is_callable(vm, value))


@handles(iter)
def iter_(vm: Interpreter, value: Value, *sentinel: Value) -> Value:
    """``iter()`` of an iterable, or of a function that is called until it gives the sentinel."""
    at_most(vm, "iter", 2, 1 + len(sentinel))
    if not sentinel:
        return vm.iterate(value)
    if not is_callable(vm, value):
        try:
            iter(0, 0)  # type: ignore[call-overload]  # each Python says it in words of its own
        except TypeError as exc:
            vm.throw_real(exc)

    ended = list[Value]()

    def make(vm: Machine) -> Iterator[Value]:
        while not vm.truth(vm.compare("==", item := vm.call(value, [], {}), sentinel[0])):
            yield item
        ended.append(ConstantValue(None))

    return PythonIterator(make, type(iter(int, 1)), lambda: [value, sentinel[0], *ended], unfinished.called)


@handles(next)
def next_(vm: Interpreter, iterator: Value, *default: Value) -> Value:
    """``next()``; a default takes the place of StopIteration."""
    at_most(vm, "next", 2, 1 + len(default))
    if default:
        item = vm.next(iterator)
        return default[0] if item is STOP else item
    if not class_has(vm, iterator, "__next__"):
        vm.throw(TypeError, f"{iterator.python_type().__name__!r} object is not an iterator")
    return vm.call(vm.getattr(iterator, "__next__"), [], {})


@handles(any)
def any_(vm: Interpreter, items: Value) -> Value:
    """``any()``: asks until one is true."""
    inner = vm.iterate(items)
    while (item := vm.next(inner)) is not STOP:
        if vm.truth(item):
            return ConstantValue(True)
    return ConstantValue(False)


@handles(all)
def all_(vm: Interpreter, items: Value) -> Value:
    """``all()``: asks until one is false."""
    inner = vm.iterate(items)
    while (item := vm.next(inner)) is not STOP:
        if not vm.truth(item):
            return ConstantValue(False)
    return ConstantValue(True)


@handles(sum)
def sum_(vm: Interpreter, items: Value, start: Value = ConstantValue(0)) -> Value:
    """``sum()``: plain numbers together, in Python's way; others by ``+``."""
    if issubclass(start.python_type(), (str, bytes, bytearray)):
        fold(vm, sum, [TupleValue([]), start], {})  # which raises
    numbers: list[Any] = []
    rest = each(vm, vm.iterate(items))
    for item in itertools.chain([start], rest):
        if type(item) is not ConstantValue or type(item.value) not in (int, bool, float, complex):
            break
        numbers.append(item.value)
    else:
        return ConstantValue(sum(numbers[1:], numbers[0]))  # from 3.12 on Python sums floats more exactly than one by one
    total = item if not numbers else vm.binary("+", ConstantValue(sum(numbers[1:], numbers[0])), item)
    for item in rest:
        total = vm.binary("+", total, item)
    return total


def _extreme(op: str) -> Callable[..., Value]:
    def find(vm: Interpreter, *args: Value, key: Value | None = None, default: Value | None = None) -> Value:
        if not args:
            vm.throw(TypeError, f"{'min' if op == '<' else 'max'} expected at least 1 argument, got 0")
        if default is not None and len(args) > 1:
            vm.throw(TypeError, f"Cannot specify a default for {'min' if op == '<' else 'max'}() with multiple positional arguments")
        items = each(vm, vm.iterate(args[0])) if len(args) == 1 else iter(args)
        best = next(items, None)
        if best is None:
            if default is not None:
                return default
            what = "arg is an empty sequence" if sys.version_info < (3, 12) else "iterable argument is empty"
            vm.throw(ValueError, f"{'min' if op == '<' else 'max'}() {what}")
        if key is not None and is_none(key):
            key = None
        best_key = vm.call(key, [best], {}) if key else best
        for item in items:
            if not key and (either := extreme_of_data(best, item, op)) is not None:
                best = best_key = either
                continue
            item_key = vm.call(key, [item], {}) if key else item
            if vm.truth(vm.compare(op, item_key, best_key)):
                best, best_key = item, item_key
        return best

    return find


handles(min)(_extreme("<"))
handles(max)(_extreme(">"))


@handles(sorted)
def sorted_(vm: Interpreter, items: Value, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    """``sorted()``: a new list."""
    return ListValue(sort_values(vm, vm.unpack(items, sized=True), key, reverse))


@handles(abs, operator.abs)
def abs_(vm: Interpreter, value: Value) -> Value:
    """``abs()``: by ``__abs__``."""
    return vm.unary("__abs__", value)


@handles(round)
def round_(vm: Interpreter, value: Value, *digits: Value) -> Value:
    """``round()``: by ``__round__``."""
    cls = value.python_type()
    if not class_has(vm, value, "__round__"):
        vm.throw(TypeError, f"type {cls.__name__} doesn't define __round__ method")
    if value.symbolic and value.python_type() is int and not digits:
        return value
    if len(digits) == 1 and (whole := rounded_to(vm, value, digits[0])) is not None:
        return whole
    value = as_float(vm, value)
    if isinstance(value, (ObjectValue, FloatNumber)):
        return value.dunder(vm, "__round__", [d for d in digits if d.python_type() is not type(None)])
    return fold(vm, round, [value, *digits], {})


@handles(pow)
def pow_(vm: Interpreter, base: Value, exp: Value, mod: Value = ConstantValue(None)) -> Value:
    """``pow()``: ``**``, or of three numbers."""
    return vm.binary("**", base, exp) if is_none(mod) else remainder_of_power(vm, base, exp, mod)


@handles(divmod)
def divmod_(vm: Interpreter, left: Value, right: Value) -> Value:
    """``divmod()``: by ``__divmod__`` or ``__rdivmod__``; of sizes ``//`` and ``%``."""
    if left.symbolic or right.symbolic:
        return TupleValue([vm.binary("//", left, right), vm.binary("%", left, right)])
    for owner, name, other in ((left, "__divmod__", right), (right, "__rdivmod__", left)):
        found = owner.special(vm, name, [other]) if class_has(vm, owner, name) else None
        if found is not None and not (type(found) is ConstantValue and found.value is NotImplemented):
            return found
    kinds = f"{left.python_type().__name__!r} and {right.python_type().__name__!r}"
    return vm.throw(TypeError, f"unsupported operand type(s) for divmod(): {kinds}")


@handles(id)
def id_(vm: Interpreter, value: Value) -> Value:
    """``id()``: of an object of before the call a number that is guarded; of others one that only compares."""
    real = value.real()
    if real is MISSING or isinstance(value, ConstantValue):
        return AddressValue(value)
    vm.guard_object(value)
    return ConstantValue(id(real))


@handles(hash)
def hash_(vm: Interpreter, value: Value) -> Value:
    """``hash()``; that of a tensor is refused (FE024)."""
    key = vm.key(value)  # what has none raises here
    if isinstance(value, TensorValue):
        vm.unsupported("FE024", "hash of a tensor")
    return ConstantValue(hash(Hashed(vm, value, key)))


class Hashed:
    """Has the hash that the program's value has; ``key``: its key, for which the program was asked once."""

    def __init__(self, vm: Interpreter, value: Value, key: Any) -> None:
        if isinstance(key, ProgramKey):
            self.hash = hash(key)
        elif isinstance(value, TupleValue):
            self.hash = hash(tuple(map(functools.partial(Hashed, vm), value.values(vm), key)))
        elif isinstance(value, SetValue):
            self.hash = hash(frozenset(Hashed(vm, v, k) for k, v in value.items.items()))
        else:
            real = value.real()
            if real is MISSING:
                vm.unsupported("FE024", f"hash of {value.describe()}", "it is the address of an object that does not exist yet")
            vm.guard_object(value)
            self.hash = hash(real)

    def __hash__(self) -> int:
        return self.hash


@handles(_thread.get_ident)
def get_ident(vm: Interpreter) -> Value:
    """``threading.get_ident()``: a number that only compares."""
    return ThreadNumber()


@handles(functools.cmp_to_key)
def cmp_to_key(vm: Interpreter, function: Value) -> Value:
    """``functools.cmp_to_key()``: keys that are compared by calling the function."""
    return Closure(lambda vm, value: ComparedValue(function, value))


class ComparedValue(Value):
    """A key made by ``functools.cmp_to_key``."""

    def __init__(self, function: Value, value: Value) -> None:
        self.function = function
        self.value = value

    def python_type(self) -> type:
        return type(functools.cmp_to_key(lambda a, b: 0)(0))

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        symbol = COMPARISONS.get(name)
        if symbol is None or not isinstance(args[0], ComparedValue):
            return ConstantValue(NotImplemented)
        order = vm.call(self.function, [self.value, args[0].value], {})
        return vm.compare(symbol, order, ConstantValue(0))


@handles(vars)
def vars_(vm: Interpreter, *value: Value) -> Value:
    """``vars()``: ``__dict__`` of an object, or the local names."""
    at_most(vm, "vars", 1, len(value))
    if not value:
        return locals_(vm)
    found = vm.attempt(lambda: vm.getattr(value[0], "__dict__"), AttributeError)
    return vm.throw(TypeError, "vars() argument must have __dict__ attribute") if found is None else found


@handles(dir)
def dir_(vm: Interpreter, value: Value) -> Value:
    """``dir()`` of what captured code has not written to."""
    classes = (value.obj if isinstance(value, ClassValue) else value.python_type()).__mro__
    names = value.attrs if isinstance(value, ObjectValue) and value.has_dict() else None
    kept = names is None or names.before is None or list(names.items) == list(names.before)
    of_classes = any(id(cls) == owner for owner, _ in vm.effects.attributes for cls in classes)
    of_module = isinstance(value, ModuleObject) and any(owner == id(vars(value.obj)) for owner, _ in vm.effects.globals)
    if was_written_to(value) or not kept or of_classes or of_module:
        vm.unsupported("FE014", f"dir of {value.describe()}", "captured code has written to its attributes")
    source = value.path() if isinstance(value, ClassValue) else value.source
    real = value.real()
    if (
        not isinstance(value, (ObjectValue, ClassValue, ModuleObject))
        or source is None
        or real is MISSING  # a class that is made here
        or type(vm.hook(value.python_type(), "__dir__")) is types.FunctionType
    ):
        return fold(vm, dir, [value], {})
    found = dir(real)
    vm.guard(Predicate(source, lambda now: dir(now) == found, "has the attributes that it had"))
    return vm.fresh(found)


def was_written_to(value: Value) -> bool:
    """Whether captured code has written attributes of a function, or of the function of a method."""
    function = value.function if isinstance(value, MethodValue) else value
    return isinstance(function, FunctionValue) and function.attrs.version > 0


@handles(globals)
def globals_(vm: Interpreter) -> Value:
    """``globals()`` of the function that calls it."""
    return vm.names(vm.frame.globals)


@handles(locals)
def locals_(vm: Interpreter) -> Value:
    """Until Python 3.13 a frame has one table of its variables: each call brings it up to date and leaves other keys in it."""
    frame = vm.frame
    if not frame.code.co_flags & inspect.CO_OPTIMIZED:
        vm.unsupported("FE063", "locals() in the body of a class", "what is stored in it becomes a name of the class")
    if frame.names is None or sys.version_info >= (3, 13):
        frame.names = DictValue({})
    for name in dict.fromkeys([*frame.code.co_varnames, *frame.code.co_cellvars, *frame.code.co_freevars]):
        value = frame.cells[name].get(vm) if name in frame.cells else frame.locals.get(name, MISSING)
        if value is not MISSING:
            frame.names.store(vm, ConstantValue(name), vm.wrap(value.obj, value.source) if type(value) is Lazy else value)
        else:
            frame.names.m_pop(vm, ConstantValue(name), NONE)
    return frame.names


@handles(functools.reduce)
def reduce(vm: Interpreter, fn: Value, items: Value, *initial: Value) -> Value:
    """``functools.reduce()``."""
    at_most(vm, "reduce", 3, 2 + len(initial))
    iterator = vm.attempt(lambda: vm.iterate(items), TypeError)
    if iterator is None:
        vm.throw(TypeError, "reduce() arg 2 must support iteration")
    values = itertools.chain(initial, each(vm, iterator))
    total = next(values, None)
    if total is None:
        vm.throw(TypeError, "reduce() of empty iterable with no initial value")
    for v in values:
        total = vm.call(fn, [total, v], {})
    return total


@named("typing.cast")
def cast(vm: Interpreter, typ: Value, val: Value) -> Value:
    """``typing.cast()``: the value itself."""
    return val


@handles_objects_of(type(typing.List[int]))  # noqa: UP006 - the class of such aliases has no name
def of_alias(vm: Interpreter, alias: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``Class[int](...)``: an object of the class, which knows what it was called where it can keep that."""
    if not alias._inst:
        vm.throw(TypeError, f"Type {alias._name} cannot be instantiated; use {alias.__origin__.__name__}() instead")
    made = vm.call(vm.wrap(alias.__origin__, Pinned(alias.__origin__, alias.__origin__.__qualname__)), args, kwargs)
    if isinstance(made, ObjectValue):

        def remember() -> Value:
            vm.setattr(made, "__orig_class__", BuiltinValue(alias, Pinned(alias, "__orig_class__")))
            return NONE

        vm.attempt(remember, AttributeError)
    return made


@handles(typing.NewType.__call__)
def of_new_type(vm: Interpreter, val: Value) -> Value:
    """A call of a ``typing.NewType``: the value itself."""
    return val


@handles(os.fspath)
def fspath(vm: Interpreter, path: Value) -> Value:
    """Texts are their own paths, and other objects are asked for theirs."""
    if isinstance(path, ConstantValue):
        return fold(vm, os.fspath, [path], {})
    return path.special(vm, "__fspath__", []) or vm.throw(
        TypeError, f"expected str, bytes or os.PathLike object, not {path.python_type().__name__}"
    )


@named("typing._caller")
def caller(vm: Interpreter, depth: Value = ConstantValue(1), default: Value = ConstantValue("__main__")) -> Value:
    """The module whose function called the one that asks, ``depth`` frames out."""
    frame: Frame | None = vm.frame
    for _ in range(depth.constant()):
        frame = frame and frame.caller
    if frame is None:
        vm.unsupported("FE010", "a look for the calling module", "the caller is outside of the captured code")
    return ConstantValue(frame.globals.get("__name__", default.constant()))


@named("inspect.signature")
def signature(vm: Interpreter, function: Value, **kwargs: Value) -> Value:
    """``inspect.signature()`` of a real function that captured code has not written to."""
    if was_written_to(function):
        vm.unsupported("FE014", f"inspect.signature of {function.describe()}", "captured code has written to its attributes")
    try:
        described = called_by_instances(vm, function) if isinstance(function, ObjectValue) else function.constant()
        return vm.wrap(inspect.signature(described, **{k: v.constant() for k, v in kwargs.items()}))
    except NotConstant:
        return vm.unsupported("FE014", f"inspect.signature of {function.describe()}")
    except (TypeError, ValueError) as exc:
        return vm.throw_real(exc)


def called_by_instances(vm: Interpreter, value: ObjectValue) -> Callable[..., object]:
    """What a call of an object runs: a method of its class, which tells the signature unless the object has one to show. Raises
    NotConstant where it is no Python function."""
    owner, raw = find_in_mro(value.python_type().__mro__, "__call__")
    told = (functools.partial(vm.getattr, value, name) for name in ("__signature__", "__wrapped__", "__code__"))
    shown = any(vm.attempt(ask, AttributeError) for ask in told)
    if shown or type(raw) is not types.FunctionType:
        raise NotConstant(value.describe())
    vm.guard_lookup(value.python_type(), owner, "__call__")
    vm.guard_class(owner, "__call__", raw)
    return types.MethodType(raw, value.python_type())  # bound to anything: its first parameter is given


@handles(dict.fromkeys, dict.__dict__["fromkeys"])
def fromkeys(vm: Interpreter, *args: Value) -> Value:
    """``dict.fromkeys()``, also of classes that derive from it."""
    cls = args[0].constant() if isinstance(args[0], ClassValue) else dict
    keys, *default = args[1:] if isinstance(args[0], ClassValue) else args
    out = DictValue({}) if cls is dict else vm.call(args[0], [], {})
    item = default[0] if default else NONE
    if type(out) is DictValue and (isinstance(content(keys), SetValue) or isinstance(keys, DictValue)):
        for hashed, key in to_keys(vm, keys).items():  # which know their hashes, and are compared anew
            out.put(vm, ProgramKey(vm, hashed.value, hashed.hash) if type(hashed) is ProgramKey else hashed, key, item)
        return out
    for key in vm.unpack(keys):
        vm.setitem(out, key, item)
    return out
