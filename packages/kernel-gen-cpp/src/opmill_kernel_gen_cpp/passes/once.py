"""Values that the rows of a nest share (a channel's scale, of images that lie channels last): computed once, ahead of the nest, in scratch
memory, where they cost more than a load. Loops hoist what does not depend on inner axes; this is about what depends on the inner ones
alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Expr, IndexValue, Load, LoopKernel, Nest, Op, Phase, Ref, Store
from opmill_graph_ir.schedule.coalesce import map_phase
from opmill_graph_ir.schedule.rewrite import Rewriter

from .. import walk
from ..emit.primitives import work

_WORTH = 4
"""Work of a point from which on a value is put aside: a division, a root."""
_LONGEST = 2048
"""Points of a row that is kept: with its neighbours it stays in the nearest cache."""
_MOST = 4
"""Rows that one nest keeps."""
_ROWS = 16
"""Points of the nest that share one of the row, at least."""
_KEPT = ("float32", "float64")


def shared_once(
    kernel: LoopKernel, scratch: tuple[Buffer, ...], whole: Callable[[Nest], bool] = lambda nest: False
) -> tuple[LoopKernel, tuple[Buffer, ...]]:
    """The kernel with such values in nests of their own, and all scratch buffers (last among its buffers). ``scratch``: those that it has
    already. Nests that are ``whole`` stay as they are."""
    nests: list[Nest] = []
    made = list(scratch)
    for nest in kernel.nests:
        nests += [nest] if whole(nest) else _apart(nest, made)
    if len(made) == len(scratch):
        return kernel, scratch
    return replace(kernel, nests=tuple(nests), buffers=(*kernel.buffers, *made[len(scratch) :])), tuple(made)


def _apart(nest: Nest, scratch: list[Buffer]) -> list[Nest]:
    values = _Values(nest)
    found: dict[Expr, tuple[Axis, ...]] = {}
    for phase in nest.phases:
        axes = (*nest.axes, *phase.axes)
        if all(a.extent.constant is not None for a in axes):
            for root in walk.roots(phase):
                found.update((e, over) for e, over in values.worthwhile(root, axes))
    chosen = dict(sorted(found.items(), key=lambda item: -values.work(item[0]))[:_MOST])
    if not chosen:
        return [nest]
    before, loads = [], {}
    for expr, over in chosen.items():
        place: Index = index(0)
        for a in over:
            place = place * a.extent + a.name
        buffer = Buffer(f"scratch_{len(scratch)}", expr.dtype, "inout", index(_points(over)))
        scratch.append(buffer)
        loads[expr] = Load(buffer.name, place, expr.dtype)
        before.append(Nest(over, (Phase(stores=(Store(buffer.name, place, values.plain(expr)),)),), nest.origin))
    rewritten = Rewriter.replacing(loads)
    return [*before, replace(nest, phases=tuple(map_phase(p, rewritten, p.axes) for p in nest.phases))]


def _points(axes: Sequence[Axis]) -> int:
    return prod(a.extent.constant or 1 for a in axes)


class _Values:
    """What the values of a nest depend on, lets resolved."""

    def __init__(self, nest: Nest) -> None:
        self.lets: Mapping[str, Expr] = {let.name: let.value for p in nest.phases for let in p.lets}
        self.stored = walk.written(nest)
        self._symbols: dict[Expr, frozenset[str] | None] = {}
        self._plain: dict[Expr, Expr] = {}

    def symbols(self, expr: Expr) -> frozenset[str] | None:
        """Names of axes and sizes; None where it also depends on what the nest computes in steps, or writes."""
        if expr not in self._symbols:
            self._symbols[expr] = self._found(expr)
        return self._symbols[expr]

    def _found(self, expr: Expr) -> frozenset[str] | None:
        if isinstance(expr, Const):
            return frozenset()
        if isinstance(expr, Ref):
            return self.symbols(self.lets[expr.name]) if expr.name in self.lets else None
        own: frozenset[str] = expr.index.symbols if isinstance(expr, (Load, IndexValue)) else frozenset()
        if own & self.lets.keys() or (isinstance(expr, Load) and expr.buffer in self.stored):
            return None
        for child in walk.children(expr):
            below = self.symbols(child)
            if below is None:
                return None
            own |= below
        return own

    def plain(self, expr: Expr) -> Expr:
        """The value without references to lets."""
        if isinstance(expr, Ref):
            return self.plain(self.lets[expr.name])
        if expr not in self._plain:
            inner = {c: self.plain(c) for c in walk.children(expr)}
            self._plain[expr] = Rewriter.replacing({c: p for c, p in inner.items() if c != p})(expr) if inner else expr
        return self._plain[expr]

    def work(self, expr: Expr) -> int:
        return sum(work(e.name) for e in walk.inside(self.plain(expr)) if isinstance(e, Op))

    def worthwhile(self, root: Expr, axes: tuple[Axis, ...]) -> Iterator[tuple[Expr, tuple[Axis, ...]]]:
        """The outermost values in ``root`` that are worth it, and the axes that each depends on."""
        todo, seen = [root], set()
        while todo:
            expr = todo.pop()
            if expr in seen:
                continue
            seen.add(expr)
            over = self._over(expr, axes)
            if over is not None and self.work(expr) >= _WORTH:
                yield expr, over
            else:
                todo += walk.children(expr)

    def _over(self, expr: Expr, axes: tuple[Axis, ...]) -> tuple[Axis, ...] | None:
        """The axes that a value depends on, where these are the inner ones of a nest with many rows, and enough share one."""
        symbols = self.symbols(expr) if isinstance(expr, Op) and expr.dtype in _KEPT else None
        if not symbols or not axes or axes[-1].name not in symbols or not symbols <= {a.name for a in axes}:
            return None
        over = tuple(a for a in axes if a.name in symbols)
        points = _points(over)
        return over if points <= _LONGEST and points * _ROWS <= _points(axes) else None


__all__ = ["shared_once"]
