"""Losses that keep a margin between the classes of a label and the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..capture.graph import Meta, Node
from ..loops.index import Index, index
from ..loops.ir import Check, Expr, Let, Reduction, Ref
from ..lowered import Reduce
from .context import Context, View, extents_of, named_axes, positions
from .exprs import const, index_value, op
from .records import Rows
from .scatters import written
from .views import reshape

ROWS = Rows()
_MEAN, _SUM = 1, 2


def _meta(ctx: Context, node: Node, k: int = 0) -> Meta:
    return ctx.metas[node.results[k] or ""]


@ROWS.lowers("multi_margin_loss")
def _multi_margin(
    ctx: Context, node: Node, x: View, target: View, p: Any = 1, margin: Any = 1, weight: Any = None, reduction: int = _MEAN
) -> Any:
    """The mean over other classes of ``max(0, margin - x[label] + x[class])**p``, times the label's weight."""
    if x.dtype not in ("float32", "float64") or 0 in x.sizes or target.dtype != "int64":
        return NotImplemented
    x = x if x.sizes else reshape(x, (1,))
    dtype, classes = x.dtype, x.sizes[-1]
    many = len(x.sizes) == 2
    rows: Sequence[Any] = x.sizes[:-1]
    meta = _meta(ctx, node)

    def term(row: Sequence[Index], at: Index, label: Expr, ext: Any) -> Expr:
        z = op("add", op("sub", const(margin, dtype), ctx.read(x, (*row, index("g")), ext)), ctx.read(x, (*row, at), ext))
        h = op("mul", z, z) if p == 2 else z
        if weight is not None:
            h = op("mul", h, ctx.read(weight, (index("g"),), ext))
        counts = op("logical_and", op("gt", z, const(0, dtype)), op("ne", index_value(at), label))
        return op("where", counts, h, const(0, dtype))

    outer = named_axes("i", rows) if not reduction and many else ()
    inner = named_axes("r", (classes,) if outer or not many else x.sizes)
    ext = extents_of(outer) | extents_of(inner)
    at = (*positions(outer), *positions(inner))
    row, last = tuple(at[:-1]), at[-1]
    label = Ref("label", "int64")
    inside = op("logical_and", op("ge", label, const(0, "int64")), op("lt", label, const(classes, "int64")))
    where = row if target.sizes and many else [index(0)] * len(target.sizes)
    lets = (Let("label", ctx.read(target, where, ext)), Let("g", op("where", inside, label, const(0, "int64"))))
    checks = (Check(inside, "RuntimeError", "target out of range"),)
    count = classes * (math.prod(rows) if reduction == _MEAN else 1)
    name = node.results[0] or ctx.fresh()
    view = ctx.buffer(name, meta)
    total = op("div", Ref("a", dtype), const(count, dtype))
    axes = outer if outer or not meta.sizes else named_axes("i", meta.sizes)
    ctx.nodes.append(
        Reduce((name,), axes, inner, (Reduction(("a",), "sum", term(row, last, label, ext), dtype),), (total,), lets, checks, ctx.origin)
    )
    return view


@ROWS.lowers("multilabel_margin_loss_forward")
def _multilabel_margin(ctx: Context, node: Node, x: View, target: View, reduction: int) -> Any:
    """Rows of labels end at the first negative one. Each label against each class that is none: ``max(0, 1 - x[label] + x[class])``."""
    if x.dtype not in ("float32", "float64") or 0 in x.sizes:
        return NotImplemented
    meta, dtype, classes = _meta(ctx, node), x.dtype, x.sizes[-1] if x.sizes else 1
    rows = math.prod(x.sizes[:-1])
    x, target = reshape(x, (rows, classes)), reshape(target, (rows, classes))

    def end(outer: Any, inner: Any, ext: Any) -> Any:
        open_ = op("ge", ctx.read(target, (outer[0], inner[0]), ext), const(0, "int64"))
        place = op("where", open_, const(classes, "int64"), index_value(inner[0]))
        return [Reduction(("a",), "min", place, "int64")], [Ref("a", "int64")]

    of_rows = replace(meta.contiguous((rows,)), dtype="int64")
    ends = ctx.reduce([(None, of_rows)], [classes], end)[0]
    axes = named_axes("i", (rows, classes))
    at, ext = positions(axes), extents_of(axes)
    label = Ref("label", "int64")
    good = op("logical_and", op("ge", label, const(0, "int64")), op("lt", label, const(classes, "int64")))
    counts = op("logical_and", op("lt", index_value(at[1]), ctx.load(ends, at[:1], ext)), good)
    lets = [Let("label", ctx.read(target, at, ext)), Let("g", op("where", good, label, const(0, "int64")))]
    known = op("logical_and", op("ge", label, const(-1, "int64")), op("lt", label, const(classes, "int64")))
    checks = [Check(known, "RuntimeError", "argument #2 'target' is out of range")]
    chosen = written(
        ctx,
        None,
        meta.contiguous((rows, classes)),
        None,
        axes,
        (at[0], index("g")),
        op("where", counts, const(1, dtype), const(0, dtype)),
        "max",
        lets,
        checks,
    )

    kept = reduction not in (_MEAN, _SUM)
    outer = named_axes("i", (rows,)) if kept and meta.sizes else ()
    inner = named_axes("r", (classes, classes) if outer else (rows, classes, classes))
    at = (*positions(outer), *positions(inner))
    ext = extents_of(outer) | extents_of(inner)
    n, k, c = at
    label = Ref("label", "int64")
    lets = [
        Let("label", ctx.read(target, (n, k), ext)),
        Let("g", op("min", op("max", label, const(0, "int64")), const(classes - 1, "int64"))),
    ]
    z = op("add", op("sub", const(1, dtype), ctx.read(x, (n, index("g")), ext)), ctx.read(x, (n, c), ext))
    pair = op("logical_and", op("lt", index_value(k), ctx.load(ends, (n,), ext)), op("eq", ctx.read(chosen, (n, c), ext), const(0, dtype)))
    term = op("where", op("logical_and", pair, op("gt", z, const(0, dtype))), z, const(0, dtype))
    view = ctx.buffer(node.results[0] or ctx.fresh(), meta)
    total = op("div", Ref("a", dtype), const(classes * (rows if reduction == _MEAN else 1), dtype))
    ctx.nodes.append(Reduce((view.buffer,), outer, inner, (Reduction(("a",), "sum", term, dtype),), (total,), tuple(lets), (), ctx.origin))
    return [view, reshape(chosen, ctx.metas[node.results[1] or ""].sizes)]
