"""Pointwise operators. float16 and bfloat16 are computed in float32, as eager does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from opmill_fake_tensors.rules.pointwise import result_type
from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Node
from ..loops.index import Index
from ..loops.ir import Const, Expr, Op
from .context import Context, View
from .exprs import FLOATS, INTEGERS, LOW, cast, const, op, wide
from .records import Lowering, Rows

ROWS = Rows()
_Fn = Callable[..., Any]


def promoted(*args: Any) -> str:
    """The type that operands of a comparison are compared in."""
    operands: list[Any] = []
    for a in args:
        if isinstance(a, View):
            operands.append(torch.empty([1] * min(len(a.sizes), 1), dtype=getattr(torch, a.dtype), device="meta"))
        elif isinstance(a, (bool, int, float, Index)):
            operands.append(1 if isinstance(a, Index) else a)
    return str(result_type(operands)).removeprefix("torch.")


def lowering(
    *, compare: bool = False, dtypes: tuple[str, ...] = FLOATS + INTEGERS, low: bool = True, narrow: bool = False
) -> Callable[[_Fn], Lowering]:
    """Makes lowerings of functions on expressions. ``compare``: operands are computed in the type that they promote to, not in the
    result's; ``low``: whether float16 and bfloat16 results come from one float32 computation; ``narrow``: whether numbers, and tensors
    without dimensions, are rounded to these types first, as eager's kernels for processors do (and do where they compare; tensors of other
    types are always rounded). The decorated function takes operands as expressions of one type (and numbers as they are, where it asks for
    them by keyword)."""

    def make(fn: _Fn) -> Lowering:
        def lower(ctx: Context, node: Node, *args: Any, **kwargs: Any) -> Any:
            name = node.results[0]
            assert name is not None
            meta = ctx.metas[name]
            if not low and meta.dtype in LOW:
                return NotImplemented  # eager rounds the quotient to the narrow type first
            common = promoted(*args) if compare else meta.dtype
            compute = wide(common)
            if compute not in dtypes or any(isinstance(a, complex) for a in args):
                return NotImplemented
            told = (narrow or compare) and traits_of(meta.device).processor

            def value(at: Any, ext: Any) -> Expr:
                def operand(a: Any) -> Any:
                    if isinstance(a, View):
                        loaded = ctx.load_broadcast(a, at, ext)
                        if common in LOW and a.dtype != common and (a.sizes or told):
                            loaded = cast(loaded, common)
                        return cast(loaded, compute)
                    if told and common in LOW and isinstance(a, (int, float)):
                        return const(torch.tensor(a, dtype=getattr(torch, common)).item(), compute)
                    return const(a, compute) if isinstance(a, (bool, int, float, Index)) else a

                return fn(*map(operand, args), **kwargs)

            return ctx.pointwise(name, meta, value)

        return lower

    return make


def row(
    rows: Rows,
    names: str,
    *,
    compare: bool = False,
    dtypes: tuple[str, ...] = FLOATS + INTEGERS,
    low: bool = True,
    narrow: bool = False,
    **facts: Any,
) -> Callable[[_Fn], _Fn]:
    """Declares pointwise operators in ``rows`` by what they make of expressions, as :func:`lowering` says; ``facts`` are further fields of
    their records. Images of half precision become loops in whatever layout only if such floats are taken at all."""

    def declare(fn: _Fn) -> _Fn:
        layout = {"any_layout": low and "float32" in dtypes}
        rows.pointwise(names, **{**layout, **facts})(lowering(compare=compare, dtypes=dtypes, low=low, narrow=narrow)(fn))
        return fn

    return declare


_row = partial(row, ROWS)


def _c(x: Expr, value: float) -> Expr:
    return const(value, x.dtype)


# ---- arithmetic ----------------------------------------------------------------------------------------------------


@_row("add.Tensor add.Scalar", rounds_numbers=True, dtypes=(*FLOATS, *INTEGERS, "bool"), narrow=True)
def _add(x: Expr, y: Expr, a: Any = None, *, alpha: Any = 1) -> Expr:
    if x.dtype == "bool":
        return op("logical_or", x, y) if alpha else x
    return op("add", x, y if alpha == 1 else op("mul", _c(y, alpha), y))


@_row("sub.Tensor sub.Scalar", rounds_numbers=True, narrow=True)
def _sub(x: Expr, y: Expr, *, alpha: Any = 1) -> Expr:
    return op("sub", x, y if alpha == 1 else op("mul", _c(y, alpha), y))


@_row("_neg_view", kind="view", recompute="never", any_layout=False)
def _neg_view(x: Expr) -> Expr:
    """Kernels do not see that a tensor is marked as stored negated, so none in the graph is."""
    return op("neg", x)


@_row("rsub.Tensor rsub.Scalar", rounds_numbers=True, narrow=True)
def _rsub(x: Expr, y: Expr, *, alpha: Any = 1) -> Expr:
    return op("sub", y, x if alpha == 1 else op("mul", _c(x, alpha), x))


@_row("mul.Tensor mul.Scalar", rounds_numbers=True, dtypes=(*FLOATS, *INTEGERS, "bool"))
def _mul(x: Expr, y: Expr) -> Expr:
    return op("logical_and" if x.dtype == "bool" else "mul", x, y)


@_row("div.Tensor div.Scalar", rounds_numbers=True, dtypes=FLOATS)
def _div(x: Expr, y: Expr) -> Expr:
    return op("div", x, y)


@lowering(dtypes=FLOATS, low=False)
def div_mode_of_floats(x: Expr, y: Expr, *, rounding_mode: str | None = None) -> Expr:
    """A quotient as it is, cut towards zero (``trunc``), or the largest integer below it (``floor``)."""
    if rounding_mode is None:
        return op("div", x, y)
    return op("trunc", op("div", x, y)) if rounding_mode == "trunc" else op("floordiv", x, y)


@lowering(dtypes=FLOATS, narrow=True)
def remainder_of_floats(x: Expr, y: Expr) -> Expr:
    """With the sign of the divisor, as Python's ``%``."""
    return op("mod", x, y)


@lowering(dtypes=FLOATS, narrow=True)
def fmod_of_floats(x: Expr, y: Expr) -> Expr:
    """With the sign of the dividend, as C's ``fmod``."""
    return op("fmod", x, y)


@lowering()
def _pow_scalar(x: Expr, y: Expr) -> Expr:
    e = y.value if isinstance(y, Const) else None
    if e == 2:
        return op("mul", x, x)
    if e == 3:
        return op("mul", op("mul", x, x), x)
    if e in (0.5, -0.5) and not (
        type(x) is Op and x.name == "cast" and x.args[0].dtype == "float16"
    ):  # eager takes the power there: of -inf it is inf
        return op("sqrt" if e > 0 else "rsqrt", x)
    if e in (-1, -2):
        return op("div", _c(x, 1), x if e == -1 else op("mul", x, x))
    return x if e == 1 else op("pow", x, y)


@ROWS.pointwise("pow.Tensor_Scalar")
def _pow_number(ctx: Context, node: Node, x: View, exponent: Any) -> Any:
    """Negative powers of whole numbers are an error, and eager's to raise; a size that only data tell may be one."""
    if ctx.metas[node.results[0] or ""].dtype in INTEGERS and not (isinstance(exponent, int) and exponent >= 0):
        return NotImplemented
    return _pow_scalar(ctx, node, x, exponent)


@_row("pow.Tensor_Tensor pow.Scalar")
def _pow(x: Expr, y: Expr) -> Expr:
    return op("pow", x, y)


@_row("addcmul")
def _addcmul(x: Expr, a: Expr, b: Expr, *, value: Any = 1) -> Expr:
    return op("add", x, op("mul", a if value == 1 else op("mul", _c(x, value), a), b))


@_row("addcdiv", dtypes=FLOATS)
def _addcdiv(x: Expr, a: Expr, b: Expr, *, value: Any = 1) -> Expr:
    return op("add", x, op("div", a if value == 1 else op("mul", _c(x, value), a), b))


@_row("lerp.Scalar lerp.Tensor", dtypes=FLOATS)
def _lerp(x: Expr, y: Expr, w: Expr) -> Expr:
    d = op("sub", y, x)
    near = op("add", x, op("mul", w, d))
    far = op("sub", y, op("mul", d, op("sub", _c(x, 1), w)))
    return op("where", op("lt", op("abs", w), _c(x, 0.5)), near, far)


def _plain(names: str, primitive: str, dtypes: tuple[str, ...], **facts: Any) -> None:
    _row(names, dtypes=dtypes, **facts)(lambda *xs, **_: op(primitive, *xs))


for _name in (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc lgamma"
).split():
    _plain(_name, _name, FLOATS)
for _name in "floor ceil trunc round".split():  # whole numbers stay as they are
    _row(_name)(lambda x, _n=_name: op(_n, x) if x.dtype in FLOATS else x)
_plain("neg", "neg", FLOATS + INTEGERS, complex="each part")
for _name in ("abs", "sign"):
    _plain(_name, _name, FLOATS + INTEGERS)
for _name, _many, _bool in (
    ("maximum", "max", "logical_or"),
    ("minimum", "min", "logical_and"),
    ("fmax", "fmax", "logical_or"),
    ("fmin", "fmin", "logical_and"),
):
    _row(_name, dtypes=(*FLOATS, *INTEGERS, "bool"))(lambda x, y, _n=_many, _b=_bool: op(_b if x.dtype == "bool" else _n, x, y))
_plain("atan2", "atan2", FLOATS)
_plain("copysign.Tensor copysign.Scalar", "copysign", FLOATS)
_plain("hypot", "hypot", FLOATS)
_BITS = (*INTEGERS, "bool")
for _name in "and or xor".split():
    _plain(f"bitwise_{_name}.Tensor bitwise_{_name}.Scalar __{_name}__.Tensor __{_name}__.Scalar", f"bit{_name}", _BITS)
for _name, _sign in (("left", "shl"), ("right", "shr")):
    _whole = f"bitwise_{_name}_shift"
    _dunder = f"__{_sign[2]}shift__"
    _plain(f"{_whole}.Tensor {_whole}.Tensor_Scalar {_dunder}.Tensor {_dunder}.Scalar", _sign, INTEGERS)


# ---- comparison and logic ------------------------------------------------------------------------------------------

for _name in "eq ne lt le gt ge".split():
    _row(f"{_name}.Tensor {_name}.Scalar", compare=True, dtypes=FLOATS + _BITS, compares=True)(lambda x, y, _n=_name: op(_n, x, y))
_row("isnan", compare=True, dtypes=FLOATS)(lambda x: op("isnan", x))


def _truth(x: Expr) -> Expr:
    return x if x.dtype == "bool" else op("ne", x, _c(x, 0))


for _name in "and or xor".split():
    _row(f"logical_{_name}", compare=True, dtypes=FLOATS + _BITS)(lambda x, y, _n=_name: op(f"logical_{_n}", _truth(x), _truth(y)))
_row("logical_not", compare=True, dtypes=FLOATS + _BITS)(lambda x: op("logical_not", _truth(x)))


@ROWS.pointwise("bitwise_not")
def _bitwise_not(ctx: Context, node: Node, x: View) -> Any:
    primitive = "logical_not" if x.dtype == "bool" else "bitnot"
    return ctx.pointwise(node.results[0], ctx.metas[node.results[0] or ""], lambda at, ext: op(primitive, ctx.load(x, at, ext)))


# ---- selection and conversion --------------------------------------------------------------------------------------


@ROWS.pointwise("where.self", moves=True)
def _where(ctx: Context, node: Node, c: View, x: View, y: View) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if c.dtype != "bool":
        return NotImplemented

    def value(at: Any, ext: Any) -> Expr:
        a, b = (cast(ctx.load_broadcast(t, at, ext), meta.dtype) for t in (x, y))
        return op("where", ctx.load_broadcast(c, at, ext), a, b)

    return ctx.pointwise(node.results[0], meta, value)


@ROWS.pointwise("masked_fill.Scalar masked_fill.Tensor")
def _masked_fill(ctx: Context, node: Node, x: View, mask: View, value: Any) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if mask.dtype != "bool":
        return NotImplemented

    def body(at: Any, ext: Any) -> Expr:
        new = cast(ctx.load_broadcast(value, at, ext), meta.dtype) if isinstance(value, View) else const(value, meta.dtype)
        return op("where", ctx.load_broadcast(mask, at, ext), new, cast(ctx.load_broadcast(x, at, ext), meta.dtype))

    return ctx.pointwise(node.results[0], meta, body)


def _copy(ctx: Context, node: Node, x: View, **kwargs: Any) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if ctx.buffers[x.buffer].device != meta.device:
        return NotImplemented
    return ctx.pointwise(node.results[0], meta, lambda at, ext: ctx.read(x, at, ext))


ROWS.pointwise("_to_copy", moves=True)(_copy)
ROWS.pointwise("clone", moves=True, any_layout=False, complex="each part")(_copy)  # a layout is what clones are mostly made for


@_row("clamp clamp.Tensor")
def _clamp(x: Expr, lo: Any = None, hi: Any = None, *, min: Any = None, max: Any = None) -> Expr:
    lo = lo if lo is not None else const(min, x.dtype) if min is not None else None
    hi = hi if hi is not None else const(max, x.dtype) if max is not None else None
    x = x if lo is None else op("max", x, lo)
    return x if hi is None else op("min", x, hi)


_row("clamp_min clamp_min.Tensor")(lambda x, y: op("max", x, y))
_row("clamp_max clamp_max.Tensor")(lambda x, y: op("min", x, y))


def of_floats(ctx: Context, node: Node, tensors: Sequence[View], fn: Callable[..., Expr]) -> Any:
    """``fn`` of the elements of ``tensors``, all computed in the type of the result, which is one of floats."""
    meta = ctx.metas[node.results[0] or ""]
    dtype = wide(meta.dtype)
    if dtype not in FLOATS:
        return NotImplemented
    return ctx.pointwise(node.results[0], meta, lambda at, ext: fn(*(cast(ctx.load_broadcast(t, at, ext), dtype) for t in tensors)))
