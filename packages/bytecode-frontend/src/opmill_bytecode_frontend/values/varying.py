"""Numbers, texts, sets and objects of C that were different at several calls: passed on as they are, never looked at by a capture."""

from __future__ import annotations

from typing import NoReturn

from opmill_guards.source import Source

from .base import MISSING, BuiltinMethod, ExistingObject, Machine, NotConstant, Value, find_in_mro

NAMES: dict[str, tuple[type, ...]] = {"text": (str, bytes), "set": (set, frozenset), "number": (int, float)}
HINT = "pass a tensor, or what seldom changes; or decide by it outside of the compiled function"


class VaryingNumber(ExistingObject):
    """A number, text or set among the arguments, or a text made between two graphs, whose value is not assumed. Whatever depends on it runs
    natively, between graphs that do not."""

    def __init__(self, obj: object, source: Source) -> None:
        super().__init__(obj, source)
        self.told_later = type(obj) in (int, float, str)

    def as_told(self) -> object:
        return self.obj if self.told_later else super().as_told()

    def constant(self) -> object:
        raise NotConstant(f"{self.describe()}, which changes from call to call,")

    def real(self) -> object:
        """Nothing: which object it is differs from call to call, so that nobody may decide by the one that is there at capture."""
        return MISSING

    def describe(self) -> str:
        kind = next((name for name, classes in NAMES.items() if isinstance(self.obj, classes)), type(self.obj).__name__)
        source = str(self.source)
        return f"a {kind} that the statement has made" if source.startswith(".stack") else f"the {kind} {source}"

    def refuse(self, vm: Machine, *args: object, **kwargs: object) -> NoReturn:
        """Refuse any use."""
        vm.unsupported("FE067", f"use of {self.describe()}", "it changes from call to call", HINT)

    special = method = iterate = key = call = refuse

    def getattr(self, vm: Machine, name: str) -> Value:
        self.refuse(vm)

    def truth(self, vm: Machine) -> bool:
        self.refuse(vm)


class MadeAnew(VaryingNumber):
    """An object of a class of C (a future, work that is under way) of which each call has had another one: its methods run natively."""

    def getattr(self, vm: Machine, name: str) -> Value:
        owner, raw = find_in_mro(type(self.obj).__mro__, name)
        if type(raw).__name__ not in METHODS or hasattr(self.obj, "__dict__"):
            return self.refuse(vm)
        vm.guard_lookup(type(self.obj), owner, name)
        return BuiltinMethod(self, name)

    def truth(self, vm: Machine) -> bool:
        """True where its class has nothing to say about it."""
        return not any(hasattr(type(self.obj), name) for name in ("__bool__", "__len__")) or self.refuse(vm)


METHODS = ("method_descriptor", "instancemethod", "builtin_function_or_method")
"""How the types of functions of C are called that a class has as methods: Python's own, and what libraries make."""
