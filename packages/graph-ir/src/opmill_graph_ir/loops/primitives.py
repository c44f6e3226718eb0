"""The primitives of loop IR: one record each, with all that the compiler knows of it. A generator that lacks one refuses the kernel.

Meaning is torch's: ``floordiv`` and ``mod`` round as Python does, ``truncdiv`` and ``fmod`` toward zero (integers: division by
zero raises in eager, so graph-ir adds a Check), ``round`` halves to even, ``max``/``min`` propagate NaN, ``fmax``/``fmin`` ignore it.
Arithmetic on bool, float16, bfloat16 and floats of one byte does not exist: lowering casts first. Shifts and bit operations are for
integers and bool. ``rounded`` is its operand: a kernel that has it rounds as the text says, wherever else a generator may compute with
what is not rounded yet, or contract. ``philox`` of a key and a place (int64) is a random word (int32), ``coin`` a cheaper one for
comparisons: see ``random.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from .random import coin, philox

Meaning = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Primitive:
    """``cost``: of one element, in units of one cheap vector instruction, roughly. ``meaning``: what it computes in terms of torch; None
    for conversions, which need the type of the result (``arithmetic.py``). ``result``: ``"same"`` (as the operands), ``"bool"``, or
    ``"any"`` (named by the Op). ``operands``: which types there are rows for.

    ``rounding``: of floats. ``"none"``: the result is exact; ``"once"``: it is the number nearest to the exact result; ``"library"``: it
    depends on the library that computes it."""

    name: str
    arity: int
    cost: int
    meaning: Meaning | None
    result: Literal["same", "bool", "any"] = "same"
    operands: Literal["numbers", "floats", "bits", "bools", "any"] = "numbers"
    rounding: Literal["none", "once", "library"] = "none"

    @property
    def floats_only(self) -> bool:
        return self.operands == "floats"


def _floordiv(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="floor")


def _truncdiv(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def _function(name: str, cost: int) -> Primitive:
    """A function of one float that is torch's of the same name."""
    return Primitive(name, 1, cost, getattr(torch, name), operands="floats", rounding="library")


def _compared(name: str) -> Primitive:
    return Primitive(name, 2, 1, getattr(torch, name), "bool", "any")


def _whole(name: str) -> Primitive:
    """A float that is a whole number."""
    return Primitive(name, 1, 1, getattr(torch, name), operands="floats")


_TABLE = (
    Primitive("add", 2, 1, torch.add, rounding="once"),
    Primitive("sub", 2, 1, torch.sub, rounding="once"),
    Primitive("mul", 2, 1, torch.mul, rounding="once"),
    Primitive("div", 2, 4, torch.div, operands="floats", rounding="once"),
    Primitive("fma", 3, 1, lambda a, b, c: torch.addcmul(c, a, b), operands="floats", rounding="library"),
    Primitive("max", 2, 1, torch.maximum),
    Primitive("min", 2, 1, torch.minimum),
    Primitive("fmax", 2, 1, torch.fmax),
    Primitive("fmin", 2, 1, torch.fmin),
    Primitive("floordiv", 2, 4, _floordiv, rounding="library"),
    Primitive("truncdiv", 2, 4, _truncdiv, rounding="library"),
    Primitive("mod", 2, 4, torch.remainder, rounding="library"),
    Primitive("fmod", 2, 4, torch.fmod, rounding="library"),
    Primitive("pow", 2, 20, torch.pow, rounding="library"),
    Primitive("atan2", 2, 40, torch.atan2, operands="floats", rounding="library"),
    Primitive("hypot", 2, 40, torch.hypot, operands="floats", rounding="library"),
    Primitive("copysign", 2, 1, torch.copysign, operands="floats"),
    Primitive("nextafter", 2, 40, torch.nextafter, operands="floats"),
    Primitive("bitand", 2, 1, torch.bitwise_and, operands="bits"),
    Primitive("bitor", 2, 1, torch.bitwise_or, operands="bits"),
    Primitive("bitxor", 2, 1, torch.bitwise_xor, operands="bits"),
    Primitive("shl", 2, 1, torch.bitwise_left_shift, operands="bits"),
    Primitive("shr", 2, 1, torch.bitwise_right_shift, operands="bits"),
    Primitive("bitnot", 1, 1, torch.bitwise_not, operands="bits"),
    *map(_compared, ("eq", "ne", "lt", "le", "gt", "ge")),
    Primitive("neg", 1, 1, torch.neg),
    Primitive("abs", 1, 1, torch.abs),
    Primitive("sign", 1, 1, torch.sign),
    *map(_whole, ("floor", "ceil", "round", "trunc")),
    Primitive("sqrt", 1, 4, torch.sqrt, operands="floats", rounding="library"),
    Primitive("rsqrt", 1, 4, torch.rsqrt, operands="floats", rounding="library"),
    Primitive("reciprocal", 1, 4, torch.reciprocal, operands="floats", rounding="once"),
    *(_function(name, 20) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p")),
    *(_function(name, 20) for name in ("sin", "cos", "tan", "tanh", "sigmoid", "erf", "erfc")),
    *(_function(name, 40) for name in ("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")),
    *(_function(name, 40) for name in ("erfinv", "lgamma", "digamma")),
    Primitive("isnan", 1, 1, torch.isnan, "bool"),
    Primitive("isinf", 1, 1, torch.isinf, "bool"),
    Primitive("signbit", 1, 1, torch.signbit, "bool"),
    Primitive("logical_not", 1, 1, torch.logical_not, "bool", "bools"),
    Primitive("logical_and", 2, 1, torch.logical_and, "bool", "bools"),
    Primitive("logical_or", 2, 1, torch.logical_or, "bool", "bools"),
    Primitive("logical_xor", 2, 1, torch.logical_xor, "bool", "bools"),
    Primitive("where", 3, 1, torch.where, operands="any"),  # (bool, T, T) -> T
    Primitive("cast", 1, 0, None, "any", "any"),
    Primitive("bitcast", 1, 0, None, "any", "any"),
    Primitive("rounded", 1, 0, lambda x: x, operands="any"),
    Primitive("philox", 2, 40, philox, "any", "bits"),  # (int64, int64) -> int32
    Primitive("coin", 2, 20, coin, "any", "bits"),
)
PRIMITIVES: dict[str, Primitive] = {row.name: row for row in _TABLE}
"""By name."""

__all__ = ["PRIMITIVES", "Primitive"]
