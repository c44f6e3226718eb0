"""Numbers, texts and sets that were different at several calls: passed on as they are, never looked at by a capture."""

from __future__ import annotations

from typing import NoReturn

from opmill_guards.source import Source

from .base import MISSING, ExistingObject, Machine, NotConstant

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

    special = method = getattr = truth = iterate = key = call = refuse
