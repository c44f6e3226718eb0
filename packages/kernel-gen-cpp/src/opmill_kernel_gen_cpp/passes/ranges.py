"""What integer values can be: bounds of expressions from the ranges of axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Const, Expr, IndexValue, Op, Ref

from ..emit.types import TYPES

Bounds = tuple[int, int]
"""Lowest and highest value, both included."""
Ranges = Mapping[str, Bounds]
"""Bounds of axes and size symbols."""


def index_bounds(i: Index, ranges: Ranges) -> Bounds | None:
    """Bounds of an index; None where it has other symbols, or divides something negative."""
    shifted = {s: index(s) + ranges[s][0] for s in i.symbols if s in ranges and ranges[s][0]}
    extents = {s: ranges[s][1] - ranges[s][0] + 1 for s in i.symbols if s in ranges}
    return i.substitute(shifted, extents).bounds(extents) if shifted else i.bounds(extents)


def type_bounds(dtype: str) -> Bounds | None:
    """Every value of an integer type (bool: 0 and 1)."""
    kind, bits = TYPES[dtype].kind, 8 * TYPES[dtype].size
    if kind == "bool":
        return 0, 1
    if kind == "int":
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return (0, (1 << bits) - 1) if kind == "uint" else None


def _products(a: Bounds, b: Bounds) -> Bounds:
    all_four = [x * y for x in a for y in b]
    return min(all_four), max(all_four)


_RULES: dict[str, Callable[..., Bounds]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _products,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1])), max(abs(a[0]), abs(a[1]))),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "where": lambda _, a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "cast": lambda a: a,
}


def bounds(expr: Expr, ranges: Ranges, lets: Mapping[str, Expr]) -> Bounds | None:
    """Bounds of an integer or bool value; None where nothing is known or it may wrap around."""
    limits = type_bounds(expr.dtype)
    if limits is None:
        return None
    found = _unlimited(expr, ranges, lets)
    if found is None or found[0] < limits[0] or found[1] > limits[1]:
        return limits if TYPES[expr.dtype].size < 4 else None
    return found


def _unlimited(expr: Expr, ranges: Ranges, lets: Mapping[str, Expr]) -> Bounds | None:
    if isinstance(expr, Const):
        return int(expr.value), int(expr.value)
    if isinstance(expr, IndexValue):
        return index_bounds(expr.index, ranges)
    if isinstance(expr, Ref):
        return bounds(lets[expr.name], ranges, lets) if expr.name in lets else None
    if not isinstance(expr, Op) or expr.name not in _RULES:
        return None
    if expr.name == "cast" and TYPES[expr.args[0].dtype].kind == "float":
        return _guarded(expr.args[0])
    known = [bounds(a, ranges, lets) for a in expr.args]
    if any(k is None for k in known):
        return None
    return _RULES[expr.name](*known)


def _guarded(expr: Expr) -> Bounds | None:
    """Bounds of what a float becomes as an integer, where it was compared with constants before: ``a <= x && x < b ? x : c``. It is ``c``
    where ``x`` is no number."""
    if not isinstance(expr, Op) or expr.name != "where":
        return None
    condition, value, other = expr.args
    if not isinstance(other, Const):
        return None
    low, high, ends = -math.inf, math.inf, float(other.value)
    conditions = [condition]
    while conditions:
        c = conditions.pop()
        if not isinstance(c, Op):
            continue
        if c.name in ("logical_and", "bitand"):
            conditions += c.args
        elif c.args[0] == value and isinstance(limit := c.args[-1], Const):
            low = max(low, float(limit.value)) if c.name in ("ge", "gt") else low
            high = min(high, float(limit.value)) if c.name in ("le", "lt") else high
    if not all(map(math.isfinite, (low, high, ends))):
        return None
    return math.floor(min(low, ends)), math.ceil(max(high, ends))
