"""Pointwise functions of floats: of angles, logarithms, signs and infinities, numbers that stand for NaN."""

from __future__ import annotations

import math
from typing import Any

from ..capture.graph import Node
from ..loops.ir import Expr
from .context import Context, View
from .exprs import FLOATS, INTEGERS, cast, const, op
from .pointwise import lowering, of_floats, row
from .records import Rows

ROWS = Rows()


def _c(x: Expr, value: float) -> Expr:
    return const(value, x.dtype)


def _pick(condition: Expr, x: Expr, y: Expr) -> Expr:
    return op("where", condition, x, y)


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


@row(ROWS, "logit", gradient="logit_backward", dtypes=FLOATS)
def _logit(x: Expr, eps: Any = None) -> Expr:
    if eps is not None:
        high = op("sub", _c(x, 1), eps)
        x = _pick(op("lt", x, eps), eps, _pick(op("gt", x, high), high, x))
    return op("log", op("div", x, op("sub", _c(x, 1), x)))


@ROWS.pointwise("logit_backward")
def _logit_gradient(ctx: Context, node: Node, grad: View, x: View, eps: float | None = None) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        low, high, outside = (0.0, 1.0, math.nan) if eps is None else (eps, 1 - eps, 0.0)
        inside = op("logical_and", op("ge", x, _c(x, low)), op("le", x, _c(x, high)))
        return op("where", inside, op("div", g, op("mul", x, op("sub", _c(x, 1), x))), _c(x, outside))

    return of_floats(ctx, node, [grad, x], value)


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


@lowering(dtypes=FLOATS)
def _nan_to_num(x: Expr, nan: Any = None, high: Any = None, low: Any = None, *, limit: float) -> Expr:
    x = _pick(op("isnan", x), nan or _c(x, 0), x)
    x = _pick(op("eq", x, _c(x, math.inf)), high or _c(x, limit), x)
    return _pick(op("eq", x, _c(x, -math.inf)), low or _c(x, -limit), x)


_LARGEST = {"float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308, "float16": 65504.0, "bfloat16": 3.3895313892515355e38}


@ROWS.pointwise("nan_to_num")
def _nan_to_num_of(ctx: Context, node: Node, x: View, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    if x.dtype not in FLOATS:
        return NotImplemented
    return _nan_to_num(ctx, node, x, nan, posinf, neginf, limit=_LARGEST[x.dtype])
