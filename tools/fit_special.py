"""Fits the polynomials behind the special functions of graph-ir and writes them as a Python module.

``python tools/fit_special.py > packages/graph-ir/src/opmill_graph_ir/ops/special_tables.py`` (needs mpmath, which torch brings with sympy).

Each row is a function that is smooth on an interval, in a variable that the lowering computes. A Chebyshev series, cut where it no
longer matters (in float64; once more for float32), is written out as a polynomial in the variable mapped to -1..1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp

mp.mp.dps = 40
CUTS = {"float64": mp.mpf(10) ** -17, "float32": mp.mpf(10) ** -9}


def coefficients(f: Callable[[Any], Any], low: Any, high: Any, most: int = 64) -> list[Any]:
    """Chebyshev coefficients of ``f`` on ``[low, high]``, the lowest first, by interpolation at Chebyshev points."""
    low, high = mp.mpf(low), mp.mpf(high)
    nodes = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / most) for k in range(most)]
    values = [f((high - low) / 2 * t + (high + low) / 2) for t in nodes]
    series = [sum(v * mp.cos(j * mp.acos(t)) for v, t in zip(values, nodes, strict=True)) * 2 / most for j in range(most)]
    series[0] /= 2
    return series


def polynomial(series: list[Any], cut: Any) -> list[float]:
    """The powers of the variable in a Chebyshev series without its small last terms, the highest first."""
    scale = max(abs(c) for c in series)
    last = max(k for k, c in enumerate(series) if abs(c) >= cut * scale)
    before, current = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    total = [mp.mpf(0)] * (last + 1)
    for k in range(last + 1):
        for j, c in enumerate(before):
            total[j] += series[k] * c
        after = [mp.mpf(0), *(2 * c for c in current)]
        for j, c in enumerate(before):
            after[j] -= c
        before, current = current, after
    return [float(c) for c in reversed(total)]


def _phase(n: int, part: str) -> Callable[[Any], Any]:
    """P or Q of the asymptotic form ``sqrt(2/(pi x)) (P cos(c) - Q sin(c))`` of J_n, Y_n, c = x - (2n+1) pi/4; Q times x. In
    ``(8/x)^2``."""

    def f(u: Any) -> Any:
        x = 8 / mp.sqrt(u) if u > mp.mpf(10) ** -12 else mp.mpf(10) ** 7
        c = x - (2 * n + 1) * mp.pi / 4
        j, y = mp.besselj(n, x), mp.bessely(n, x)
        root = mp.sqrt(mp.pi * x / 2)
        return root * (j * mp.cos(c) + y * mp.sin(c)) if part == "p" else root * (y * mp.cos(c) - j * mp.sin(c)) * x

    return f


def _tail(z: Any) -> Any:
    """The quantile of the normal distribution at ``p = exp(-z^2/2)``, negated, less ``z``; in 1/z."""
    p = mp.exp(-z * z / 2)
    return _upper_quantile(p)


def _upper_quantile(p: Any) -> Any:
    """x with Q(x) = p, by Newton's iteration on log Q."""
    x = mp.sqrt(-2 * mp.log(p)) if p < mp.mpf("0.4") else mp.mpf("0.2")
    for _ in range(60):
        q = mp.erfc(x / mp.sqrt(2)) / 2
        step = (mp.log(q) - mp.log(p)) * q / (mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi))
        x += step
        if abs(step) < mp.mpf(10) ** -35:
            break
    return x


def _limit(f: Callable[[Any], Any], places: int = 14) -> Callable[[Any], Any]:
    """``f`` where it is a quotient that vanishes at 0."""
    tiny = mp.mpf(10) ** -places
    return lambda x: f(x if abs(x) > tiny else tiny)


E = mp.exp
ROWS: dict[str, tuple[Callable[[Any], Any], Any, Any, str]] = {
    "I0E_NEAR": (lambda x: E(-x) * mp.besseli(0, x), 0, 8, "exp(-x) I0(x), x in 0..8"),
    "I0E_FAR": (
        lambda u: mp.sqrt(1 / _away(u)) * E(-1 / _away(u)) * mp.besseli(0, 1 / _away(u)),
        0,
        "0.125",
        "sqrt(x) exp(-x) I0(x), 1/x in 0..1/8",
    ),
    "I1E_NEAR": (_limit(lambda x: E(-x) * mp.besseli(1, x) / x), 0, 8, "exp(-x) I1(x) / x, x in 0..8"),
    "I1E_FAR": (
        lambda u: mp.sqrt(1 / _away(u)) * E(-1 / _away(u)) * mp.besseli(1, 1 / _away(u)),
        0,
        "0.125",
        "sqrt(x) exp(-x) I1(x), 1/x in 0..1/8",
    ),
    "K0_NEAR": (
        _limit(lambda s: mp.besselk(0, mp.sqrt(s)) + mp.log(mp.sqrt(s) / 2) * mp.besseli(0, mp.sqrt(s))),
        0,
        4,
        "K0(x) + log(x/2) I0(x), x^2 in 0..4",
    ),
    "K0_FAR": (
        lambda u: mp.sqrt(1 / _away(u)) * E(1 / _away(u)) * mp.besselk(0, 1 / _away(u)),
        0,
        "0.5",
        "sqrt(x) exp(x) K0(x), 1/x in 0..1/2",
    ),
    "K1_NEAR": (
        _limit(lambda s: mp.sqrt(s) * (mp.besselk(1, mp.sqrt(s)) - mp.log(mp.sqrt(s) / 2) * mp.besseli(1, mp.sqrt(s)))),
        0,
        4,
        "x (K1(x) - log(x/2) I1(x)), x^2 in 0..4",
    ),
    "K1_FAR": (
        lambda u: mp.sqrt(1 / _away(u)) * E(1 / _away(u)) * mp.besselk(1, 1 / _away(u)),
        0,
        "0.5",
        "sqrt(x) exp(x) K1(x), 1/x in 0..1/2",
    ),
    "J0_NEAR": (lambda s: mp.besselj(0, mp.sqrt(s)), 0, 64, "J0(x), x^2 in 0..64"),
    "J1_NEAR": (_limit(lambda s: mp.besselj(1, mp.sqrt(s)) / mp.sqrt(s)), 0, 64, "J1(x) / x, x^2 in 0..64"),
    "Y0_NEAR": (
        _limit(lambda s: mp.bessely(0, mp.sqrt(s)) - mp.log(s) / mp.pi * mp.besselj(0, mp.sqrt(s))),
        0,
        64,
        "Y0(x) - 2/pi log(x) J0(x), x^2 in 0..64",
    ),
    "Y1_NEAR": (
        _limit(
            lambda s: (mp.bessely(1, mp.sqrt(s)) - mp.log(s) / mp.pi * mp.besselj(1, mp.sqrt(s)) + 2 / (mp.pi * mp.sqrt(s))) / mp.sqrt(s)
        ),
        0,
        64,
        "(Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x, x^2 in 0..64",
    ),
    "P0": (_phase(0, "p"), 0, 1, "P of order 0, (8/x)^2 in 0..1"),
    "Q0": (_phase(0, "q"), 0, 1, "x Q of order 0, (8/x)^2 in 0..1"),
    "P1": (_phase(1, "p"), 0, 1, "P of order 1, (8/x)^2 in 0..1"),
    "Q1": (_phase(1, "q"), 0, 1, "x Q of order 1, (8/x)^2 in 0..1"),
    "ERFCX": (
        lambda t: _erfcx(_map(t)) * (1 + 2 * _map(t)),
        -1,
        1,
        "(1 + 2x) exp(x^2) erfc(x), (x - 3.75) / (x + 3.75) in -1..1 (Shepherd and Laframboise, 1981)",
    ),
    "ERFINV_NEAR": (_limit(lambda s: mp.erfinv(mp.sqrt(s)) / mp.sqrt(s), 16), 0, "0.5625", "erfinv(y) / y, y^2 in 0..9/16"),
    "QUANTILE_MID": (lambda z: _tail(z) / z, 2, 6, "normal quantile of exp(-z^2/2) over -z, z in 2..6"),
    "QUANTILE_FAR": (lambda u: _tail(1 / u) * u, mp.mpf(1) / 40, mp.mpf(1) / 6, "the same, 1/z in 1/40..1/6"),
}


def _away(u: Any) -> Any:
    return u if u > mp.mpf(10) ** -5 else mp.mpf(10) ** -5


def _map(t: Any) -> Any:
    return mp.mpf("3.75") * (1 + t) / (1 - t)


def _erfcx(x: Any) -> Any:
    if x > 50:
        return mp.nsum(lambda k: (-1) ** int(k) * mp.fac2(2 * int(k) - 1) / (2 * x * x) ** int(k), [0, 20]) / (x * mp.sqrt(mp.pi))
    return mp.exp(x * x) * mp.erfc(x)


def main() -> None:
    print('"""Polynomials of special functions, the highest power first. Written by ``tools/fit_special.py``; do not edit."""\n')
    print("\n\nfrom __future__ import annotations\n\nfrom dataclasses import dataclass\n\n")
    print(
        "@dataclass(frozen=True)\nclass Fit:\n"
        '    """Coefficients by element type, and the ends of the interval that is mapped to -1..1."""\n'
    )
    print("    low: float\n    high: float\n    powers: dict[str, tuple[float, ...]]\n\n")
    for name, (f, low, high, what) in ROWS.items():
        series = coefficients(f, low, high)
        print(f"{name} = Fit(\n    {float(mp.mpf(low))!r},\n    {float(mp.mpf(high))!r},\n    {{")
        for dtype, cut in CUTS.items():
            values = [repr(c) for c in polynomial(series, cut)]
            lines = [", ".join(values[k : k + 5]) for k in range(0, len(values), 5)]
            print(f'        "{dtype}": (\n' + "\n".join(f"            {line}," for line in lines) + "\n        ),")
        print(f'    }},\n)\n"""{what}"""')


if __name__ == "__main__":
    main()
