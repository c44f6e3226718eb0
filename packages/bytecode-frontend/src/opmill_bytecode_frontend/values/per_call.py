"""Functions and classes among the arguments that each call gives anew, because a function of the program makes them: known by what they are
made of. Whoever asks which one it is assumes that."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Hashable

from opmill_guards.guard import Absent, DictKeys, Equals, Is, Predicate, TypeIs
from opmill_guards.source import Attr, InstanceDict, Item, TypeOf

from .base import Machine, written_in_python
from .classes import ClassValue
from .functions import FunctionValue

if TYPE_CHECKING:
    from opmill_guards.source import Source

#: What in a class is looked at when the class is met, so that its attributes need no guard of their own: where their functions are.
PARTS: dict[type, tuple[str, ...]] = {
    staticmethod: ("__func__",), classmethod: ("__func__",), property: ("fget", "fset", "fdel"),
    types.GetSetDescriptorType: (), types.MemberDescriptorType: (),
}  # fmt: skip


class GivenFunction(FunctionValue):
    """A function: code, globals, defaults and cells are assumed, or read where they are."""

    def __init__(self, vm: Machine, given: types.FunctionType, source: Any) -> None:
        vm.guard(TypeIs(source, types.FunctionType))
        code = given.__code__
        if code.co_filename.startswith("<"):  # written by a program (that of data classes), which does so again for each class
            vm.guard(Predicate(Attr(source, "__code__"), lambda now: now == code, f"is code equal to {code!r}"))
        else:
            vm.guard(Is(Attr(source, "__code__"), code))
        vm.guard(Is(Attr(source, "__globals__"), given.__globals__))
        vm.guard(Absent(InstanceDict(source), "_torchdynamo_disable"))
        defaults: Any = vm.wrap(given.__defaults__, Attr(source, "__defaults__"))
        named: Any = vm.wrap(given.__kwdefaults__, Attr(source, "__kwdefaults__"))
        if given.__kwdefaults__ is not None:
            named.guard_keys(vm)
        cells = [vm.wrap(cell, Item(Attr(source, "__closure__"), i)) for i, cell in enumerate(given.__closure__ or ())]
        super().__init__(
            given.__code__,
            given.__globals__,
            given.__name__,
            given.__qualname__,
            [] if given.__defaults__ is None else defaults.items,
            {} if given.__kwdefaults__ is None else {k: item for k, (_, item) in named.items.items()},
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


__all__ = ["GivenClass", "GivenFunction", "is_plain"]
