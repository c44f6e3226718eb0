"""Constants as C++ text, exact."""

from __future__ import annotations

import math

import torch

from opmill_graph_ir.loops.float8 import FLOAT8
from opmill_graph_ir.loops.ir import Const

from .types import TYPES

_FLOAT32_OVERFLOW = 3.4028235677973366e38  # from here on, rounding to float32 gives an infinity


def const_text(c: Const) -> str:
    """A constant as C++ text, exact."""
    if c.dtype == "bool":
        return "true" if c.value else "false"
    if TYPES[c.dtype].kind == "raw":
        return f"{FLOAT8[c.dtype].encode(float(c.value))}" if c.dtype in FLOAT8 else half_bits(float(c.value), c.dtype)
    if TYPES[c.dtype].kind == "float":
        value, suffix = float(c.value), "f" if c.dtype == "float32" else ""
        if math.isnan(value):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(value) or (c.dtype == "float32" and abs(value) >= _FLOAT32_OVERFLOW):
            return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
        return f"{float_text(value)}{suffix}"
    value = int(c.value)
    if value == -(1 << 63):
        return "(-0x7fffffffffffffffL - 1)"
    return f"{value}{'UL' if c.dtype == 'uint64' else 'L' if c.dtype == 'int64' else ''}"


def float_text(value: float) -> str:
    """Decimal where that is short and exact, else hexadecimal."""
    return repr(value) if value == round(value, 3) and abs(value) < 1e15 else value.hex()


def half_bits(value: float, dtype: str) -> str:
    """The bits of a float of 16 bits, as a number of C++."""
    bits = torch.tensor(value, dtype=torch.float64).to(getattr(torch, dtype)).view(torch.int16).item()
    return f"0x{int(bits) & 0xFFFF:04x}"
