"""Lists, tuples (named tuples, ``torch.Size``, ``torch.return_types``) and slices."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Callable, NoReturn, TypeVar, cast

import torch

from opmill_guards.guard import Absent
from opmill_guards.source import InstanceDict, Item, Source
from opmill_guards.storage import length_of

from .base import MISSING, Lazy, Machine, NotConstant, ProgramKey, Value, asked_of_key, content, find_in_mro, hash_told
from .constant import ConstantValue
from .iterators import STOP, ItemsIterator, PythonIterator

V = TypeVar("V", bound=Value)


def as_index(vm: Machine, value: Value) -> Value | None:
    """The int that an object gives as its ``__index__``; None where it has none."""
    index = value.special(vm, "__index__", [])
    if index is not None and not issubclass(index.python_type(), int):
        vm.throw(TypeError, f"__index__ returned non-int (type {index.python_type().__name__})")
    if index is not None and index.python_type() is not int and not issubclass(value.python_type(), int):
        vm.unsupported("FE011", f"an __index__ that gives a {index.python_type().__name__}", "Python makes an int of it and warns")
    return index


def demanded_index(vm: Machine, value: Value) -> Value:
    """``operator.index``: the int that an object gives as its ``__index__``; TypeError where it has none."""
    index = as_index(vm, value)
    if index is None:
        vm.throw(TypeError, f"{value.python_type().__name__!r} object cannot be interpreted as an integer")
    return index


def whole(vm: Machine, value: Value) -> int:
    """An argument that a function of C wants as an int: of one, or of an object with ``__index__``."""
    number: int = demanded_index(vm, value).constant()
    if not -sys.maxsize - 1 <= number <= sys.maxsize:
        vm.throw(OverflowError, "Python int too large to convert to C ssize_t")
    return number


def times(vm: Machine, value: Value) -> int | None:
    """How often a sequence is repeated by a value; None where it is no index, or has an answer of its own that comes first."""
    try:
        count = value.constant()
    except NotConstant:
        cls = value.python_type()
        if not hasattr(value, "storage") or vm.hook(cls, "__index__") is MISSING or vm.hook(cls, "__rmul__") is not MISSING:
            return None
        return whole(vm, value)
    return count if isinstance(count, int) else None


def backwards(items: list[object], index: int) -> Iterator[object]:
    """A reversed iterator over a list whose next item is that at ``index``."""
    made: Any = list.__reversed__(items)
    made.__setstate__(index)
    return made


class SequenceValue(Value):
    """Known items in order. ``items`` may hold Lazy entries; read them through ``item``."""

    cls: type = list

    def __init__(self, items: list[Any], cls: type | None = None, source: Source | None = None, obj: Any = None) -> None:
        self.items = items
        if cls is not None:
            self.cls = cls
        self.source = source
        self.obj = obj

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.items)})"

    def python_type(self) -> type:
        return self.cls

    def family(self) -> type:
        """The builtin class that this one compares with and is concatenated to."""
        return tuple if issubclass(self.cls, tuple) else type(self).cls

    def looked_at(self) -> list[object]:
        """The items as far as they are known: to look at these assumes nothing."""
        return self.items

    def item(self, vm: Machine, i: int) -> Value:
        value = self.items[i]
        if type(value) is Lazy:
            value = self.items[i] = vm.wrap(value.obj, value.source)
        return value

    def values(self, vm: Machine) -> list[Value]:
        return [self.item(vm, i) for i in range(len(self.items))]

    def make(self, items: list[Value]) -> SequenceValue:
        return type(self)(items)

    def iterate(self, vm: Machine) -> Value:
        def read(vm: Machine, i: int) -> Value:
            return self.item(vm, i) if i < len(self.items) else STOP

        kind = type(iter(())) if issubclass(self.cls, tuple) else type(iter([]))
        return ItemsIterator(read, kind, lambda: len(self.items), self if self.cls in (list, tuple) else None)

    def m___iter__(self, vm: Machine) -> Value:
        return self.iterate(vm)

    def m___reversed__(self, vm: Machine) -> Value:
        last = len(self.items) - 1
        if self.cls is list:
            return self.walk_back(vm, last)

        def read(vm: Machine, i: int) -> Value:
            return self.item(vm, last - i) if 0 <= last - i < len(self.items) else STOP

        return ItemsIterator(read, type(reversed([])) if issubclass(self.cls, list) else reversed)

    def walk_back(self, vm: Machine, index: int) -> Value:
        """``reversed`` of a list, which sees how that changes."""

        def run(vm: Machine) -> Iterator[Value]:
            nonlocal index
            while 0 <= index < len(self.items):
                index -= 1
                yield self.item(vm, index + 1)
            index = -1

        def parts() -> list[Value]:
            self.there_before(vm, index + 1)
            return [self, ConstantValue(index)]

        return PythonIterator(run, type(reversed([])), parts, backwards)

    def there_before(self, vm: Machine, count: int) -> None:
        """Refuses that an iterator leaves the capture which needs the first ``count`` items at once, where fewer were there before."""
        if self.source is not None and count > (length_of(self.obj) or 0):
            why = "the list is changed after the iterator is made"
            vm.unsupported("FE070", "an iterator over what was just appended to a list leaves the captured code", why)

    def m___len__(self, vm: Machine) -> Value:
        return ConstantValue(len(self.items))

    def index_of(self, vm: Machine, key: Value, doing: str = "index") -> int:
        """The place of an item, from 0 on; the IndexError says what was ``doing``."""
        try:
            i = key.constant()
        except NotConstant:
            index = as_index(vm, key)
            i = None if index is None else index.constant()
        if not hasattr(type(i), "__index__"):
            vm.throw(TypeError, self.no_index(key.python_type().__name__))
        i = i.__index__()
        n = len(self.items)
        if not -n <= i < n:
            if not -sys.maxsize - 1 <= i <= sys.maxsize:
                vm.throw(IndexError, f"cannot fit {key.python_type().__name__!r} into an index-sized integer")
            vm.throw(IndexError, f"{doing} out of range" if doing.startswith("pop") else f"{self.family().__name__} {doing} out of range")
        return i + n if i < 0 else i

    def no_index(self, kind: str) -> str:
        """What is said where something of a class is no index."""
        return f"{self.cls.__name__} indices must be integers or slices, not {kind}"

    def m___getitem__(self, vm: Machine, key: Value) -> Value:
        if isinstance(key, SliceValue):
            for i in range(len(self.items)):
                self.item(vm, i)
            where = key.plain(vm)
            whole = self.cls is tuple and where.indices(len(self.items)) == (0, len(self.items), 1)
            return self if whole else self.make(self.items[where])
        return self.item(vm, self.index_of(vm, key))

    def m___contains__(self, vm: Machine, value: Value) -> Value:
        return ConstantValue(any(vm.equal(item, value) for _, item in self.places(vm)))

    def places(self, vm: Machine, start: int = 0) -> Iterator[tuple[int, Value]]:
        """Indices and items, read one by one: a comparison of the program may change the sequence."""
        i = start
        while i < len(self.items):
            yield i, self.item(vm, i)
            i += 1

    def m_index(self, vm: Machine, value: Value, start: Value | None = None, stop: Value | None = None) -> Value:
        low, high, _ = slice(start.constant() if start else 0, stop.constant() if stop else None).indices(len(self.items))
        for i, item in self.places(vm, low):
            if i >= high:
                break
            if vm.equal(item, value):
                return ConstantValue(i)
        if self.family() is tuple:
            vm.throw(ValueError, "tuple.index(x): x not in tuple")
        self.is_not_in(vm, value)

    def is_not_in(self, vm: Machine, value: Value) -> NoReturn:
        try:
            text = f"{vm.plain(value)!r} is not in {self.family().__name__}"
        except NotConstant:
            vm.unsupported("FE025", f"a search for {value.describe()}, which is not there", "the error tells its text")
        vm.throw(ValueError, text)

    def m_count(self, vm: Machine, value: Value) -> Value:
        return ConstantValue(sum(vm.equal(item, value) for _, item in self.places(vm)))

    def m___add__(self, vm: Machine, other: Value) -> Value:
        other = content(other)
        if not isinstance(other, SequenceValue) or not issubclass(other.cls, self.family()):
            return ConstantValue(NotImplemented)
        return self.make(self.values(vm) + other.values(vm))

    def m___mul__(self, vm: Machine, other: Value) -> Value:
        count = times(vm, other)
        if count is None:
            return ConstantValue(NotImplemented)
        return self if count == 1 and self.cls is tuple else self.make(self.values(vm) * count)

    m___rmul__ = m___mul__

    def compare_items(self, vm: Machine, op: str, other: Value) -> Value:
        other = content(other)
        if not isinstance(other, SequenceValue) or not issubclass(other.cls, self.family()):
            return ConstantValue(NotImplemented)
        if op in ("==", "!=") and len(self.items) != len(other.items):
            return ConstantValue(op == "!=")
        i = 0
        while i < len(self.items) and i < len(other.items):  # a comparison may change either
            left, right = self.item(vm, i), other.item(vm, i)
            if not vm.equal(left, right):
                break
            i += 1
        if i >= len(self.items) or i >= len(other.items):
            return vm.compare(op, ConstantValue(len(self.items)), ConstantValue(len(other.items)))
        return vm.compare(op, self.item(vm, i), other.item(vm, i)) if op not in ("==", "!=") else ConstantValue(op == "!=")

    def m___eq__(self, vm: Machine, other: Value) -> Value:
        return self.compare_items(vm, "==", other)

    def m___ne__(self, vm: Machine, other: Value) -> Value:
        return self.compare_items(vm, "!=", other)

    def m___lt__(self, vm: Machine, other: Value) -> Value:
        return self.compare_items(vm, "<", other)

    def m___le__(self, vm: Machine, other: Value) -> Value:
        return self.compare_items(vm, "<=", other)

    def m___gt__(self, vm: Machine, other: Value) -> Value:
        return self.compare_items(vm, ">", other)

    def m___ge__(self, vm: Machine, other: Value) -> Value:
        return self.compare_items(vm, ">=", other)


#: Methods that change how the items of a tuple are read.
READING = ("__getitem__", "__iter__", "__len__", "__getattribute__")


def members(values: Iterable[object], kind: type[V]) -> Iterator[V]:
    """The values of a kind among these, and in the lists and tuples among them, to any depth."""
    for value in values:
        if isinstance(value, kind):
            yield value
        elif isinstance(value, SequenceValue):
            yield from members(value.items, kind)


def read_as_tuple(cls: type) -> bool:
    """Whether the items of tuples of a class are what every reader of tuples finds."""
    return all(type(find_in_mro(cls.__mro__, name)[1]) is not types.FunctionType for name in READING)


class TupleValue(SequenceValue):
    """A tuple, or one of a class derived from it whose items are read as those of tuples are."""

    cls = tuple

    def written_now(self, vm: Machine, name: str) -> types.FunctionType | None:
        """The function written in Python that the data model calls for ``name``, which is assumed; None where there is none."""
        if self.cls is tuple or self.cls is torch.Size:
            return None
        raw = vm.hook(self.cls, name)
        return raw if type(raw) is types.FunctionType else None

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        function = self.written_now(vm, name)
        if function is None:
            return super().special(vm, name, args)
        return vm.call(vm.wrap(function), [self, *args], {})

    def as_subscript(self, vm: Machine) -> Value:
        return TupleValue([value.as_subscript(vm) for value in self.values(vm)]) if self.cls is tuple else self

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        function = self.written_now(vm, "__call__")
        return super().call(vm, args, kwargs) if function is None else vm.call(vm.wrap(function), [self, *args], kwargs)

    def truth(self, vm: Machine) -> bool:
        for name in ("__bool__", "__len__"):
            if self.written_now(vm, name) is not None:
                return vm.truth(self.dunder(vm, name, []))
        return bool(self.items)

    def iterate(self, vm: Machine) -> Value:
        written = self.written_now(vm, "__iter__")
        return super().iterate(vm) if written is None else self.dunder(vm, "__iter__", [])

    def assembled(self, items: Sequence[object]) -> object:
        """The tuple of these items, without what the program does when it makes one."""
        if self.cls is torch.Size or self.cls.__module__ == "torch.return_types":
            return self.cls(items)
        return tuple.__new__(self.cls, items)

    def constant(self) -> object:
        plain = [v.obj if type(v) is Lazy else v.constant() for v in self.items]
        if any(type(v) is Lazy for v in self.items):
            raise NotConstant("unread items")
        return self.assembled(plain)

    def make(self, items: list[Value]) -> SequenceValue:
        return TupleValue(items, torch.Size if self.cls is torch.Size else tuple)

    def key(self, vm: Machine) -> Hashable:
        if self.written_now(vm, "__eq__") is not None and vm.hook(self.cls, "__hash__") is None:
            vm.throw(TypeError, f"unhashable type: {self.cls.__name__!r}")
        if self.written_now(vm, "__hash__") is not None:
            hashed = asked_of_key(vm, lambda: self.special(vm, "__hash__", []))
            assert hashed is not None
            return ProgramKey(vm, self, hash_told(vm, hashed))
        return tuple(vm.key(v) for v in self.values(vm))

    def getattr(self, vm: Machine, name: str) -> Value:
        fields = getattr(self.cls, "_fields", None)
        if fields is not None and name in fields:
            return self.item(vm, fields.index(name))
        if self.cls.__dictoffset__:
            own = self.own_attribute(vm, name)
            if own is not None:
                return own
        if self.cls.__module__ == "torch.return_types" and isinstance(getattr(self.cls, name, None), type(torch.return_types.max.values)):
            names = [n for n in dir(self.cls) if isinstance(getattr(self.cls, n), type(torch.return_types.max.values))]
            order = sorted(names, key=lambda n: getattr(self.cls, n).__get__(self.cls(range(len(self.items)))))
            return self.item(vm, order.index(name))
        if fields is not None and name == "_fields":
            return vm.fresh(fields)
        owner, raw = find_in_mro(self.cls.__mro__, name)
        vm.guard_lookup(self.cls, owner, name)
        if owner is None:
            vm.hook(self.cls, "__getattr__")
        else:
            vm.guard_class(owner, name, raw)
        if isinstance(raw, (classmethod, staticmethod)):
            return vm.getattr(vm.wrap(self.cls), name)
        if self.cls is not tuple and hasattr(raw, "__code__"):
            return vm.bind(vm.wrap(raw), self)
        if self.cls is not tuple and isinstance(raw, property) and raw.fget is not None:
            return vm.call(vm.wrap(raw.fget), [self], {})
        if self.cls is not tuple and hasattr(raw, "__func__"):
            return vm.wrap(raw)
        return super().getattr(vm, name)

    def own_attribute(self, vm: Machine, name: str) -> Value | None:
        """What the instance's own dictionary has of an attribute of an object of a class derived from tuple."""
        if self.source is None or any(
            hasattr(c.__dict__.get(n), "__code__") for c in self.cls.__mro__ for n in ("__getattribute__", "__getattr__")
        ):
            return None
        where = InstanceDict(self.source)
        if name in self.obj.__dict__:
            return vm.wrap(self.obj.__dict__[name], Item(where, name))
        vm.guard(Absent(where, name))
        return None

    def m___radd__(self, vm: Machine, other: Value) -> Value:
        """``torch.Size`` has one: what is added to it becomes a size."""
        if self.cls is not torch.Size or not isinstance(other, TupleValue):
            return ConstantValue(NotImplemented)
        return self.make(other.values(vm) + self.values(vm))

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return super().find_method(name) if name != "__radd__" or hasattr(self.cls, name) else None

    def m_numel(self, vm: Machine) -> Value:
        return ConstantValue(functools.reduce(lambda a, b: a * b, [v.constant() for v in self.values(vm)], 1))


class ListValue(SequenceValue):
    """A list; one that existed before the call is written back by the effects."""

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return super().find_method(name) if hasattr(self.cls, name) else None

    def __init__(self, items: list[Any], cls: type | None = None, source: Source | None = None, obj: object = None) -> None:
        super().__init__(items, cls, source, obj)
        self.before = list(items) if source is not None else None

    def real(self) -> object:
        return super().real() if self.source is None else self.obj

    def make(self, items: list[Value]) -> SequenceValue:
        return ListValue(items)

    def key(self, vm: Machine) -> Hashable:
        vm.throw(TypeError, f"unhashable type: {self.cls.__name__!r}")

    def changed(self, vm: Machine) -> Value:
        if self.source is not None:
            vm.effects.mutated(self)
        return ConstantValue(None)

    def m___setitem__(self, vm: Machine, key: Value, value: Value) -> Value:
        if isinstance(key, SliceValue):
            where = key.plain(vm)
            iterator = value if isinstance(value, SequenceValue) else vm.attempt(lambda: vm.iterate(value), TypeError)
            if iterator is None:
                whole_slice = where.step in (None, 1) and sys.version_info < (3, 13)
                vm.throw(TypeError, "can only assign an iterable" if whole_slice else "must assign iterable to extended slice")
            new = list(vm.unpack(iterator, sized=True))
            try:
                self.items[where] = new
            except ValueError as exc:
                vm.throw_real(exc)
        else:
            self.items[self.index_of(vm, key, "assignment index")] = value
        return self.changed(vm)

    def m___delitem__(self, vm: Machine, key: Value) -> Value:
        del self.items[key.plain(vm) if isinstance(key, SliceValue) else self.index_of(vm, key, "assignment index")]
        return self.changed(vm)

    def m___iadd__(self, vm: Machine, other: Value) -> Value:
        self.m_extend(vm, other)
        return self

    def m___imul__(self, vm: Machine, other: Value) -> Value:
        count = times(vm, other)
        if count is None:
            return ConstantValue(NotImplemented)
        self.items *= count
        self.changed(vm)
        return self

    def m_append(self, vm: Machine, value: Value) -> Value:
        self.items.append(value)
        return self.changed(vm)

    def m_extend(self, vm: Machine, other: Value) -> Value:
        self.items.extend(vm.unpack(other, sized=True))
        return self.changed(vm)

    def m_insert(self, vm: Machine, index: Value, value: Value) -> Value:
        self.items.insert(whole(vm, index), value)
        return self.changed(vm)

    def m_pop(self, vm: Machine, index: Value = ConstantValue(-1)) -> Value:
        place = whole(vm, index)
        if not self.items:
            vm.throw(IndexError, "pop from empty list")
        return self.take(vm, self.index_of(vm, ConstantValue(place), "pop index"))

    def take(self, vm: Machine, i: int) -> Value:
        value = self.item(vm, i)
        del self.items[i]
        self.changed(vm)
        return value

    def m_remove(self, vm: Machine, value: Value) -> Value:
        for i, item in self.places(vm):
            if vm.equal(item, value):
                del self.items[i]
                return self.changed(vm)
        if self.family() is list:
            vm.throw(ValueError, "list.remove(x): x not in list")
        self.is_not_in(vm, value)

    def m_reverse(self, vm: Machine) -> Value:
        self.items.reverse()
        return self.changed(vm)

    def m_clear(self, vm: Machine) -> Value:
        self.items.clear()
        return self.changed(vm)

    def m_copy(self, vm: Machine) -> Value:
        return self.make(self.values(vm))

    def m_sort(self, vm: Machine, *, key: Value | None = None, reverse: Value | None = None) -> Value:
        values, held = self.values(vm), self.items
        self.items = []  # what the program finds meanwhile
        try:
            ordered = sort_values(vm, values, key, reverse)
        finally:
            meanwhile, self.items = self.items, held
        self.items[:] = ordered
        self.changed(vm)
        if meanwhile:
            vm.throw(ValueError, "list modified during sort")
        return ConstantValue(None)


def sort_values(vm: Machine, items: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
    """``sorted`` over tracked values; compares by ``<`` of the program, as often as Python does."""
    backwards = reverse is not None and is_backwards(vm, reverse)
    if key is not None and not (isinstance(key, ConstantValue) and key.value is None):
        keys = [vm.call(key, [v], {}) for v in items]
    else:
        keys = items
    return [items[i] for i in sorted(range(len(items)), key=lambda i: Sorted(vm, keys[i]), reverse=backwards)]


def is_backwards(vm: Machine, reverse: Value) -> bool:
    """What ``reverse`` says: the truth of an object from Python 3.12 on, and of a whole number before."""
    return vm.truth(reverse if sys.version_info >= (3, 12) else demanded_index(vm, reverse))


class Sorted:
    """A key while Python sorts."""

    __slots__ = ("value", "vm")

    def __init__(self, vm: Machine, value: Value) -> None:
        self.vm = vm
        self.value = value

    def __lt__(self, other: Sorted) -> bool:
        return self.vm.truth(self.vm.compare("<", self.value, other.value))


class SliceValue(Value):
    """``slice(start, stop, step)`` whose parts may be tensors."""

    def __init__(self, start: Value, stop: Value, step: Value) -> None:
        self.parts = (start, stop, step)

    def python_type(self) -> type:
        return slice

    def constant(self) -> object:
        return slice(*[p.constant() for p in self.parts])

    def plain(self, vm: Machine) -> slice:
        try:
            step, start, stop = (self.number(vm, self.parts[i]) for i in (2, 0, 1))  # in Python's order
            where = slice(start, stop, step)
            where.indices(0)
        except NotConstant:
            vm.unsupported("FE026", "a slice of a sequence by a value unknown at capture")
        except Exception as exc:
            vm.throw_real(exc)
        return where

    def number(self, vm: Machine, part: Value) -> object:
        """A constant part; objects of the program are asked for their ``__index__``."""
        index = as_index(vm, part) if hasattr(part, "storage") else None
        return (part if index is None else index).constant()

    def as_subscript(self, vm: Machine) -> Value:
        return SliceValue(*[part.as_bound(vm) for part in self.parts])

    def getattr(self, vm: Machine, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return super().getattr(vm, name)

    def m___eq__(self, vm: Machine, other: Value) -> Value:
        if not isinstance(other, SliceValue):
            return ConstantValue(NotImplemented)
        return ConstantValue(all(vm.equal(a, b) for a, b in zip(self.parts, other.parts)))

    def m_indices(self, vm: Machine, length: Value) -> Value:
        where, whole = self.plain(vm), cast(int, self.number(vm, length))
        try:
            found = where.indices(whole)
        except Exception as exc:
            vm.throw_real(exc)
        return vm.fresh(found)
