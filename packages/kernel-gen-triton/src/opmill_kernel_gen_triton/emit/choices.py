"""Choices (``where``) between values: what a known condition settles, and two sides that do the same at other places done as one.

The second is what rotary embeddings come to: half of each row takes its value from further on, the other half from further back with its
sign turned. Both sides computed and one thrown away would be twice the loads and twice the work.
"""

from __future__ import annotations

from collections.abc import Callable

from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Const, Expr, Load, Op

from .types import TYPES

OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
Step = Callable[[int], str]
"""The name of an index that is the given number where the condition holds, and 0 elsewhere."""
Plain = Callable[[Expr], Expr]
"""A value without what need not be done to it."""


def settled_by(condition: Expr, holds: bool, value: Expr) -> Expr:
    """What ``value`` is where the condition is known to hold, or not to: of a choice by the same condition, that side."""
    while type(value) is Op and value.name == "where":
        other = value.args[0]
        if other == condition:
            value = value.args[1 if holds else 2]
        elif opposite(other, condition):
            value = value.args[2 if holds else 1]
        else:
            break
    return value


def side(condition: Expr, holds: bool, value: Expr, plain: Plain) -> Expr:
    """The same of what is left of ``value``."""
    before: Expr | None = None
    while before != value:
        before, value = value, plain(settled_by(condition, holds, value))
    return value


def opposite(a: Expr, b: Expr) -> bool:
    """Whether one of two comparisons of integers holds just where the other does not."""
    return type(a) is Op and type(b) is Op and OPPOSITE.get(a.name) == b.name and a.args == b.args and TYPES[a.args[0].dtype].kind == "int"


def merged(condition: Expr, first: Expr, second: Expr, step: Step, plain: Plain) -> Expr | None:
    """One value that is ``first`` where the condition holds and ``second`` elsewhere, without computing both; None where they differ in
    more than places, signs and numbers."""
    if not any(type(e) is Op or type(e) is Load for e in (first, second)):
        return None
    return _Merger(condition, step, plain).both(first, second)


class _Merger:
    def __init__(self, condition: Expr, step: Step, plain: Plain) -> None:
        self.condition, self.step, self.plain = condition, step, plain

    def both(self, a: Expr, b: Expr) -> Expr | None:
        a, b = (side(self.condition, k == 0, e, self.plain) for k, e in enumerate((a, b)))
        if a == b:
            return a
        if a.dtype != b.dtype:
            return None
        if type(a) is Load and type(b) is Load:
            return self._loads(a, b)
        if type(a) is Const and type(b) is Const:
            return Op("where", (self.condition, a, b), a.dtype)
        negated = [e.args[0] if type(e) is Op and e.name == "neg" and e.dtype.startswith("float") else None for e in (a, b)]
        if (negated[0] is None) != (negated[1] is None):
            return self._signs(negated[0] or a, negated[1] or b, negated[0] is not None)
        if type(a) is not Op or type(b) is not Op or a.name != b.name or len(a.args) != len(b.args):
            return None
        args = [both for x, y in zip(a.args, b.args, strict=True) if (both := self.both(x, y)) is not None]
        return Op(a.name, tuple(args), a.dtype) if len(args) == len(a.args) else None

    def _signs(self, a: Expr, b: Expr, first: bool) -> Expr | None:
        """Both without their sign, of which the first has one or the second."""
        inner = self.both(a, b)
        if inner is None:
            return None
        signs = (Const(-1.0, a.dtype), Const(1.0, a.dtype))
        return Op("mul", (inner, Op("where", (self.condition, *(signs if first else signs[::-1])), a.dtype)), a.dtype)

    def _loads(self, a: Load, b: Load) -> Expr | None:
        distance = (a.index - b.index).constant
        if a.buffer != b.buffer or distance is None:
            return None
        if a.mask not in (None, self.condition) or not (b.mask is None or opposite(b.mask, self.condition)):
            return None
        return Load(a.buffer, b.index + index(self.step(distance)), a.dtype)


__all__ = ["Index", "merged", "opposite", "settled_by", "side"]
