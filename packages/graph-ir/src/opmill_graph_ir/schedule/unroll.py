"""Writes out short axes whose position decides what is computed: the parts of a pair, the corners of a box, the entries of a small matrix.

``stack([x * c - y * s, x * s + y * c], -1)`` is a loop over an axis of two under conditions, which no generator makes vectors of, and which
computes both parts at both positions. Written out, it is one loop that stores twice.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..loops.index import Index, index
from ..loops.ir import Axis, Const, Expr, IndexValue, Let, Load, Nest, Op, Phase, Ref, Store
from ..loops.primitives import PRIMITIVES
from ..loops.walk import roots
from .rewrite import Rewriter, walk

_LONGEST = 16
_MOST = 1000
"""What the values of all positions may cost together; a limit on the size of kernels."""
_WORTH = 0.75
"""Which part of the cost may be left."""


def unroll(nest: Nest, extents: Mapping[str, int | Index], fresh_name: Callable[[str], str]) -> Nest:
    """The nest with one such axis written out, where that saves work: of its own, if one phase is all it has, or of each phase."""
    if len(nest.phases) > 1 or nest.phases[0].axes:
        return replace(nest, phases=tuple(_shorter(p, p.axes, extents, fresh_name)[0] for p in nest.phases))
    phase, gone = _shorter(nest.phases[0], nest.axes if len(nest.axes) > 1 else (), extents, fresh_name)
    return replace(nest, axes=tuple(a for a in nest.axes if a is not gone), phases=(phase,))


def _shorter(
    phase: Phase, axes: tuple[Axis, ...], extents: Mapping[str, int | Index], fresh_name: Callable[[str], str]
) -> tuple[Phase, Axis | None]:
    """The phase with one of ``axes`` written out, and that axis; as it is where none is worth it."""
    if not axes or phase.checks or phase.reductions or phase.scans or any(s.mode != "set" for s in phase.stores):
        return phase, None
    asked = _asked(phase)
    for axis in reversed(axes):
        extent = axis.extent.constant
        if axis.name in asked and extent is not None and extent <= _LONGEST and all(axis.name in s.index.symbols for s in phase.stores):
            before = extent * _cost(phase)
            if before <= _MOST / _WORTH and _cost(written := _written_out(phase, axis, extent, extents, fresh_name)) <= _WORTH * before:
                return replace(written, axes=tuple(a for a in phase.axes if a is not axis)), axis
    return phase, None


def _asked(phase: Phase) -> set[str]:
    """Axes whose position is compared with a number."""
    found: set[str] = set()
    for e in walk(*roots(phase)):
        if type(e) is Op and e.name in _COMPARISONS and type(e.args[1]) is Const and type(e.args[0]) is IndexValue:
            found |= e.args[0].index.symbols
    return found


def _cost(phase: Phase) -> int:
    """Of one point; a read as much as a cheap operation, a masked one twice."""
    return sum(
        PRIMITIVES[e.name].cost if type(e) is Op else 1 + (e.mask is not None) if type(e) is Load else 0 for e in walk(*roots(phase))
    ) + len(phase.stores)


def _written_out(phase: Phase, axis: Axis, extent: int, extents: Mapping[str, int | Index], fresh_name: Callable[[str], str]) -> Phase:
    lets: list[Let] = []
    stores: list[Store] = []
    for k in range(extent):
        names = {let.name: fresh_name("v") for let in phase.lets}
        symbols = {axis.name: index(k), **{old: index(new) for old, new in names.items()}}
        at = _Folded(symbols, {let.name: Ref(names[let.name], let.value.dtype) for let in phase.lets}, extents=extents)
        lets += [Let(names[let.name], at(let.value)) for let in phase.lets]
        stores += [Store(s.buffer, at.index(s.index), at(s.value)) for s in phase.stores]
    return replace(phase, lets=tuple(lets), stores=tuple(stores))


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {n: getattr(operator, n) for n in "lt le gt ge eq ne".split()}


class _Folded(Rewriter):
    """A rewriter that decides what constants decide: comparisons of whole numbers, conditions, masks."""

    def _op(self, expr: Op) -> Expr:
        if expr.name == "where" and type(condition := self(expr.args[0])) is Const:
            return self(expr.args[1 if condition.value else 2])
        args = tuple(self(a) for a in expr.args)
        if expr.name in _COMPARISONS and len(numbers := [a.value for a in args if type(a) is Const and type(a.value) is int]) == len(args):
            return Const(_COMPARISONS[expr.name](*numbers), "bool")
        if expr.name in ("logical_and", "logical_or"):
            known = [a for a in args if type(a) is Const]
            if known:
                [other] = [a for a in args if a is not known[0]] or [known[0]]
                return known[0] if known[0].value == (expr.name == "logical_or") else other
        if expr.name == "logical_not" and type(args[0]) is Const:
            return Const(not args[0].value, "bool")
        return expr if args == expr.args else Op(expr.name, args, expr.dtype)

    def _load(self, expr: Load) -> Expr:
        mask = None if expr.mask is None else self(expr.mask)
        if type(mask) is Const and not mask.value and expr.other is not None:
            return expr.other
        return Load(
            expr.buffer, self.index(expr.index), expr.dtype, *((None, None) if type(mask) is Const and mask.value else (mask, expr.other))
        )

    _RULES = {**Rewriter._RULES, Op: _op, Load: _load}
