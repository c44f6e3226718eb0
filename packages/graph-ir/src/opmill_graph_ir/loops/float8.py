"""Floating-point numbers of one byte: what their bits mean. Layouts: the OCP 8-bit floating point specification.

Loop IR stores, moves and converts them; it computes with none. Conversions go by way of float32, to the nearest and to even between two.
Beyond the largest number, ``float8_e4m3fn``, which has no infinity, stays at the largest (``ops/exprs.py`` asks torch, whose older versions
make NaN of it, which of both it shall be), and ``float8_e5m2`` becomes infinite.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from opmill_fake_tensors.lazily import cached_property


@dataclass(frozen=True)
class Float8:
    """``mantissa``: bits of it; ``bias``: of the exponent; ``largest``: the code of the largest number, above which infinity is, if it is
    ``infinite``."""

    name: str
    mantissa: int
    bias: int
    largest: int
    infinite: bool

    @property
    def top(self) -> int:
        """The code beyond which nothing is rounded: infinity's, or the largest number's."""
        return self.largest + self.infinite

    def decode(self, code: int) -> float:
        """The number whose bits are ``code`` (0 to 255)."""
        sign, magnitude = -1.0 if code & 0x80 else 1.0, code & 0x7F
        if magnitude > self.top:
            return math.nan
        if magnitude > self.largest:
            return sign * math.inf
        exponent, fraction = magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1)
        if exponent:
            fraction += 1 << self.mantissa
        return sign * math.ldexp(fraction, max(exponent, 1) - self.bias - self.mantissa)

    def encode(self, value: float) -> int:
        """The code of a number that has one (others: of the next larger one in magnitude); NaN has several, 0x7f is it here."""
        if math.isnan(value):
            return 0x7F
        return bisect_left(self._numbers, abs(value)) | (0x80 if math.copysign(1.0, value) < 0 else 0)

    @cached_property
    def _numbers(self) -> list[float]:
        return [self.decode(code) for code in range(self.top + 1)]


FLOAT8 = {f.name: f for f in (Float8("float8_e4m3fn", 3, 7, 0x7E, False), Float8("float8_e5m2", 2, 15, 0x7B, True))}
"""The formats by element type."""
