"""Special functions from smooth pieces: Bessel, error, gamma and quantile functions, Chebyshev polynomials in closed form.

The pieces are polynomials that ``tools/fit_special.py`` fits. What is not in the interval of a piece is computed there all the same and
then not chosen, so arguments are kept inside first: nothing overflows that nobody looks at. Bessel functions of float64 are nearer to the
truth than eager's, which are off by up to 7e-7 between 5 and 8.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ..capture.graph import Node
from ..loops.ir import Expr
from . import special_tables as tables
from .context import Context, View
from .exprs import FLOATS, const, op
from .pointwise import lowering, row
from .records import Rows
from .special_tables import Fit

ROWS = Rows()
_special = partial(row, ROWS, dtypes=FLOATS, recompute="dear")


def _c(x: Expr, value: float) -> Expr:
    return const(value, x.dtype)


def _pick(condition: Expr, x: Expr, y: Expr) -> Expr:
    return op("where", condition, x, y)


def _kept(x: Expr, low: float | None = None, high: float | None = None) -> Expr:
    x = x if low is None else op("max", x, _c(x, low))
    return x if high is None else op("min", x, _c(x, high))


def _fitted(fit: Fit, x: Expr) -> Expr:
    """The polynomial at ``x``, which is inside its interval."""
    scale, shift = 2 / (fit.high - fit.low), (fit.high + fit.low) / (fit.high - fit.low)
    t = op("sub", op("mul", x, _c(x, scale)), _c(x, shift))
    first, *rest = fit.powers[x.dtype]
    total: Expr = _c(x, first)
    for c in rest:
        total = op("fma", total, t, _c(x, c))
    return total


def _square(x: Expr) -> Expr:
    return op("mul", x, x)


def _inverse(x: Expr) -> Expr:
    return op("div", _c(x, 1), x)


# ---- modified Bessel functions ---------------------------------------------------------------------------------------------


def _i_scaled(x: Expr, near: Fit, far: Fit, order: int) -> Expr:
    """``exp(-x) I(x)`` of a positive x."""
    inner = _fitted(near, _kept(x, high=8.0))
    inner = op("mul", inner, x) if order else inner
    y = _kept(x, low=8.0)
    return _pick(op("le", x, _c(x, 8)), inner, op("div", _fitted(far, _inverse(y)), op("sqrt", y)))


def _i0e(x: Expr) -> Expr:
    return _pick(op("isnan", x), x, _i_scaled(op("abs", x), tables.I0E_NEAR, tables.I0E_FAR, 0))


def _i1e(x: Expr) -> Expr:
    a = _i_scaled(op("abs", x), tables.I1E_NEAR, tables.I1E_FAR, 1)
    return _pick(op("isnan", x), x, _pick(op("lt", x, _c(x, 0)), op("neg", a), a))


def _grown(value: Expr, x: Expr) -> Expr:
    """``exp(abs(x)) value`` in two halves: the product is finite for longer than the factor."""
    half = op("exp", op("mul", op("abs", x), _c(x, 0.5)))
    return op("mul", op("mul", half, value), half)


_special("special_i0e", recompute="cheap")(_i0e)
_special("special_i1e", recompute="cheap")(_i1e)
_special("i0 special_i0 special_modified_bessel_i0", recompute="cheap")(lambda x: _grown(_i0e(x), x))
_special("special_i1 special_modified_bessel_i1", recompute="cheap")(lambda x: _grown(_i1e(x), x))


def _k(x: Expr, order: int, scaled: bool) -> Expr:
    near, far = (tables.K0_NEAR, tables.K0_FAR) if order == 0 else (tables.K1_NEAR, tables.K1_FAR)
    a = _kept(x, low=1e-300 if x.dtype == "float64" else 1e-37, high=2.0)
    log = op("log", op("mul", a, _c(x, 0.5)))
    if order == 0:
        inner = op(
            "sub", _fitted(near, _square(a)), op("mul", log, op("mul", op("exp", a), _i_scaled(a, tables.I0E_NEAR, tables.I0E_FAR, 0)))
        )
    else:
        inner = op(
            "add",
            op("div", _fitted(near, _square(a)), a),
            op("mul", log, op("mul", op("exp", a), _i_scaled(a, tables.I1E_NEAR, tables.I1E_FAR, 1))),
        )
    y = _kept(x, low=2.0)
    outer = op("div", _fitted(far, _inverse(y)), op("sqrt", y))
    if scaled:
        inner = op("mul", inner, op("exp", a))
    else:
        outer = op("mul", outer, op("exp", op("neg", y)))
    value = _pick(op("le", x, _c(x, 2)), inner, outer)
    value = _pick(op("eq", x, _c(x, 0)), _c(x, math.inf), value)
    return _pick(op("lt", x, _c(x, 0)), _c(x, math.nan), _pick(op("isnan", x), x, value))


for _order in (0, 1):
    _special(f"special_modified_bessel_k{_order}")(partial(_k, order=_order, scaled=False))
    _special(f"special_scaled_modified_bessel_k{_order}")(partial(_k, order=_order, scaled=True))


# ---- Bessel functions ------------------------------------------------------------------------------------------------------


def _waves(x: Expr, order: int) -> tuple[Expr, Expr]:
    """J and Y of x above 8, from amplitude and phase."""
    p, q = (tables.P0, tables.Q0) if order == 0 else (tables.P1, tables.Q1)
    y = _kept(x, low=8.0)
    u = _square(op("div", _c(x, 8), y))
    even, odd = _fitted(p, u), op("div", _fitted(q, u), y)
    phase = op("sub", y, _c(x, (2 * order + 1) * math.pi / 4))
    sin, cos = op("sin", phase), op("cos", phase)
    root = op("sqrt", op("div", _c(x, 2 / math.pi), y))
    j = op("mul", root, op("sub", op("mul", even, cos), op("mul", odd, sin)))
    return j, op("mul", root, op("add", op("mul", even, sin), op("mul", odd, cos)))


def _near(x: Expr) -> Expr:
    return _kept(x, high=8.0)


def _j0_near(a: Expr) -> Expr:
    return _fitted(tables.J0_NEAR, _square(a))


def _j1_near(a: Expr) -> Expr:
    return op("mul", a, _fitted(tables.J1_NEAR, _square(a)))


@_special("special_bessel_j0")
def _j0(x: Expr) -> Expr:
    a = op("abs", x)
    value = _pick(op("le", a, _c(x, 8)), _j0_near(_near(a)), _waves(a, 0)[0])
    return _pick(op("isnan", x), x, value)


@_special("special_bessel_j1")
def _j1(x: Expr) -> Expr:
    a = op("abs", x)
    value = _pick(op("le", a, _c(x, 8)), _j1_near(_near(a)), _waves(a, 1)[0])
    value = _pick(op("lt", x, _c(x, 0)), op("neg", value), value)
    return _pick(op("isnan", x), x, value)


def _second_kind(x: Expr, near: Expr, far: Expr) -> Expr:
    value = _pick(op("le", x, _c(x, 8)), near, far)
    value = _pick(op("eq", x, _c(x, 0)), _c(x, -math.inf), value)
    return _pick(op("lt", x, _c(x, 0)), _c(x, math.nan), _pick(op("isnan", x), x, value))


@_special("special_bessel_y0")
def _y0(x: Expr) -> Expr:
    a = _near(_kept(x, low=1e-300 if x.dtype == "float64" else 1e-37))
    near = op("add", _fitted(tables.Y0_NEAR, _square(a)), op("mul", op("mul", _c(x, 2 / math.pi), op("log", a)), _j0_near(a)))
    return _second_kind(x, near, _waves(x, 0)[1])


@_special("special_bessel_y1")
def _y1(x: Expr) -> Expr:
    a = _near(_kept(x, low=1e-300 if x.dtype == "float64" else 1e-37))
    singular = op("mul", _c(x, 2 / math.pi), op("sub", op("mul", op("log", a), _j1_near(a)), _inverse(a)))
    return _second_kind(x, op("add", op("mul", a, _fitted(tables.Y1_NEAR, _square(a))), singular), _waves(x, 1)[1])


@_special("special_spherical_bessel_j0", recompute="cheap")
def _spherical_j0(x: Expr) -> Expr:
    s = _square(_kept(op("abs", x), high=0.5))
    total: Expr = _c(x, 1 / math.factorial(13))
    for k in (11, 9, 7, 5, 3, 1):
        total = op("add", op("mul", total, s), _c(x, (-1) ** ((k - 1) // 2) / math.factorial(k)))
    value = _pick(op("lt", op("abs", x), _c(x, 0.5)), total, op("div", op("sin", x), x))
    return _pick(op("isinf", x), _c(x, 0), value)


# ---- error function and normal distribution --------------------------------------------------------------------------------


def _erfcx_of_positive(a: Expr) -> Expr:
    t = op("div", op("sub", a, _c(a, 3.75)), op("add", a, _c(a, 3.75)))
    return op("div", _fitted(tables.ERFCX, t), op("add", _c(a, 1), op("mul", _c(a, 2), a)))


@_special("special_erfcx", recompute="cheap")
def _erfcx(x: Expr) -> Expr:
    a = _kept(op("abs", x), high=1e18)
    positive = _erfcx_of_positive(a)
    negative = op("sub", op("mul", _c(x, 2), op("exp", _square(x))), positive)
    return _pick(op("isnan", x), x, _pick(op("lt", x, _c(x, 0)), negative, _pick(op("isinf", x), _c(x, 0), positive)))


@_special("special_log_ndtr")
def _log_ndtr(x: Expr) -> Expr:
    scaled = op("mul", x, _c(x, math.sqrt(0.5)))
    below = op("sub", op("log", op("mul", _erfcx_of_positive(_kept(op("neg", scaled), 0.0, 1e18)), _c(x, 0.5))), _square(scaled))
    above = op("log1p", op("mul", op("erfc", scaled), _c(x, -0.5)))
    return _pick(op("lt", x, _c(x, -1)), below, above)


def _upper_quantile(p: Expr, far_out: bool = True) -> Expr:
    """x whose upper tail is a p of at most 1/8; without ``far_out`` a p of at least exp(-18)."""
    least = 1e-300 if p.dtype == "float64" else 1e-37
    z = op("sqrt", op("mul", _c(p, -2), op("log", _kept(p, low=least))))
    mid = _fitted(tables.QUANTILE_MID, _kept(z, 2.0, 6.0))
    if not far_out:
        return op("mul", z, mid)
    return op("mul", z, _pick(op("le", z, _c(p, 6)), mid, _fitted(tables.QUANTILE_FAR, _inverse(_kept(z, 6.0, 40.0)))))


def _erfinv_inside(y: Expr) -> Expr:
    return op("mul", y, _fitted(tables.ERFINV_NEAR, _kept(_square(y), high=0.5625)))


def _bounded(x: Expr, value: Expr, low: float, high: float) -> Expr:
    """Infinities at the ends, NaN outside."""
    value = _pick(op("eq", x, _c(x, low)), _c(x, -math.inf), _pick(op("eq", x, _c(x, high)), _c(x, math.inf), value))
    return _pick(op("logical_or", op("lt", x, _c(x, low)), op("gt", x, _c(x, high))), _c(x, math.nan), value)


@_special("erfinv special_erfinv", recompute="cheap")
def _erfinv(y: Expr) -> Expr:
    a = op("abs", y)
    far_out = y.dtype == "float64"  # half of what single precision has between 1 and its neighbour is exp(-17.3)
    tail = op("mul", _upper_quantile(op("mul", op("sub", _c(y, 1), a), _c(y, 0.5)), far_out), _c(y, math.sqrt(0.5)))
    tail = _pick(op("lt", y, _c(y, 0)), op("neg", tail), tail)
    return _bounded(y, _pick(op("le", a, _c(y, 0.75)), _erfinv_inside(y), tail), -1, 1)


@_special("special_ndtri")
def _ndtri(p: Expr) -> Expr:
    y = op("sub", op("mul", p, _c(p, 2)), _c(p, 1))
    inside = op("mul", _erfinv_inside(y), _c(p, math.sqrt(2)))
    low = op("neg", _upper_quantile(p))
    high = _upper_quantile(op("sub", _c(p, 1), p))
    value = _pick(op("lt", p, _c(p, 0.125)), low, _pick(op("gt", p, _c(p, 0.875)), high, inside))
    return _bounded(p, value, 0, 1)


# ---- gamma function --------------------------------------------------------------------------------------------------------


def _turn(x: Expr) -> Expr:
    """How far x is from the nearest whole number, which tangents of pi x depend on (exact: next to a pole that is all that counts)."""
    return op("sub", x, op("round", x))


def _cotangent(x: Expr) -> Expr:
    """Of ``pi * x``; exactly 0 half way between integers, where reflected functions that are odd about those points live from nothing
    else."""
    turn = _turn(x)
    size = op("abs", turn)
    near = op("lt", size, _c(x, 0.25))
    angle = op("mul", _pick(near, size, op("sub", _c(x, 0.5), size)), _c(x, math.pi))
    tangent = op("tan", angle)
    return op("copysign", _pick(near, _inverse(tangent), tangent), turn)


@_special("digamma special_digamma special_psi")
def _digamma(x: Expr) -> Expr:
    """Reflected to the right, moved past 6 by the recurrence, then Stirling's series."""
    left = op("lt", x, _c(x, 0))
    y = _pick(left, op("sub", _c(x, 1), x), x)
    small = op("lt", y, _c(x, 6))
    steps = _inverse(y)
    for k in range(1, 6):
        steps = op("add", steps, _inverse(op("add", y, _c(x, k))))
    z = _pick(small, op("add", y, _c(x, 6)), y)
    u = _inverse(_square(z))
    series: Expr = _c(x, -3617 / 8160)
    for c in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = op("add", op("mul", series, u), _c(x, c))
    value = op("sub", op("sub", op("log", z), op("div", _c(x, 0.5), z)), op("mul", u, series))
    value = op("sub", value, _pick(small, steps, _c(x, 0)))
    value = _pick(left, op("sub", value, op("mul", _c(x, math.pi), _cotangent(x))), value)
    whole = op("logical_and", left, op("eq", x, op("floor", x)))
    pole = op("copysign", _c(x, math.inf), op("neg", x))
    return _pick(op("eq", x, _c(x, 0)), pole, _pick(whole, _c(x, math.nan), value))


def _trigamma(x: Expr) -> Expr:
    left = op("lt", x, _c(x, 0.5))
    y = _pick(left, op("sub", _c(x, 1), x), x)
    steps = _inverse(_square(y))
    for k in range(1, 6):
        steps = op("add", steps, _inverse(_square(op("add", y, _c(x, k)))))
    z = op("add", y, _c(x, 6))
    u = _inverse(_square(z))
    series: Expr = _c(x, 7 / 6)
    for c in (-691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6):
        series = op("add", op("mul", series, u), _c(x, c))
    value = op("add", op("add", steps, _inverse(z)), op("mul", u, op("add", _c(x, 0.5), op("div", series, z))))
    sine = op("sin", op("mul", _turn(x), _c(x, math.pi)))
    return _pick(left, op("sub", op("div", _c(x, math.pi**2), _square(sine)), value), value)


def _power(x: Expr, n: int) -> Expr:
    """``x**n`` by squaring."""
    out: Expr | None = None
    while n:
        if n & 1:
            out = x if out is None else op("mul", out, x)
        n >>= 1
        x = op("mul", x, x) if n else x
    assert out is not None
    return out


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_HIGHEST_ORDER = 8


def _cotangent_powers(n: int) -> list[int]:
    """Coefficients, lowest first, of the polynomial in ``cot(t)`` that is its ``n``-th derivative: d/dt cot = -(1 + cot^2)."""
    powers = [0, 1]
    for _ in range(n):
        slopes = [k * c for k, c in enumerate(powers)][1:]
        powers = [0] * (len(slopes) + 2)
        for k, c in enumerate(slopes):
            powers[k] -= c
            powers[k + 2] -= c
    return powers


def _polygamma_of(n: int, x: Expr) -> Expr:
    """The derivative of order n > 1 of digamma: the recurrence past 8, the asymptotic series there, reflection below zero."""
    left = op("lt", x, _c(x, 0))
    y = _pick(left, op("sub", _c(x, 1), x), x)
    total = _power(_inverse(y), n + 1)
    for k in range(1, 8):
        total = op("add", total, _power(_inverse(op("add", y, _c(x, k))), n + 1))
    z = op("add", y, _c(x, 8))
    r = _inverse(z)
    u = op("mul", r, r)
    series: Expr = _c(x, 0)
    for k in range(len(_BERNOULLI), 0, -1):
        term = _BERNOULLI[k - 1] * math.factorial(2 * k + n - 1) / (math.factorial(2 * k) * math.factorial(n))
        series = op("mul", op("add", series, _c(x, term)), u)
    tail = op("add", op("add", _c(x, 1 / n), op("mul", _c(x, 0.5), r)), series)
    total = op("add", total, op("mul", _power(r, n), tail))
    value = op("mul", total, _c(x, (-1) ** (n + 1) * math.factorial(n)))
    cot = _cotangent(x)
    first, *rest = [c * math.pi ** (n + 1) for c in reversed(_cotangent_powers(n))]
    slope: Expr = _c(x, first)
    for c in rest:
        slope = op("add", op("mul", slope, cot), _c(x, c))
    mirrored = op("sub", value if n % 2 == 0 else op("neg", value), slope)
    value = _pick(left, mirrored, value)
    pole = op("logical_and", op("le", x, _c(x, 0)), op("eq", x, op("floor", x)))
    value = _pick(pole, _c(x, math.inf if n % 2 else -math.inf), value)
    return _pick(op("eq", x, _c(x, math.inf)), _c(x, math.nan), value)  # as eager's series has it


@ROWS.pointwise("polygamma special_polygamma", recompute="dear", any_layout=False)
def _polygamma(ctx: Context, node: Node, n: int, x: View) -> Any:
    if not 0 <= n <= _HIGHEST_ORDER:
        return NotImplemented
    return lowering(dtypes=FLOATS)((_digamma, _trigamma)[n] if n < 2 else partial(_polygamma_of, n))(ctx, node, x)


@lowering(dtypes=FLOATS)
def _mvlgamma(x: Expr, *, p: int) -> Expr:
    total: Expr = _c(x, p * (p - 1) / 4 * math.log(math.pi))
    for j in range(p):
        total = op("add", total, op("lgamma", op("sub", x, _c(x, j / 2))))
    return total


ROWS.pointwise("mvlgamma special_multigammaln")(lambda ctx, node, x, p: _mvlgamma(ctx, node, x, p=p))


# ---- Chebyshev polynomials -------------------------------------------------------------------------------------------------


def _inside(name: str, n: Expr, x: Expr) -> Expr:
    """Within -1..1, by the angle whose cosine is x; at the ends the quotients' limits."""
    angle = op("acos", _kept(x, -1.0, 1.0))
    half, more = op("mul", angle, _c(x, 0.5)), op("add", n, _c(x, 0.5))
    count = op("add", op("mul", n, _c(x, 2)), _c(x, 1))
    odd = op("ne", op("fmod", n, _c(x, 2)), _c(x, 0))
    one = op("eq", x, _c(x, 1))
    other = op("eq", x, _c(x, -1))

    def turned(value: Expr) -> Expr:
        return _pick(odd, op("neg", value), value)

    if name == "t":
        return _pick(other, turned(_c(x, 1)), op("cos", op("mul", n, angle)))
    if name == "u":
        ratio = op("div", op("sin", op("mul", op("add", n, _c(x, 1)), angle)), op("sin", angle))
        return _pick(one, op("add", n, _c(x, 1)), _pick(other, turned(op("add", n, _c(x, 1))), ratio))
    if name == "v":
        return _pick(other, turned(count), op("div", op("cos", op("mul", more, angle)), op("cos", half)))
    return _pick(one, count, _pick(other, turned(_c(x, 1)), op("div", op("sin", op("mul", more, angle)), op("sin", half))))


def _outside(name: str, n: Expr, x: Expr) -> Expr:
    """Beyond -1..1, by hyperbolic functions; the third and fourth kind change places with the sign of x."""
    a = op("acosh", _kept(op("abs", x), low=1.0))
    a = op("max", a, _c(x, 1e-12))
    negative = op("lt", x, _c(x, 0))
    odd = op("ne", op("fmod", n, _c(x, 2)), _c(x, 0))
    half, more = op("mul", a, _c(x, 0.5)), op("add", n, _c(x, 0.5))
    if name == "t":
        value = op("cosh", op("mul", n, a))
    elif name == "u":
        value = op("div", op("sinh", op("mul", op("add", n, _c(x, 1)), a)), op("sinh", a))
    else:
        third = op("div", op("cosh", op("mul", more, a)), op("cosh", half))
        fourth = op("div", op("sinh", op("mul", more, a)), op("sinh", half))
        value = _pick(negative, fourth, third) if name == "v" else _pick(negative, third, fourth)
    return _pick(op("logical_and", negative, odd), op("neg", value), value)


def _chebyshev(x: Expr, n: Expr, *, kind: str, shifted: bool) -> Expr:
    if shifted:
        x = op("sub", op("mul", x, _c(x, 2)), _c(x, 1))
    n = op("trunc", n)
    value = _pick(op("gt", op("abs", x), _c(x, 1)), _outside(kind, n, x), _inside(kind, n, x))
    value = _pick(op("eq", n, _c(x, 0)), _c(x, 1), value)
    return _pick(op("lt", n, _c(x, 0)), _c(x, 0), value)


for _kind in "tuvw":
    for _prefix in ("", "shifted_"):
        _name = f"special_{_prefix}chebyshev_polynomial_{_kind}"
        _special(f"{_name} {_name}.x_scalar {_name}.n_scalar", low=False)(partial(_chebyshev, kind=_kind, shifted=bool(_prefix)))
