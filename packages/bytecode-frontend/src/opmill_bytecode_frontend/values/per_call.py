"""Functions and classes among the arguments that each call gives anew, because a function of the program makes them: known by what they are
made of. Whoever asks which one it is assumes that."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Hashable

from opmill_guards import CompiledFunction
from opmill_guards.guard import Absent, DictKeys, Equals, Is, Predicate, TypeIs
from opmill_guards.source import CELL, Attr, InstanceDict, Item, Pinned, TypeOf

from .base import Machine, Value, written_in_python
from .classes import ClassValue
from .functions import BuiltinValue, CellValue, FunctionValue

if TYPE_CHECKING:
    from opmill_guards.source import Source

#: What in a class is looked at when the class is met, so that its attributes need no guard of their own: where their functions are.
PARTS: dict[type, tuple[str, ...]] = {
    staticmethod: ("__func__",), classmethod: ("__func__",), property: ("fget", "fset", "fdel"),
    types.GetSetDescriptorType: (), types.MemberDescriptorType: (),
}  # fmt: skip


class GivenFunction(FunctionValue):
    """A function: code, globals, defaults and cells are assumed, or read where they are. ``called``: it is the one that is called, whose
    code, globals and number of defaults the call itself has looked at."""

    def __init__(self, vm: Machine, given: types.FunctionType, source: Source, called: bool = False) -> None:
        if not called:
            assume_code(vm, given, source)
        defaults, named = given.__defaults__, given.__kwdefaults__
        positional: Any = None if called and defaults is None else vm.wrap(defaults, Attr(source, "__defaults__"))
        keywords: Any = None if called and named is None else vm.wrap(named, Attr(source, "__kwdefaults__"))
        if named is not None:
            keywords.guard_keys(vm)
        cells: list[Value] = []
        for i, (name, cell) in enumerate(zip(given.__code__.co_freevars, given.__closure__ or ())):
            where = Item(Attr(source, "__closure__"), i).called(f"{CELL}{name}")
            cells.append(vm.know(cell, CellValue(obj=cell, source=where)) if called else vm.wrap(cell, where))
        super().__init__(
            given.__code__,
            given.__globals__,
            given.__name__,
            given.__qualname__,
            [] if defaults is None else positional.items,
            {} if named is None else {k: item for k, (_, item) in keywords.items.items()},
            cells,
            source=source,
        )
        self.vm = vm
        self.given = given

    def constant(self) -> object:
        self.vm.guard_object(self)
        return self.given

    def real(self) -> object:
        return self.given

    def key(self, vm: Machine) -> Hashable:
        return self.constant()


class GivenCompiled(Value):
    """A compiled function: that it is one is assumed, and what it stands for is read of it."""

    def __init__(self, vm: Machine, given: CompiledFunction, source: Source) -> None:
        vm.guard(TypeIs(source, CompiledFunction))
        self.vm, self.obj = vm, given
        self.source: Source = source

    def python_type(self) -> type:
        return CompiledFunction

    def real(self) -> object:
        return self.obj

    def constant(self) -> object:
        self.vm.guard_object(self)
        return self.obj

    def key(self, vm: Machine) -> Hashable:
        return self.constant()

    def callee(self) -> object:
        return self.obj.__wrapped__

    def function(self, vm: Machine) -> Value:
        return vm.wrap(self.obj.__wrapped__, Attr(self.source, "__wrapped__"))

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.call(self.function(vm), args, kwargs)

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__wrapped__":
            return self.function(vm)
        return BuiltinValue(self.constant(), Pinned(self.obj, "compiled function")).getattr(vm, name)


def assume_code(vm: Machine, given: types.FunctionType, source: Source) -> None:
    """That a function has the code and globals of this one, and may be captured."""
    vm.guard(TypeIs(source, types.FunctionType))
    code = given.__code__
    if code.co_filename.startswith("<"):  # written by a program (that of data classes), which does so again for each class
        vm.guard(Predicate(Attr(source, "__code__"), lambda now: now == code, f"is code equal to {code!r}"))
    else:
        vm.guard(Is(Attr(source, "__code__"), code))
    vm.guard(Is(Attr(source, "__globals__"), given.__globals__))
    vm.guard(Absent(InstanceDict(source), "_torchdynamo_disable"))


def is_plain(cls: type) -> bool:
    """Whether a class is made of its names and bases alone: no metaclass, no part implemented in C but that of exceptions."""
    return all(
        type(base) is type and (base is object or written_in_python(base) or issubclass(base, BaseException)) for base in cls.__mro__
    )


class GivenClass(ClassValue):
    """A class: its names, bases and functions are assumed when it is met, other attributes where they are read."""

    def __init__(self, vm: Machine, cls: type, source: Any) -> None:
        super().__init__(cls, source)
        self.vm = vm
        vm.guard(Is(TypeOf(source), type(cls)))
        vm.guard(Equals(Attr(source, "__qualname__"), cls.__qualname__))
        vm.guard(DictKeys(InstanceDict(source), tuple(vars(cls))))
        vm.unpack(vm.wrap(cls.__bases__, Attr(source, "__bases__")))
        vm.compared.extend((source, other.source) for _, other in vm.known.values() if type(other) is GivenClass)

    def look_at_functions(self) -> None:
        """The functions of the class become known as what is found in it."""
        for name, raw in vars(self.obj).items():
            where = Item(InstanceDict(self.source), name)
            if type(raw) is types.FunctionType:
                self.vm.wrap(raw, where)
            elif type(raw) in PARTS:
                self.vm.guard(TypeIs(where, type(raw)))
                for part in PARTS[type(raw)]:
                    self.vm.wrap(getattr(raw, part), Attr(where, part))

    def source_of(self, name: str, raw: object) -> Item | None:
        """Where an attribute is to be guarded; None where that is done."""
        return None if type(raw) is types.FunctionType or type(raw) in PARTS else Item(InstanceDict(self.source), name)

    def path(self) -> Source:
        return self.source

    def constant(self) -> object:
        self.vm.guard_object(self)
        return self.obj

    def key(self, vm: Machine) -> Hashable:
        return self.constant()


GIVEN = (GivenFunction, GivenClass, GivenCompiled)

__all__ = ["GIVEN", "GivenClass", "GivenCompiled", "GivenFunction", "is_plain"]
