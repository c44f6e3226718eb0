"""What is looked up at a place that positions alone tell is read there, and what was asked of the place is answered.

A table of positions that is asked for each position (``embedding(arange(n))``) is the table; as a look-up it keeps the check of its range,
which no product or convolution takes into its loop.
"""

from __future__ import annotations

from dataclasses import replace

from ..loops.index import Index
from ..loops.ir import Const, Expr, IndexValue, Op
from ..loops.masks import COMPARISONS, index_of
from .loop import Loop, Program
from .rewrite import Rewriter

_INTEGER = "int64"


def read_known_places(program: Program) -> None:
    """Names of places that are known are replaced by these, and checks that hold everywhere are dropped."""
    for position, loop in enumerate(program.statements):
        if type(loop) is Loop and loop.lets:
            program.statements[position] = _known(loop, program)


def _known(loop: Loop, program: Program) -> Loop:
    extents = {a.name: n for a in (*loop.axes, *loop.inner) if (n := a.extent.constant) is not None}
    places: dict[str, Index] = {}
    values: dict[str, Expr] = {}
    lets = []
    for let in loop.lets:
        value = _answered(Rewriter(places, values, extents=program.extents)(let.value), extents)
        place = index_of(value)
        if place is None:
            lets.append(replace(let, value=value))
        else:
            places[let.name], values[let.name] = place, value
    if not places:
        return loop
    rewriter = Rewriter(places, values, extents=program.extents)
    new = replace(loop, lets=tuple(lets)).rewritten(rewriter, loop.axes, loop.inner)
    checks = [replace(check, condition=_answered(check.condition, extents)) for check in new.checks]
    return replace(new, checks=tuple(c for c in checks if not (type(c.condition) is Const and c.condition.value)))


def _answered(expr: Expr, extents: dict[str, int]) -> Expr:
    """The expression with what is known of places decided."""
    if type(expr) is not Op:
        return expr
    args = tuple(_answered(a, extents) for a in expr.args)
    expr = expr if args == expr.args else Op(expr.name, args, expr.dtype)
    truths = [bool(a.value) if type(a) is Const else None for a in args]
    if expr.name == "logical_and":
        if False in truths or truths == [True, True]:
            return Const(False not in truths, "bool")
        return args[truths.index(True) ^ 1] if True in truths else expr
    if expr.name == "where" and truths[0] is not None:
        return args[1] if truths[0] else args[2]
    places = [index_of(a) for a in args]
    if len(places) != 2 or places[0] is None or places[1] is None:
        return expr
    if expr.name in ("add", "sub") and expr.dtype == _INTEGER:
        return IndexValue(places[0] + places[1] if expr.name == "add" else places[0] - places[1], _INTEGER)
    bounds = (places[0] - places[1]).bounds(extents) if expr.name in COMPARISONS else None
    if bounds is None:
        return expr
    least, most = COMPARISONS[expr.name]
    if (least is None or bounds[0] >= least) and (most is None or bounds[1] <= most):
        return Const(True, "bool")
    if (least is not None and bounds[1] < least) or (most is not None and bounds[0] > most):
        return Const(False, "bool")
    return expr
