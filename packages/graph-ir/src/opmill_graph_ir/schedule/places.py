"""What is looked up at a place that positions alone tell is read there, and what was asked of the place is answered.

A table of positions that is asked for each position (``embedding(arange(n))``) is the table; as a look-up it keeps the check of its range,
which no product or convolution takes into its loop.
"""

from __future__ import annotations

from dataclasses import replace

from ..loops.index import Index, index
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
    axes = _Axes({a.name: a.extent for a in (*loop.axes, *loop.inner)})
    places: dict[str, Index] = {}
    values: dict[str, Expr] = {}
    lets = []
    for let in loop.lets:
        value = _answered(Rewriter(places, values, extents=program.extents)(let.value), axes)
        place = index_of(value)
        if place is None:
            lets.append(replace(let, value=value))
        else:
            places[let.name], values[let.name] = place, value
    if not places:
        return loop
    rewriter = Rewriter(places, values, extents=program.extents)
    new = replace(loop, lets=tuple(lets)).rewritten(rewriter, loop.axes, loop.inner)
    checks = [replace(check, condition=_answered(check.condition, axes)) for check in new.checks]
    return replace(new, checks=tuple(c for c in checks if not (type(c.condition) is Const and c.condition.value)))


def _answered(expr: Expr, axes: _Axes) -> Expr:
    """The expression with what is known of places decided."""
    if type(expr) is not Op:
        return expr
    args = tuple(_answered(a, axes) for a in expr.args)
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
    if expr.name in COMPARISONS:
        difference, (least, most) = places[0] - places[1], COMPARISONS[expr.name]
        if (least is None or axes.never_below(difference, least)) and (most is None or axes.never_below(-difference, -most)):
            return Const(True, "bool")
        if (least is not None and axes.never_below(-difference, 1 - least)) or (
            most is not None and axes.never_below(difference, most + 1)
        ):
            return Const(False, "bool")
    return expr


class _Axes:
    """The extents of the axes of a loop, by name: none is negative, and at a point of an axis it is at least one."""

    def __init__(self, extents: dict[str, Index]) -> None:
        self.extents = extents
        self.numbers = {name: n for name, extent in extents.items() if (n := extent.constant) is not None}
        self.sizes: set[str] = set()  # symbols that are not negative where no extent is
        for extent in extents.values():
            for symbol in extent.symbols:
                over = (extent - index(symbol)).constant
                if over is not None and over <= 0:
                    self.sizes.add(symbol)

    def never_below(self, value: Index, least: int) -> bool:
        """Whether a value is at least ``least`` at every point."""
        bounds = value.bounds(self.numbers)
        return bounds[0] >= least if bounds is not None else self._clearly(self._lowest(value), least)

    def _lowest(self, value: Index) -> Index | None:
        """The smallest value over the axes, in terms of sizes; None where an axis is multiplied or divided."""
        low = value
        for name in value.symbols & self.extents.keys():
            coefficient = low.stride_of(name)
            if coefficient is None or coefficient.constant is None:
                return None
            low = low.substitute({name: index(0) if coefficient.constant > 0 else self.extents[name] - 1})
        return low

    def _clearly(self, value: Index | None, least: int) -> bool:
        """Whether a number and what is added to it are too large to be less."""
        if value is None:
            return False
        terms = dict((value - least).terms)
        constant = terms.pop((), 0)
        return constant >= 0 and all(n > 0 and all(atom in self.sizes for atom in monomial) for monomial, n in terms.items())
