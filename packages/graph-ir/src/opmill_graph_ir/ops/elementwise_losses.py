"""Losses by element, kept or reduced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..capture.graph import Node
from ..loops.ir import Check, Const, Expr, Let, Reduction, Ref
from ..lowered import Reduce
from .activations import log_sigmoid
from .context import Context, View, extents_of, named_axes, positions
from .exprs import FLOATS, cast, const, op, wide
from .records import Rows

ROWS = Rows()
_KEPT, _MEAN = 0, 1


def _c(x: Expr, value: float) -> Const:
    return const(value, x.dtype)


def reduced_loss(
    ctx: Context, node: Node, tensors: Sequence[Any], reduction: int, fn: Callable[..., Expr], lets: Callable[..., list[Let]] | None = None,
    checks: Sequence[Check] = (),
) -> Any:  # fmt: skip
    """``fn`` of the broadcast tensors; kept (0), averaged (1) or summed (2). ``lets`` of the same operands are what ``checks`` look at."""
    shape = _broadcast([t.sizes for t in tensors if t is not None])
    meta = ctx.metas[node.results[0] or ""]
    dtype = wide(meta.dtype)
    if dtype not in FLOATS or 0 in shape:
        return NotImplemented
    axes = named_axes("i" if reduction == _KEPT else "r", shape)
    at, ext = positions(axes), extents_of(axes)
    operands = [None if t is None else cast(ctx.load_broadcast(t, at, ext), dtype) for t in tensors]
    value, first = fn(*operands), tuple(lets(*operands)) if lets is not None else ()
    if reduction == _KEPT or not shape:
        return ctx.pointwise(node.results[0], meta, lambda at, ext: value, lets=first, checks=checks)
    view = ctx.buffer(node.results[0] or ctx.fresh(), meta)
    total = Ref("a", dtype)
    result = op("div", total, const(math.prod(shape), dtype)) if reduction == _MEAN else total
    sums = (Reduction(("a",), "sum", value, dtype),)
    ctx.nodes.append(Reduce((view.buffer,), (), axes, sums, (cast(result, meta.dtype),), first, tuple(checks), ctx.origin))
    return view


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(next((n for n in column if n != 1), 1) for column in zip(*padded, strict=True))


@ROWS.lowers("mse_loss")
def _mse(ctx: Context, node: Node, x: View, y: View, reduction: int = 1) -> Any:
    return reduced_loss(ctx, node, [x, y], reduction, lambda a, b: op("mul", op("sub", a, b), op("sub", a, b)))


@ROWS.lowers("smooth_l1_loss")
def _smooth_l1(ctx: Context, node: Node, x: View, y: View, reduction: int = 1, beta: float = 1.0) -> Any:
    def fn(a: Expr, b: Expr) -> Expr:
        d = op("abs", op("sub", a, b))
        near = op("div", op("mul", op("mul", d, d), _c(a, 0.5)), _c(a, beta)) if beta else d
        return op("where", op("lt", d, _c(a, beta)), near, op("sub", d, _c(a, 0.5 * beta)))

    return reduced_loss(ctx, node, [x, y], reduction, fn)


@ROWS.lowers("huber_loss")
def _huber(ctx: Context, node: Node, x: View, y: View, reduction: int = 1, delta: float = 1.0) -> Any:
    def fn(a: Expr, b: Expr) -> Expr:
        d = op("abs", op("sub", a, b))
        near = op("mul", op("mul", _c(a, 0.5), d), d)
        return op("where", op("le", d, _c(a, delta)), near, op("mul", _c(a, delta), op("sub", d, _c(a, 0.5 * delta))))

    return reduced_loss(ctx, node, [x, y], reduction, fn)


@ROWS.lowers("soft_margin_loss")
def _soft_margin(ctx: Context, node: Node, x: View, y: View, reduction: int = 1) -> Any:
    return reduced_loss(ctx, node, [x, y], reduction, lambda a, b: op("log1p", op("exp", op("mul", op("neg", b), a))))


@ROWS.lowers("binary_cross_entropy_with_logits")
def _bce_logits(ctx: Context, node: Node, x: View, y: View, weight: Any = None, pos: Any = None, reduction: int = 1) -> Any:
    def fn(a: Expr, t: Expr, w: Any, p: Any) -> Expr:
        scaled: Expr = log_sigmoid(a)
        if p is not None:
            scaled = op("mul", op("add", op("mul", op("sub", p, _c(a, 1)), t), _c(a, 1)), scaled)
        loss = op("sub", op("mul", op("sub", _c(a, 1), t), a), scaled)
        return loss if w is None else op("mul", loss, w)

    return reduced_loss(ctx, node, [x, y, weight, pos], reduction, fn)


@ROWS.lowers("binary_cross_entropy")
def _bce(ctx: Context, node: Node, x: View, target: View, weight: Any = None, reduction: int = _MEAN) -> Any:
    """Logarithms are kept above -100. (Eager refuses probabilities and targets outside 0..1; so does this.)"""

    def fn(p: Expr, t: Expr, w: Any) -> Expr:
        log, log1p = (op("max", v, _c(p, -100)) for v in (op("log", p), op("log1p", op("neg", p))))
        loss = op("sub", op("mul", op("sub", t, _c(p, 1)), log1p), op("mul", t, log))
        return loss if w is None else op("mul", loss, w)

    def within(name: str) -> Expr:
        v = Ref(name, wide(x.dtype))
        return op("logical_and", op("ge", v, _c(v, 0)), op("le", v, _c(v, 1)))

    checks = [
        Check(within(name), "RuntimeError", f"all elements of {what} should be between 0 and 1")
        for name, what in (("p", "input"), ("t", "target"))
    ]
    return reduced_loss(ctx, node, [x, target, weight], reduction, fn, lambda p, t, *_: [Let("p", p), Let("t", t)], checks)
