"""Dictionaries (dict, OrderedDict, defaultdict, Counter, mapping proxies), their views, and sets."""

from __future__ import annotations

import collections
import types
import weakref
from collections.abc import Iterator
from typing import Any, Callable, Hashable

from opmill_guards.guard import ANY_KEY, Absent, DictKeys, SizeRelation
from opmill_guards.source import DictKeyAt, DictValueAt, Item, Source
from opmill_guards.storage import keys_of

from .base import COMPARISONS, MISSING, Lazy, Machine, NotConstant, Value, class_has, content, is_iterable, written_in_python
from .constant import ConstantValue
from .handle_ids import GivenId, HandleId, HandleKey, is_of_all_modules
from .iterators import STOP, ItemsIterator
from .sequence import TupleValue
from .sets import SET_OPERATORS, SetValue, to_keys

#: Keys that may stand in a guard as they are.
PLAIN_KEYS = (str, int, bool, float, type(None), bytes)


class Gone:
    """A key that was taken out of a dictionary."""

    def __init__(self, key: Value) -> None:
        self.key = key


class DictValue(Value):
    """Known keys in order. ``items`` maps a hashable key to (key value, value or Lazy). Of a dict that existed before the call only
    what is looked at is guarded: single items, absence of single keys, or all keys once something depends on them all."""

    def __init__(self, items: dict[Any, tuple[Value, Any]], cls: type = dict, source: Source | None = None, obj: Any = None) -> None:
        self.items = items
        self.cls = cls
        self.source = source
        self.obj = obj
        self.default: Value | None = None
        self.keys_guarded = source is None
        self.before = dict(items) if source is not None else None
        self.read_only = False
        self.unseen: dict[Hashable, None] = {}
        """Keys stored by the capture of which it is not assumed whether they were there before, as they were first stored."""
        self.version = 0
        """How often it was changed."""
        self.history: list[object] = []
        """Keys that came (the key) and went (``Gone``), in order: iterators of Python see that."""
        self.extra: dict[str, Value] = {}
        """Attributes set on a new OrderedDict."""
        self._part_of: weakref.ref[Value] | None = None
        self.holds_hooks = False
        """Whether a module has it for its hooks: the keys are numbers of handles."""
        self.by_handles = False
        """Whether captured code made it, and put in such numbers, which are compared with no others."""
        self.attribute = "__dict__"
        """The attribute by which it is ``part_of`` an object."""

    @property
    def part_of(self) -> Value | None:
        """An object made in captured code, which has this dictionary. It is known as long as it is needed for itself: what knew it from
        here, too, would keep it, and what the program gave it, until the next collection."""
        return None if self._part_of is None else self._part_of()

    @part_of.setter
    def part_of(self, owner: Value) -> None:
        self._part_of = weakref.ref(owner)

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return super().find_method(name) if not self.read_only or hasattr(types.MappingProxyType, name) else None

    def proxy(self, vm: Machine) -> DictValue:
        """A ``types.MappingProxyType`` of it."""
        self.guard_keys(vm)
        shown = DictValue(self.items, types.MappingProxyType)
        shown.read_only = True
        return shown

    def python_type(self) -> type:
        return self.cls

    def real(self) -> object:
        return MISSING if self.source is None else self.obj

    def guard_keys(self, vm: Machine) -> None:
        if not self.keys_guarded:
            self.keys_guarded = True
            vm.guard(DictKeys(self.source, self.expected_keys()))

    def expected_keys(self) -> tuple[object, ...]:
        """The keys of a dictionary of before the call; any where one is found by its position, and guarded as what is found there."""
        tracked, keys = list(self.known_before.values()), keys_of(self.obj)
        if len(tracked) != len(keys):  # a key says of another that it is equal, and not each time
            return tuple(keys)
        return tuple(ANY_KEY if type(each.source) is DictKeyAt or type(each) is GivenId else key for (each, _), key in zip(tracked, keys))

    @property
    def known_before(self) -> dict[Hashable, tuple[Value, Value | Lazy]]:
        """What a dictionary of before the call held."""
        assert self.before is not None
        return self.before

    def hashed(self, vm: Machine, key: Value) -> Hashable:
        """The hashable of a key. The number of a handle that captured code made is none of those that a dictionary of hooks had."""
        if type(key) is HandleId and (self.holds_hooks or (self.source is None and all(type(k) is HandleKey for k in self.items))):
            self.by_handles = not self.holds_hooks
            return key.key_of_hook()
        if self.holds_hooks and self.source is not None:  # numbers that others have are never those of these hooks
            if type(key) is GivenId and (place := self.place_of(key)) is not None:
                vm.relations.append(SizeRelation("s0 == s1", (key.source, DictKeyAt(self.source, place))))
                return key.obj
            vm.guard(DictKeys(self.source, tuple(keys_of(self.obj))))
            self.keys_guarded = True
            if type(key) is GivenId and not self.known_before:
                return key.obj
        hashed = vm.key(key)
        if self.by_handles and isinstance(hashed, (int, float, complex)):
            vm.unsupported("FE024", "a number as a key", "numbers of handles that captured code made are keys of the same dictionary")
        return hashed

    def keep_hooks(self, vm: Machine) -> None:
        """A module has it, or all modules have, for hooks: no key is assumed, for one that is taken away and put again has another."""
        self.holds_hooks = True
        for place, (number, (_, item)) in enumerate(self.items.items()):
            if type(number) is int and self.source is not None:
                if type(item) is Lazy and type(item.source) is Item:
                    item = Lazy(item.obj, DictValueAt(self.source, place))
                self.items[number] = self.known_before[number] = (GivenId(vm, number, DictKeyAt(self.source, place)), item)

    def place_of(self, key: GivenId) -> int | None:
        """Which key a number is that a handle of before the call has, and the key is found there from now on; None for none of them."""
        if key.obj not in self.known_before:
            return None
        for items in (self.known_before, self.items):
            if key.obj in items:
                items[key.obj] = (key, items[key.obj][1])
        return list(keys_of(self.obj)).index(key.obj)

    def lookup(self, vm: Machine, key: object) -> Value:
        """The value of a hashable key, or MISSING (then guarded as absent)."""
        entry = self.items.get(key)
        if entry is None:
            if not self.keys_guarded and key not in self.known_before and type(key) is not HandleKey:
                if type(key) in PLAIN_KEYS:
                    vm.guard(Absent(self.source, key))
                else:
                    self.guard_keys(vm)
            return MISSING
        value = entry[1]
        if type(value) is Lazy:
            value = vm.wrap(value.obj, value.source)
            self.items[key] = (entry[0], value)
            if self.before is not None and self.before.get(key) is entry:
                self.before[key] = self.items[key]  # looked at, and guarded: storing it again changes nothing
        return value

    def store(self, vm: Machine, key: Value, value: Value) -> None:
        self.put(vm, self.hashed(vm, key), key, value)

    def put(self, vm: Machine, hashed: object, key: Value, value: Value) -> None:
        """``store`` with the hashable of the key at hand."""
        if self.read_only:
            vm.throw(TypeError, "'mappingproxy' object does not support item assignment")
        if type(hashed) is HandleKey and is_of_all_modules(self.obj):
            vm.unsupported("FE033", "a hook of all modules", "captured code calls modules without asking for such")
        old = self.items.get(hashed)
        if not self.keys_guarded and (old is None or type(old[1]) is Lazy) and type(hashed) is not HandleKey:
            self.unseen.setdefault(hashed)
        self.items[hashed] = (key if old is None else old[0], value)
        if old is None:
            self.history.append(key)
        self.changed(vm)

    def changed(self, vm: Machine) -> None:
        self.version += 1
        if self.source is not None:
            vm.effects.mutated(self)

    def key_values(self, vm: Machine) -> list[Value]:
        self.guard_keys(vm)
        return [k for k, _ in self.items.values()]

    def all_values(self, vm: Machine) -> list[Value]:
        self.guard_keys(vm)
        return [self.lookup(vm, k) for k in list(self.items)]

    def pairs(self, vm: Machine) -> list[Value]:
        return [TupleValue([k, v]) for k, v in zip(self.key_values(vm), self.all_values(vm))]

    def iterate(self, vm: Machine) -> Value:
        return self.walk(vm, lambda vm, key: self.items[key][0], type(iter({})), self)

    def walk(self, vm: Machine, give: Callable[[Machine, Hashable], Value], kind: type, of: Value) -> Value:
        """An iterator over ``of`` (this dictionary or a view of it) that gives ``give(vm, key)`` and sees changes as Python's own does: it
        walks a dictionary with the same history."""
        self.guard_keys(vm)
        inner = iter(self.items)
        order, version, begun = list(self.items), self.version, len(self.history)

        def read(vm: Machine, i: int) -> Value:
            if self.cls is collections.OrderedDict and version != self.version and order != list(self.items):
                vm.throw(RuntimeError, "OrderedDict mutated during iteration")
            try:
                key = next(inner, STOP)
            except RuntimeError as exc:
                vm.throw_real(exc)
            return STOP if key is STOP else give(vm, key)

        return ItemsIterator(read, kind, walks=(of, lambda: len(self.history) == begun))

    def key(self, vm: Machine) -> Hashable:
        vm.throw(TypeError, f"unhashable type: {self.cls.__name__!r}")

    def m___iter__(self, vm: Machine) -> Value:
        return self.iterate(vm)

    def m___len__(self, vm: Machine) -> Value:
        self.guard_keys(vm)
        return ConstantValue(len(self.items))

    def m___contains__(self, vm: Machine, key: Value) -> Value:
        hashed = self.hashed(vm, key)
        if hashed in self.items:
            self.guard_keys_for_presence(vm, hashed)
            return ConstantValue(True)
        return ConstantValue(self.lookup(vm, hashed) is not MISSING)

    def guard_keys_for_presence(self, vm: Machine, key: object) -> None:
        """Reading the item guards that it is there (identity or value of what it holds). Of a hook its number says so."""
        if not self.keys_guarded and type(self.items[key][1]) is Lazy and type(self.items[key][0]) is not GivenId:
            self.lookup(vm, key)

    def missing(self, vm: Machine, key: Value) -> Value:
        if self.default is not None and not (isinstance(self.default, ConstantValue) and self.default.value is None):
            value = vm.call(self.default, [], {})
            self.store(vm, key, value)
            return value
        if self.cls is collections.Counter:
            return ConstantValue(0)
        try:
            plain = key.constant()
        except NotConstant:
            if not issubclass(key.python_type(), type):
                vm.unsupported("FE027", "KeyError of a key unknown at capture")
            plain = key  # a class that captured code makes, which the exception tells
        vm.throw(KeyError, plain)

    def m___getitem__(self, vm: Machine, key: Value) -> Value:
        found = self.lookup(vm, self.hashed(vm, key))
        return self.missing(vm, key) if found is MISSING else found

    def m___setitem__(self, vm: Machine, key: Value, value: Value) -> Value:
        self.store(vm, key, value)
        return ConstantValue(None)

    def m___delitem__(self, vm: Machine, key: Value) -> Value:
        hashed = self.hashed(vm, key)
        if type(key) is GivenId and hashed in self.items:  # nobody looks at the hook
            self.take(vm, hashed)
        else:
            self.m_pop(vm, key)
        return ConstantValue(None)

    def m_get(self, vm: Machine, key: Value, default: Value = ConstantValue(None)) -> Value:
        found = self.lookup(vm, self.hashed(vm, key))
        return default if found is MISSING else found

    def m_setdefault(self, vm: Machine, key: Value, default: Value = ConstantValue(None)) -> Value:
        hashed = self.hashed(vm, key)
        found = self.lookup(vm, hashed)
        if found is MISSING:
            self.put(vm, hashed, key, default)
            return default
        return found

    def m_pop(self, vm: Machine, key: Value, default: Value | None = None) -> Value:
        hashed = self.hashed(vm, key)
        found = self.lookup(vm, hashed)
        if found is MISSING:
            if default is not None:
                return default
            vm.throw(KeyError, key.constant())
        self.take(vm, hashed)
        return found

    def take(self, vm: Machine, hashed: Hashable) -> None:
        """Takes an item away that is there."""
        if hashed in self.unseen:  # whether there is something to delete depends on what was there before
            self.guard_keys(vm)
        self.history.append(Gone(self.items[hashed][0]))
        del self.items[hashed]
        self.changed(vm)

    def m_popitem(self, vm: Machine, *which: Value, **named: Value) -> Value:
        ordered = issubclass(self.cls, collections.OrderedDict)
        if not ordered and (which or named):
            given = "no keyword arguments" if named else f"no arguments ({len(which)} given)"
            vm.throw(TypeError, f"dict.popitem() takes {given}")
        last = self._last(*which, **named)
        self.guard_keys(vm)
        if not self.items:
            vm.throw(KeyError, "dictionary is empty" if ordered else "popitem(): dictionary is empty")
        hashed = list(self.items)[-1 if vm.truth(last) else 0]
        key = self.items[hashed][0]
        return TupleValue([key, self.m_pop(vm, key)])

    @staticmethod
    def _last(last: Value = ConstantValue(True)) -> Value:
        """Which end ``OrderedDict.popitem`` takes from."""
        return last

    def m_move_to_end(self, vm: Machine, key: Value, last: Value = ConstantValue(True)) -> Value:
        hashed = self.hashed(vm, key)
        if self.lookup(vm, hashed) is MISSING:
            vm.throw(KeyError, key)
        entry = self.items.pop(hashed)
        self.items[hashed] = entry
        self.history += [Gone(entry[0]), entry[0]]
        if not vm.truth(last):
            rest = {k: v for k, v in self.items.items() if k is not hashed}
            self.items.clear()
            self.items[hashed] = entry
            self.items.update(rest)
        self.changed(vm)
        return ConstantValue(None)

    def m_clear(self, vm: Machine) -> Value:
        self.guard_keys(vm)
        self.history += [Gone(key) for key, _ in self.items.values()]
        self.items.clear()
        self.changed(vm)
        return ConstantValue(None)

    def m_copy(self, vm: Machine) -> DictValue:
        self.all_values(vm)
        copy = DictValue(dict(self.items), dict if self.read_only else self.cls)
        copy.default, copy.by_handles = self.default, self.by_handles
        return copy

    m___copy__ = m_copy

    def m_keys(self, vm: Machine) -> Value:
        return DictView(self, "keys")

    def m_values(self, vm: Machine) -> Value:
        return DictView(self, "values")

    def m_items(self, vm: Machine) -> Value:
        return DictView(self, "items")

    def m_update(self, vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        if len(args) > 1:
            vm.throw(TypeError, f"update expected at most 1 argument, got {len(args)}")
        for arg in args:
            update_from(vm, self, arg)
        for name, value in kwargs.items():
            self.store(vm, ConstantValue(name), value)
        return ConstantValue(None)

    def m___or__(self, vm: Machine, other: Value) -> Value:
        if mapping_of(other) is None:
            return ConstantValue(NotImplemented)
        copy = self.m_copy(vm)
        copy.m_update(vm, other)
        return copy

    def m___ror__(self, vm: Machine, other: Value) -> Value:
        if mapping_of(other) is None:
            return ConstantValue(NotImplemented)
        copy = DictValue({}, self.cls)
        copy.default = self.default
        copy.m_update(vm, other)
        copy.m_update(vm, self)
        return copy

    def m___ior__(self, vm: Machine, other: Value) -> Value:
        self.m_update(vm, other)
        return self

    def m___eq__(self, vm: Machine, other: Value) -> Value:
        theirs = mapping_of(other)
        if theirs is None:
            return ConstantValue(NotImplemented)
        self.guard_keys(vm)
        theirs.guard_keys(vm)
        ordered = self.cls is collections.OrderedDict and theirs.cls is collections.OrderedDict
        if self.items.keys() != theirs.items.keys() or (ordered and list(self.items) != list(theirs.items)):
            return ConstantValue(False)
        return ConstantValue(all(vm.equal(self.lookup(vm, k), theirs.lookup(vm, k)) for k in list(self.items)))

    def m___ne__(self, vm: Machine, other: Value) -> Value:
        equal = self.m___eq__(vm, other)
        return equal if equal.constant() is NotImplemented else ConstantValue(not equal.constant())

    def m___reversed__(self, vm: Machine) -> Value:
        return backwards(
            self, self, self.key_values(vm), type(reversed(collections.OrderedDict() if self.cls is collections.OrderedDict else {}))
        )

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.default or ConstantValue(None)
        if name in self.extra:
            return self.extra[name]
        return super().getattr(vm, name)

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        if self.source is None and self.cls is collections.defaultdict and name == "default_factory":
            self.default = value
        elif self.source is None and self.cls is collections.OrderedDict:
            self.extra[name] = value
        else:
            super().setattr(vm, name, value)


class Names(DictValue):
    """The dictionary of a module's names, which captured code also assigns to by statements."""

    def assigned(self, vm: Machine, name: Any) -> tuple[Value | None] | None:
        """What was assigned to the name in captured code: (value or None when deleted,), or None."""
        found = vm.effects.globals.get((id(self.obj), name))
        return None if found is None else (found[2],)

    def lookup(self, vm: Machine, key: object) -> Value:
        new = self.assigned(vm, key)
        return super().lookup(vm, key) if new is None else MISSING if new[0] is None else new[0]

    def m___contains__(self, vm: Machine, key: Value) -> Value:
        return ConstantValue(self.lookup(vm, self.hashed(vm, key)) is not MISSING)

    def put(self, vm: Machine, hashed: object, key: Value, value: Value) -> None:
        vm.effects.store_global(self.obj, key.constant(), value)

    def m_pop(self, vm: Machine, key: Value, default: Value | None = None) -> Value:
        found = self.lookup(vm, self.hashed(vm, key))
        if found is MISSING:
            return super().m_pop(vm, key, default)
        vm.effects.store_global(self.obj, key.constant(), None)
        return found

    def guard_keys(self, vm: Machine) -> None:
        if any(namespace is self.obj for namespace, _, _ in vm.effects.globals.values()):
            vm.unsupported("FE020", "the names of a module", "captured code has assigned to some of them")
        super().guard_keys(vm)

    def changed(self, vm: Machine) -> None:
        vm.unsupported("FE020", "a change of the dictionary of a module")


def mapping_of(value: Value) -> DictValue | None:
    """The tracked dictionary in a value: itself, or the storage of an object of a dict subclass."""
    known = content(value)
    return known if isinstance(known, DictValue) else None


def reads_as_dict(cls: type) -> bool:
    """Whether a copy of a mapping may be taken of its items: no class in Python has put methods of its own before them."""
    own = [c.__dict__ for c in cls.__mro__ if written_in_python(c)]
    names = ("__iter__", "keys", "__getitem__") if issubclass(cls, collections.OrderedDict) else ("__iter__",)
    return not any(name in d for d in own for name in names)


def update_from(vm: Machine, target: DictValue, other: Value) -> None:
    """``dict.update``: from a mapping or from pairs."""
    mapping = mapping_of(other)
    if mapping is not None and reads_as_dict(other.python_type()):
        for hashed, key, value in zip(list(mapping.items), mapping.key_values(vm), mapping.all_values(vm)):
            target.put(vm, hashed, key, value)  # whose hash is not asked for again
    elif class_has(vm, other, "keys"):
        for key in keys_to_copy(vm, target, other):
            target.store(vm, key, vm.getitem(other, key))
    else:
        ordered = target.cls is collections.OrderedDict  # which has words of its own
        for number, pair in enumerate(one_by_one(vm, other)):
            if not ordered and not is_iterable(vm, pair):
                vm.throw(TypeError, f"cannot convert dictionary update sequence element #{number} to a sequence")
            parts = vm.unpack(pair)
            if ordered and len(parts) != 2:
                few = f"need more than {len(parts)} value{'s' * (len(parts) != 1)} to unpack"
                vm.throw(ValueError, few if len(parts) < 2 else "too many values to unpack (expected 2)")
            if len(parts) != 2:
                vm.throw(ValueError, f"dictionary update sequence element #{number} has length {len(parts)}; 2 is required")
            target.store(vm, *parts)


def keys_to_copy(vm: Machine, target: DictValue, other: Value) -> Iterator[Value]:
    """What ``keys()`` gives: a dict takes all of them before it asks for the first item, an OrderedDict one after the other."""
    keys = vm.call(vm.getattr(other, "keys"), [], {})
    if target.cls is collections.OrderedDict:
        return one_by_one(vm, keys)
    iterator = vm.attempt(lambda: vm.iterate(keys), TypeError)
    if iterator is None:
        of, given = other.python_type().__name__, keys.python_type().__name__
        vm.throw(TypeError, f"{of}.keys() returned a non-iterable (type {given})")
    return iter(vm.unpack(iterator, sized=True))


def one_by_one(vm: Machine, value: Value) -> Iterator[Value]:
    """The items of an iterable: none is asked for before something was made of the one before."""
    iterator = vm.iterate(value)
    while (item := vm.next(iterator)) is not STOP:
        yield item


def backwards(table: DictValue, of: Value, items: list[Value], kind: type) -> Value:
    """An iterator over ``of``, a dictionary or a view of one, from the last of its items to the first."""
    last, size, begun = len(items) - 1, len(table.items), len(table.history)

    def read(vm: Machine, i: int) -> Value:
        if len(table.items) != size:
            vm.throw(RuntimeError, "dictionary changed size during iteration")
        if len(table.history) != begun:
            vm.unsupported(
                "FE070", "a walk backwards through a dictionary that was changed", "only the dictionary itself knows what comes next"
            )
        return items[last - i] if i <= last else STOP

    return ItemsIterator(read, kind, walks=(of, lambda: len(table.history) == begun), maker=reversed)


class DictView(Value):
    """``keys()``, ``values()`` or ``items()`` of a tracked dictionary; live."""

    kinds = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}
    iterators: dict[str, type] = {"keys": type(iter({}.keys())), "values": type(iter({}.values())), "items": type(iter({}.items()))}

    def __init__(self, owner: DictValue, kind: str) -> None:
        self.owner = owner
        self.kind = kind

    def python_type(self) -> type:
        return self.kinds[self.kind]

    def values(self, vm: Machine) -> list[Value]:
        if self.kind == "keys":
            return self.owner.key_values(vm)
        return self.owner.all_values(vm) if self.kind == "values" else self.owner.pairs(vm)

    def iterate(self, vm: Machine) -> Value:
        def give(vm: Machine, key: object) -> Value:
            if self.kind == "keys":
                return self.owner.items[key][0]
            value = self.owner.lookup(vm, key)
            return value if self.kind == "values" else TupleValue([self.owner.items[key][0], value])

        return self.owner.walk(vm, give, self.iterators[self.kind], self)

    def getattr(self, vm: Machine, name: str) -> Value:
        return self.owner.proxy(vm) if name == "mapping" and not self.owner.read_only else super().getattr(vm, name)

    def m___iter__(self, vm: Machine) -> Value:
        return self.iterate(vm)

    def m___len__(self, vm: Machine) -> Value:
        return self.owner.m___len__(vm)

    def m___contains__(self, vm: Machine, value: Value) -> Value:
        if self.kind == "keys":
            return self.owner.m___contains__(vm, value)
        return TupleValue(self.values(vm)).m___contains__(vm, value)

    def m___reversed__(self, vm: Machine) -> Value:
        return backwards(self.owner, self, self.values(vm), type(reversed(getattr({}, self.kind)())))

    def as_set(self, vm: Machine) -> SetValue:
        return SetValue({vm.key(v): v for v in self.values(vm)})

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if self.kind != "values" and name in SET_OPERATORS:
            other, inside = args[0], content(args[0])
            if isinstance(inside, DictView):
                other = inside.as_set(vm)
            elif name not in COMPARISONS and is_iterable(vm, inside) and not isinstance(inside, SetValue):
                other = SetValue(to_keys(vm, other))  # sets want sets, views take any items
            return self.as_set(vm).special(vm, name, [other])
        return super().special(vm, name, args)

    def m_isdisjoint(self, vm: Machine, other: Value) -> Value:
        return self.as_set(vm).m_isdisjoint(vm, other)


__all__ = ["SET_OPERATORS", "DictValue", "DictView", "Names", "SetValue", "mapping_of", "update_from"]
