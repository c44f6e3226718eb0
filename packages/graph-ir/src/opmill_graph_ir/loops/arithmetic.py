"""What each primitive computes, in terms of torch: one row a primitive. The reference meaning for generators and constant folding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .float8 import FLOAT8
from .random import coin, philox


def torch_dtype(name: str, wide: bool = False) -> torch.dtype:
    """The torch element type of a loop IR type; with ``wide``, float32 is computed as float64."""
    return torch.float64 if wide and name == "float32" else getattr(torch, name)


def _floordiv(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="floor")


def _truncdiv(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


ROWS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "floordiv": _floordiv,
    "truncdiv": _truncdiv,
    "mod": torch.remainder,
    "fmod": torch.fmod,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "hypot": torch.hypot,
    "bitand": torch.bitwise_and,
    "bitor": torch.bitwise_or,
    "bitxor": torch.bitwise_xor,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": lambda a: torch.sign(a),
    "bitnot": torch.bitwise_not,
    "reciprocal": torch.reciprocal,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "signbit": torch.signbit,
    "logical_not": torch.logical_not,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "where": torch.where,
    "philox": philox,
    "coin": coin,
    "fma": lambda a, b, c: torch.addcmul(c, a, b),
    **{
        name: getattr(torch, name)
        for name in [
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "erf",
            "erfc",
            "erfinv",
            "lgamma",
            "digamma",
            "sigmoid",
            "floor",
            "ceil",
            "round",
            "trunc",
        ]
    },
}
"""Primitive to torch function, but for the conversions, which need the result's type."""


def _converted(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """As torch's ``to``, but that what is too large for a type without infinity stays at the largest number, as in torch from 2.13 on."""
    if dtype is torch.float8_e4m3fn and value.dtype is not dtype:
        form = FLOAT8["float8_e4m3fn"]
        largest = form.decode(form.largest)
        return value.to(torch.float32).clamp(-largest, largest).to(dtype)
    return value.to(dtype)


def apply(name: str, args: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """The value of a primitive whose result has element type ``dtype``."""
    if name == "cast":
        return _converted(args[0], dtype)
    if name == "bitcast":
        return args[0].view(dtype)
    return ROWS[name](*args).to(dtype)
