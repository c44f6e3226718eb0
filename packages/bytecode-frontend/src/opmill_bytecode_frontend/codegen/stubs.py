"""Expressions inside the functions that stand for the inner frames of a graph break."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Protocol

from ..breaks.continuation import forgetting, releasing
from ..values.constant import ConstantValue
from ..values.exceptions import ExceptionObject
from .sources import Constants, Stub

if TYPE_CHECKING:
    from ..interpretation.machine import Interpreter


class Expressions(Protocol):
    """Where statements get the expressions of tracked values from."""

    constants: Constants
    vm: Interpreter
    forgets: bool

    def expr(self, value: object) -> str: ...
    def temporary(self, prefix: str = "_v") -> str: ...


class Passed:
    """Inside a stub: values are made outside, by ``outer``, and passed in as parameters; constants are shared."""

    def __init__(self, outer: Expressions) -> None:
        self.outer = outer
        self.constants = outer.constants
        self.vm = outer.vm
        self._names: dict[str, str] = {}
        self.forgets = False

    def expr(self, value: object) -> str:
        text = self.outer.expr(value)
        if text in self.constants.table or (type(value) is ConstantValue and text == repr(value.value)):  # a literal
            return text
        name = self._names.setdefault(text, f"_p{len(self._names)}")
        self.forgets |= isinstance(value, ExceptionObject)
        return name

    def temporary(self, prefix: str = "_v") -> str:
        return self.outer.temporary(prefix)

    def define(self, code: types.CodeType, globals_: dict[str, object], lines: list[str]) -> str:
        """The stub with these statements, in the name and place of ``code``; gives the expression that calls it."""
        given = list(self._names.values())
        lines = forgetting(releasing(lines, given), given if self.forgets else ())
        name = self.constants.define(Stub(code, globals_, given, lines))
        return f"{name}({', '.join(self._names)})"
