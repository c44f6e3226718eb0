"""Numbers that exist only when the program runs: addresses, random numbers. They may be carried, compared by identity, dropped."""

from __future__ import annotations

import _thread
from typing import Callable, Hashable, NoReturn

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

from .base import ExistingObject, Machine, NotConstant, Value
from .constant import ConstantValue


class ChanceValue(ConstantValue):
    """A generator of random numbers; the program may be told its state, or change it, when it runs."""

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.unsupported("FE010", f"method {name} of a torch.Generator", "it is about the generator's state")


class AddressValue(Value):
    """``id(obj)`` of an object made in captured code, or of a text or a number: good as a key, never leaves the capture."""

    def __init__(self, owner: object) -> None:
        self.owner = owner

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return "an address"

    def key(self, vm: Machine) -> Hashable:
        return ("address", id(self.owner))

    def is_of(self, vm: Machine, other: Value) -> bool:
        """Whether another address is of the same object."""
        if isinstance(self.owner, ConstantValue) and not isinstance(other, AddressValue) and issubclass(other.python_type(), int):
            vm.unsupported(
                "FE020", f"{self.describe()} compared with a number", f"any {type(self.owner.value).__name__} may have that address"
            )
        if not isinstance(other, AddressValue) or not isinstance(self.owner, Value) or not isinstance(other.owner, Value):
            return False
        return vm.is_same(self.owner, other.owner)

    def m___eq__(self, vm: Machine, other: Value) -> Value:
        return ConstantValue(self.is_of(vm, other))

    def m___ne__(self, vm: Machine, other: Value) -> Value:
        return ConstantValue(not self.is_of(vm, other))

    def m___hash__(self, vm: Machine) -> Value:
        return self

    def truth(self, vm: Machine) -> bool:
        return True


class ThreadNumber(AddressValue):
    """``threading.get_ident()``. Only what was asked about it is assumed: programs compare it with that of the thread that holds a lock."""

    def __init__(self) -> None:
        super().__init__(None)

    def describe(self) -> str:
        return "the number of the thread"

    def key(self, vm: Machine) -> Hashable:
        number = _thread.get_ident()
        vm.guard(Predicate(Pinned(_thread.get_ident, "threading.get_ident()"), lambda asked: asked() == number, "is the same thread"))
        return number

    def is_of(self, vm: Machine, other: Value) -> bool:
        if isinstance(other, AddressValue) or not issubclass(other.python_type(), (int, float)):
            return isinstance(other, ThreadNumber)
        try:
            number = other.constant()
        except NotConstant as exc:
            vm.unsupported("FE020", f"{self.describe()} compared with {exc}", "either may be another at each call")
        answer = number == _thread.get_ident()
        told = Predicate(
            Pinned(_thread.get_ident, "threading.get_ident()"),
            lambda asked: (asked() == number) is answer,
            f"{'is' if answer else 'is not'} {number}",
        )
        vm.guard(told)
        return answer


class RandomNumber(Value):
    """What a Python or numpy generator will give: the call is made before the graph, its result may be carried."""

    def __init__(self, name: str, cls: type) -> None:
        self.name = name
        self.cls = cls

    def __repr__(self) -> str:
        return self.name

    def python_type(self) -> type:
        return self.cls

    def constant(self) -> object:
        raise NotConstant(f"a number of {self.name}")

    def describe(self) -> str:
        return f"a number of {self.name}"

    def truth(self, vm: Machine) -> bool:
        vm.unsupported("FE019", f"a decision on {self.describe()}", "it is random", "use torch.rand, which the graph holds")

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        vm.unsupported("FE019", f"{name} of {self.describe()}", "it is random", "use torch.rand, which the graph holds")


class Untouched(ExistingObject):
    """An object that captured code carries about and never looks into, nor keeps: a weak proxy, whose object may be dead, a frame, which
    holds all that its function has, or a view of memory, which cannot grow as long as one lives."""

    def refuse(self, vm: Machine, *args: object, **kwargs: object) -> NoReturn:
        vm.unsupported("FE018", f"a look into {self.describe()}", "what it gives is known when the program runs")

    def describe(self) -> str:
        return f"a {type(self.obj).__name__}"

    def truth(self, vm: Machine) -> bool:
        self.refuse(vm)

    def key(self, vm: Machine) -> Hashable:
        self.refuse(vm)

    def getattr(self, vm: Machine, name: str) -> Value:
        self.refuse(vm)

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        self.refuse(vm)

    def delattr(self, vm: Machine, name: str) -> None:
        self.refuse(vm)

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self.refuse(vm)

    def iterate(self, vm: Machine) -> Value:
        self.refuse(vm)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        self.refuse(vm)

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return self.refuse
