"""Builtin functions, operator, functools, itertools."""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
from typing import Any

import torch

from ..values.base import MISSING, NotConstant, Value
from ..values.constant import ConstantValue
from ..values.functions import BuiltinValue, FunctionValue
from ..values.iterators import STOP, PythonIterator
from ..values.mapping import DictValue
from ..values.objects import ClassValue, ObjectValue, find_in_mro
from ..values.sequence import ListValue, SequenceValue, SliceValue, TupleValue, sort_values
from ..values.tensor import TensorValue
from .dispatch import fold
from .registry import handles, named

NONE = ConstantValue(None)


@handles(len, operator.length_hint)
def len_(vm: Any, value: Value, *default: Value) -> Value:
    result = value.special(vm, "__len__", [])
    if result is None:
        vm.throw(TypeError, f"object of type {value.python_type().__name__!r} has no len()")
    return result


@handles(getattr)
def getattr_(vm: Any, owner: Value, name: Value, *default: Value) -> Value:
    if not default:
        return vm.getattr(owner, name.constant())
    found = vm.attempt(lambda: vm.getattr(owner, name.constant()), AttributeError)
    return default[0] if found is None else found


@handles(hasattr)
def hasattr_(vm: Any, owner: Value, name: Value) -> Value:
    return ConstantValue(vm.attempt(lambda: vm.getattr(owner, name.constant()), AttributeError) is not None)


@handles(setattr)
def setattr_(vm: Any, owner: Value, name: Value, value: Value) -> Value:
    vm.setattr(owner, name.constant(), value)
    return NONE


@handles(delattr)
def delattr_(vm: Any, owner: Value, name: Value) -> Value:
    owner.delattr(vm, name.constant())
    return NONE


def is_instance(vm: Any, value: Value, cls: Any) -> bool:
    if isinstance(cls, tuple):
        return any(is_instance(vm, value, c) for c in cls)
    real = value.real()
    try:
        if isinstance(value, TensorValue):
            if cls in (torch.Tensor, torch._C.TensorBase, object):
                return True
            if isinstance(cls, type) and issubclass(cls, torch.nn.Parameter):
                return issubclass(value.cls, cls)
            return isinstance(value.fake, cls) if real is MISSING else isinstance(real, cls)
        if real is not MISSING and not isinstance(value, BuiltinValue):
            return isinstance(real, cls)
        if isinstance(value, BuiltinValue):
            return isinstance(value.obj, cls)
        return issubclass(value.python_type(), cls)
    except Exception as exc:
        vm.throw_real(exc)


def plain_classes(vm: Any, classes: Value) -> Any:
    if isinstance(classes, SequenceValue):
        return tuple(plain_classes(vm, c) for c in classes.values(vm))
    return classes.constant()


@handles(isinstance)
def isinstance_(vm: Any, value: Value, classes: Value) -> Value:
    return ConstantValue(is_instance(vm, value, plain_classes(vm, classes)))


@handles(issubclass)
def issubclass_(vm: Any, cls: Value, classes: Value) -> Value:
    try:
        return ConstantValue(issubclass(cls.constant(), plain_classes(vm, classes)))
    except TypeError as exc:
        vm.throw_real(exc)


@handles(callable)
def callable_(vm: Any, value: Value) -> Value:
    return ConstantValue(find_in_mro(value.python_type().__mro__, "__call__")[1] is not MISSING)


@handles(iter)
def iter_(vm: Any, value: Value, *sentinel: Value) -> Value:
    if not sentinel:
        return vm.iterate(value)

    def make(vm: Any) -> Any:
        while not vm.truth(vm.compare("==", item := vm.call(value, [], {}), sentinel[0])):
            yield item

    return PythonIterator(make, type(iter(int, 1)))


@handles(next)
def next_(vm: Any, iterator: Value, *default: Value) -> Value:
    if default:
        item = vm.next(iterator)
        return default[0] if item is STOP else item
    return vm.call(vm.getattr(iterator, "__next__"), [], {})


@handles(any)
def any_(vm: Any, items: Value) -> Value:
    inner = vm.iterate(items)
    while (item := vm.next(inner)) is not STOP:
        if vm.truth(item):
            return ConstantValue(True)
    return ConstantValue(False)


@handles(all)
def all_(vm: Any, items: Value) -> Value:
    inner = vm.iterate(items)
    while (item := vm.next(inner)) is not STOP:
        if not vm.truth(item):
            return ConstantValue(False)
    return ConstantValue(True)


@handles(sum)
def sum_(vm: Any, items: Value, start: Value = ConstantValue(0)) -> Value:
    total = start
    for item in vm.unpack(items):
        total = vm.binary("+", total, item)
    return total


def _extreme(op: str) -> Any:
    def find(vm: Any, *args: Value, key: Value | None = None, default: Value | None = None) -> Value:
        items = vm.unpack(args[0]) if len(args) == 1 else list(args)
        if not items:
            if default is not None:
                return default
            vm.throw(ValueError, f"{'min' if op == '<' else 'max'}() arg is an empty sequence")
        if isinstance(key, ConstantValue):
            key = None
        best, best_key = items[0], vm.call(key, [items[0]], {}) if key else items[0]
        for item in items[1:]:
            item_key = vm.call(key, [item], {}) if key else item
            if vm.truth(vm.compare(op, item_key, best_key)):
                best, best_key = item, item_key
        return best

    return find


handles(min)(_extreme("<"))
handles(max)(_extreme(">"))


@handles(sorted)
def sorted_(vm: Any, items: Value, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    return ListValue(sort_values(vm, vm.unpack(items), key, reverse))


@handles(abs, operator.abs)
def abs_(vm: Any, value: Value) -> Value:
    return vm.unary("__abs__", value)


@handles(round)
def round_(vm: Any, value: Value, *digits: Value) -> Value:
    if isinstance(value, TensorValue):
        return value.method(vm, "round", [], {"decimals": digits[0]} if digits else {})
    return fold(vm, round, [value, *digits], {})


@handles(pow)
def pow_(vm: Any, left: Value, right: Value, *mod: Value) -> Value:
    return vm.binary("**", left, right) if not mod else fold(vm, pow, [left, right, *mod], {})


@handles(divmod)
def divmod_(vm: Any, left: Value, right: Value) -> Value:
    return TupleValue([vm.binary("//", left, right), vm.binary("%", left, right)])


@handles(id)
def id_(vm: Any, value: Value) -> Value:
    real = value.real()
    if real is MISSING or isinstance(value, ConstantValue):
        vm.unsupported("FE013", "id() of an object made in captured code")
    return ConstantValue(id(real))


@handles(hash)
def hash_(vm: Any, value: Value) -> Value:
    key = vm.key(value)
    if isinstance(value, TensorValue):
        vm.unsupported("FE024", "hash of a tensor")
    return ConstantValue(hash(key))


@handles(vars)
def vars_(vm: Any, value: Value) -> Value:
    return vm.getattr(value, "__dict__")


@handles(dir)
def dir_(vm: Any, value: Value) -> Value:
    if isinstance(value, ObjectValue) and value.is_untouched() and value.source is not None:
        return vm.fresh(dir(value.obj))
    return fold(vm, dir, [value], {})


@handles(globals)
def globals_(vm: Any) -> Value:
    return vm.wrap(vm.frame.globals)


@handles(locals)
def locals_(vm: Any) -> Value:
    frame = vm.frame
    names = [n for n in frame.code.co_varnames if n in frame.locals]
    from ..opcodes.variables import read_local

    out = DictValue({n: (ConstantValue(n), read_local(vm, frame, n)) for n in names})
    return out


@handles(print)
def print_(vm: Any, *args: Value, **kwargs: Value) -> Value:
    vm.effects.calls.append((builtins.print, list(args), kwargs))
    return NONE


_BINARY = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "lshift": "<<"}
_BINARY |= {"rshift": ">>", "and_": "&", "or_": "|", "xor": "^"}
for _name, _symbol in _BINARY.items():
    handles(getattr(operator, _name))(functools.partial(lambda vm, a, b, op: vm.binary(op, a, b), op=_symbol))
    handles(getattr(operator, "i" + _name.rstrip("_")))(functools.partial(lambda vm, a, b, op: vm.binary(op, a, b), op=_symbol + "="))
for _name, _symbol in {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}.items():
    handles(getattr(operator, _name))(functools.partial(lambda vm, a, b, op: vm.compare(op, a, b), op=_symbol))
for _name in ("neg", "pos", "invert"):
    handles(getattr(operator, _name))(functools.partial(lambda vm, a, name: vm.unary(name, a), name=f"__{_name}__"))


@handles(operator.getitem)
def getitem(vm: Any, owner: Value, key: Value) -> Value:
    return vm.getitem(owner, key)


@handles(operator.setitem)
def setitem(vm: Any, owner: Value, key: Value, value: Value) -> Value:
    vm.setitem(owner, key, value)
    return NONE


@handles(operator.contains)
def contains(vm: Any, owner: Value, item: Value) -> Value:
    return ConstantValue(vm.contains(owner, item))


@handles(operator.is_)
def is_(vm: Any, left: Value, right: Value) -> Value:
    return ConstantValue(vm.is_same(left, right))


@handles(operator.not_)
def not_(vm: Any, value: Value) -> Value:
    return ConstantValue(not vm.truth(value))


@handles(operator.truth)
def truth(vm: Any, value: Value) -> Value:
    return ConstantValue(vm.truth(value))


@handles(operator.index)
def index(vm: Any, value: Value) -> Value:
    result = value.special(vm, "__index__", [])
    if result is None:
        vm.throw(TypeError, f"{value.python_type().__name__!r} object cannot be interpreted as an integer")
    return result


@handles(operator.itemgetter)
def itemgetter(vm: Any, *keys: Value) -> Value:
    return Closure(lambda vm, owner: vm.getitem(owner, keys[0]) if len(keys) == 1 else TupleValue([vm.getitem(owner, k) for k in keys]))


@handles(operator.attrgetter)
def attrgetter(vm: Any, *names: Value) -> Value:
    def get(vm: Any, owner: Value) -> Value:
        out = []
        for name in names:
            value = owner
            for part in name.constant().split("."):
                value = vm.getattr(value, part)
            out.append(value)
        return out[0] if len(out) == 1 else TupleValue(out)

    return Closure(get)


@handles(operator.methodcaller)
def methodcaller(vm: Any, name: Value, *args: Value, **kwargs: Value) -> Value:
    return Closure(lambda vm, owner: vm.call(vm.getattr(owner, name.constant()), list(args), kwargs))


class Closure(Value):
    """A callable that the library makes."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def python_type(self) -> type:
        return operator.itemgetter

    def call(self, vm: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function(vm, *args, **kwargs)


@handles(functools.reduce)
def reduce(vm: Any, fn: Value, items: Value, *initial: Value) -> Value:
    values = [*initial, *vm.unpack(items)]
    if not values:
        vm.throw(TypeError, "reduce() of empty iterable with no initial value")
    total = values[0]
    for v in values[1:]:
        total = vm.call(fn, [total, v], {})
    return total


def _python_iterator(kind: type, make: Any) -> None:
    handles(kind)(lambda vm, *args, **kwargs: PythonIterator(lambda vm: make(vm, *args, **kwargs), kind))


def _chain(vm: Any, *iterables: Value) -> Any:
    for iterable in iterables:
        inner = vm.iterate(iterable)
        while (item := vm.next(inner)) is not STOP:
            yield item


def _islice(vm: Any, items: Value, *limits: Value) -> Any:
    inner = vm.iterate(items)
    wanted = iter(range(2**62)[slice(*[v.constant() for v in limits])])
    position, following = 0, next(wanted, None)
    while following is not None and (item := vm.next(inner)) is not STOP:
        if position == following:
            yield item
            following = next(wanted, None)
        position += 1


def _product(vm: Any, *iterables: Value, repeat: Value = ConstantValue(1)) -> Any:
    for row in itertools.product(*[vm.unpack(v) for v in iterables], repeat=repeat.constant()):
        yield TupleValue(list(row))


def _combinations(kind: Any) -> Any:
    def make(vm: Any, items: Value, *r: Value) -> Any:
        for row in kind(vm.unpack(items), *[v.constant() for v in r]):
            yield TupleValue(list(row))

    return make


def _repeat(vm: Any, value: Value, *times: Value) -> Any:
    for _ in range(times[0].constant()) if times else itertools.count():
        yield value


def _count(vm: Any, start: Value = ConstantValue(0), step: Value = ConstantValue(1)) -> Any:
    value = start
    while True:
        yield value
        value = vm.binary("+", value, step)


def _cycle(vm: Any, items: Value) -> Any:
    values = vm.unpack(items)
    while values:
        yield from values


def _accumulate(vm: Any, items: Value, func: Value = NONE, *, initial: Value = NONE) -> Any:
    total = None if isinstance(initial, ConstantValue) and initial.value is None else initial
    if total is not None:
        yield total
    for item in vm.unpack(items):
        if total is None:
            total = item
        else:
            total = vm.binary("+", total, item) if isinstance(func, ConstantValue) else vm.call(func, [total, item], {})
        yield total


def _starmap(vm: Any, fn: Value, rows: Value) -> Any:
    inner = vm.iterate(rows)
    while (row := vm.next(inner)) is not STOP:
        yield vm.call(fn, vm.unpack(row), {})


def _zip_longest(vm: Any, *iterables: Value, fillvalue: Value = NONE) -> Any:
    for row in itertools.zip_longest(*[vm.unpack(v) for v in iterables], fillvalue=fillvalue):
        yield TupleValue(list(row))


def _takewhile(vm: Any, fn: Value, items: Value) -> Any:
    inner = vm.iterate(items)
    while (item := vm.next(inner)) is not STOP and vm.truth(vm.call(fn, [item], {})):
        yield item


def _dropwhile(vm: Any, fn: Value, items: Value) -> Any:
    inner = vm.iterate(items)
    while (item := vm.next(inner)) is not STOP and vm.truth(vm.call(fn, [item], {})):
        pass
    while item is not STOP:
        yield item
        item = vm.next(inner)


for _kind, _make in {
    itertools.chain: _chain, itertools.islice: _islice, itertools.product: _product, itertools.repeat: _repeat, itertools.count: _count,
    itertools.cycle: _cycle, itertools.accumulate: _accumulate, itertools.starmap: _starmap, itertools.zip_longest: _zip_longest,
    itertools.takewhile: _takewhile, itertools.dropwhile: _dropwhile, itertools.combinations: _combinations(itertools.combinations),
    itertools.permutations: _combinations(itertools.permutations), itertools.pairwise: _combinations(itertools.pairwise),
}.items():  # fmt: skip
    _python_iterator(_kind, _make)


@handles(itertools.chain.from_iterable)
def chain_from_iterable(vm: Any, iterables: Value) -> Value:
    return PythonIterator(lambda vm: _chain(vm, *vm.unpack(iterables)), itertools.chain)


@named("typing.cast")
def cast(vm: Any, typ: Value, val: Value) -> Value:
    return val


@named("warnings.warn", "logging.Logger._log")
def note(vm: Any, *args: Value, **kwargs: Value) -> Value:
    return NONE


@named("inspect.signature")
def signature(vm: Any, function: Value, **kwargs: Value) -> Value:
    import inspect

    try:
        return vm.wrap(inspect.signature(function.constant(), **{k: v.constant() for k, v in kwargs.items()}))
    except NotConstant:
        vm.unsupported("FE014", f"inspect.signature of {function.describe()}")


@named("copy.copy")
def copy_copy(vm: Any, value: Value) -> Value | None:
    if isinstance(value, (ListValue, DictValue)):
        return value.m_copy(vm)
    if isinstance(value, (ConstantValue, TupleValue, FunctionValue, ClassValue)):
        return value
    return None


@handles(dict.fromkeys)
def fromkeys(vm: Any, *args: Value) -> Value:
    items = [a for a in args if not isinstance(a, ClassValue)]
    out = DictValue({})
    for key in vm.unpack(items[0]):
        out.store(vm, key, items[1] if len(items) > 1 else NONE)
    return out


__all__ = ["SliceValue"]
