"""Sets and frozensets."""

from __future__ import annotations

from typing import Any, Callable, Hashable, Protocol, runtime_checkable

from opmill_guards.source import Source

from .base import COMPARISONS, MISSING, Machine, NotConstant, ProgramKey, Value, content, program_hash
from .constant import ConstantValue
from .iterators import STOP, ItemsIterator

SET_OPERATORS = COMPARISONS.keys() | {f"__{n}__" for n in ("and", "or", "sub", "xor", "rand", "ror", "rsub", "rxor")}


class OfHash:
    """Stands in a set where an object with this hash would."""

    def __init__(self, key: Hashable, number: int | None) -> None:
        self.key = key
        self.number = number

    def __hash__(self) -> int:
        return self.number or 0


class SetValue(Value):
    """A set or frozenset: hashable key -> value."""

    def __init__(self, items: dict[Any, Value], cls: type = set, source: Source | None = None, obj: Any = None) -> None:
        self.items = items
        self.cls = cls
        self.source = source
        self.obj = obj
        self.before = dict(items) if source is not None else None
        self.version = 0
        """How often it was changed."""

    def python_type(self) -> type:
        return self.cls

    def real(self) -> object:
        return MISSING if self.source is None else self.obj

    def constant(self) -> object:
        if self.cls is not frozenset:
            raise NotConstant("set")
        return frozenset(v.constant() for v in self.items.values())

    def key(self, vm: Machine) -> Hashable:
        if self.cls is frozenset:
            return frozenset(self.items)
        vm.throw(TypeError, f"unhashable type: {self.cls.__name__!r}")

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return super().find_method(name) if hasattr(self.cls, name) else None

    def changed(self, vm: Machine) -> Value:
        self.version += 1
        if self.source is not None:
            vm.effects.mutated(self)
        return ConstantValue(None)

    def iterate(self, vm: Machine) -> Value:
        # Python iterates a set in hash order: for constants do as it does.
        items = list(self.items.values())
        asking = any(isinstance(key, ProgramKey) for key in self.items)  # which are not compared with the objects that they stand for
        try:
            if asking and self.obj is not None:
                known = {id(v.real()): v for v in items}
                if len(known) == len(items) == len(self.obj) and all(id(o) in known for o in self.obj):
                    items = [known[id(o)] for o in self.obj]
            elif self.obj is not None and self.items.keys() == set(self.obj):
                items = [self.items[k] for k in self.obj]
            else:
                plain = {v.constant(): v for v in items}
                items = [plain[c] for c in set(plain)]
        except (NotConstant, TypeError):
            hashes = {key: hash(key) if isinstance(key, (int, str)) else program_hash(key) for key in self.items}
            if None not in hashes.values():
                items = [self.items[stand_in.key] for stand_in in {OfHash(key, number) for key, number in hashes.items()}]

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
        self.items.setdefault(vm.key(value), value)
        return self.changed(vm)

    def m_discard(self, vm: Machine, value: Value) -> Value:
        self.items.pop(self.sought(vm, value), None)
        return self.changed(vm)

    def m_remove(self, vm: Machine, value: Value) -> Value:
        if self.sought(vm, value) not in self.items:
            vm.throw(KeyError, value)
        return self.m_discard(vm, value)

    def m_clear(self, vm: Machine) -> Value:
        self.items.clear()
        return self.changed(vm)

    def m_copy(self, vm: Machine) -> Value:
        return self if self.cls is frozenset else SetValue(dict(self.items), self.cls)

    def m_update(self, vm: Machine, *others: Value) -> Value:
        for other in others:
            self.items.update({k: v for k, v in to_keys(vm, other).items() if k not in self.items})
        return self.changed(vm)

    def m_union(self, vm: Machine, *others: Value) -> Value:
        out = SetValue(dict(self.items), self.cls)
        out.m_update(vm, *others)
        return out

    def m_intersection(self, vm: Machine, *others: Value) -> SetValue:
        keys = [to_keys(vm, o) for o in others]
        return SetValue({k: v for k, v in self.items.items() if all(k in o for o in keys)}, self.cls)

    def m_difference(self, vm: Machine, *others: Value) -> SetValue:
        keys = [to_keys(vm, o) for o in others]
        return SetValue({k: v for k, v in self.items.items() if not any(k in o for o in keys)}, self.cls)

    def m_symmetric_difference(self, vm: Machine, other: Value) -> SetValue:
        theirs = to_keys(vm, other)
        mine = {k: v for k, v in self.items.items() if k not in theirs}
        return SetValue(mine | {k: v for k, v in theirs.items() if k not in self.items}, self.cls)

    def m_difference_update(self, vm: Machine, *others: Value) -> Value:
        self.items = self.m_difference(vm, *others).items
        return self.changed(vm)

    def m_intersection_update(self, vm: Machine, *others: Value) -> Value:
        self.items = self.m_intersection(vm, *others).items
        return self.changed(vm)

    def m_symmetric_difference_update(self, vm: Machine, other: Value) -> Value:
        self.items = self.m_symmetric_difference(vm, other).items
        return self.changed(vm)

    def m_pop(self, vm: Machine) -> Value:
        if not self.items:
            vm.throw(KeyError, "pop from an empty set")
        first = vm.unpack(self)[0]
        self.m_discard(vm, first)
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
            return SetValue({k: v for k, v in both.items() if k in keys}, self.cls)
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


def to_keys(vm: Machine, value: Value) -> dict[object, Value]:
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
