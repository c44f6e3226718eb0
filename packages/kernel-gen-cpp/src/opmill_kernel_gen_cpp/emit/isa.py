"""Single instructions for one vector register: rows (function, element, bits) -> text, by family. Elsewhere lanes are looped over."""

from __future__ import annotations

from ..target import Target

_ROUNDING = {"floor": 9, "ceil": 10, "trunc": 11, "round": 8}

_X86: dict[tuple[str, str, int], str] = {
    ("sqrt", "f32", 128): "__builtin_ia32_sqrtps(x)",
    ("sqrt", "f64", 128): "__builtin_ia32_sqrtpd(x)",
    ("sqrt", "f32", 256): "__builtin_ia32_sqrtps256(x)",
    ("sqrt", "f64", 256): "__builtin_ia32_sqrtpd256(x)",
    ("sqrt", "f32", 512): "__builtin_ia32_sqrtps512_mask(x, x, -1, 4)",
    ("sqrt", "f64", 512): "__builtin_ia32_sqrtpd512_mask(x, x, -1, 4)",
    **{(n, "f32", 128): f"__builtin_ia32_roundps(x, {i})" for n, i in _ROUNDING.items()},
    **{(n, "f64", 128): f"__builtin_ia32_roundpd(x, {i})" for n, i in _ROUNDING.items()},
    **{(n, "f32", 256): f"__builtin_ia32_roundps256(x, {i})" for n, i in _ROUNDING.items()},
    **{(n, "f64", 256): f"__builtin_ia32_roundpd256(x, {i})" for n, i in _ROUNDING.items()},
    **{(n, "f32", 512): f"__builtin_ia32_rndscaleps_mask(x, {i}, x, -1, 4)" for n, i in _ROUNDING.items()},
    **{(n, "f64", 512): f"__builtin_ia32_rndscalepd_mask(x, {i}, x, -1, 4)" for n, i in _ROUNDING.items()},
    ("larger", "f32", 128): "__builtin_ia32_maxps(x, y)",
    ("larger", "f64", 128): "__builtin_ia32_maxpd(x, y)",
    ("larger", "f32", 256): "__builtin_ia32_maxps256(x, y)",
    ("larger", "f64", 256): "__builtin_ia32_maxpd256(x, y)",
    ("larger", "f32", 512): "__builtin_ia32_maxps512_mask(x, y, x, -1, 4)",
    ("larger", "f64", 512): "__builtin_ia32_maxpd512_mask(x, y, x, -1, 4)",
    ("smaller", "f32", 128): "__builtin_ia32_minps(x, y)",
    ("smaller", "f64", 128): "__builtin_ia32_minpd(x, y)",
    ("smaller", "f32", 256): "__builtin_ia32_minps256(x, y)",
    ("smaller", "f64", 256): "__builtin_ia32_minpd256(x, y)",
    ("smaller", "f32", 512): "__builtin_ia32_minps512_mask(x, y, x, -1, 4)",
    ("smaller", "f64", 512): "__builtin_ia32_minpd512_mask(x, y, x, -1, 4)",
    ("scalef", "f32", 512): "__builtin_ia32_scalefps512_mask(x, y, x, -1, 4)",  # x times two to the power of y
    # the power of two of a number, and what it is times that, from 3/4 to 3/2: NaN of negative ones
    ("getexp", "f32", 512): "__builtin_ia32_getexpps512_mask(x, x, -1, 4)",
    ("getmant", "f32", 512): "__builtin_ia32_getmantps512_mask(x, 11, x, -1, 4)",
    # of 32 numbers in two registers those at the places in k, of which the lowest five bits count
    ("lookup", "f32", 512): "__builtin_ia32_vpermt2varps512_mask(k, x, y, -1)",
    ("fma", "f32", 128): "__builtin_ia32_vfmaddps(x, y, z)",
    ("fma", "f64", 128): "__builtin_ia32_vfmaddpd(x, y, z)",
    ("fma", "f32", 256): "__builtin_ia32_vfmaddps256(x, y, z)",
    ("fma", "f64", 256): "__builtin_ia32_vfmaddpd256(x, y, z)",
    ("fma", "f32", 512): "__builtin_ia32_vfmaddps512_mask(x, y, z, -1, 4)",
    ("fma", "f64", 512): "__builtin_ia32_vfmaddpd512_mask(x, y, z, -1, 4)",
}


def _arm(instruction: str, element: str, *operands: str, keeps: str = "") -> str:
    """An instruction in words that GCC and Clang read alike (their builtins have different names). ``keeps``: an operand that is added
    to."""
    lanes = "4s" if element == "f32" else "2d"
    made, given = ("+w", f" = {keeps}") if keeps else ("=w", "")
    places = "".join(f", %{n}.{lanes}" for n in range(1, len(operands) + 1))
    inputs = ", ".join(f'"w"({o})' for o in operands)
    return f'({{ __typeof__(x) r_{given}; __asm__("{instruction} %0.{lanes}{places}" : "{made}"(r_) : {inputs}); r_; }})'


_ARM_ROUNDING = {"floor": "frintm", "ceil": "frintp", "trunc": "frintz", "round": "frintn", "sqrt": "fsqrt"}
_ARM: dict[tuple[str, str, int], str] = {
    **{(n, e, 128): _arm(i, e, "x") for n, i in _ARM_ROUNDING.items() for e in ("f32", "f64")},
    **{("fma", e, 128): _arm("fmla", e, "x", "y", keeps="z") for e in ("f32", "f64")},
}
_FAMILIES = {"x86": _X86, "arm": _ARM}


def instruction(target: Target, name: str, element: str, bits: int) -> str | None:
    """The text of a function that is one instruction of this processor."""
    if bits > target.bits or (name == "fma" and not target.fma):
        return None
    return _FAMILIES.get(target.family, {}).get((name, element, bits))


SCALAR_NAMES = {"round": "rint", "lgamma": "lgamma"}
"""Where libm's name is not the primitive's."""

SLEEF_ULP = {
    **dict.fromkeys(
        "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh atanh lgamma pow atan2 erf".split(),
        "u10",
    ),
    "erfc": "u15",
    "hypot": "u05",
}
"""Functions taken from Sleef, and the accuracy in the symbol's name. Not asinh and acosh: they overflow for large arguments."""

BINARY = {"pow", "atan2", "hypot", "fmod", "nextafter"}
