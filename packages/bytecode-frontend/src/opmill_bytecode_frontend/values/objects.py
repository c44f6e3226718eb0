"""Objects of user-defined classes, classes, super objects: attribute lookup as the data model defines it."""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Hashable, NoReturn

from opmill_guards import instance_dict
from opmill_guards.guard import Predicate, TypeIs
from opmill_guards.source import Attr, InstanceDict, Item, Pinned, Source

from .assigned_attributes import find_now
from .base import (
    MISSING,
    IdentityKey,
    Lazy,
    Machine,
    NotConstant,
    ProgramKey,
    Raised,
    Value,
    asked_of_key,
    class_has,
    find_in_mro,
    full_name,
    hash_told,
    name_in_c,
    nowhere_to_store,
    written_in_python,
)
from .constant import ConstantValue
from .functions import BuiltinValue, FunctionValue, MethodValue
from .handle_ids import is_counter, next_id
from .iterators import STOP, ItemsIterator, IteratorValue
from .mapping import DictValue, reads_as_dict
from .sequence import ListValue, TupleValue, whole

BOUND_BY_TYPES = (types.MethodDescriptorType, types.WrapperDescriptorType)
SLOT_TYPES = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType, types.BuiltinFunctionType)

#: Methods of builtin containers whose result is of the class of the object they are called on.
OF_OWN_CLASS = frozenset(
    [(cls, name) for cls in (collections.OrderedDict, collections.defaultdict) for name in ("copy", "__copy__", "__or__", "__ror__")]
    + [(collections.deque, name) for name in ("copy", "__copy__", "__add__", "__mul__", "__rmul__")]
)


#: So many items of an iterable are known at most.
MOST_ITEMS = 500_000
#: What functions of C ask of numbers and texts of a class derived from a builtin one.
ASKED_BY_C = ("__str__", "__repr__", "__format__", "__int__", "__index__", "__float__", "__complex__", "__eq__", "__hash__")
#: What is said of an object whose class sets a method of the data model to None, where it is not that None cannot be called.
NONE_SAYS = {
    "__iter__": "{!r} object is not iterable", "__contains__": "{!r} object is not a container", "__reversed__": "{!r} object is not "
        "reversible",
    "__hash__": "unhashable type: {!r}",
}  # fmt: skip


def builtin_base(cls: type) -> Any:
    """The class implemented in C that a class comes from."""
    return next(base for base in cls.__mro__ if not written_in_python(base))


def read_class(vm: Machine, owner: type, name: str, raw: object) -> Value:
    """The tracked value of a raw class attribute; guarded unless the class belongs to torch or Python."""
    if is_counter(owner, name):
        return next_id(vm)
    if type(raw) is types.FunctionType or issubclass(type(raw), (property, staticmethod, classmethod)):
        vm.guard_class(owner, name, raw)
        return vm.wrap(raw, Pinned(raw, f"{owner.__qualname__}.{name}"))
    return vm.wrap(raw, vm.class_source(owner, name, raw))


def bind_descriptor(vm: Machine, owner: type, name: str, raw: Any, instance: Value | None, cls: Value) -> Value:
    """``raw.__get__(instance, cls)`` for anything found on a class."""
    kind = type(raw)
    if kind is types.FunctionType:
        function = read_class(vm, owner, name, raw)
        return function if instance is None else MethodValue(function, instance)
    if kind is staticmethod:
        vm.guard_class(owner, name, raw)
        return vm.wrap(raw.__func__, Pinned(raw.__func__, f"{owner.__qualname__}.{name}"))
    if kind is classmethod:
        vm.guard_class(owner, name, raw)
        inner = raw.__func__
        if sys.version_info < (3, 13) and type(inner) is not types.FunctionType and hasattr(type(inner), "__get__"):
            return bind_descriptor(vm, owner, name, inner, cls, cls)
        return MethodValue(vm.wrap(inner, Pinned(inner, f"{owner.__qualname__}.{name}")), cls)
    if issubclass(type(raw), property):
        if instance is None:
            return read_class(vm, owner, name, raw)
        if raw.fget is None:
            vm.no_attribute(instance, name, f"property {name!r} of {instance.python_type().__qualname__!r} object has no getter")
        vm.guard_class(owner, name, raw)
        return vm.call(vm.wrap(raw.fget, Pinned(raw.fget, name)), [instance], {})
    if kind is types.ClassMethodDescriptorType:
        return BoundSlot(raw, cls)
    if issubclass(type(raw), SLOT_TYPES) or kind is types.MethodWrapperType:
        if instance is None or kind is types.BuiltinFunctionType:
            return BuiltinValue(raw)
        return BoundSlot(raw, instance)
    if kind is functools.cached_property and instance is not None:
        return read_cached_property(vm, owner, name, raw, instance)
    getter = find_in_mro(kind.__mro__, "__get__")[1]
    if getter is MISSING:
        return read_class(vm, owner, name, raw)
    if type(getter) is types.FunctionType:
        descriptor = read_class(vm, owner, name, raw)
        function = vm.wrap(getter, Pinned(getter, "__get__"))
        return vm.call(function, [descriptor, instance if instance is not None else ConstantValue(None), cls], {})
    if not issubclass(type(getter), SLOT_TYPES):
        vm.unsupported("FE041", f"descriptor {kind.__qualname__} for attribute {name}", "its __get__ is no function")
    real = instance.real() if instance is not None else None
    if real is MISSING:
        if kind is types.GetSetDescriptorType or kind is types.MemberDescriptorType:
            assert instance is not None
            vm.unsupported("FE040", f"attribute {name} of {instance.describe()}")
        vm.unsupported("FE041", f"descriptor {kind.__qualname__} for attribute {name}")
    try:
        result = raw.__get__(real, cls.constant() if instance is None else type(real))
    except Exception as exc:
        vm.throw_real(exc)
    if instance is not None and type(result) is types.MethodType and result.__func__ is raw and result.__self__ is real:
        return MethodValue(read_class(vm, owner, name, raw), instance)
    if instance is not None and find_in_mro(type(real).__mro__, name)[1] is not raw:  # super(): the object has another under this name
        vm.unsupported("FE041", f"descriptor {kind.__qualname__} for attribute {name}", "it is that of a class further up")
    source = instance.source if instance is not None else Pinned(owner, owner.__qualname__)
    return vm.wrap(result, Attr(source, name) if source is not None else Pinned(result, name))


def read_cached_property(vm: Machine, owner: type, name: str, raw: functools.cached_property[object], instance: Value) -> Value:
    """Computed once and stored in the instance dictionary (3.11 holds a lock meanwhile)."""
    vm.guard_class(owner, name, raw)
    attrs = vm.getattr(instance, "__dict__")
    key = ConstantValue(raw.attrname)
    assert isinstance(attrs, DictValue)
    found = attrs.lookup(vm, raw.attrname)
    if found is MISSING:
        found = vm.call(vm.wrap(raw.func, Pinned(raw.func, name)), [instance], {})
        attrs.store(vm, key, found)
    return found


class BoundSlot(Value):
    """A method implemented in C (``object.__init__``, ``dict.update``, ...) bound to a value."""

    def __init__(self, raw: object, owner: Value) -> None:
        self.raw = raw
        self.owner = owner

    def python_type(self) -> type:
        return types.MethodWrapperType

    def describe(self) -> str:
        return f"{self.raw!r}"

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.call_builtin(self.raw, [self.owner, *args], kwargs)

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__func__":
            return BuiltinValue(self.raw)
        if name == "__self__":
            return self.owner
        if name in ("__name__", "__doc__", "__qualname__"):
            return ConstantValue(getattr(self.raw, name))
        return super().getattr(vm, name)


def bound_in_c(vm: Machine, method: types.BuiltinFunctionType | types.MethodWrapperType, owner: Value, source: Source | None) -> Value:
    """The method of C that was found on an object. Where classes of the program have a say in what the object's attribute of that name is,
    it may be another one, of a class behind them (``super``)."""
    real, name, cls = method.__self__, method.__name__, type(method.__self__)
    having = [each.__dict__[name] for each in cls.__mro__ if name in each.__dict__]
    raw = next((each for each in having if isinstance(each, BOUND_BY_TYPES) and each.__get__(real, cls) == method), None)
    if raw is not None and len(having) > 1 and source is not None and type(source) is not Pinned:
        vm.guard(Predicate(source, lambda now: raw.__get__(now.__self__, type(now.__self__)) == now, f"is {raw.__qualname__} of an object"))
    if raw is None or (raw is having[0] and not written_in_python(cls)):
        return vm.getattr(owner, name)
    return BoundSlot(raw, owner)


def tell_attribute(error: Value, owner: Value, name: str) -> None:
    """An AttributeError of the program that says neither of which attribute nor of which object is told both by the lookup."""
    if not issubclass(error.python_type(), AttributeError):
        return
    fields = getattr(error, "fields", None)
    if fields is not None and error.source is None and not {"name", "obj"} & fields.keys():
        fields |= {"name": ConstantValue(name), "obj": owner}


def is_empty(owner: object, slot: str) -> bool:
    """Whether an object has nothing in a slot of its class."""
    try:
        find_in_mro(type(owner).__mro__, slot)[1].__get__(owner, type(owner))
    except AttributeError:
        return True
    return False


class ObjectValue(Value):
    """An instance of a class written in Python, of before the call (``obj``) or made in captured code.

    ``storage`` holds the builtin part of instances of subclasses of dict, list, tuple, ...: a tracked value of its own."""

    opened: tuple[bool, bool | None]
    """Of a block of inference mode that was entered: whether gradients and that mode were on."""

    def __init__(self, cls: type, obj: Any = None, source: Source | None = None, storage: Value | None = None) -> None:
        self.cls = cls
        self.obj = obj
        self.source = source
        self.storage = storage
        self.slots: dict[str, Value] = {}
        self._attrs: DictValue | None = None

    def __repr__(self) -> str:
        return f"Object({self.cls.__name__})"

    def python_type(self) -> type:
        return self.cls

    def real(self) -> object:
        return MISSING if self.source is None else self.obj

    def constant(self) -> object:
        """Only what can never change is: what a function of C computes from another object depends on its attributes."""
        if (
            self.source is not None
            and isinstance(self.storage, ConstantValue)
            and not any(type(find_in_mro(self.cls.__mro__, n)[1]) is types.FunctionType for n in ASKED_BY_C)
        ):
            return self.obj
        raise NotConstant(f"an object of class {self.cls.__qualname__}")

    @property
    def attrs(self) -> DictValue:
        """The instance dictionary."""
        if self._attrs is None:
            if self.source is None:
                self._attrs = DictValue({})
                self._attrs.part_of = self
            else:
                source = InstanceDict(self.source)
                table = instance_dict(self.obj)  # whatever the class's own lookup says
                items: dict[object, tuple[Value, object]] = {k: (ConstantValue(k), Lazy(v, Item(source, k))) for k, v in table.items()}
                self._attrs = DictValue(items, dict, source, table)
        return self._attrs

    def has_dict(self) -> bool:
        return self.cls.__dictoffset__ != 0

    def shows_dict(self) -> bool:
        """Whether ``__dict__`` is the instance dictionary: a class written in Python may have a property of that name."""
        shown = find_in_mro(self.cls.__mro__, "__dict__")[1]
        return self.has_dict() and type(shown) in (types.GetSetDescriptorType, types.MemberDescriptorType)

    def share(self, table: DictValue) -> None:
        """The instance dictionary is this one."""
        self._attrs = table

    def own_dict(self, vm: Machine) -> DictValue:
        """The instance dictionary as the program sees it. One of a class of its own in its place has a way of its own to be read and
        written, while attributes are looked up in what it is as a dict."""
        if self.source is not None:
            if type(self.attrs.real()) is not dict:
                vm.unsupported("FE020", f"the dictionary of {self.describe()}", f"it is a {type(self.attrs.real()).__qualname__}")
            vm.guard(TypeIs(InstanceDict(self.source), dict))
        return self.attrs

    # ---- attributes ------------------------------------------------------------------------------------------------

    def getattr(self, vm: Machine, name: str) -> Value:
        try:
            return self.looked_up(vm, name)
        except Raised as raised:
            tell_attribute(raised.value, self, name)
            raise

    def looked_up(self, vm: Machine, name: str) -> Value:
        hook = vm.hook(self.cls, "__getattribute__")
        if type(hook) not in (types.FunctionType, types.WrapperDescriptorType):
            vm.unsupported("FE041", f"attribute {name} of {self.describe()}", "its __getattribute__ is no function")
        if type(hook) is types.FunctionType:
            return self.with_fallback(
                vm, name, lambda: vm.call(vm.wrap(hook, Pinned(hook, "__getattribute__")), [self, ConstantValue(name)], {})
            )
        return self.with_fallback(vm, name, lambda: self.generic_getattr(vm, name))

    def with_fallback(self, vm: Machine, name: str, read: Callable[[], Value]) -> Value:
        fallback = vm.hook(self.cls, "__getattr__")
        if fallback is MISSING:
            return read()
        from_raised = vm.attempt(read, AttributeError)
        if from_raised is not None:
            return from_raised
        return vm.call(vm.wrap(fallback, Pinned(fallback, "__getattr__")), [self, ConstantValue(name)], {})

    def instance_attribute(self, vm: Machine, name: str) -> Value:
        return self.attrs.lookup(vm, name) if self.has_dict() else MISSING

    def generic_getattr(self, vm: Machine, name: str) -> Value:
        """``object.__getattribute__``."""
        if name == "__dict__" and self.shows_dict():
            return self.own_dict(vm)
        owner, raw = find_now(vm, self.cls.__mro__, name)
        if name == "__class__" and owner is object:
            return vm.wrap(self.cls)
        if raw is not MISSING:
            vm.guard_lookup(self.cls, owner, name)
            described = type(raw) in (types.MemberDescriptorType, types.GetSetDescriptorType)
            if described and self.storage is not None and self.storage.python_type() is owner:
                return self.storage.getattr(vm, name)
            if type(raw) is types.MemberDescriptorType:
                return self.read_slot(vm, self.slot(vm, owner, name, raw))
            if hasattr(type(raw), "__get__") and (hasattr(type(raw), "__set__") or hasattr(type(raw), "__delete__")):
                return bind_descriptor(vm, owner, name, raw, self, vm.wrap(self.cls))
        found = self.instance_attribute(vm, name)
        if found is not MISSING:
            vm.guard_shadowed(self.cls, owner, name, raw)
            return found
        if raw is not MISSING:
            return bind_descriptor(vm, owner, name, raw, self, vm.wrap(self.cls))
        vm.guard_lookup(self.cls, None, name)
        if find_in_mro(self.cls.__mro__, "__getattr__")[1] is MISSING:
            vm.guard_lookup(self.cls, None, "__getattr__")
        vm.no_attribute(self, name, f"{name_in_c(self.cls)!r} object has no attribute {name!r}")

    def slot(self, vm: Machine, owner: type, name: str, raw: types.MemberDescriptorType) -> str:
        """The name of the slot that a class has under a name: it may have been put there, and be another class's."""
        vm.guard_class(owner, name, raw)
        if not issubclass(self.cls, raw.__objclass__):
            of, own = raw.__objclass__.__name__, self.cls.__name__
            vm.throw(TypeError, f"descriptor {raw.__name__!r} for {of!r} objects doesn't apply to a {own!r} object")
        return raw.__name__

    def read_slot(self, vm: Machine, name: str) -> Value:
        if name in self.slots:
            found = self.slots[name]
            if found is not MISSING:
                return found
        elif self.source is not None:
            if type(vm.hook(self.cls, "__getattribute__")) is types.FunctionType:
                vm.unsupported("FE041", f"slot {name} of {self.describe()}", "guards would read it by the program's own __getattribute__")
            try:
                value = getattr(self.obj, name)
            except AttributeError as exc:
                vm.guard(Predicate(self.source, lambda now: is_empty(now, name), f"has nothing in its slot {name}"))
                vm.throw_real(exc)
            self.slots[name] = vm.wrap(value, Attr(self.source, name))
            return self.slots[name]
        named = full_name(self.cls) if sys.version_info >= (3, 13) else self.cls.__name__
        vm.no_attribute(self, name, f"{named!r} object has no attribute {name!r}")

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        hook = vm.hook(self.cls, "__setattr__")
        if type(hook) is types.FunctionType:
            vm.call(vm.wrap(hook, Pinned(hook, "__setattr__")), [self, ConstantValue(name), value], {})
        elif getattr(hook, "__name__", "") != "__setattr__":
            vm.unsupported("FE041", f"assignment to attribute {name} of {self.describe()}", "its __setattr__ is no function")
        else:
            self.generic_setattr(vm, name, value)

    def generic_setattr(self, vm: Machine, name: str, value: Value) -> None:
        """``object.__setattr__``."""
        owner, raw = find_now(vm, self.cls.__mro__, name)
        vm.guard_lookup(self.cls, owner, name)
        if raw is not MISSING:
            setter = find_in_mro(type(raw).__mro__, "__set__")[1]
            if setter is property.__set__:
                read_class(vm, owner, name, raw)
                if raw.fset is None:
                    self.refused_by(vm, property.__set__, raw, None)
                vm.call(vm.wrap(raw.fset, Pinned(raw.fset, name)), [self, value], {})
                return
            if type(raw) is types.MemberDescriptorType and self.storage is not None and self.storage.python_type() is owner:
                self.storage.setattr(vm, name, value)
                return
            if type(raw) is types.MemberDescriptorType:
                self.slots[self.slot(vm, owner, name, raw)] = value
                if self.source is not None:
                    vm.effects.mutated(self)
                return
            if type(setter) is types.FunctionType:
                vm.call(vm.wrap(setter, Pinned(setter, "__set__")), [read_class(vm, owner, name, raw), self, value], {})
                return
            if setter is not MISSING:
                vm.unsupported("FE041", f"assignment through descriptor {type(raw).__qualname__} {name}")
        if not self.has_dict():
            self.nowhere(vm, name, raw)
        vm.guard_shadowed(self.cls, owner, name, raw)
        self.attrs.store(vm, ConstantValue(name), value)

    def delattr(self, vm: Machine, name: str) -> None:
        hook = vm.hook(self.cls, "__delattr__")
        if type(hook) is types.FunctionType:
            vm.call(vm.wrap(hook, Pinned(hook, "__delattr__")), [self, ConstantValue(name)], {})
        else:
            self.generic_delattr(vm, name)

    def generic_delattr(self, vm: Machine, name: str) -> None:
        """``object.__delattr__``."""
        owner, raw = find_now(vm, self.cls.__mro__, name)
        vm.guard_lookup(self.cls, owner, name)
        deleter = find_in_mro(type(raw).__mro__, "__delete__")[1]
        if deleter is property.__delete__:
            read_class(vm, owner, name, raw)
            if raw.fdel is None:
                self.refused_by(vm, property.__delete__, raw)
            vm.call(vm.wrap(raw.fdel, Pinned(raw.fdel, name)), [self], {})
        elif type(deleter) is types.FunctionType:
            vm.call(vm.wrap(deleter, Pinned(deleter, "__delete__")), [read_class(vm, owner, name, raw), self], {})
        elif type(raw) is types.MemberDescriptorType and self.source is None:
            slot = self.slot(vm, owner, name, raw)
            if self.slots.get(slot, MISSING) is MISSING:
                vm.throw(AttributeError, slot)
            self.slots[slot] = MISSING
        elif type(raw) is not functools.cached_property and (hasattr(type(raw), "__delete__")):
            vm.unsupported("FE041", f"deletion through descriptor {type(raw).__qualname__} {name}")
        elif self.has_dict() and self.attrs.lookup(vm, name) is not MISSING:
            self.attrs.m_pop(vm, ConstantValue(name))
        elif self.has_dict():
            vm.throw(AttributeError, f"{name_in_c(self.cls)!r} object has no attribute {name!r}")
        else:
            self.nowhere(vm, name, raw)

    def refused_by(self, vm: Machine, change: Callable[..., object], found: property, *value: object) -> None:
        """A property that cannot be set or deleted says so: it knows its name, which need not be that of the attribute."""
        model = type(self.cls.__name__, (), {"__module__": self.cls.__module__, "__qualname__": self.cls.__qualname__})
        try:
            change(found, model(), *value)
        except AttributeError as exc:
            vm.throw_real(exc)

    def nowhere(self, vm: Machine, name: str, found: object) -> NoReturn:
        """An attribute that is ``found`` on the class, or not at all, of an object without a dictionary, is set or deleted."""
        if found is not MISSING:
            vm.throw(AttributeError, f"{name_in_c(self.cls)!r} object attribute {name!r} is read-only")
        hooked = any(type(vm.hook(self.cls, hook)) is types.FunctionType for hook in ("__setattr__", "__delattr__"))
        nowhere_to_store(vm, self, name, hooked)

    # ---- operations ------------------------------------------------------------------------------------------------

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        owner, raw = find_in_mro(self.cls.__mro__, name)
        vm.guard_lookup(self.cls, owner, name)
        if raw is MISSING:
            return None
        if raw is None:
            vm.throw(TypeError, NONE_SAYS.get(name, "'NoneType' object is not callable").format(self.cls.__name__))
        if issubclass(type(raw), SLOT_TYPES):
            own_way = (owner, name) in OF_OWN_CLASS or (name == "__or__" and owner is dict and not reads_as_dict(self.cls))
            if self.storage is not None and owner is not object and not own_way:
                if name == "__getitem__" and isinstance(self.storage, DictValue):
                    return self.read_item(vm, args[0])
                result = self.storage.special(vm, name, args)
                return self if result is self.storage else result  # operators in place
            if name == "__ne__" and owner is object:
                return None
            if name in ("__eq__", "__lt__", "__le__", "__gt__", "__ge__") and owner is object:
                return ConstantValue(NotImplemented)
        bound = bind_descriptor(vm, owner, name, raw, self, vm.wrap(self.cls))
        return vm.call(bound, args, {})

    def read_item(self, vm: Machine, key: Value) -> Value:
        """``dict.__getitem__`` of a subclass, which may define ``__missing__``."""
        assert isinstance(self.storage, DictValue)
        hook = vm.hook(self.cls, "__missing__")
        if type(hook) is types.FunctionType and self.storage.lookup(vm, vm.key(key)) is MISSING:
            return vm.call(MethodValue(vm.wrap(hook, Pinned(hook, "__missing__")), self), [key], {})
        return self.storage.m___getitem__(vm, key)

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        owner, raw = find_in_mro(self.cls.__mro__, "__call__")
        if raw is MISSING:
            vm.guard_lookup(self.cls, None, "__call__")
            vm.throw(TypeError, f"{self.cls.__name__!r} object is not callable")
        return vm.call(bind_descriptor(vm, owner, "__call__", raw, self, vm.wrap(self.cls)), args, kwargs)

    def callee(self) -> object:
        raw = find_in_mro(self.cls.__mro__, "__call__")[1]
        return raw if type(raw) is types.FunctionType else None

    def iterate(self, vm: Machine) -> Value:
        result = self.special(vm, "__iter__", [])
        if result is not None:
            if not hasattr(result.python_type(), "__next__"):
                vm.throw(TypeError, f"iter() returned non-iterator of type {result.python_type().__name__!r}")
            return result
        if class_has(vm, self, "__getitem__"):
            return by_index(self)
        vm.throw(TypeError, f"{self.cls.__name__!r} object is not iterable")

    def truth(self, vm: Machine) -> bool:
        result = self.special(vm, "__bool__", [])
        if result is not None:
            if result.python_type() is not bool:
                vm.throw(TypeError, f"__bool__ should return bool, returned {result.python_type().__name__}")
            return vm.truth(result)
        length = self.special(vm, "__len__", [])
        return True if length is None else vm.truth(checked_length(vm, length))

    def key(self, vm: Machine) -> Hashable:
        owner, raw = find_in_mro(self.cls.__mro__, "__hash__")
        vm.guard_lookup(self.cls, owner, "__hash__")
        if raw is None:
            vm.throw(TypeError, f"unhashable type: {self.cls.__name__!r}")
        if owner is object and self.source is None:
            return IdentityKey(self)
        if type(raw) is types.FunctionType:
            hashed = asked_of_key(vm, lambda: self.special(vm, "__hash__", []))
            assert hashed is not None
            return ProgramKey(vm, self, hash_told(vm, hashed))
        if self.source is None:
            vm.unsupported("FE024", f"hash of a new {self.cls.__qualname__}", "its __hash__ is implemented in C")
        vm.guard_object(self)
        try:
            hash(self.obj)
        except Exception as exc:
            vm.throw_real(exc)
        if type(vm.hook(self.cls, "__eq__")) is types.FunctionType:
            return ProgramKey(vm, self, hash(self.obj))
        return self.obj


def checked_length(vm: Machine, result: Value) -> Value:
    """What ``len`` does with the result of ``__len__``."""
    if result.symbolic:
        return result
    number = whole(vm, result)
    if number < 0:
        vm.throw(ValueError, "__len__() should return >= 0")
    return ConstantValue(number)


def each(vm: Machine, value: Value, sized: bool = False) -> Iterator[Value]:
    """The items of an iterable, taken one by one: an iterator keeps what nobody asked for. ``sized``: they become a list or a tuple; then
    Python asks for the length, too, to have room enough, and the program may see it."""
    iterator = vm.iterate(value)
    if sized:
        ask_length(vm, value)
    for _ in range(MOST_ITEMS + 1):
        if (item := vm.next(iterator)) is STOP:
            return
        yield item
    why = "a capture knows each of them"
    vm.unsupported("FE023", f"more than {MOST_ITEMS} items of {value.describe()}", why, "make a tensor of them")


def ask_length(vm: Machine, value: Value) -> Value | None:
    """``operator.length_hint`` of an object of the program; None where it does not say."""
    hooks = {name: vm.hook(value.python_type(), name) for name in ("__len__", "__length_hint__")}
    if not isinstance(value, ObjectValue) or not any(type(hook) is types.FunctionType for hook in hooks.values()):
        return None
    if hooks["__len__"] is not MISSING:
        known = vm.attempt(lambda: checked_length(vm, value.dunder(vm, "__len__", [])), TypeError)
        if known is not None:
            return known
    if hooks["__length_hint__"] is MISSING:
        return None
    hint = vm.attempt(lambda: value.dunder(vm, "__length_hint__", []), TypeError)
    if hint is None or (isinstance(hint, ConstantValue) and hint.value is NotImplemented):
        return None
    if not issubclass(hint.python_type(), int):
        vm.throw(TypeError, f"__length_hint__ must be an integer, not {hint.python_type().__name__}")
    if whole(vm, hint) < 0:
        vm.throw(ValueError, "__length_hint__() should return >= 0")
    return hint


def refuse_no_part(vm: Machine, container: Value, item: Value) -> None:
    """What texts say of a search for what cannot be a part of them. They are searched for parts, not through their items: for what is not
    known, nothing can be said."""
    text, part = container.python_type(), item.python_type()
    if issubclass(text, str) and not issubclass(part, str):
        vm.throw(TypeError, f"'in <string>' requires string as left operand, not {part.__name__}")
    if issubclass(text, (bytes, bytearray)) and not hasattr(part, "__index__") and not issubclass(part, (bytes, bytearray, memoryview)):
        vm.throw(TypeError, f"a bytes-like object is required, not {part.__name__!r}")
    if issubclass(text, (str, bytes, bytearray)):
        vm.unsupported("FE025", f"{item.describe()} in {container.describe()}", "it is not known while capturing")


def by_index(owner: Value) -> IteratorValue:
    """``iter()`` of an object that has ``__getitem__`` alone: its items from 0, until there is an IndexError, or a StopIteration."""

    def read(vm: Machine, i: int) -> Value:
        found = vm.attempt(lambda: vm.getitem(owner, ConstantValue(i)), (IndexError, StopIteration))
        return STOP if found is None else found

    return ItemsIterator(read)


__all__ = ["BoundSlot", "FunctionValue", "ListValue", "ObjectValue", "TupleValue", "each", "find_in_mro"]
