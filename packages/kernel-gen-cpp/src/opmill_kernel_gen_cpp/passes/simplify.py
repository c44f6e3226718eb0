"""Folds what ranges decide, and computes integers in 32 bits where they fit: masks by position cost nothing then, or half as much.

Rules keep IEEE meaning, NaN and signed zeros included, and the wrapping of integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opmill_graph_ir.loops.ir import HALF, Const, Expr, IndexValue, Let, Load, Op, Phase, Ref

from ..emit.types import TYPES
from .ranges import Bounds, Ranges, bounds

_NARROW = ("add", "sub", "mul", "neg", "abs", "min", "max", "where")
_INT32 = (-(1 << 31), (1 << 31) - 1)
_SLACK = 1 << 12
"""Kept free at the ends of 32 bits: unused lanes of the last vector lie beyond an axis."""

_DECIDE: dict[str, Callable[[Bounds, Bounds], bool | None]] = {
    "lt": lambda a, b: True if a[1] < b[0] else False if a[0] >= b[1] else None,
    "le": lambda a, b: True if a[1] <= b[0] else False if a[0] > b[1] else None,
    "gt": lambda a, b: True if a[0] > b[1] else False if a[1] <= b[0] else None,
    "ge": lambda a, b: True if a[0] >= b[1] else False if a[1] < b[0] else None,
    "eq": lambda a, b: True if a[0] == a[1] == b[0] == b[1] else False if a[1] < b[0] or b[1] < a[0] else None,
    "ne": lambda a, b: False if a[0] == a[1] == b[0] == b[1] else True if a[1] < b[0] or b[1] < a[0] else None,
}


def _is(expr: Expr, value: object) -> bool:
    return isinstance(expr, Const) and type(expr.value) is type(value) and expr.value == value


def _and(e: Op) -> Expr:
    a, b = e.args
    if _is(a, False) or _is(b, False):
        return Const(False, "bool")
    return b if _is(a, True) else a if _is(b, True) else e  # a & True -> a


def _or(e: Op) -> Expr:
    a, b = e.args
    if _is(a, True) or _is(b, True):
        return Const(True, "bool")
    return b if _is(a, False) else a if _is(b, False) else e  # a | False -> a


def _not(e: Op) -> Expr:
    return Const(not e.args[0].value, "bool") if isinstance(e.args[0], Const) and e.args[0].dtype == "bool" else e


def _where(e: Op) -> Expr:
    condition, a, b = e.args
    if isinstance(condition, Const):
        return a if condition.value else b
    if isinstance(a, Op) and a.name == "where" and a.args[0] == condition:  # c ? (c ? a : x) : b -> c ? a : b
        a = a.args[1]
    if isinstance(b, Op) and b.name == "where" and b.args[0] == condition:  # c ? a : (c ? x : b) -> c ? a : b
        b = b.args[2]
    return a if a == b else Op("where", (condition, a, b), e.dtype)


def _mul(e: Op) -> Expr:
    a, b = e.args
    one = 1.0 if TYPES[e.dtype].kind == "float" else 1
    return b if _is(a, one) else a if _is(b, one) else e  # x * 1 -> x


def _add(e: Op) -> Expr:
    a, b = e.args
    return b if _is(a, 0) else a if _is(b, 0) else e  # integers: x + 0 -> x; not floats, for -0.0


def _cast(e: Op) -> Expr:
    value = e.args[0]
    if value.dtype == e.dtype:
        return value
    if isinstance(value, Op) and value.name == "cast" and value.dtype in HALF and TYPES[value.args[0].dtype].size == 1:
        if TYPES[value.args[0].dtype].kind != "raw" and TYPES[e.dtype].kind == "float":  # a byte is exact in half precision
            return Op("cast", value.args, e.dtype)
    return _signs_of_halves(e, value) if e.dtype in HALF and isinstance(value, Op) and value.name in _SIGNS else e


_SIGNS = ("neg", "abs", "copysign")


def _signs_of_halves(e: Op, value: Op) -> Op:
    """What changes the sign of a half alone does so in the half's own bits: half(neg(float(x))) -> x ^ 0x8000."""
    if not all(isinstance(a, Op) and a.name == "cast" and a.args[0].dtype == e.dtype for a in value.args):
        return e
    bits = [Op("bitcast", a.args, "int16") for a in value.args if isinstance(a, Op)]
    sign, rest = Const(-32768, "int16"), Const(32767, "int16")
    if value.name == "neg":
        made = Op("bitxor", (bits[0], sign), "int16")
    elif value.name == "abs":
        made = Op("bitand", (bits[0], rest), "int16")
    else:
        made = Op("bitor", (Op("bitand", (bits[0], rest), "int16"), Op("bitand", (bits[1], sign), "int16")), "int16")
    return Op("bitcast", (made,), e.dtype)


_RULES: dict[str, Callable[[Op], Expr]] = {
    "bitand": lambda e: _and(e) if e.dtype == "bool" else e,
    "bitor": lambda e: _or(e) if e.dtype == "bool" else e,
    "logical_and": lambda e: _and(e) if {a.dtype for a in e.args} == {"bool"} else e,
    "logical_or": lambda e: _or(e) if {a.dtype for a in e.args} == {"bool"} else e,
    "logical_not": _not,
    "where": _where,
    "mul": _mul,
    "add": _add,
    "cast": _cast,
}


class Simplifier:
    """Simplifies expressions under ranges of the axes. ``lets`` grows as phases are gone through."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.lets: dict[str, Expr] = {}
        self._known: dict[Expr, Expr] = {}

    def phase(self, phase: Phase) -> Phase:
        lets = []
        for let in phase.lets:
            value = self(let.value)
            if value.dtype == "int64" and (narrow := self.narrowed(value)) is not None:
                value = narrow  # what asks for it as a value casts it; positions take any integer
            lets.append(Let(let.name, value))
            self.lets[let.name] = value
        return replace(
            phase,
            lets=tuple(lets),
            checks=tuple(replace(c, condition=self(c.condition)) for c in phase.checks),
            reductions=tuple(replace(r, value=self(r.value)) for r in phase.reductions),
            stores=tuple(replace(s, value=self(s.value)) for s in phase.stores),
            scans=tuple(replace(s, values=tuple(map(self, s.values))) for s in phase.scans),
        )

    def __call__(self, expr: Expr) -> Expr:
        if (known := self._known.get(expr)) is None:
            known = self._known[expr] = self._simplified(expr)
        return known

    def _simplified(self, expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.mask is not None:
            mask = self(expr.mask)
            if isinstance(mask, Const):
                return replace(expr, mask=None, other=None) if mask.value else expr.other or _zero(expr.dtype)
            return replace(expr, mask=mask)
        if isinstance(expr, Ref) and expr.name in self.lets and (kept := self.lets[expr.name].dtype) != expr.dtype:
            return Op("cast", (Ref(expr.name, kept),), expr.dtype)
        if not isinstance(expr, Op):
            return expr
        made = Op(expr.name, tuple(self(a) for a in expr.args), expr.dtype)
        if expr.name in _DECIDE:
            return self._comparison(made)
        if expr.name == "cast" and made.args[0].dtype == "int64" and (narrow := self.narrowed(made.args[0])) is not None:
            made = Op("cast", (narrow,), expr.dtype)
        return _RULES[expr.name](made) if expr.name in _RULES else made

    def _comparison(self, e: Op) -> Expr:
        a, b = (bounds(x, self.ranges, self.lets) for x in e.args)
        if a is not None and b is not None and (decided := _DECIDE[e.name](a, b)) is not None:
            return Const(decided, "bool")
        if e.args[0].dtype == "int64":
            left, right = (self.narrowed(x) for x in e.args)
            if left is not None and right is not None:
                return Op(e.name, (left, right), e.dtype)
        return e

    def narrowed(self, expr: Expr) -> Expr | None:
        """An int64 value computed in int32, where it and all that it is made of fit."""
        found = bounds(expr, self.ranges, self.lets)
        if found is None or found[0] < _INT32[0] + _SLACK or found[1] > _INT32[1] - _SLACK:
            return None
        if isinstance(expr, Const):
            return Const(expr.value, "int32")
        if isinstance(expr, IndexValue):
            return IndexValue(expr.index, "int32")
        if isinstance(expr, Ref):
            return expr if expr.dtype == "int32" else self.narrowed(self.lets[expr.name])
        if not isinstance(expr, Op):
            return None
        if expr.name == "cast":
            source = expr.args[0]
            return _cast(Op("cast", (source,), "int32")) if TYPES[source.dtype].size <= 4 else None
        if expr.name not in _NARROW:
            return None
        parts = [a if a.dtype == "bool" else self.narrowed(a) for a in expr.args]
        return None if any(p is None for p in parts) else Op(expr.name, tuple(p for p in parts if p is not None), "int32")


def _zero(dtype: str) -> Const:
    return Const({"float": 0.0, "raw": 0.0, "bool": False}.get(TYPES[dtype].kind, 0), dtype)


def simplified(phases: tuple[Phase, ...], ranges: Ranges) -> tuple[Phase, ...]:
    """Phases of a nest under ranges of its axes. The number of checks stays."""
    simplify = Simplifier(ranges)
    return tuple(simplify.phase(p) for p in phases)
