"""Further pointwise operators: activations, special functions, comparisons with infinity, integer division."""

from __future__ import annotations

import math
from typing import Any

from ..capture.graph import Node
from ..loops.ir import Check, Const, Expr, Let, Ref
from .context import Context, View
from .exprs import FLOATS, INTEGERS, cast, const, op
from .indexing import gathered
from .pointwise import FLOAT_ROWS, row
from .rows import Rows
from .views import sliced

ROWS = Rows()


def _c(x: Expr, value: float) -> Expr:
    return const(value, x.dtype)


def _pick(condition: Expr, x: Expr, y: Expr) -> Expr:
    return op("where", condition, x, y)


# ---- activations ---------------------------------------------------------------------------------------------------


@row(ROWS, "celu", dtypes=FLOATS)
def _celu(x: Expr, alpha: Any = None) -> Expr:
    alpha = alpha or _c(x, 1)
    return _pick(op("le", x, _c(x, 0)), op("mul", alpha, op("expm1", op("div", x, alpha))), x)


@row(ROWS, "threshold")
def _threshold(x: Expr, limit: Expr, value: Expr) -> Expr:
    return _pick(op("le", x, limit), value, x)


@row(ROWS, "hardshrink", dtypes=FLOATS)
def _hardshrink(x: Expr, lambd: Any = None) -> Expr:
    lambd = lambd or _c(x, 0.5)
    inside = op("logical_and", op("ge", x, op("neg", lambd)), op("le", x, lambd))
    return _pick(inside, _c(x, 0), x)


@row(ROWS, "softshrink", dtypes=FLOATS)
def _softshrink(x: Expr, lambd: Any = None) -> Expr:
    lambd = lambd or _c(x, 0.5)
    small = _pick(op("isnan", x), x, _c(x, 0))
    return _pick(op("gt", x, lambd), op("sub", x, lambd), _pick(op("lt", x, op("neg", lambd)), op("add", x, lambd), small))


@row(ROWS, "_prelu_kernel", dtypes=FLOATS)
def _prelu(x: Expr, w: Expr) -> Expr:
    return _pick(op("gt", x, _c(x, 0)), x, op("mul", w, x))


def log_sigmoid(x: Expr) -> Expr:
    return op("sub", op("min", x, _c(x, 0)), op("log1p", op("exp", op("neg", op("abs", x)))))


@ROWS.lowers("log_sigmoid_forward")
def _log_sigmoid_forward(ctx: Context, node: Node, x: View) -> Any:
    """With what the backward wants: exp(-abs(x)), which has no elements on other devices than the CPU."""
    first, second = (ctx.metas[r or ""] for r in node.results)
    wanted = node.results[1] in ctx.used
    if x.dtype not in FLOATS or (wanted and len(second.sizes) != len(first.sizes)):
        return NotImplemented
    out = ctx.pointwise(node.results[0], first, lambda at, ext: log_sigmoid(ctx.load(x, at, ext)))
    if not wanted:
        return [out, None]
    return [out, ctx.pointwise(node.results[1], second, lambda at, ext: op("exp", op("neg", op("abs", ctx.load(x, at, ext)))))]


@ROWS.lowers("glu")
def _glu(ctx: Context, node: Node, x: View, dim: int = -1) -> Any:
    dim %= len(x.sizes)
    half = x.sizes[dim] // 2
    if x.dtype not in FLOATS or not half:
        return NotImplemented
    a, b = (sliced(x, dim, k * half, half) for k in range(2))
    meta = ctx.metas[node.results[0] or ""]
    return ctx.pointwise(node.results[0], meta, lambda at, ext: op("mul", ctx.load(a, at, ext), op("sigmoid", ctx.load(b, at, ext))))


# ---- special functions ---------------------------------------------------------------------------------------------

row(ROWS, "deg2rad", dtypes=FLOATS, low=False)(lambda x: op("mul", x, _c(x, math.pi / 180)))
row(ROWS, "rad2deg", dtypes=FLOATS, low=False)(lambda x: op("mul", x, _c(x, 180 / math.pi)))
row(ROWS, "frac", dtypes=FLOATS)(lambda x: op("sub", x, op("trunc", x)))
row(ROWS, "sgn", dtypes=FLOATS + INTEGERS)(lambda x: op("sign", x))
row(ROWS, "positive", dtypes=FLOATS + INTEGERS)(lambda x: x)
row(ROWS, "signbit", compare=True, dtypes=FLOATS)(lambda x: op("signbit", x))
row(ROWS, "isinf", compare=True, dtypes=FLOATS)(lambda x: op("isinf", x))
row(ROWS, "isposinf", compare=True, dtypes=FLOATS)(lambda x: op("eq", x, _c(x, math.inf)))
row(ROWS, "isneginf", compare=True, dtypes=FLOATS)(lambda x: op("eq", x, _c(x, -math.inf)))


@row(ROWS, "sinc", dtypes=FLOATS)
def _sinc(x: Expr) -> Expr:
    product = op("mul", x, _c(x, math.pi))
    return _pick(op("eq", x, _c(x, 0)), _c(x, 1), op("div", op("sin", product), product))


@row(ROWS, "logit", dtypes=FLOATS)
def _logit(x: Expr, eps: Any = None) -> Expr:
    if eps is not None:
        high = op("sub", _c(x, 1), eps)
        x = _pick(op("lt", x, eps), eps, _pick(op("gt", x, high), high, x))
    return op("log", op("div", x, op("sub", _c(x, 1), x)))


def _times_log(x: Expr, y: Expr, log: str) -> Expr:
    product = _pick(op("eq", x, _c(x, 0)), _c(x, 0), op("mul", x, op(log, y)))
    return _pick(op("isnan", y), _c(x, math.nan), product)


_XLOGY = "xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other"
row(ROWS, _XLOGY, dtypes=FLOATS)(lambda x, y: _times_log(x, y, "log"))
row(ROWS, "special_xlog1py special_xlog1py.self_scalar special_xlog1py.other_scalar", dtypes=FLOATS)(lambda x, y: _times_log(x, y, "log1p"))


@row(ROWS, "special_entr", dtypes=FLOATS)
def _entr(x: Expr) -> Expr:
    inside = _pick(op("eq", x, _c(x, 0)), _c(x, 0), op("mul", op("neg", x), op("log", x)))
    return _pick(op("isnan", x), x, _pick(op("lt", x, _c(x, 0)), _c(x, -math.inf), inside))


@row(ROWS, "logaddexp", dtypes=FLOATS)
def _logaddexp(x: Expr, y: Expr) -> Expr:
    return _log_sum(x, y, "exp", lambda e: op("log1p", e))


@row(ROWS, "logaddexp2", dtypes=FLOATS)
def _logaddexp2(x: Expr, y: Expr) -> Expr:
    return _log_sum(x, y, "exp2", lambda e: op("mul", op("log1p", e), _c(x, 1 / math.log(2))))


def _log_sum(x: Expr, y: Expr, exp: str, log1p: Any) -> Expr:
    both = op("logical_and", op("isinf", x), op("eq", x, y))
    return _pick(both, x, op("add", op("max", x, y), log1p(op(exp, op("neg", op("abs", op("sub", x, y)))))))


@row(ROWS, "heaviside", dtypes=FLOATS + INTEGERS)
def _heaviside(x: Expr, value: Expr) -> Expr:
    step = cast(op("gt", x, _c(x, 0)), x.dtype)
    return _pick(op("eq", x, _c(x, 0)), value, step)


@row(ROWS, "nan_to_num", dtypes=FLOATS)
def _nan_to_num(x: Expr, nan: Any = None, high: Any = None, low: Any = None, *, limit: float) -> Expr:
    x = _pick(op("isnan", x), nan or _c(x, 0), x)
    x = _pick(op("eq", x, _c(x, math.inf)), high or _c(x, limit), x)
    return _pick(op("eq", x, _c(x, -math.inf)), low or _c(x, -limit), x)


_LARGEST = {"float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308, "float16": 65504.0, "bfloat16": 3.3895313892515355e38}
_NAN_TO_NUM = ROWS["aten::nan_to_num"]


@ROWS.lowers("nan_to_num")
def _nan_to_num_of(ctx: Context, node: Node, x: View, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    if x.dtype not in FLOATS:
        return NotImplemented
    return _NAN_TO_NUM(ctx, node, x, nan, posinf, neginf, limit=_LARGEST[x.dtype])


# ---- division of integers ------------------------------------------------------------------------------------------


def _divided(ctx: Context, node: Node, x: Any, y: Any, primitive: str) -> Any:
    """Division or remainder of integers, which by zero is an error."""
    meta = ctx.metas[node.results[0] or ""]
    if meta.dtype not in INTEGERS or 0 in meta.sizes or isinstance(y, (float, bool)) or isinstance(x, (float, bool)):
        return NotImplemented
    operands = [a if isinstance(a, View) else const(a, meta.dtype) for a in (x, y)]
    if isinstance(operands[1], Const) and operands[1].value in (0, -1):
        return NotImplemented

    def make(at: Any, ext: Any) -> Any:
        a, b = (cast(ctx.load_broadcast(o, at, ext), meta.dtype) if isinstance(o, View) else o for o in operands)
        if isinstance(b, Const):
            return op(primitive, a, b), [], []
        lets = [Let("d", b)]
        d = Ref("d", meta.dtype)
        by_one = op("neg", a) if "div" in primitive else const(0, meta.dtype)  # the least integer by -1 overflows, which traps
        safe = op("where", op("eq", d, const(-1, meta.dtype)), const(1, meta.dtype), d) if meta.dtype != "uint8" else d
        value = op(primitive, a, safe)
        if meta.dtype != "uint8":
            value = op("where", op("eq", d, const(-1, meta.dtype)), by_one, value)
        return value, lets, [Check(op("ne", d, const(0, meta.dtype)), "RuntimeError", "ZeroDivisionError")]

    return gathered(ctx, node, make)


def _by_kind(ctx: Context, node: Node, x: Any, y: Any, primitive: str) -> Any:
    """Integers by :func:`_divided`, other types by the row of ``pointwise``."""
    if ctx.metas[node.results[0] or ""].dtype in INTEGERS:
        return _divided(ctx, node, x, y, primitive)
    return _FLOAT[primitive](ctx, node, x, y)


_FLOAT = {"mod": FLOAT_ROWS["aten::remainder.Tensor"], "fmod": FLOAT_ROWS["aten::fmod.Tensor"]}


@ROWS.lowers("remainder.Tensor remainder.Scalar")
def _remainder(ctx: Context, node: Node, x: Any, y: Any) -> Any:
    return _by_kind(ctx, node, x, y, "mod")


@ROWS.lowers("fmod.Tensor fmod.Scalar")
def _fmod(ctx: Context, node: Node, x: Any, y: Any) -> Any:
    return _by_kind(ctx, node, x, y, "fmod")


@ROWS.lowers("div.Tensor_mode div.Scalar_mode")
def _div_mode(ctx: Context, node: Node, x: Any, y: Any, *, rounding_mode: Any = None) -> Any:
    if rounding_mode is not None and ctx.metas[node.results[0] or ""].dtype in INTEGERS:
        return _divided(ctx, node, x, y, "truncdiv" if rounding_mode == "trunc" else "floordiv")
    return FLOAT_ROWS["aten::div.Tensor_mode"](ctx, node, x, y, rounding_mode=rounding_mode)


@ROWS.lowers("floor_divide floor_divide.Scalar")
def _floor_divide(ctx: Context, node: Node, x: Any, y: Any) -> Any:
    return _div_mode(ctx, node, x, y, rounding_mode="floor")


__all__ = ["ROWS"]
