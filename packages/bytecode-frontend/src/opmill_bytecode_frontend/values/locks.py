"""Locks: of before the call, which the captured function holds from its beginning on, and those that captured code makes."""

from __future__ import annotations

import _thread
from collections.abc import Callable, Mapping
from typing import NoReturn

from opmill_guards.source import Pinned

from ..interpretation.owners import exempt, installed, where_called
from .base import MISSING, Machine, NotConstant, Value
from .constant import ConstantValue
from .functions import BuiltinValue

WHY = "others may hold it when the program runs"
AROUND = ("threading", "queue")
"""Modules whose objects are code around a lock that the program made."""


class Methods:
    """What the methods of a lock mean while it is free for whoever runs the captured code; ``depth``: how often that holds it now."""

    depth: int

    def methods(self) -> dict[str, Callable[..., Value]]:
        """Those that are known, by their names."""
        known = {"acquire": self.acquire, "__enter__": self.acquire, "release": self.release, "__exit__": self.leave}
        return known | ({"_is_owned": self.is_held} if self.again() else {"locked": self.is_held})

    def again(self) -> bool:
        """Whether who holds it may take it again."""
        raise NotImplementedError

    def taken(self, vm: Machine) -> None:
        """It is taken, by somebody who does not hold it yet."""

    def let_go(self, vm: Machine) -> None:
        """It is free again."""

    def refuse(self, vm: Machine, what: str = "a lock that is taken") -> NoReturn:
        vm.unsupported("FE020", what, WHY)

    def acquire(self, vm: Machine, blocking: Value | None = None, timeout: Value | None = None) -> Value:
        waits = blocking is None or vm.truth(blocking)
        if timeout is not None and not (waits and type(timeout) is ConstantValue and timeout.value == -1):
            self.refuse(vm)
        if self.depth and not self.again():
            return self.refuse(vm, "a lock that is taken twice") if waits else ConstantValue(False)
        if not self.depth:
            self.taken(vm)
        self.depth += 1
        return ConstantValue(True)

    def release(self, vm: Machine) -> Value:
        if not self.depth:
            self.refuse(vm, "a lock that is released where it is not held")
        self.depth -= 1
        if not self.depth:
            self.let_go(vm)
        return ConstantValue(None)

    def leave(self, vm: Machine, *given: Value) -> Value:
        return self.release(vm)

    def is_held(self, vm: Machine) -> Value:
        return ConstantValue(True) if self.depth else self.refuse(vm, "whether a lock is free")


class LockValue(BuiltinValue, Methods):
    """A lock of before the call (`effects.locks`). A function of a package that takes one does its work in there, on what threads share:
    where that is not captured whole, it runs as it is."""

    depth = 0
    last: object = None
    """The last call that was to be made behind the graph when it was released."""
    place: int | None = None
    """Where it was taken first."""
    taker: Mapping[str, int | bool] | None = None
    """Where the function of a package was called that has taken it, as `owners.where_called` says that."""

    def again(self) -> bool:
        return isinstance(self.obj, _thread.RLock)

    def constant(self) -> object:
        if type(self.source) is not Pinned:
            raise NotConstant("a lock")
        return self.obj

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return self.methods().get(name) or super().find_method(name)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        found = self.methods().get(name)
        return super().special(vm, name, args) if found is None else found(vm, *args)

    def taken(self, vm: Machine) -> None:
        effects, frame = vm.effects, vm.frame
        file, name = frame.code.co_filename, str(frame.globals.get("__name__"))
        self.taker = where_called(frame) if installed(file) and name not in AROUND else None
        if self.taker is not None and exempt(name):  # what runs the graph may want it, in another thread
            vm.unsupported("FE020", "a lock that is taken", WHY, **self.taker)
        if effects.calls or effects.asked or vm.recorder.regions or self.obj in effects.contended:
            vm.unsupported("FE020", "a lock that is taken", WHY, **(self.taker or {}))
        if not any(value is self for value in effects.locks):
            self.place = vm.place()
            effects.locks.append(self)

    def let_go(self, vm: Machine) -> None:
        self.last = vm.effects.last()


class MadeLock(Value, Methods):
    """A lock that captured code makes: nobody else has it. ``kind``: ``threading.Lock`` or ``RLock`` in C."""

    def __init__(self, kind: type) -> None:
        self.kind, self.depth = kind, 0

    def again(self) -> bool:
        return self.kind is _thread.RLock

    def python_type(self) -> type:
        return self.kind

    def real(self) -> object:
        return MISSING

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return self.methods().get(name) or super().find_method(name)

    def is_held(self, vm: Machine) -> Value:
        return ConstantValue(bool(self.depth))


__all__ = ["LockValue", "MadeLock"]
