"""Helper functions over scalars and vectors: own polynomials, Sleef's and libm's functions, instructions.

``function(needs, name, short, lanes, target)`` gives the name to call, defining it at first need. With one lane it is a scalar function.
The polynomials were fitted (Lawson's iteration) to float32's precision; tests measure them against float64.
"""

from __future__ import annotations

from collections.abc import Callable

from ..target import Target
from . import isa
from .memory import all_lanes
from .needs import Needs
from .pieces import ERFCX, TANH, in_pieces
from .types import C_OF_SHORT, SIGNED_OF_SIZE

Emitter = Callable[[Needs, str, str, int, Target], str]
"""``(needs, full name, element, lanes, target)`` -> the definition."""


def function(needs: Needs, name: str, short: str, lanes: int, target: Target) -> str:
    """The C++ name of function ``name`` over ``lanes`` elements of type ``short``."""
    full = f"{name}_{short}x{lanes}" if lanes > 1 else f"{name}_{short}"
    if full not in needs.items:
        if lanes == 1:
            text = _scalar(needs, name, short, full)
        elif (name, short) in POLYNOMIALS:
            text = POLYNOMIALS[name, short](needs, full, short, lanes, target)
        else:
            text = _vector(needs, name, short, lanes, full, target)
        needs.add(full, text)
    return full


def _scalar(needs: Needs, name: str, short: str, full: str) -> str:
    c, size = C_OF_SHORT[short]
    if name in SCALAR_BODIES:
        parameters, body = SCALAR_BODIES[name]
        suffix = "f" if short == "f32" else ""
        limits = {"T": c, "f": suffix, "bits": str(size * 8)}
        for key, value in limits.items():
            body = body.replace(f"${key}", value)
        return f"static inline {c} {full}({', '.join(f'{c} {p}' for p in parameters)}) {{ {body} }}"
    suffix = "f" if short == "f32" else ""
    call = f"__builtin_{isa.SCALAR_NAMES.get(name, name)}{suffix}"
    if name == "fma":
        return f"static inline {c} {full}({c} x, {c} y, {c} z) {{ return {call}(x, y, z); }}"
    if name in isa.BINARY:
        return f"static inline {c} {full}({c} x, {c} y) {{ return {call}(x, y); }}"
    return f"static inline {c} {full}({c} x) {{ return {call}(x); }}"


def _vector(needs: Needs, name: str, short: str, lanes: int, full: str, target: Target) -> str:
    v = needs.vector(short, lanes)
    bits = lanes * C_OF_SHORT[short][1] * 8
    if (one := isa.instruction(target, name, short, bits)) is not None:
        parameters = "xyz" if name == "fma" else "x"
        return f"static inline {v} {full}({', '.join(f'{v} {p}' for p in parameters)}) {{ return {one}; }}"
    if target.sleef and bits == target.bits and name in isa.SLEEF_ULP:
        symbol = f"Sleef_{name}{'f' if short == 'f32' else 'd'}{lanes}_{isa.SLEEF_ULP[name]}{target.sleef}"
        parameters = "xy" if name in isa.BINARY else "x"
        needs.add("uses sleef", "")
        needs.add(symbol, f'extern "C" {v} {symbol}({", ".join([v] * len(parameters))});')
        return f"static inline {v} {full}({', '.join(f'{v} {p}' for p in parameters)}) {{ return {symbol}({', '.join(parameters)}); }}"
    if target.sleef and 2 * bits == target.bits and name in isa.SLEEF_ULP:
        return _twice_as_wide(needs, name, short, lanes, full, target)
    return _lane_loop(needs, name, short, lanes, full, target)


def _twice_as_wide(needs: Needs, name: str, short: str, lanes: int, full: str, target: Target) -> str:
    """By the function of twice as many lanes, every lane given twice: next to 64-bit values a float32 fills half a register."""
    v = needs.vector(short, lanes)
    wide = function(needs, name, short, 2 * lanes, target)
    parameters = "xy" if name in isa.BINARY else "x"
    half = ", ".join(map(str, range(lanes)))
    doubled = ", ".join(f"__builtin_shufflevector({p}, {p}, {half}, {half})" for p in parameters)
    return (
        f"static inline {v} {full}({', '.join(f'{v} {p}' for p in parameters)}) {{\n"
        f"  const {needs.vector(short, 2 * lanes)} r = {wide}({doubled});\n  return __builtin_shufflevector(r, r, {half}); }}"
    )


_DIVISIONS = ("ifloordiv", "itruncdiv", "imod", "ifmod")


def _lane_loop(needs: Needs, name: str, short: str, lanes: int, full: str, target: Target) -> str:
    v = needs.vector(short, lanes)
    one = function(needs, name, short, 1, target)
    arity = 3 if name == "fma" else 2 if name in isa.BINARY else len(SCALAR_BODIES[name][0]) if name in SCALAR_BODIES else 1
    parameters = "xyz"[:arity]
    each = f"r[l] = {one}({', '.join(f'{p}[l]' for p in parameters)});"
    divides = name in _DIVISIONS  # by a constant, mostly, which is known where lanes are written out
    unroll = f'_Pragma("GCC unroll {lanes}") ' if divides else ""
    loop = f"{unroll}for (int l = 0; l < {lanes}; ++l) {each}"
    return f"static inline {v} {full}({', '.join(f'{v} {p}' for p in parameters)}) {{ {v} r;\n  {loop}\n  return r; }}"


# Division by zero and the one overflow of signed division would trap, also in lanes that nobody looks at.
SCALAR_BODIES: dict[str, tuple[str, str]] = {
    "ifloordiv": (
        "xy",
        (
            "if (y == 0) return 0; if (($T)-1 < 0 && y == ($T)-1) return ($T)(0 - x);"
            " $T q = x / y, r = x % y; return ($T)(q - (r != 0 && ((r < 0) != (y < 0))));"
        ),
    ),
    "itruncdiv": ("xy", "if (y == 0) return 0; if (($T)-1 < 0 && y == ($T)-1) return ($T)(0 - x); return ($T)(x / y);"),
    "imod": (
        "xy",
        "if (y == 0 || (($T)-1 < 0 && y == ($T)-1)) return 0; $T r = x % y; return ($T)(r != 0 && ((r < 0) != (y < 0)) ? r + y : r);",
    ),
    "ifmod": ("xy", "if (y == 0 || (($T)-1 < 0 && y == ($T)-1)) return 0; return ($T)(x % y);"),
    "ipow": (
        "xy",
        (
            "if (y < 0) return x == 1 ? 1 : x == ($T)-1 ? ((y & 1) ? ($T)-1 : 1) : 0;"
            " $T r = 1; while (y) { if (y & 1) r = ($T)(r * x); x = ($T)(x * x); y = ($T)(y >> 1); } return r;"
        ),
    ),
    "ishl": ("xy", "return y < 0 || y >= $bits ? 0 : ($T)(x << y);"),
    "ishr": ("xy", "return y < 0 || y >= $bits ? (x < 0 ? ($T)-1 : 0) : ($T)(x >> y);"),
    "floordiv": (
        "xy",
        (
            "if (y == 0) return x / y; $T m = __builtin_fmod$f(x, y), d = (x - m) / y;"
            " if (m != 0 && (y < 0) != (m < 0)) d -= 1; if (d == 0) return __builtin_copysign$f(0, x / y);"
            " $T q = __builtin_floor$f(d); return d - q > ($T)0.5 ? q + 1 : q;"
        ),
    ),
    "mod": ("xy", "$T m = __builtin_fmod$f(x, y); return m != 0 && (y < 0) != (m < 0) ? m + y : m;"),
    "sigmoid": ("x", "return 1 / (1 + __builtin_exp$f(-x));"),
    "abs": ("x", "return __builtin_fabs$f(x);"),
    "larger": ("xy", "return x > y ? x : y;"),
    "smaller": ("xy", "return x < y ? x : y;"),
    "copysign": ("xy", "return __builtin_copysign$f(x, y);"),
    "sign": ("x", "return ($T)((x > 0) - (x < 0));"),
}


def _fma(needs: Needs, short: str, lanes: int, target: Target) -> str:
    """A multiply-add for polynomials: fused where that is one instruction, else two operations."""
    bits = lanes * C_OF_SHORT[short][1] * 8
    if isa.instruction(target, "fma", short, bits) is not None:
        return function(needs, "fma", short, lanes, target)
    v = needs.vector(short, lanes)
    return needs.add(f"madd_{v}", f"static inline {v} madd_{v}({v} x, {v} y, {v} z) {{ return x * y + z; }}")


def splat(needs: Needs, short: str, lanes: int) -> str:
    """x - 0 is x for every x, -0.0 included."""
    v = needs.vector(short, lanes)
    c = C_OF_SHORT[short][0]
    return needs.add(f"splat_{v}", f"static inline {v} splat_{v}({c} x) {{ return x - ({v}){{}}; }}")


def _horner(fma: str, variable: str, coefficients: list[float], put: str) -> str:
    text = f"{put}({coefficients[0].hex()}f)"
    for c in coefficients[1:]:
        text = f"{fma}({text}, {variable}, {put}({c.hex()}f))"
    return text


def _f32(text: str) -> list[float]:
    return [float.fromhex(t) for t in text.split()]


# exp(r) on [-ln2/2, ln2/2], highest degree first
_EXP = _f32("0x1.a1b73p-13 0x1.6d9894p-10 0x1.11107ep-7 0x1.55547ep-5 0x1.555556p-3 0x1.0p-1 0x1.0p+0 0x1.0p+0")
# erf(x)/x - 1 as a polynomial in x^2 up to 1; from there on 1 - q(x - 1.5)^4: erfc falls like exp(-x^2), and its fourth root is smooth
_ERF = _f32("0x1.40be58p-14 -0x1.a06884p-11 0x1.5375c8p-8 -0x1.b7e328p-6 0x1.ce2b58p-4 -0x1.81273p-2 0x1.06eba6p-3")
_ERFC_ROOT = _f32(
    "-0x1.77989p-16 -0x1.74c6b2p-14 0x1.4552fep-10 -0x1.9adbfp-10 -0x1.99889ep-7 0x1.0de662p-5 0x1.1bf9c8p-4 -0x1.816af4p-2 0x1.b75f8p-2"
)
# (tanh(x)/x - 1)/x^2 as a polynomial in x^2, up to 0.8
_TANH = _f32("0x1.9f6f2ep-10 -0x1.e597bep-8 0x1.5d0738p-6 -0x1.b92886p-5 0x1.110b3cp-3 -0x1.55553ep-2")

# (log(1 + f) - f + f^2/2)/f^3 on -1/4..1/2
_LOG = _f32("-0x1.71e32cp-5 0x1.acf4a8p-4 -0x1.0d98fp-3 0x1.28807ap-3 -0x1.54ed96p-3 0x1.99699ep-3 -0x1.00004ap-2 0x1.5555a4p-2")
# (sin(r) - r)/r^3, (cos(r) - 1 + r^2/2)/r^4 and (tan(r) - r)/r^3 as polynomials in r^2, up to pi/4
_SIN = _f32("0x1.7c33bp-19 -0x1.a0596p-13 0x1.111174p-7 -0x1.555556p-3")
_COS = _f32("-0x1.361852p-22 0x1.a071bep-16 -0x1.6c175ep-10 0x1.555556p-5")
_TAN = _f32("0x1.1ec918p-8 0x1.817c52p-14 0x1.62f22p-7 0x1.5cba1ap-6 0x1.bada4cp-5 0x1.110d9cp-3 0x1.55556p-2")
# (atan(x) - x)/x^3 as a polynomial in x^2, up to 1
_ATAN = _f32(
    "-0x1.d35b12p-10 0x1.642524p-7 -0x1.fd7e36p-6 0x1.da2a12p-5 -0x1.58091cp-4 0x1.c08c4ep-4 -0x1.242086p-3 0x1.9991e4p-3 -0x1.55553ep-2"
)
# exp(x^2) erfc(x) (1 + 2 x) in (x - 2)/(x + 2), from 0 to 10.1
_ERFCX = _f32(
    "0x1.d2ce9cp-16 -0x1.827c8ep-12 -0x1.4b5fcp-10 0x1.4e1138p-10 0x1.1b6804p-7 -0x1.079028p-7 -0x1.bc143p-5 0x1.4ffad6p-3 "
    "-0x1.5407fcp-3 -0x1.7bf5f4p-4 0x1.46e80ep+0"
)


def _range_reduced(v: str, fma: str, put: str, x: str, big: float) -> str:
    """``x`` as n ln 2 + r with a small r. Adding ``big`` rounds to n, and leaves it in the lowest bits of ``shifted``, moved by what
    ``big`` has there."""
    return f"""const {v} big = {put}({big}f), shifted = {fma}({x}, {put}(0x1.715476p+0f), big), n = shifted - big;
  const {v} r = {fma}(n, {put}(-0x1.7f7d1cp-20f), {fma}(n, {put}(-0x1.62e4p-1f), {x}));"""


def _exp_f32(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v, i = needs.vector("f32", lanes), needs.vector("i32", lanes)
    smaller = function(needs, "smaller", short, lanes, target)
    fma, put = _fma(needs, short, lanes, target), splat(needs, short, lanes)
    p = _horner(fma, "r", _EXP, put)
    if (scaled := isa.instruction(target, "scalef", short, lanes * 32)) is not None:
        scale = needs.add(f"scale_{v}", f"static inline {v} scale_{v}({v} x, {v} y) {{ return {scaled}; }}")
        result = f"{scale}({p}, n)"
    else:
        # Adding ``big`` leaves n + 254 in the lowest bits. 2^n comes in two factors, so that results below the normal range and up to the
        # overflow are right; shifting their exponents into place drops what stands above.
        needs.add(
            halves := f"halves_{v}",
            f"""static inline {v} {halves}({v} p, {v} shifted) {{
  const {i} k = ({i})shifted, half = k >> 1;
  return p * ({v})(half << 23) * ({v})((k - half) << 23);
}}""",
        )
        result = f"{halves}({p}, shifted)"
    # Comparisons keep NaN. What is zero is not computed: processors take some hundred cycles for results below the normal range, and masks
    # of attention are made of such.
    return f"""static inline {v} {full}({v} x) {{
  const {i} none = x < -103.98f;
  x = none ? ({v}){{}} : {smaller}({put}(89.0f), x);
  {_range_reduced(v, fma, put, "x", 12583166.0)}
  return none ? ({v}){{}} : {result};
}}"""


def _sigmoid_f32(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v, exp = needs.vector("f32", lanes), function(needs, "exp", short, lanes, target)
    return f"static inline {v} {full}({v} x) {{ return 1.0f / (1.0f + {exp}(-x)); }}"


def _sigmoid_f64(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v, exp = needs.vector("f64", lanes), function(needs, "exp", short, lanes, target)
    return f"static inline {v} {full}({v} x) {{ return 1.0 / (1.0 + {exp}(-x)); }}"


def _erf_f32(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v = needs.vector("f32", lanes)
    fma, put = _fma(needs, short, lanes, target), splat(needs, short, lanes)
    smaller, size, sign = (function(needs, n, short, lanes, target) for n in ("smaller", "abs", "copysign"))
    # Far out the relative error of gelu is the absolute error of erf, so that half a unit of the last place counts there.
    return f"""static inline {v} {full}({v} x) {{
  const {v} s = x * x, a = {smaller}({put}(3.92f), {size}(x)), u = a - 1.5f;
  const {v} near = {fma}({_horner(fma, "s", _ERF, put)}, x, x);
  {v} q = {_horner(fma, "u", _ERFC_ROOT, put)};
  q *= q;
  return a < 1.0f ? near : {sign}(1.0f - q * q, x);
}}"""


def _tanh_f32(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    """In pieces where processors look these up; else a polynomial near 0, 1 - 2 / (exp(2 |x|) + 1) from 0.8 on. Gradients multiply what is
    missing to 1 by x^3, so it must be as exact as the rest."""
    v, i = needs.vector("f32", lanes), needs.vector("i32", lanes)
    fma, put = _fma(needs, short, lanes, target), splat(needs, short, lanes)
    smaller, size, sign = (function(needs, n, short, lanes, target) for n in ("smaller", "abs", "copysign"))
    if (pieces := in_pieces(needs, TANH, lanes, target, fma, smaller)) is not None:
        return f"static inline {v} {full}({v} x) {{ return {sign}({pieces}({size}(x)), x); }}"
    # The exponential of 0 to 20, as in _exp_f32 with one factor.
    return f"""static inline {v} {full}({v} x) {{
  const {v} a = {smaller}({put}(10.0f), {size}(x)), s = a * a, near = {fma}(s * {_horner(fma, "s", _TANH, put)}, a, a), t = a + a;
  {_range_reduced(v, fma, put, "t", 12583039.0)}
  const {v} far = 1.0f - 2.0f / {fma}({_horner(fma, "r", _EXP, put)}, ({v})(({i})shifted << 23), {put}(1.0f));
  return {sign}(a < 0.8f ? near : far, x);
}}"""


def _log_f32(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v, i = needs.vector("f32", lanes), needs.vector("i32", lanes)
    fma, put = _fma(needs, short, lanes, target), splat(needs, short, lanes)
    if isa.instruction(target, "getmant", short, lanes * 32) is not None:  # of 0, infinities and negative numbers as log needs them
        power, part = (function(needs, n, short, lanes, target) for n in ("getexp", "getmant"))
        parts = f"const {v} m = {part}(x), f = m - 1.0f, e = {power}(x), n = m < 1.0f ? e + 1.0f : e, s = f * f;"
        result = "y"
    else:
        # What is below the normal range is brought there first.
        parts = f"""const {i} low = x < 0x1p-126f, b = ({i})(low ? x * 0x1p23f : x), k = (b - 0x3f400000) >> 23;
  const {v} f = ({v})(b - (k << 23)) - 1.0f, n = __builtin_convertvector(k + (low & -23), {v}), s = f * f;"""
        result = f'x > 0 ? (x < __builtin_inff() ? y : x) : x == 0 ? {put}(-__builtin_inff()) : {put}(__builtin_nanf(""))'
    # 2^n (1 + f), f in -1/4..1/2. The product with the upper part of ln 2 is exact.
    return f"""static inline {v} {full}({v} x) {{
  {parts}
  const {v} t = {fma}(n, {put}(0x1.7f7d1cp-20f), {fma}(s * f, {_horner(fma, "f", _LOG, put)}, s * -0.5f));
  const {v} y = {fma}(n, {put}(0x1.62e4p-1f), f + t);
  return {result};
}}"""


def _turned(name: str) -> Emitter:
    """A function of angles: of what is left (``r + l``) of their size without whole right angles, whose number has the last bits of ``k``.
    ``l`` is what rounding took from ``r``: nothing near 0, where the difference is exact. Angles beyond 2^16, and what is no number, are
    the library's."""

    def emit(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
        v, i = needs.vector("f32", lanes), needs.vector("i32", lanes)
        if isa.instruction(target, "fma", short, lanes * 32) is None:
            return _vector(needs, name, short, lanes, full, target)
        needs.add(f"{full}_each", _vector(needs, name, short, lanes, f"{full}_each", target))
        every, size = all_lanes(needs, "i32", lanes, target), function(needs, "abs", short, lanes, target)
        fma, put = _fma(needs, short, lanes, target), splat(needs, short, lanes)
        sin = f"sin = r + {fma}(r * s, {_horner(fma, 's', _SIN, put)}, l)"
        cos = f"h = s * 0.5f, c = 1.0f - h, cos = c + {fma}(s * s, {_horner(fma, 's', _COS, put)}, {fma}(-r, l, (1.0f - c) - h))"
        tan = f"tan = r + {fma}(r * s, {_horner(fma, 's', _TAN, put)}, {fma}(l, s, l))"
        negative = f"(({i})x & (int)0x80000000)"
        results = {
            "sin": f"({v})(({i})(odd ? cos : sin) ^ ((k & 2) << 30) ^ {negative})",
            "cos": f"({v})(({i})(odd ? sin : cos) ^ (((k + 1) & 2) << 30))",
            "tan": f"({v})(({i})(odd ? -1.0f / tan : tan) ^ {negative})",
        }
        return f"""static inline {v} {full}({v} x) {{
  const {v} a = {size}(x);
  if (!{every}(a < 65536.0f)) return {full}_each(x);
  const {v} big = {put}(12582912.0f), shifted = {fma}(a, {put}(0x1.45f306p-1f), big), n = shifted - big;
  const {v} b = {fma}(n, {put}(-0x1.921fb4p+0f), a), r = {fma}(n, {put}(-0x1.4442dp-24f), b), s = r * r;
  const {v} d = {fma}(n, {put}(-0x1.4442dp-24f), b - r), l = {fma}(n, {put}(-0x1.846988p-48f), s < 0x1p-16f ? {put}(0.0f) : d);
  const {i} k = ({i})shifted, odd = (k & 1) != 0;
  const {v} {tan if name == "tan" else f"{sin}, {cos}"};
  return {results[name]};
}}"""

    return emit


def _atan_f32(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v, i = needs.vector("f32", lanes), needs.vector("i32", lanes)
    fma, put = _fma(needs, short, lanes, target), splat(needs, short, lanes)
    size, sign = (function(needs, n, short, lanes, target) for n in ("abs", "copysign"))
    return f"""static inline {v} {full}({v} x) {{
  const {v} a = {size}(x);
  const {i} far = a > 1.0f;
  const {v} z = far ? -1.0f / a : a, s = z * z, t = s * z * {_horner(fma, "s", _ATAN, put)};
  return {sign}(far ? {put}(0x1.921fb6p+0f) + (z + (t - 0x1.777a5cp-25f)) : z + t, x);
}}"""


def _erfc_f32(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    """``exp(-x^2)`` times what changes slowly. What is lost of the square is put back."""
    v = needs.vector("f32", lanes)
    if isa.instruction(target, "fma", short, lanes * 32) is None:
        return _vector(needs, "erfc", short, lanes, full, target)
    fma, put = _fma(needs, short, lanes, target), splat(needs, short, lanes)
    smaller, size, exp = (function(needs, n, short, lanes, target) for n in ("smaller", "abs", "exp"))
    if (pieces := in_pieces(needs, ERFCX, lanes, target, fma, smaller)) is not None:
        return f"""static inline {v} {full}({v} x) {{
  const {v} a = {smaller}({put}(10.1f), {size}(x)), s = a * a, lost = {fma}(a, a, -s), g = {pieces}(a);
  const {v} y = {exp}(-s) * {fma}(-lost, g, g);
  return x < 0 ? 2.0f - y : y;
}}"""
    return f"""static inline {v} {full}({v} x) {{
  const {v} a = {smaller}({put}(10.1f), {size}(x)), u = (a - 2.0f) / (a + 2.0f), s = a * a, lost = {fma}(a, a, -s);
  const {v} g = {_horner(fma, "u", _ERFCX, put)} / {fma}(a, {put}(2.0f), {put}(1.0f)), y = {exp}(-s) * {fma}(-lost, g, g);
  return a < 0.5f ? 1.0f - {fma}({_horner(fma, "s", _ERF, put)}, x, x) : x < 0 ? 2.0f - y : y;
}}"""


def _abs(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v, i = needs.vector(short, lanes), needs.vector(SIGNED_OF_SIZE[C_OF_SHORT[short][1]], lanes)
    mask = "0x7fffffff" if short == "f32" else "0x7fffffffffffffffL"
    return f"static inline {v} {full}({v} x) {{ return ({v})(({i})x & {mask}); }}"


def _copysign(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v, i = needs.vector(short, lanes), needs.vector(SIGNED_OF_SIZE[C_OF_SHORT[short][1]], lanes)
    mask = "0x7fffffff" if short == "f32" else "0x7fffffffffffffffL"
    return f"static inline {v} {full}({v} x, {v} y) {{ return ({v})((({i})x & {mask}) | (({i})y & ~{mask})); }}"


def _nextafter(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    """Numbers of one sign are in the order of their bits."""
    v, i = needs.vector(short, lanes), needs.vector(SIGNED_OF_SIZE[C_OF_SHORT[short][1]], lanes)
    mask = "0x7fffffff" if short == "f32" else "0x7fffffffffffffffL"
    return f"""static inline {v} {full}({v} x, {v} y) {{
  const {i} b = ({i})x, smallest = (({i})y & ~{mask}) | 1, next = b + (((x < y) == (b > 0)) ? ({i}){{}} + 1 : ({i}){{}} - 1);
  return (x != x) | (y != y) ? x + y : x == y ? y : ({v})((b & {mask}) == 0 ? smallest : next);
}}"""


def _choice(name: str, sign: str) -> Emitter:
    """The larger or smaller of two: the second where either is NaN, as the instruction has it."""

    def emit(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
        v, bits = needs.vector(short, lanes), lanes * C_OF_SHORT[short][1] * 8
        text = isa.instruction(target, name, short, bits) or f"x {sign} y ? x : y"
        return f"static inline {v} {full}({v} x, {v} y) {{ return {text}; }}"

    return emit


def _sign(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v = needs.vector(short, lanes)
    return f"static inline {v} {full}({v} x) {{ return __builtin_convertvector((x < 0) - (x > 0), {v}); }}"


def _bits(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v, i = needs.vector(short, lanes), needs.vector(SIGNED_OF_SIZE[C_OF_SHORT[short][1]], lanes)
    return f"static inline {i} {full}({v} x) {{ return ({i})x; }}"


def _fmod(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    """The rest of a division whose quotient is a whole number of few bits, exact: rounding can only have made the quotient one too large.
    Of others lane by lane."""
    v, (_, size) = needs.vector(short, lanes), C_OF_SHORT[short]
    if isa.instruction(target, "fma", short, lanes * size * 8) is None:
        return _lane_loop(needs, "fmod", short, lanes, full, target)
    needs.add(f"{full}_each", _lane_loop(needs, "fmod", short, lanes, f"{full}_each", target))
    every = all_lanes(needs, SIGNED_OF_SIZE[size], lanes, target)
    fma, size_of, sign, trunc = (function(needs, n, short, lanes, target) for n in ("fma", "abs", "copysign", "trunc"))
    most, largest = ("0x1p22f", "__FLT_MAX__") if short == "f32" else ("0x1p51", "__DBL_MAX__")
    return f"""static inline {v} {full}({v} x, {v} y) {{
  const {v} a = {size_of}(x), b = {size_of}(y);
  if (!{every}((a < b * {most}) & (b <= {largest}))) return {full}_each(x, y);
  const {v} r = {fma}(-{trunc}(a / b), b, a);
  return {sign}(r < 0 ? r + b : r, x);
}}"""


def _mod(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v, fmod = needs.vector(short, lanes), function(needs, "fmod", short, lanes, target)
    return f"""static inline {v} {full}({v} x, {v} y) {{
  const {v} m = {fmod}(x, y);
  return (m != 0) & ((y < 0) ^ (m < 0)) ? m + y : m;
}}"""


def _floordiv(needs: Needs, full: str, short: str, lanes: int, target: Target) -> str:
    v = needs.vector(short, lanes)
    fmod, floor, sign = (function(needs, n, short, lanes, target) for n in ("fmod", "floor", "copysign"))
    half = "0.5f" if short == "f32" else "0.5"
    return f"""static inline {v} {full}({v} x, {v} y) {{
  const {v} m = {fmod}(x, y), e = x / y, d = (x - m) / y, t = (m != 0) & ((y < 0) ^ (m < 0)) ? d - 1 : d, q = {floor}(t);
  const {v} z = t - q > {half} ? q + 1 : q;
  return y == 0 ? e : t == 0 ? {sign}({v}{{}}, e) : z;
}}"""


POLYNOMIALS: dict[tuple[str, str], Emitter] = {
    **{(name, short): emit for name, emit in (("fmod", _fmod), ("mod", _mod), ("floordiv", _floordiv)) for short in ("f32", "f64")},
    ("exp", "f32"): _exp_f32,
    ("sigmoid", "f32"): _sigmoid_f32,
    ("sigmoid", "f64"): _sigmoid_f64,
    ("tanh", "f32"): _tanh_f32,
    ("erf", "f32"): _erf_f32,
    ("erfc", "f32"): _erfc_f32,
    ("log", "f32"): _log_f32,
    ("atan", "f32"): _atan_f32,
    **{(name, "f32"): _turned(name) for name in ("sin", "cos", "tan")},
    **{("larger", short): _choice("larger", ">") for short in ("f32", "f64")},
    **{("smaller", short): _choice("smaller", "<") for short in ("f32", "f64")},
    ("sign", "f32"): _sign,
    ("sign", "f64"): _sign,
    ("bits", "f32"): _bits,
    ("bits", "f64"): _bits,
    ("abs", "f32"): _abs,
    ("abs", "f64"): _abs,
    ("copysign", "f32"): _copysign,
    ("copysign", "f64"): _copysign,
    ("nextafter", "f32"): _nextafter,
    ("nextafter", "f64"): _nextafter,
}
