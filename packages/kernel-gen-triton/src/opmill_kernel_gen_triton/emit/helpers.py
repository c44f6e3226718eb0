"""Functions that generated kernels call, as text: only what a kernel needs stands before it."""

from __future__ import annotations

import re

HELPERS: dict[str, str] = {
    "maximum": "(a, b):\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "(a, b):\n    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "product": "(a, b):\n    return a * b",
    "negate": "(a):\n    return a == False  # noqa: E712",
    "bitnot": "(a):\n    return a ^ (a * 0 - 1)",
    "int_floordiv": "(a, b):\n    q = a // b\n    return q - ((a % b != 0) & ((a < 0) != (b < 0))).to(q.dtype)",
    "int_remainder": "(a, b):\n    r = a % b\n    return r + tl.where((r != 0) & ((r < 0) != (b < 0)), b, 0).to(r.dtype)",
    "index_floordiv": "(a, b):\n    q = a // b\n    return q - (a - q * b < 0).to(q.dtype)",
    "index_mod": "(a, b):\n    r = a % b\n    return r + (r < 0).to(r.dtype) * b",
    "remainder": "(a, b):\n    r = libdevice.fmod(a, b)\n    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)",
    "floordiv": """(a, b):
    rest = libdevice.fmod(a, b)
    quotient = libdevice.div_rn(a - rest, b)
    quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1.0, quotient)
    whole = libdevice.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1.0, whole)
    plain = libdevice.div_rn(a, b)
    whole = tl.where(quotient == 0, libdevice.copysign(plain * 0.0, plain), whole)
    return tl.where(b == 0, plain, whole)""",
    "shift_left": "(a, b, bits: tl.constexpr):\n    inside = (b >= 0) & (b < bits)\n    return tl.where(inside, a << tl.where(inside, b, "
    "0).to(a.dtype), 0).to(a.dtype)",
    "shift_right": "(a, b, bits: tl.constexpr):\n    inside = (b >= 0) & (b < bits)\n    return (a >> tl.where(inside, b, bits - "
    "1).to(a.dtype)).to(a.dtype)",
    "int_pow": """(base, exponent, bits: tl.constexpr):
    result = base * 0 + 1
    factor = base + exponent * 0
    left = exponent + base * 0
    for _ in tl.static_range(bits):
        result = tl.where((left & 1) != 0, result * factor, result).to(base.dtype)
        factor = (factor * factor).to(base.dtype)
        left = left >> 1
    odd = (exponent & 1) != 0
    inverse = tl.where(base == 1, 1, tl.where(base == -1, tl.where(odd, -1, 1), 0)).to(base.dtype)
    return tl.where(exponent < 0, inverse, result)""",
    # far from 0 by one exponential, near it by the first terms of the series: right to 4e-6 of itself
    "quick_tanh": """(x):
    y = tl.abs(x)
    far = 1.0 - 2.0 / (tl.exp2(y * 2.8853900817779268) + 1.0)
    far = tl.where(x < 0, -far, far)
    return tl.where(y < 0.0625, x * (1.0 - x * x * 0.3333333333333333), far)""",
    # the logarithm of erfc is smooth: a polynomial for it (least maximum on [0, 4.5], falling beyond) makes erfc right to 7e-6 of itself
    "one_plus_erf": """(x):
    y = tl.abs(x)
    p = 4.8609700752422214e-4 + y * -2.031808253377676e-5
    p = 0.033910367637872696 + y * (-0.005223662592470646 + y * p)
    p = y * (-1.6280632019042969 + y * (-0.9170815944671631 + y * (-0.15242986381053925 + y * p)))
    tail = libdevice.exp2(p)
    return tl.where(x < 0, tail, 2.0 - tail)""",
    # x of the normal distribution below x: the same polynomial of x / sqrt(2), half of erfc
    "gelu": """(x):
    y = tl.abs(x)
    p = 6.0762125940527794e-5 + y * -1.795881742542688e-6
    p = 0.008477591909468176 + y * (-0.000923421810441624 + y * p)
    p = y * (-1.1512145302668118 + y * (-0.45854079723358165 + y * (-0.053892095177887116 + y * p))) - 1.0
    tail = libdevice.exp2(p)
    return x * tl.where(x < 0, tail, 1.0 - tail)""",
    # reflection below zero, recurrence up to ten, then the asymptotic series
    "digamma": """(x):
    pole = x == 0
    whole = (x < 0) & (x == libdevice.floor(x))
    below = x < 0
    turn = x - libdevice.trunc(x)
    reflected = tl.where(below, libdevice.div_rn(turn * 0 + 3.141592653589793, libdevice.tan(turn * 3.141592653589793)), 0.0)
    y = tl.where(below, 1.0 - x, x)
    total = x * 0.0
    for _ in tl.static_range(10):
        total = tl.where(y < 10.0, total - libdevice.div_rn(y * 0 + 1.0, y), total)
        y = tl.where(y < 10.0, y + 1.0, y)
    z = libdevice.div_rn(y * 0 + 1.0, y * y)
    series = 0.007575757575757576 - z * (0.021092796092796094 - z * 0.08333333333333333)
    series = 0.003968253968253968 - z * (0.004166666666666667 - z * series)
    series = 0.08333333333333333 - z * (0.008333333333333333 - z * series)
    value = total + libdevice.log(y) - libdevice.div_rn(y * 0 + 0.5, y) - z * series - reflected
    value = tl.where(whole, float("nan"), value)
    return tl.where(pole, libdevice.copysign(x * 0 + float("inf"), x * -1.0), value)""",
    # float16 has the exponents of e5m2. Shifted, the bits of e4m3 are those of float32 but for the exponent's bias: a factor; subnormal
    # numbers are then subnormal too
    "from_float8": """(code, bias: tl.constexpr, native: tl.constexpr):
    if bias == 15:
        number = (code.to(tl.int16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
    elif native:
        number = code.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    else:
        bits = code.to(tl.int32)
        size = ((bits & 0x7F) << 20).to(tl.float32, bitcast=True) * 1.329227995784916e36
        signed = (size.to(tl.int32, bitcast=True) | ((bits & 0x80) << 24)).to(tl.float32, bitcast=True)
        number = tl.where((bits & 0x7F) == 0x7F, float("nan"), signed)
    return number""",
    # to the nearest, to even between two; a subnormal one is the last bits of its sum with a number whose last place is its own. Devices
    # stay at the largest number of e5m2, too
    "to_float8": """(x, mantissa: tl.constexpr, bias: tl.constexpr, top: tl.constexpr, native: tl.constexpr):
    bits = x.to(tl.int32, bitcast=True)
    sign = (bits >> 24) & 0x80
    if native and bias == 7:
        code = x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    elif native:
        code = x.to(tl.float8e5).to(tl.uint8, bitcast=True)
        code = tl.where(tl.abs(x) >= 61440.0, (sign | top).to(tl.uint8), code)
    else:
        size = bits & 0x7FFFFFFF
        magic: tl.constexpr = (151 - bias - mantissa) << 23
        low = (tl.abs(x) + tl.full([], magic, tl.int32).to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True) - magic
        high = ((size + ((1 << (22 - mantissa)) - 1) + ((size >> (23 - mantissa)) & 1)) >> (23 - mantissa)) - ((127 - bias) << mantissa)
        code = tl.where(size < ((128 - bias) << 23), low, tl.minimum(high, top))
        code = (sign | tl.where(size > 0x7F800000, 0x7F, code)).to(tl.uint8)
    return code""",
    # Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (2011); four words
    "philox": """(key, at, rounds: tl.constexpr):
    a = at.to(tl.uint32)
    b = a * 0
    if at.dtype.primitive_bitwidth == 64:
        b = (at >> 32).to(tl.uint32)
    c = a * 0
    d = a * 0
    k = key.to(tl.uint32)
    m = (key >> 32).to(tl.uint32)
    for _ in tl.static_range(rounds):
        p = a.to(tl.uint64) * 0xD2511F53
        q = c.to(tl.uint64) * 0xCD9E8D57
        a = (q >> 32).to(tl.uint32) ^ b ^ k
        b = q.to(tl.uint32)
        c = (p >> 32).to(tl.uint32) ^ d ^ m
        d = p.to(tl.uint32)
        k = k + 0x9E3779B9
        m = m + 0xBB67AE85
    return a.to(tl.int32, bitcast=True), b.to(tl.int32, bitcast=True), c.to(tl.int32, bitcast=True), d.to(tl.int32, bitcast=True)""",
    "philox_word": """(key, at):
    a, b, c, d = philox(key, at // 4, 10)
    k = at % 4
    return tl.where(k == 0, a, tl.where(k == 1, b, tl.where(k == 2, c, d)))""",
    "exchanged": "(word):\n    return (word << 16) | ((word >> 16) & 0xFFFF)",
    "coin_word": """(key, at):
    a, b, c, d = philox(key, at // 8, 7)
    k = at // 2 % 4
    word = tl.where(k == 0, a, tl.where(k == 1, b, tl.where(k == 2, c, d)))
    return tl.where(at % 2 == 1, exchanged(word), word)""",
    "argmax": """(a, i, b, j):
    better = (b > a) | ((b != b) & (a == a)) | (((a == b) | ((a != a) & (b != b))) & (j < i))
    return tl.where(better, b, a), tl.where(better, j, i)""",
    "argmin": """(a, i, b, j):
    better = (b < a) | ((b != b) & (a == a)) | (((a == b) | ((a != a) & (b != b))) & (j < i))
    return tl.where(better, b, a), tl.where(better, j, i)""",
    "plus": "(a, b):\n    return a + b",
    "logaddexp": """(a, b):
    top = maximum(a, b)
    gap = minimum(a, b) - top
    small = tl.exp(gap)
    above = 1.0 + small
    rest = above - 1.0
    log1p = tl.where(rest == 0.0, small, tl.log(above) * (small / tl.where(rest == 0.0, 1.0, rest)))
    return tl.where((gap != gap) & (top == top), top, top + log1p)""",
    "affine": "(factor_a, term_a, factor_b, term_b):\n    return factor_a * factor_b, factor_b * term_a + term_b",
    # zeros are one key, and all NaN are above infinity
    "float_key": """(bits, top: tl.constexpr, infinity: tl.constexpr):
    magnitude = bits & top
    return tl.where(magnitude > infinity, top, tl.where(bits < 0, -magnitude, magnitude))""",
    "float_of_key": """(key, negative, top: tl.constexpr):
    magnitude = tl.where(key < 0, -key, key)
    return tl.where(negative, magnitude | ~top, magnitude)""",
    "last_max": "(a, i, b, j):\n    take = (b >= a) | (b != b)\n    return tl.where(take, b, a), tl.where(take, j, i)",
    "last_min": "(a, i, b, j):\n    take = (b <= a) | (b != b)\n    return tl.where(take, b, a), tl.where(take, j, i)",
}
_CALL = re.compile(r"%(\w+)\(")


def resolve(text: str, needs: dict[str, None]) -> str:
    """``text`` with ``%name(`` replaced by calls; the names go into ``needs``."""
    for name in _CALL.findall(text):
        if name in HELPERS:
            needs.setdefault(name)
    return _CALL.sub(lambda m: f"{m[1]}(" if m[1] in HELPERS else m[0], text)


def texts(needs: dict[str, None]) -> str:
    """The helpers by name, in the order of the table."""
    return "\n".join(f"@triton.jit\ndef {name}{HELPERS[name]}\n\n" for name in HELPERS if name in needs)
