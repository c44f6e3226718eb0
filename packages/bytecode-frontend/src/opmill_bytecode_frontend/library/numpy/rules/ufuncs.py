"""Universal functions: name -> (the function of torch, kinds of the loops for which it gives what NumPy's gives).

Kinds are NumPy's: b bool, i and u integers, f floats, c complex numbers. Operands come in the dtype of NumPy's loop; a loop that is not
named here differs somewhere: division of integers by zero, shifts by more than the width, powers of integers, ..."""

from __future__ import annotations

from collections.abc import Callable

import torch


def absolute(x: torch.Tensor) -> torch.Tensor:
    """The magnitude; truths have themselves for it."""
    return x.clone() if x.dtype == torch.bool else torch.abs(x)


def sign(x: torch.Tensor) -> torch.Tensor:
    """NaN stays."""
    return torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


def rint(x: torch.Tensor) -> torch.Tensor:
    """The nearest whole number, halves to the even one."""
    return torch.round(x)


def maximum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The greater of two; no number where one is none."""
    return torch.logical_or(x, y) if x.dtype == torch.bool else torch.maximum(x, y)


def minimum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The smaller of two; no number where one is none."""
    return torch.logical_and(x, y) if x.dtype == torch.bool else torch.minimum(x, y)


def multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The product; of truths, whether both are true."""
    return torch.logical_and(x, y) if x.dtype == torch.bool else torch.mul(x, y)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum. Complex numbers are added by their parts, as NumPy does: infinities stay what they are."""
    if x.is_complex():  # part by part: torch makes NaN of infinite ones
        return torch.view_as_complex(torch.view_as_real(x) + torch.view_as_real(y))
    return torch.logical_or(x, y) if x.dtype == torch.bool else torch.add(x, y)


def subtract(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The difference, of complex numbers by their parts."""
    if x.is_complex():
        return torch.view_as_complex(torch.view_as_real(x) - torch.view_as_real(y))
    return torch.sub(x, y)


def floor_divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The quotient, rounded down."""
    return torch.floor_divide(x, y)


def remainder(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A zero has the sign of the divisor."""
    found = torch.remainder(x, y)
    return torch.where(found == 0, torch.copysign(torch.zeros_like(found), y), found)


def reciprocal(x: torch.Tensor) -> torch.Tensor:
    """One through the item."""
    return 1 / x


def conjugate(x: torch.Tensor) -> torch.Tensor:
    """The conjugate; real numbers are copied."""
    return torch.conj_physical(x) if x.is_complex() else x.clone()


def positive(x: torch.Tensor) -> torch.Tensor:
    """A copy."""
    return x.clone()


def isnan(x: torch.Tensor) -> torch.Tensor:
    """Whether an item is no number."""
    return torch.isnan(x)


def ceil(x: torch.Tensor) -> torch.Tensor:
    """The next whole number above; whole ones are copied."""
    return torch.ceil(x) if x.is_floating_point() else x.clone()


def floor(x: torch.Tensor) -> torch.Tensor:
    """The next whole number below; whole ones are copied."""
    return torch.floor(x) if x.is_floating_point() else x.clone()


def trunc(x: torch.Tensor) -> torch.Tensor:
    """The whole number towards zero; whole ones are copied."""
    return torch.trunc(x) if x.is_floating_point() else x.clone()


def cbrt(x: torch.Tensor) -> torch.Tensor:
    """A step of Newton's after the power, which is a few units off."""
    near = torch.copysign(torch.pow(torch.abs(x), 1 / 3), x)
    better = near - (near * near * near - x) / (3 * near * near)
    return torch.where(torch.isfinite(better), better, near)


def heaviside(x: torch.Tensor, at_zero: torch.Tensor) -> torch.Tensor:
    """Zero below zero, one above it, ``at_zero`` at it."""
    return torch.where(torch.isnan(x), x, torch.heaviside(x, at_zero))


UFUNCS: dict[str, tuple[Callable[..., torch.Tensor], str]] = {
    "add": (add, "biufc"),
    "subtract": (subtract, "iufc"),
    "multiply": (multiply, "biufc"),
    "divide": (torch.div, "fc"),
    "floor_divide": (floor_divide, "f"),
    "remainder": (remainder, "f"),
    "fmod": (torch.fmod, "f"),
    "power": (torch.pow, "f"),
    "maximum": (maximum, "biuf"),
    "minimum": (minimum, "biuf"),
    "fmax": (torch.fmax, "f"),
    "fmin": (torch.fmin, "f"),
    "arctan2": (torch.atan2, "f"),
    "hypot": (torch.hypot, "f"),
    "copysign": (torch.copysign, "f"),
    "logaddexp": (torch.logaddexp, "f"),
    "greater": (torch.gt, "biuf"),
    "greater_equal": (torch.ge, "biuf"),
    "less": (torch.lt, "biuf"),
    "less_equal": (torch.le, "biuf"),
    "equal": (torch.eq, "biufc"),
    "not_equal": (torch.ne, "biufc"),
    "logical_and": (torch.logical_and, "biuf"),
    "logical_or": (torch.logical_or, "biuf"),
    "logical_xor": (torch.logical_xor, "biuf"),
    "bitwise_and": (torch.bitwise_and, "biu"),
    "bitwise_or": (torch.bitwise_or, "biu"),
    "bitwise_xor": (torch.bitwise_xor, "biu"),
    "negative": (torch.neg, "iufc"),
    "positive": (positive, "iufc"),
    "absolute": (absolute, "biufc"),
    "fabs": (torch.abs, "f"),
    "sign": (sign, "iuf"),
    "rint": (rint, "f"),
    "sqrt": (torch.sqrt, "f"),
    "square": (torch.square, "iufc"),
    "reciprocal": (reciprocal, "f"),
    "cbrt": (cbrt, "f"),
    "heaviside": (heaviside, "f"),
    "exp": (torch.exp, "f"),
    "exp2": (torch.exp2, "f"),
    "expm1": (torch.expm1, "f"),
    "log": (torch.log, "f"),
    "log2": (torch.log2, "f"),
    "log10": (torch.log10, "f"),
    "log1p": (torch.log1p, "f"),
    "sin": (torch.sin, "f"),
    "cos": (torch.cos, "f"),
    "tan": (torch.tan, "f"),
    "arcsin": (torch.asin, "f"),
    "arccos": (torch.acos, "f"),
    "arctan": (torch.atan, "f"),
    "sinh": (torch.sinh, "f"),
    "cosh": (torch.cosh, "f"),
    "tanh": (torch.tanh, "f"),
    "arcsinh": (torch.asinh, "f"),
    "arccosh": (torch.acosh, "f"),
    "arctanh": (torch.atanh, "f"),
    "floor": (floor, "biuf"),
    "ceil": (ceil, "biuf"),
    "trunc": (trunc, "biuf"),
    "isnan": (isnan, "biufc"),
    "isinf": (torch.isinf, "biufc"),
    "isfinite": (torch.isfinite, "biufc"),
    "signbit": (torch.signbit, "f"),
    "logical_not": (torch.logical_not, "biuf"),
    "invert": (torch.bitwise_not, "biu"),
    "conjugate": (conjugate, "iufc"),
    "deg2rad": (torch.deg2rad, "f"),
    "radians": (torch.deg2rad, "f"),
    "rad2deg": (torch.rad2deg, "f"),
    "degrees": (torch.rad2deg, "f"),
}

BY_NUMBERS: dict[str, tuple[Callable[..., torch.Tensor], Callable[[int, int], bool]]] = {
    "floor_divide": (torch.floor_divide, lambda n, bits: n not in (0, -1)),
    "remainder": (torch.remainder, lambda n, bits: n not in (0, -1)),
    "power": (torch.pow, lambda n, bits: n >= 0),
    "left_shift": (torch.bitwise_left_shift, lambda n, bits: 0 <= n < bits),
    "right_shift": (torch.bitwise_right_shift, lambda n, bits: 0 <= n < bits),
}
"""Of integers and a number of the program: the function of torch, and whether it gives what NumPy's does for that number and that many
bits."""

__all__ = ["BY_NUMBERS", "UFUNCS"]
