"""Numbers, texts and sets that were different at several calls: passed on as they are, never looked at by a capture."""

from __future__ import annotations

from typing import NoReturn

from .base import MISSING, ExistingObject, Machine, NotConstant

HINT = "pass a tensor, or what seldom changes; or decide by it outside of the compiled function"


class VaryingNumber(ExistingObject):
    """A number, text or set among the arguments, or a text made between two graphs, whose value is not assumed. Whatever depends on it runs
    natively, between graphs that do not."""

    def constant(self) -> object:
        raise NotConstant(f"{self.describe()}, which changes from call to call,")

    def real(self) -> object:
        """Nothing: which object it is differs from call to call, so that nobody may decide by the one that is there at capture."""
        return MISSING

    def describe(self) -> str:
        kind = "text" if isinstance(self.obj, (str, bytes)) else "set" if isinstance(self.obj, (set, frozenset)) else "number"
        source = str(self.source)
        return f"a {kind} that the statement has made" if source.startswith(".stack") else f"the {kind} {source}"

    def refuse(self, vm: Machine, *args: object, **kwargs: object) -> NoReturn:
        """Refuse any use."""
        vm.unsupported("FE067", f"use of {self.describe()}", "it changes from call to call", HINT)

    special = method = getattr = truth = iterate = key = call = refuse
