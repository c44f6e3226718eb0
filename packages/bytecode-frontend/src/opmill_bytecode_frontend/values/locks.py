"""Locks: who holds one does so while the program runs, not while it is read."""

from __future__ import annotations

from typing import Callable, NoReturn

from ..interpretation.owners import installed, where_called
from .base import Machine, Value
from .functions import BuiltinValue

TAKING = ("__enter__", "acquire")


class LockValue(BuiltinValue):
    """A lock of before the call. A function of a package that takes one does its work in there, on what threads share: it runs as it is. A
    program's own may well hold it around its operators: the graph ends before, and goes on behind."""

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return self.take if name in TAKING else super().find_method(name)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        return self.take(vm, *args) if name in TAKING else super().special(vm, name, args)

    def take(self, vm: Machine, *args: Value, **kwargs: Value) -> NoReturn:
        frame = vm.frame
        what, why = "a lock that is taken", "others may hold it when the program runs"
        vm.unsupported("FE020", what, why, **(where_called(frame) if installed(frame.code.co_filename) else {}))


__all__ = ["LockValue"]
