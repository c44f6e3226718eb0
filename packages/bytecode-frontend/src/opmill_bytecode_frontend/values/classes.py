"""Classes, ``super`` objects and Python modules: attribute lookup as the data model defines it."""

from __future__ import annotations

import sys
import types
from collections.abc import Hashable, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from opmill_guards.guard import Absent, Predicate
from opmill_guards.source import Attr, Pinned

from ..assumptions.states import as_before
from ..interpretation.owners import exempt, installed
from .assigned_attributes import assign, find_now
from .base import MISSING, KnownObject, Machine, NotConstant, ProgramKey, Value, find_in_mro, hash_told, written_in_python
from .constant import ConstantValue
from .deferred import standing_in
from .functions import BuiltinValue, MethodValue, knows_itself_only
from .objects import bind_descriptor, by_index
from .warned import called_at_capture

if TYPE_CHECKING:
    from opmill_guards.source import Source


class ClassValue(KnownObject):
    """A class that existed before the call."""

    obj: type

    def __repr__(self) -> str:
        return f"Class({self.obj.__qualname__})"

    def describe(self) -> str:
        return f"class {self.obj.__module__}.{self.obj.__qualname__}"

    def truth(self, vm: Machine) -> bool:
        for name in ("__bool__", "__len__"):
            metaclass: type = type(self.obj)
            if type(find_in_mro(metaclass.__mro__, name)[1]) is types.FunctionType:
                return vm.truth(self.dunder(vm, name, []))
        return bool(self.obj)

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.construct(self, args, kwargs)

    def callee(self) -> type:
        return self.obj

    def path(self) -> Source:
        """Where the class is found."""
        return Pinned(self.obj, self.obj.__qualname__)

    def getattr(self, vm: Machine, name: str) -> Value:
        if (hook := self.of_metaclass("__getattribute__")) is not None:
            return vm.call(vm.wrap(hook, Pinned(hook, "__getattribute__")), [self, ConstantValue(name)], {})
        return self.generic_getattr(vm, name)

    def of_metaclass(self, name: str) -> FunctionType | None:
        """The function of the program that the metaclass has for a method of the data model, or None."""
        metaclass: type = type(self.obj)
        owner, raw = find_in_mro(metaclass.__mro__, name)
        return raw if type(raw) is types.FunctionType and not exempt(owner.__module__) else None

    def generic_getattr(self, vm: Machine, name: str) -> Value:
        """``type.__getattribute__``."""
        cls: Any = self.obj
        metaclass: type = type(cls)
        meta_owner, meta_raw = find_in_mro(metaclass.__mro__, name)
        if meta_raw is not MISSING and hasattr(type(meta_raw), "__set__") and hasattr(type(meta_raw), "__get__"):
            if written_in_python(meta_owner) and not exempt(meta_owner.__module__):
                return bind_descriptor(vm, meta_owner, name, meta_raw, self, vm.wrap(metaclass))
            try:
                return vm.wrap(getattr(cls, name), Attr(self.path(), name))
            except Exception as exc:
                vm.throw_real(exc)
        owner, raw = find_now(vm, cls.__mro__, name)
        if raw is not MISSING:
            vm.guard_lookup(cls, owner, name)
            if issubclass(type(raw), (types.MemberDescriptorType, types.GetSetDescriptorType)):
                vm.guard_class(owner, name, raw)
                return BuiltinValue(raw)
            return bind_descriptor(vm, owner, name, raw, None, self)
        vm.guard_lookup(cls, None, name)
        if meta_raw is not MISSING:
            return bind_descriptor(vm, meta_owner, name, meta_raw, self, vm.wrap(type(cls)))
        fallback = vm.hook(metaclass, "__getattr__")
        if type(fallback) is types.FunctionType and metaclass.__module__ != "enum":
            return vm.call(vm.wrap(fallback, Pinned(fallback, "__getattr__")), [self, ConstantValue(name)], {})
        if find_in_mro(cls.__mro__, name)[1] is not MISSING:  # deleted in captured code
            vm.no_attribute(self, name, f"type object {cls.__name__!r} has no attribute {name!r}")
        try:
            return vm.wrap(getattr(cls, name), Attr(Pinned(cls, cls.__qualname__), name))
        except Exception as exc:
            vm.throw_real(exc)

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        self.changes(vm, "__setattr__", name, value)

    def delattr(self, vm: Machine, name: str) -> None:
        self.changes(vm, "__delattr__", name)

    def changes(self, vm: Machine, hook: str, name: str, *value: Value) -> None:
        """Assign or delete an attribute, as the metaclass says."""
        metaclass: type = type(self.obj)
        raw = vm.hook(metaclass, hook)
        if raw is type.__dict__[hook]:
            self.generic_change(vm, name, *value)
        elif type(raw) is types.FunctionType:
            vm.call(vm.wrap(raw, Pinned(raw, hook)), [self, ConstantValue(name), *value], {})
        else:
            vm.unsupported("FE042", f"assignment to class attribute {self.obj.__qualname__}.{name}", f"its {hook} is no function")

    def generic_change(self, vm: Machine, name: str, value: Value | None = None) -> None:
        """``type.__setattr__``, and without a value ``type.__delattr__``."""
        metaclass: type = type(self.obj)
        described = find_in_mro(metaclass.__mro__, name)[1]
        if isinstance(described, property) and (change := described.fdel if value is None else described.fset) is not None:
            vm.call(vm.wrap(change, Pinned(change, name)), [self] if value is None else [self, value], {})
            return
        if hasattr(type(described), "__set__"):
            vm.unsupported(
                "FE042",
                f"assignment to class attribute {self.obj.__qualname__}.{name}",
                "its metaclass has a descriptor for it",
                whole=name == "__bases__",  # all classes derived from it are asked
            )
        if value is None and find_now(vm, (self.obj,), name)[1] is MISSING:
            vm.guard_lookup(self.obj, None, name)
            vm.throw(AttributeError, f"type object {self.obj.__name__!r} has no attribute {name!r}")
        if value is None:
            self.getattr(vm, name)  # that it is there is assumed
        self.keep(vm, name, value)

    def keep(self, vm: Machine, name: str, value: Value | None) -> None:
        """Record that the class itself has the attribute from now on (None: has it no more)."""
        assign(vm, self.obj, name, value)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        cls: Any = self.obj
        _owner, raw = find_in_mro(type(cls).__mro__, name)
        if name == "__getitem__" and raw is MISSING:
            owner, hook = find_in_mro(cls.__mro__, "__class_getitem__")
            vm.guard_lookup(cls, owner, "__class_getitem__")
            if hook is not MISSING or cls is type:
                if hook is not MISSING and not exempt(owner.__module__):
                    return vm.call(bind_descriptor(vm, owner, "__class_getitem__", hook, None, self), args, {})
                if vm.is_made(cls):
                    vm.unsupported("FE043", f"subscript of class {cls.__qualname__}", "what it gives would be of the model of the class")
                try:
                    return vm.fresh(cls[vm.plain(args[0])])
                except NotConstant:
                    vm.unsupported("FE043", f"subscript of class {cls.__qualname__}")
                except Exception as exc:
                    vm.throw_real(exc)
        if raw is MISSING or (name == "__ne__" and _owner is object and self.of_metaclass("__eq__") is not None):
            return None
        if type(raw) is types.FunctionType and type(cls).__module__ != "enum":
            return vm.call(MethodValue(vm.wrap(raw, Pinned(raw, name)), self), args, {})
        if name in ("__or__", "__ror__") and vm.is_made(cls):
            vm.unsupported("FE043", f"{cls.__qualname__} | another class", "what it gives would be of the model of the class")
        try:
            plain = [a.constant() for a in args]
        except NotConstant as exc:
            return knows_itself_only(vm, raw, name, self, args, exc)
        return vm.fresh(called_at_capture(vm, raw, [cls, *plain], {}))

    def key(self, vm: Machine) -> Hashable:
        if self.of_metaclass("__hash__") is None and self.of_metaclass("__eq__") is None:
            return super().key(vm)
        hashed = self.special(vm, "__hash__", [])
        assert hashed is not None
        return ProgramKey(vm, self, hash_told(vm, hashed))

    def iterate(self, vm: Machine) -> Value:
        if self.of_metaclass("__iter__") is not None:
            return vm.iterate(self.dunder(vm, "__iter__", []))
        if self.of_metaclass("__getitem__") is not None:
            return by_index(self)
        try:
            items = list(cast(Iterable[object], self.obj))  # or iterating over it raises
        except Exception as exc:
            vm.throw_real(exc)
        return vm.iterate(vm.fresh(items))


class SuperValue(Value):
    """``super(cls, obj)``."""

    def __init__(self, after: type, owner: Value) -> None:
        self.after = after
        self.owner = owner

    def python_type(self) -> type:
        return super

    def getattr(self, vm: Machine, name: str) -> Value:
        found = self.owner.obj if isinstance(self.owner, ClassValue) else None
        is_class = found is not None and issubclass(found, self.after)
        cls = found if found is not None and is_class else self.owner.python_type()
        mro = cls.__mro__
        owner, raw = find_now(vm, mro[mro.index(self.after) + 1 :], name)
        if raw is MISSING:
            vm.no_attribute(self, name, f"'super' object has no attribute {name!r}")
        class_value = vm.wrap(cls)
        if is_class:
            if name == "__new__":
                return vm.wrap(raw.__func__ if issubclass(type(raw), staticmethod) else raw)
            return bind_descriptor(vm, owner, name, raw, None, class_value)
        if name == "__class__":
            return vm.wrap(super)
        return bind_descriptor(vm, owner, name, raw, self.owner, class_value)


class ModuleObject(KnownObject):
    """A Python module (``torch``, ``math``, the user's own)."""

    obj: types.ModuleType

    def describe(self) -> str:
        return f"module {vars(self.obj).get('__name__')}"

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__dict__":
            return vm.names(self.obj.__dict__)
        if (other := standing_in(vars(self.obj).get("__name__", ""), name)) is not None:
            return LateModule(other, self.obj, name)
        if self.has_lost(vm, name):
            if "__getattr__" in self.obj.__dict__:
                vm.unsupported(
                    "FE021", f"attribute {name} of {self.describe()}", "it is found by the module's own __getattr__ once it is deleted"
                )
            vm.no_attribute(self, name, f"module {vars(self.obj).get('__name__')!r} has no attribute {name!r}")
        if self.tells_state(name):
            module, found = self.obj, getattr(self.obj, name)
            with as_before(vm) as changed:
                own = changed and getattr(module, name) != found  # captured code has set it itself
            if not own:
                vm.guard(Predicate(Pinned(module, module.__name__), lambda now: getattr(now, name) == found, f"{name} is {found!r}"))
            return vm.fresh(found)
        if self.asks_program(vm, name):
            vm.guard(Absent(Pinned(vars(self.obj), f"{vars(self.obj).get('__name__', '?')}.__dict__"), name))
            return vm.call(vm.read_global(vars(self.obj), "__getattr__"), [ConstantValue(name)], {})
        return vm.read_global(self.obj.__dict__, name, self.obj)

    def asks_program(self, vm: Machine, name: str) -> bool:
        """Whether the attribute is what the module's own ``__getattr__`` gives, which is the program's: a package's is asked at capture."""
        names, changed = vars(self.obj), vm.effects.globals
        getter = names.get("__getattr__")
        found = name in names or (id(names), name) in changed or find_in_mro(type(self.obj).__mro__, name)[0] is not None
        if not found and (id(names), "__getattr__") in changed:
            vm.unsupported("FE021", f"attribute {name} of {self.describe()}", "its __getattr__ was set or deleted before")
        return not found and isinstance(getter, FunctionType) and not installed(getter.__code__.co_filename)

    def tells_state(self, name: str) -> bool:
        """Whether the attribute is a number or a text that a property of one of torch's modules tells, or its class finds elsewhere."""
        cls = type(self.obj)
        owner, raw = find_in_mro(cls.__mro__, name)
        elsewhere = owner is None and name not in vars(self.obj) and find_in_mro(cls.__mro__, "__getattr__")[0] is not None
        if owner in (types.ModuleType, object) or not exempt(cls.__module__) or not (elsewhere or hasattr(type(raw), "__set__")):
            return False
        return isinstance(getattr(self.obj, name), (bool, int, float, str))

    def has_lost(self, vm: Machine, name: str) -> bool:
        """Whether captured code has deleted the attribute."""
        changed = vm.effects.globals.get((id(self.obj.__dict__), name))
        return changed is not None and changed[2] is None

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        cls = type(self.obj)
        if self.obj is sys:
            vm.unsupported("FE021", f"assignment to sys.{name}", "what is printed, imported and called from then on depends on it")
        raw = find_in_mro(cls.__mro__, name)[1]
        setter = find_in_mro(type(raw).__mro__, "__set__")[1]
        if cls.__setattr__ is types.ModuleType.__setattr__ and isinstance(setter, FunctionType):
            vm.call(vm.wrap(setter, Pinned(setter, "__set__")), [vm.wrap(raw, Pinned(raw, name)), self, value], {})
            return
        if cls.__setattr__ is not types.ModuleType.__setattr__ or setter is not MISSING:
            vm.unsupported("FE021", f"assignment to attribute {name} of {self.describe()}")
        vm.effects.store_global(self.obj.__dict__, name, value)

    def delattr(self, vm: Machine, name: str) -> None:
        there = name in self.obj.__dict__ or (id(self.obj.__dict__), name) in vm.effects.globals
        if self.has_lost(vm, name):
            vm.no_attribute(self, name, f"{type(self.obj).__name__!r} object has no attribute {name!r}")
        if self.obj is sys or type(self.obj).__delattr__ is not types.ModuleType.__delattr__ or not there:
            super().delattr(vm, name)
        self.getattr(vm, name)  # that it is there is assumed
        vm.effects.store_global(self.obj.__dict__, name, None)


class LateModule(ModuleObject):
    """A module that is imported when it is first asked for, as an attribute of ``package``. ``stands``: what of it needs no import."""

    def __init__(self, stands: types.SimpleNamespace, package: types.ModuleType, name: str) -> None:
        self.stands, self.package, self.name = stands, package, name

    @property
    def obj(self) -> types.ModuleType:  # type: ignore[override]
        """The module itself, which is imported now, as the program would."""
        found: types.ModuleType = getattr(self.package, self.name)
        return found

    def getattr(self, vm: Machine, name: str) -> Value:
        found = getattr(self.stands, name, None)
        return super().getattr(vm, name) if found is None else vm.wrap(found, Pinned(found, name))


__all__ = ["ClassValue", "ModuleObject", "SuperValue"]
