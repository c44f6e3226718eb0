"""The operator module."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from opmill_guards.source import Pinned

from ...values.base import COMPARISONS, Value, class_has, content
from ...values.constant import ConstantValue
from ...values.functions import Closure
from ...values.objects import ObjectValue, ask_length, each
from ...values.sequence import TupleValue, demanded_index
from ..registry import HANDLERS, handles, handles_objects_of

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)
_BINARY = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "lshift": "<<"}
_BINARY |= {"rshift": ">>", "and_": "&", "or_": "|", "xor": "^"}
for _name, _symbol in _BINARY.items():
    handles(getattr(operator, _name))(functools.partial(lambda vm, a, b, op: vm.binary(op, a, b), op=_symbol))
    handles(getattr(operator, "i" + _name.rstrip("_")))(functools.partial(lambda vm, a, b, op: vm.binary(op, a, b), op=_symbol + "="))
for _name, _symbol in COMPARISONS.items():
    handles(getattr(operator, _name))(functools.partial(lambda vm, a, b, op: vm.compare(op, a, b), op=_symbol))
for _name in ("neg", "pos", "invert"):
    handles(getattr(operator, _name))(functools.partial(lambda vm, a, name: vm.unary(name, a), name=f"__{_name}__"))


@handles(operator.getitem)
def getitem(vm: Interpreter, owner: Value, key: Value) -> Value:
    """``operator.getitem()``."""
    return vm.getitem(owner, key)


@handles(operator.setitem)
def setitem(vm: Interpreter, owner: Value, key: Value, value: Value) -> Value:
    """``operator.setitem()``."""
    vm.setitem(owner, key, value)
    return NONE


@handles(operator.contains)
def contains(vm: Interpreter, owner: Value, item: Value) -> Value:
    """``operator.contains()``."""
    return ConstantValue(vm.contains(owner, item))


@handles(operator.is_)
def is_(vm: Interpreter, left: Value, right: Value) -> Value:
    """``operator.is_()``."""
    return ConstantValue(vm.is_same(left, right))


@handles(operator.not_)
def not_(vm: Interpreter, value: Value) -> Value:
    """``operator.not_()``."""
    return ConstantValue(not vm.truth(value))


@handles(operator.truth)
def truth(vm: Interpreter, value: Value) -> Value:
    """``operator.truth()``."""
    return ConstantValue(vm.truth(value))


@handles(operator.index)
def index(vm: Interpreter, value: Value) -> Value:
    """``operator.index()``; of ints their plain value."""
    if issubclass(value.python_type(), int):  # which are not asked
        return ConstantValue(int(value.value)) if type(value) is ConstantValue else content(value)
    return demanded_index(vm, value)


@handles(operator.itemgetter)
def itemgetter(vm: Interpreter, *keys: Value) -> Value:
    """``operator.itemgetter()``: of several keys a tuple."""
    return Closure(lambda vm, owner: vm.getitem(owner, keys[0]) if len(keys) == 1 else TupleValue([vm.getitem(owner, k) for k in keys]))


@handles(operator.attrgetter)
def attrgetter(vm: Interpreter, *names: Value) -> Value:
    """``operator.attrgetter()``: names with dots are followed, of several a tuple."""

    def get(vm: Interpreter, owner: Value) -> Value:
        out = []
        for name in names:
            value = owner
            for part in name.constant().split("."):
                value = vm.getattr(value, part)
            out.append(value)
        return out[0] if len(out) == 1 else TupleValue(out)

    return Closure(get)


@handles(operator.methodcaller)
def methodcaller(vm: Interpreter, name: Value, *args: Value, **kwargs: Value) -> Value:
    """``operator.methodcaller()``."""
    return Closure(lambda vm, owner: vm.call(vm.getattr(owner, name.constant()), list(args), kwargs))


@handles_objects_of(operator.itemgetter, operator.attrgetter, operator.methodcaller)
def made_before(vm: Interpreter, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What such an object keeps is what its own class is called with."""
    make, kept = obj.__reduce__()
    called = functools.partial(make, *kept)  # as one where it is a partial already
    words = {name: vm.wrap(k, Pinned(k, name)) for name, k in called.keywords.items()}
    again = HANDLERS[called.func](vm, *[vm.wrap(k, Pinned(k, "kept")) for k in called.args], **words)
    return vm.call(again, args, kwargs)


@handles(operator.is_not)
def is_not(vm: Interpreter, left: Value, right: Value) -> Value:
    """``operator.is_not()``."""
    return ConstantValue(not vm.is_same(left, right))


@handles(operator.concat)
def concat(vm: Interpreter, left: Value, right: Value) -> Value:
    """``operator.concat()``: ``+`` of sequences."""
    if not class_has(vm, left, "__getitem__"):
        vm.throw(TypeError, f"{left.python_type().__name__!r} object can't be concatenated")
    return vm.binary("+", left, right)


@handles(operator.iconcat)
def iconcat(vm: Interpreter, left: Value, right: Value) -> Value:
    """``operator.iconcat()``: ``+=``."""
    return vm.binary("+=", left, right)


@handles(operator.delitem)
def delitem(vm: Interpreter, owner: Value, key: Value) -> Value:
    """``operator.delitem()``."""
    if owner.special(vm, "__delitem__", [key]) is None:
        vm.refuse_deletion(owner, key)
    return NONE


def searched(vm: Interpreter, items: Value) -> Value:
    """An iterator over what is searched; raises what is said of a search in what has no items."""
    iterator = vm.attempt(lambda: vm.iterate(items), TypeError)
    return iterator or vm.throw(TypeError, f"argument of type {items.python_type().__name__!r} is not iterable")


@handles(operator.countOf)
def count_of(vm: Interpreter, items: Value, value: Value) -> Value:
    """``operator.countOf()``."""
    return ConstantValue(sum(vm.equal(item, value) for item in each(vm, searched(vm, items))))


@handles(operator.indexOf)
def index_of(vm: Interpreter, items: Value, value: Value) -> Value:
    """``operator.indexOf()``."""
    for i, item in enumerate(each(vm, searched(vm, items))):
        if vm.equal(item, value):
            return ConstantValue(i)
    return vm.throw(ValueError, "sequence.index(x): x not in sequence")


@handles(operator.length_hint)
def length_hint(vm: Interpreter, value: Value, default: Value = ConstantValue(0)) -> Value:
    """``operator.length_hint()``: by ``__len__``, then ``__length_hint__``."""
    if isinstance(value, ObjectValue) and value.storage is None:
        return ask_length(vm, value) or default
    for name in ("__len__", "__length_hint__"):
        result = value.special(vm, name, [])
        if result is not None and not (isinstance(result, ConstantValue) and result.value is NotImplemented):
            return result
    return default
