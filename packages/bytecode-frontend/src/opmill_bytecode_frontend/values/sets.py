"""Sets and frozensets."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from opmill_guards.source import Source
from opmill_guards.storage import items_of

from .base import COMPARISONS, MISSING, Machine, NotConstant, ProgramKey, Value, content
from .constant import ConstantValue
from .iterators import STOP, ItemsIterator
from .sequence import TupleValue
from .set_order import Keyed, Layout, Step, as_added, key_of, layout_of, own_layout, same_order, stand_ins

SET_OPERATORS = COMPARISONS.keys() | {f"__{n}__" for n in ("and", "or", "sub", "xor", "rand", "ror", "rsub", "rxor")}


SMALLEST_TABLE = 8
"""Places of a set in CPython, at least."""


class Done(NamedTuple):
    """A method of ``set``, what it was given, and the key of that where it is one item."""

    method: str
    given: list[Value]
    key: Hashable = None


class SetValue(Value):
    """A set or frozenset: hashable key -> value."""

    def __init__(self, items: Keyed, cls: type = set, source: Source | None = None, obj: Any = None, layout: Layout | None = None) -> None:
        self.items = items
        self.cls = cls
        self._layout: Layout | None = layout
        self._laid_out = layout is not None
        self.source = source
        self.obj = obj
        self.before = dict(items) if source is not None else None
        self.moved = False
        """Whether items came or went in a set of before the call."""
        self.history: list[Done] = []
        """What was done to a set of before the call."""
        self.version = 0
        """How often it was changed."""
        self.steps: list[Step] = []
        """What its layout went through, where that is known."""

    def python_type(self) -> type:
        return self.cls

    def real(self) -> object:
        return MISSING if self.source is None else self.obj

    def constant(self) -> object:
        if self.cls is not frozenset:
            raise NotConstant("set")
        return self.assembled([v.constant() for v in self.items.values()])

    def assembled(self, items: list[Hashable]) -> Layout:
        """A real set of what its values stand for, in its order."""
        way, values = same_order(self.layout, self.items) or as_added(self.items)
        real = dict(zip(map(id, self.items.values()), items))
        return way.make([real[id(value)] for value in values], self.cls)

    def key(self, vm: Machine) -> Hashable:
        if self.cls is frozenset:
            return frozenset(self.items)
        vm.throw(TypeError, f"unhashable type: {self.cls.__name__!r}")

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return super().find_method(name) if hasattr(self.cls, name) else None

    def changed(self, vm: Machine) -> Value:
        self.version += 1
        if self.source is not None:
            self.moved = self.moved or self.items.keys() != (self.before or {}).keys()
            vm.effects.mutated(self)
        return ConstantValue(None)

    @property
    def layout(self) -> Layout | None:
        """A real set with the same past, None where that is not known."""
        if not self._laid_out:
            self._layout, self._laid_out = layout_of(self.items) if self.obj is None else own_layout(self.obj, self.items), True
            if self.obj is None and self._layout is not None:
                self.steps = [(self.cls, (stand_ins(self.items),))]
        return self._layout

    def change(self, change: Callable[..., object], *shapes: Shape | None) -> None:
        """Does to the layout what is done to the set."""
        layout = self.layout
        if layout is not None and (layout is self.obj or not isinstance(layout, set)):
            layout = self._layout = set(layout)
        if layout is None or None in shapes:
            self._layout = None
        else:
            change(layout, *shapes)
            if self.steps:
                self.steps.append((change, shapes))

    def derived(self, items: Keyed, name: str, *shapes: Shape | None) -> SetValue:
        """A new set, of which a method of this name gives the layout."""
        out = SetValue(items, self.cls)
        known = self.layout is not None and None not in shapes
        out._layout, out._laid_out = getattr(self.layout, name)(*shapes) if known else None, True
        if known:
            out.steps = [(getattr(type(self.layout), name), (self.layout, *shapes))]
        return out

    @classmethod
    def made_of(cls, keys: Keyed, kind: type, shape: Shape | None) -> SetValue:
        """A new set of items that ``shape`` stands for."""
        made = cls(dict(keys), kind, layout=None if shape is None else kind(shape))
        if shape is not None:
            made.steps = [(kind, (shape,))]
        return made

    def did(self, method: str, keys: Sequence[Keyed], shapes: Sequence[Shape | None]) -> None:
        """A set of before the call goes through the same again when the graph has run: where its items lie depends on how they came."""
        if self.source is not None:
            self.history.append(Done(method, [given_again(*each) for each in zip(keys, shapes)]))

    def lasting(self) -> list[Done]:
        """What was done to a set of before the call, but for items that came and went: they may be known to the capture alone."""
        known = {*(self.before or {}), *self.items}
        return [done for done in self.history if done.method not in ("add", "discard") or done.key in known]

    def has_one_order(self) -> bool:
        """Whether a set of these items has this order whatever was in it before."""
        numbers = [hash(each) for each in self.layout or ()]
        return len(self.items) < 2 or (len(set(numbers)) == len(self.items) and all(0 <= n < SMALLEST_TABLE for n in numbers))

    def iterate(self, vm: Machine) -> Value:
        if self.moved and not self.has_one_order():
            why = "its order depends on what was in it before, and when"
            vm.unsupported("FE023", "iteration over a changed set of before the call", why, "iterate over a sorted copy, or a dict")
        # Python iterates a set in the order of hashes and of what was there before: for constants do as it does.
        items = list(self.items.values())
        held = [] if self.obj is None else items_of(self.obj)
        asking = any(isinstance(key, ProgramKey) for key in self.items)  # which are not compared with the objects that they stand for
        try:
            if asking and self.obj is not None:
                known = {id(v.real()): v for v in items}
                if len(known) == len(items) == len(held) and all(id(o) in known for o in held):
                    items = [known[id(o)] for o in held]
            elif self.obj is not None and self.version == 0 and self.items.keys() == set(self.obj):
                items = [self.items[k] for k in held]
            elif self.layout is not None:
                items = [self.items[key_of(each)] for each in self.layout]
        except TypeError:
            pass

        def read(vm: Machine, i: int) -> Value:
            if len(self.items) != len(items):
                vm.throw(RuntimeError, "Set changed size during iteration")
            return items[i] if i < len(items) else STOP

        begun = len(self.items), self.version
        return ItemsIterator(read, type(iter(set())), walks=(self, lambda: begun == (len(self.items), self.version)))

    def m___iter__(self, vm: Machine) -> Value:
        return self.iterate(vm)

    def m___len__(self, vm: Machine) -> Value:
        return ConstantValue(len(self.items))

    def m___contains__(self, vm: Machine, value: Value) -> Value:
        return ConstantValue(self.sought(vm, value) in self.items)

    def sought(self, vm: Machine, value: Value) -> Hashable:
        """The key by which something is looked for: a set is looked for as a frozen one."""
        part = content(value)
        return frozenset(part.items) if type(part) is SetValue and part.cls is set else vm.key(value)

    def m_add(self, vm: Machine, value: Value) -> Value:
        key = vm.key(value)
        if self.source is not None:
            self.history.append(Done("add", [value], key))
        if (self._laid_out or self.obj is not None) and key not in self.items:
            self.change(set.update, stand_ins({key: value}))
        self.items.setdefault(key, value)
        return self.changed(vm)

    def m_discard(self, vm: Machine, value: Value) -> Value:
        key = self.sought(vm, value)
        if self.source is not None:
            self.history.append(Done("discard", [value], key))
        if key in self.items:
            self.change(set.difference_update, stand_ins({key: self.items[key]}))
            del self.items[key]
        return self.changed(vm)

    def m_remove(self, vm: Machine, value: Value) -> Value:
        if self.sought(vm, value) not in self.items:
            vm.throw(KeyError, value)
        return self.m_discard(vm, value)

    def m_clear(self, vm: Machine) -> Value:
        self.did("clear", [], [])
        self.items.clear()
        self._layout, self._laid_out, self.steps = set(), True, []
        return self.changed(vm)

    def m_copy(self, vm: Machine) -> Value:
        return self if self.cls is frozenset else self.derived(dict(self.items), "copy")

    def m_update(self, vm: Machine, *others: Value) -> Value:
        for other in others:
            keys, shape = operand(vm, other)
            self.did("update", [keys], [shape])
            self.change(set.update, shape)
            self.items.update({k: v for k, v in keys.items() if k not in self.items})
        return self.changed(vm)

    def shared(self, others: Sequence[Keyed]) -> Keyed:
        return {k: v for k, v in self.items.items() if all(k in other for other in others)}

    def own(self, others: Sequence[Keyed]) -> Keyed:
        return {k: v for k, v in self.items.items() if not any(k in other for other in others)}

    def of_one(self, other: Keyed) -> Keyed:
        """Items that are in this set or in the other, but not in both."""
        return self.own([other]) | {k: v for k, v in other.items() if k not in self.items}

    def m_union(self, vm: Machine, *others: Value) -> Value:
        keys, shapes = operands(vm, others)
        return self.derived(functools.reduce(lambda mine, theirs: {**mine, **theirs, **mine}, keys, self.items), "union", *shapes)

    def m_intersection(self, vm: Machine, *others: Value) -> SetValue:
        keys, shapes = operands(vm, others)
        return self.derived(self.shared(keys), "intersection", *shapes)

    def m_difference(self, vm: Machine, *others: Value) -> SetValue:
        keys, shapes = operands(vm, others)
        return self.derived(self.own(keys), "difference", *shapes)

    def m_symmetric_difference(self, vm: Machine, other: Value) -> SetValue:
        theirs, shape = operand(vm, other)
        return self.derived(self.of_one(theirs), "symmetric_difference", shape)

    def m_difference_update(self, vm: Machine, *others: Value) -> Value:
        keys, shapes = operands(vm, others)
        self.did("difference_update", keys, shapes)
        self.change(set.difference_update, *shapes)
        self.items = self.own(keys)
        return self.changed(vm)

    def m_intersection_update(self, vm: Machine, *others: Value) -> Value:
        keys, shapes = operands(vm, others)
        self.did("intersection_update", keys, shapes)
        made = self.derived(self.shared(keys), "intersection", *shapes)
        self.items, self._layout, self._laid_out, self.steps = made.items, made.layout, True, made.steps
        return self.changed(vm)

    def m_symmetric_difference_update(self, vm: Machine, other: Value) -> Value:
        theirs, shape = operand(vm, other)
        self.did("symmetric_difference_update", [theirs], [shape])
        self.change(set.symmetric_difference_update, shape)
        self.items = self.of_one(theirs)
        return self.changed(vm)

    def m_pop(self, vm: Machine) -> Value:
        if not self.items:
            vm.throw(KeyError, "pop from an empty set")
        if self.source is not None and len(self.items) > 1:
            why = "which one comes next depends on what was taken from the set and put into it before"
            vm.unsupported("FE020", "pop() of a set of before the call with several items", why, "take items from a sorted copy of it")
        if self.source is None and isinstance(self.layout, set):
            first = self.items.pop(key_of(self.layout.pop()))
            self.steps = self.steps and [*self.steps, (set.pop, ())]
            self.changed(vm)
            return first
        first = vm.unpack(self)[0]
        self.m_discard(vm, first)
        if self.source is not None:
            self.history[-1] = Done("pop", [])
        return first

    def m_issubset(self, vm: Machine, other: Value) -> Value:
        return ConstantValue(self.items.keys() <= to_keys(vm, other).keys())

    def m_issuperset(self, vm: Machine, other: Value) -> Value:
        return ConstantValue(self.items.keys() >= to_keys(vm, other).keys())

    def m_isdisjoint(self, vm: Machine, other: Value) -> Value:
        return ConstantValue(self.items.keys().isdisjoint(to_keys(vm, other)))

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if name in SET_OPERATORS:
            other = content(args[0])
            if isinstance(other, SetLike) and other.kind != "values":  # keys and items of a dictionary
                if name not in COMPARISONS:
                    return ConstantValue(NotImplemented)  # the view's own operators are asked
                other = other.as_set(vm)
            if not isinstance(other, SetValue):
                return ConstantValue(NotImplemented)
            if name in COMPARISONS:
                return ConstantValue(getattr(set(self.items), name)(set(other.items)))
            both = {**other.items, **self.items}
            keys = getattr(set(self.items), name)(set(other.items))
            return self.derived({k: v for k, v in both.items() if k in keys}, name, other.layout)
        return super().special(vm, name, args)

    def in_place(self, vm: Machine, other: Value, update: Callable[[Machine, Value], object]) -> Value:
        """``|=`` and the like: only another set will do, and frozensets have none."""
        if self.cls is not set or not issubclass(other.python_type(), (set, frozenset, type({}.keys()), type({}.items()))):
            return ConstantValue(NotImplemented)
        update(vm, other)
        return self

    def m___ior__(self, vm: Machine, other: Value) -> Value:
        return self.in_place(vm, other, self.m_update)

    def m___iand__(self, vm: Machine, other: Value) -> Value:
        return self.in_place(vm, other, self.m_intersection_update)

    def m___isub__(self, vm: Machine, other: Value) -> Value:
        return self.in_place(vm, other, self.m_difference_update)

    def m___ixor__(self, vm: Machine, other: Value) -> Value:
        return self.in_place(vm, other, self.m_symmetric_difference_update)


@runtime_checkable
class SetLike(Protocol):
    """A view of a dictionary."""

    kind: str

    def as_set(self, vm: Machine) -> SetValue: ...


@runtime_checkable
class KeyedValues(Protocol):
    """A dictionary: of each key, what it is and the value."""

    items: dict[object, tuple[Value, object]]

    def key_values(self, vm: Machine) -> list[Value]: ...


Shape = Layout | dict[Hashable, None] | list[Hashable]
"""A set, a dictionary or an iterable whose items stand for those of a value: sets take them in different ways."""


def operand(vm: Machine, value: Value) -> tuple[Keyed, Shape | None]:
    """The values by their keys, and what stands for them."""
    keys, known = to_keys(vm, value), content(value)
    if isinstance(known, SetValue):
        return keys, known.layout
    found = stand_ins(keys)
    return keys, dict.fromkeys(found) if found is not None and isinstance(value, KeyedValues) else found


def given_again(keys: Keyed, shape: Shape | None) -> Value:
    """What holds the same items now and lets a set lay them out alike."""
    if isinstance(shape, (set, frozenset)):
        return SetValue(dict(keys), layout=set(shape))
    return TupleValue(list(keys.values()))


def operands(vm: Machine, values: Sequence[Value]) -> tuple[list[Keyed], list[Shape | None]]:
    """The keys of several operands of a set, and how each lies in memory."""
    found = [operand(vm, value) for value in values]
    return [keys for keys, _ in found], [shape for _, shape in found]


def to_keys(vm: Machine, value: Value) -> Keyed:
    """The values by their keys. Sets and dictionaries know the keys of theirs: hashes are not asked for again."""
    known = content(value)
    if isinstance(known, SetValue):
        return known.items
    if isinstance(value, KeyedValues):
        value.key_values(vm)
        return {k: v for k, (v, _) in value.items.items()}
    out: dict[Hashable, Value] = {}
    for v in vm.unpack(value):
        out.setdefault(vm.key(v), v)
    return out
