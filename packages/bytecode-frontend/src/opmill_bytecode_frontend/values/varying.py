"""Numbers that were different at several calls: passed on as they are, never looked at by a capture."""

from __future__ import annotations

from typing import Any, NoReturn

from .base import ExistingObject, Machine, NotConstant


class VaryingNumber(ExistingObject):
    """An int or float argument, or a text made between two graphs, whose value is not assumed. Whatever depends on it runs natively,
    between graphs that do not."""

    def constant(self) -> Any:
        raise NotConstant(f"the number {self.source}, which changes from call to call,")

    def describe(self) -> str:
        return f"the number {self.source}"

    def refuse(self, vm: Machine, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse any use."""
        vm.unsupported(
            "FE067", f"use of {self.describe()}", "it changes from call to call", "pass a tensor, or a number that seldom changes"
        )

    special = method = getattr = truth = iterate = key = call = refuse  # type: ignore[assignment]
