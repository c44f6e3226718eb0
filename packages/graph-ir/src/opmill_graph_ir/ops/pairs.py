"""Complex numbers as pairs of real ones.

Loops know real numbers alone. A complex value that they compute is a pair of buffers, its real and its imaginary part, so that what follows
is fused with each; one that lies in memory as torch has it (an input, a result of a called operator) is read as pairs along one more
dimension (``BufferInfo.cells``). Pairs are put together where a called operator or the caller wants the value whole
(``Context.whole``). Formulas are those of torch's kernels, with reals taken as complex numbers first: infinities come out the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from opmill_fake_tensors import DataDependent
from opmill_fake_tensors.symbols.index import SizeUnknown

from ..capture.graph import Node, Value, values_in
from ..loops.ir import Expr
from ..lowered import PARTS
from .context import Context, Pair, View
from .exprs import SUPPORTED, cast, const, op
from .records import Rows, record_of
from .views import selected, view_axes

_Number = tuple[Expr, Expr]
PAIR_ROWS = Rows()
"""Rows that take and give ``Pair``s for complex values, numbers as they are."""


def lower_pairs(ctx: Context, node: Node) -> bool:
    """Lowers an operator some of whose values are complex; whether it could."""
    if node.func.name() == "aten::select.int" and (found := ctx.split.get(node.args[0].name)) is not None:
        return _select_part(ctx, node, found)
    names = [*(r for r in node.results if r is not None), *(v.name for v in values_in((node.args, node.kwargs)))]
    dtypes = {ctx.metas[n].dtype for n in names}
    if ctx.exact or not dtypes & PARTS.keys() or not dtypes <= SUPPORTED | PARTS.keys() or len({ctx.metas[n].device for n in names}) != 1:
        return False
    if any(0 in ctx.metas[n].sizes for n in names):
        return False
    before = len(ctx.nodes)
    try:
        out = _lowered(ctx, node)
    except (SizeUnknown, DataDependent):
        out = NotImplemented
    if out is NotImplemented:
        del ctx.nodes[before:]
        return False
    for name, made in zip(node.results, out if isinstance(out, list) else [out], strict=True):
        if name is not None and made is not None:
            (ctx.pairs if isinstance(made, Pair) else ctx.views)[name] = made
    turns = node.func.name() == "aten::_conj"
    if (turns or record_of(node.func.name()).complex == "view") and len(node.results) == 1 and (node.args[0].name in ctx.marked) != turns:
        ctx.marked[node.results[0] or ""] = node
    return True


def _select_part(ctx: Context, node: Node, x: Pair) -> bool:
    """A part of what was made of parts: ``view_as_real(x)[..., k]``."""
    _, dim, at = node.args
    if dim % (len(x.real.sizes) + 1) != len(x.real.sizes) or not isinstance(at, int):
        return False
    ctx.views[node.results[0] or ""] = (x.real, x.imaginary)[at]
    return True


def _lowered(ctx: Context, node: Node) -> Any:
    name = node.func.name()
    if (pairs := PAIR_ROWS.get(name)) is not None and pairs.lower is not None:
        return pairs.lower(ctx, node, *_given(ctx, node.args), **_given(ctx, node.kwargs))
    record = record_of(name)
    row = record.lower
    if not record.complex or row is None or node.kwargs.get("dtype") is not None:
        return NotImplemented
    if record.complex == "view" and (source := node.args[0].name) in ctx.views:  # positions of the numbers themselves
        before = len(ctx.nodes)
        out = row(ctx, node, ctx.views[source], *_given(ctx, node.args[1:]), **_given(ctx, node.kwargs))
        if out is NotImplemented or len(ctx.nodes) == before:
            return out
        del ctx.nodes[before:]
    values = values_in(node.args)[: 1 if record.complex == "indexed" else None]
    if len(dtypes := {ctx.metas[v.name].dtype for v in values}) != 1 or not dtypes <= PARTS.keys():
        return NotImplemented
    real, imaginary = (_of_parts(ctx, node, row, k) for k in range(2))
    if real is NotImplemented or imaginary is NotImplemented:
        return NotImplemented
    if isinstance(real, list):
        return [None if a is None else Pair(a, b, ctx.origin, ctx.source) for a, b in zip(real, imaginary, strict=True)]
    return Pair(real, imaginary, ctx.origin, ctx.source)


def _of_parts(ctx: Context, node: Node, row: Any, k: int) -> Any:
    """What ``row`` makes of the real (0) or the imaginary (1) parts."""
    results = tuple(None if r is None else _part_meta(ctx, r, k) for r in node.results)
    args, kwargs = (
        _map(a, lambda x: (x.real, x.imaginary)[k] if isinstance(x, Pair) else x)
        for a in (_given(ctx, node.args), _given(ctx, node.kwargs))
    )
    return row(ctx, replace(node, results=results), *args, **kwargs)


def _part_meta(ctx: Context, result: str, k: int) -> str:
    """Declares a part of a result; its name."""
    name = f"{result}_{'real' if k == 0 else 'imaginary'}"
    ctx.metas[name] = replace(ctx.metas[result], dtype=PARTS[ctx.metas[result].dtype])
    ctx.used |= {name}
    return name


def _map(arg: Any, fn: Callable[[Any], Any]) -> Any:
    if isinstance(arg, (list, tuple)):
        return type(arg)(_map(a, fn) for a in arg)
    return {k: _map(v, fn) for k, v in arg.items()} if isinstance(arg, dict) else fn(arg)


def _given(ctx: Context, args: Any) -> Any:
    def value(a: Any) -> Any:
        if not isinstance(a, Value):
            return a
        return ctx.pair(a.name) if ctx.metas[a.name].dtype in PARTS else ctx.views[a.name]

    return _map(args, value)


# ---- arithmetic ----------------------------------------------------------------------------------------------------------


def _row(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Rows of pointwise operators: the decorated function takes operands as (real, imaginary) of one type and gives such a number, or one
    real value."""

    def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
        def lower(ctx: Context, node: Node, *args: Any, **kwargs: Any) -> Any:
            name = node.results[0] or ""
            meta = ctx.metas[name]
            compute = PARTS.get(meta.dtype) or _common(args)

            def numbers(at: Any, ext: Any) -> Any:
                return fn(*(_number(ctx, a, at, ext, compute) for a in args), **kwargs)

            if meta.dtype not in PARTS:
                return ctx.pointwise(name, meta, numbers)
            return _pointwise(ctx, name, numbers)

        PAIR_ROWS.lowers(names)(lower)
        return fn

    return declare


def _pointwise(ctx: Context, name: str, numbers: Callable[[Any, Any], _Number]) -> Pair:
    def part(k: int) -> View:
        made = _part_meta(ctx, name, k)
        return ctx.pointwise(made, ctx.metas[made], lambda at, ext: numbers(at, ext)[k])

    return Pair(part(0), part(1), ctx.origin, ctx.source)


def _common(args: Sequence[Any]) -> str:
    dtypes = [getattr(torch, (a.real if isinstance(a, Pair) else a).dtype) for a in args if isinstance(a, (Pair, View))]
    common = torch.float32
    for dtype in dtypes:
        common = torch.promote_types(common, dtype)
    return str(common).removeprefix("torch.")


def _number(ctx: Context, a: Any, at: Any, ext: Any, dtype: str) -> Any:
    if isinstance(a, Pair):
        return tuple(cast(ctx.load_broadcast(p, at, ext), dtype) for p in (a.real, a.imaginary))
    if isinstance(a, View):
        return cast(ctx.load_broadcast(a, at, ext), dtype), const(0.0, dtype)
    if isinstance(a, complex):
        return const(a.real, dtype), const(a.imag, dtype)
    return (const(a, dtype), const(0.0, dtype)) if isinstance(a, (bool, int, float)) else a


def _times(x: _Number, y: _Number) -> _Number:
    (a, b), (c, d) = x, y
    return op("sub", op("mul", a, c), op("mul", b, d)), op("add", op("mul", a, d), op("mul", b, c))


def _plus(x: _Number, y: _Number, sign: str = "add") -> _Number:
    return op(sign, x[0], y[0]), op(sign, x[1], y[1])


def _scaled(y: _Number, alpha: Any) -> _Number:
    return y if alpha == 1 else _times(y, (const(complex(alpha).real, y[0].dtype), const(complex(alpha).imag, y[0].dtype)))


@_row("add.Tensor add.Scalar")
def _add(x: _Number, y: _Number, *, alpha: Any = 1) -> _Number:
    return _plus(x, _scaled(y, alpha))


@_row("sub.Tensor sub.Scalar")
def _sub(x: _Number, y: _Number, *, alpha: Any = 1) -> _Number:
    return _plus(x, _scaled(y, alpha), "sub")


@_row("rsub.Tensor rsub.Scalar")
def _rsub(x: _Number, y: _Number, *, alpha: Any = 1) -> _Number:
    return _plus(y, _scaled(x, alpha), "sub")


_row("mul.Tensor mul.Scalar")(_times)


@_row("div.Tensor div.Scalar")
def _div(x: _Number, y: _Number) -> _Number:
    """Smith's method: nothing overflows on the way that does not in the result."""
    (a, b), (c, d) = x, y
    larger = op("ge", op("abs", c), op("abs", d))
    ratio = op("where", larger, op("div", d, c), op("div", c, d))
    scale = op("where", larger, op("add", c, op("mul", d, ratio)), op("add", op("mul", c, ratio), d))
    real = op("where", larger, op("add", a, op("mul", b, ratio)), op("add", op("mul", a, ratio), b))
    imaginary = op("where", larger, op("sub", b, op("mul", a, ratio)), op("sub", op("mul", b, ratio), a))
    nothing = op("logical_and", op("eq", c, const(0.0, c.dtype)), op("eq", d, const(0.0, c.dtype)))
    by = op("where", nothing, op("abs", c), scale)
    return op("div", op("where", nothing, a, real), by), op("div", op("where", nothing, b, imaginary), by)


@_row("reciprocal")
def _reciprocal(x: _Number) -> _Number:
    return _div((const(1.0, x[0].dtype), const(0.0, x[0].dtype)), x)


@_row("_conj _conj_physical conj_physical")
def _conj(x: _Number) -> _Number:
    return x[0], op("neg", x[1])


_row("resolve_conj resolve_neg")(lambda x: x)


@PAIR_ROWS.lowers("pow.Tensor_Scalar")
def _pow(ctx: Context, node: Node, x: Any, exponent: Any) -> Any:
    """Only the square: other powers are torch's."""
    times = PAIR_ROWS["aten::mul.Tensor"].lower
    return times(ctx, node, x, x) if exponent == 2 and times is not None else NotImplemented


@_row("exp")
def _exp(x: _Number) -> _Number:
    size = op("exp", x[0])
    return op("mul", size, op("cos", x[1])), op("mul", size, op("sin", x[1]))


@_row("sin")
def _sin(x: _Number) -> _Number:
    return op("mul", op("sin", x[0]), op("cosh", x[1])), op("mul", op("cos", x[0]), op("sinh", x[1]))


@_row("cos")
def _cos(x: _Number) -> _Number:
    return op("mul", op("cos", x[0]), op("cosh", x[1])), op("neg", op("mul", op("sin", x[0]), op("sinh", x[1])))


@_row("sinh")
def _sinh(x: _Number) -> _Number:
    return op("mul", op("sinh", x[0]), op("cos", x[1])), op("mul", op("cosh", x[0]), op("sin", x[1]))


@_row("cosh")
def _cosh(x: _Number) -> _Number:
    return op("mul", op("cosh", x[0]), op("cos", x[1])), op("mul", op("sinh", x[0]), op("sin", x[1]))


@_row("log")
def _log(x: _Number) -> _Number:
    return op("log", op("hypot", *x)), op("atan2", x[1], x[0])


@_row("abs")
def _abs(x: _Number) -> Expr:
    return op("hypot", *x)


@_row("angle")
def _angle(x: _Number) -> Expr:
    return op("atan2", x[1], x[0])


@_row("sgn")
def _sgn(x: _Number) -> _Number:
    size = op("hypot", *x)
    nothing = op("eq", size, const(0.0, size.dtype))
    real, imaginary = (op("where", nothing, const(0.0, size.dtype), op("div", part, size)) for part in x)
    return real, imaginary


@_row("eq.Tensor eq.Scalar")
def _eq(x: _Number, y: _Number) -> Expr:
    return op("logical_and", op("eq", x[0], y[0]), op("eq", x[1], y[1]))


@_row("ne.Tensor ne.Scalar")
def _ne(x: _Number, y: _Number) -> Expr:
    return op("logical_or", op("ne", x[0], y[0]), op("ne", x[1], y[1]))


@_row("isnan")
def _isnan(x: _Number) -> Expr:
    return op("logical_or", op("isnan", x[0]), op("isnan", x[1]))


_row("addcmul")(lambda x, a, b, *, value=1: _plus(x, _times(_scaled(a, value), b)))


# ---- choices, numbers, other types ---------------------------------------------------------------------------------------


def _chosen(ctx: Context, node: Node, mask: View, x: Any, y: Any) -> Pair:
    name = node.results[0] or ""
    dtype = PARTS[ctx.metas[name].dtype]

    def numbers(at: Any, ext: Any) -> _Number:
        a, b = (_number(ctx, v, at, ext, dtype) for v in (x, y))
        condition = ctx.load_broadcast(mask, at, ext)
        return op("where", condition, a[0], b[0]), op("where", condition, a[1], b[1])

    return _pointwise(ctx, name, numbers)


@PAIR_ROWS.lowers("where.self")
def _where(ctx: Context, node: Node, mask: View, x: Any, y: Any) -> Any:
    return _chosen(ctx, node, mask, x, y)


@PAIR_ROWS.lowers("masked_fill.Scalar masked_fill.Tensor")
def _masked_fill(ctx: Context, node: Node, x: Pair, mask: View, value: Any) -> Any:
    return _chosen(ctx, node, mask, value, x)


def _filled(ctx: Context, node: Node, value: Any) -> Any:
    name = node.results[0] or ""
    dtype = ctx.metas[name].dtype
    if dtype not in PARTS or not isinstance(value, (bool, int, float, complex)):
        return NotImplemented
    return _pointwise(ctx, name, lambda at, ext: (const(complex(value).real, PARTS[dtype]), const(complex(value).imag, PARTS[dtype])))


@PAIR_ROWS.lowers("full full_like new_full fill.Scalar")
def _full(ctx: Context, node: Node, _: Any, *rest: Any, **__: Any) -> Any:
    return _filled(ctx, node, rest[-1])


PAIR_ROWS.lowers("zeros zeros_like new_zeros")(lambda ctx, node, *_, **__: _filled(ctx, node, 0))
PAIR_ROWS.lowers("ones ones_like new_ones")(lambda ctx, node, *_, **__: _filled(ctx, node, 1))
PAIR_ROWS.lowers("scalar_tensor")(lambda ctx, node, value, **_: _filled(ctx, node, value))


@PAIR_ROWS.lowers("constant_pad_nd")
def _pad(ctx: Context, node: Node, x: Pair, pad: Sequence[int], value: Any = 0) -> Any:
    row, number = record_of("aten::constant_pad_nd").lower, complex(value)
    assert row is not None

    def padded(k: int, part: View, fill: float) -> Any:
        return row(ctx, replace(node, results=(_part_meta(ctx, node.results[0] or "", k),)), part, pad, fill)

    real, imaginary = padded(0, x.real, number.real), padded(1, x.imaginary, number.imag)
    return NotImplemented if real is NotImplemented or imaginary is NotImplemented else Pair(real, imaginary, ctx.origin, ctx.source)


@PAIR_ROWS.lowers("_to_copy")
def _to_copy(ctx: Context, node: Node, x: Any, **_: Any) -> Any:
    name = node.results[0] or ""
    meta = ctx.metas[name]
    if meta.dtype == "bool":
        return ctx.pointwise(
            name, meta, lambda at, ext: op("logical_or", *(cast(ctx.load(part, at, ext), "bool") for part in (x.real, x.imaginary)))
        )
    if meta.dtype not in PARTS:
        return ctx.pointwise(name, meta, lambda at, ext: cast(ctx.load(x.real, at, ext), meta.dtype))
    return _pointwise(ctx, name, lambda at, ext: _number(ctx, x, at, ext, PARTS[meta.dtype]))


@PAIR_ROWS.lowers("complex")
def _complex(ctx: Context, node: Node, real: View, imaginary: View) -> Any:
    dtype = PARTS[ctx.metas[node.results[0] or ""].dtype]
    return _pointwise(
        ctx,
        node.results[0] or "",
        lambda at, ext: (cast(ctx.load_broadcast(real, at, ext), dtype), cast(ctx.load_broadcast(imaginary, at, ext), dtype)),
    )


@PAIR_ROWS.lowers("polar")
def _polar(ctx: Context, node: Node, size: View, angle: View) -> Any:
    def numbers(at: Any, ext: Any) -> _Number:
        r, phi = ctx.load_broadcast(size, at, ext), ctx.load_broadcast(angle, at, ext)
        return op("mul", r, op("cos", phi)), op("mul", r, op("sin", phi))

    return _pointwise(ctx, node.results[0] or "", numbers)


@PAIR_ROWS.lowers("view_as_complex")
def _view_as_complex(ctx: Context, node: Node, x: View) -> Any:
    return Pair(selected(x, -1, 0), selected(x, -1, 1), ctx.origin, ctx.source)


@PAIR_ROWS.lowers("view_as_real")
def _view_as_real(ctx: Context, node: Node, x: Pair) -> Any:
    name, source = node.results[0] or "", node.args[0].name
    if (whole := ctx.views.get(source)) is not None:
        names, extents = view_axes((*whole.sizes, 2))
        return View(whole.buffer, PARTS[whole.dtype], (*whole.sizes, 2), (*whole.at(names[:-1], extents), names[-1]))
    ctx.split[name] = x
    return ctx.pointwise(name, ctx.metas[name], partial(ctx.part_at, x))


__all__ = ["lower_pairs"]
