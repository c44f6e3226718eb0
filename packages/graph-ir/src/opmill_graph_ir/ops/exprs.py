"""Short ways to write expressions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from opmill_runtime_cache.devices.host import HOST

from ..loops.float8 import FLOAT8
from ..loops.index import Index, index
from ..loops.ir import HALF, Const, Expr, IndexValue, Op, Ref
from ..loops.primitives import PRIMITIVES
from ..lowered import Read

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
SUPPORTED = frozenset((*FLOATS, *INTEGERS, "bool"))
MOVABLE = SUPPORTED | FLOAT8.keys()
"""What loops read, write and convert; they compute with supported types alone."""
LOW = HALF


def wide(dtype: str) -> str:
    """The type in which values of ``dtype`` are computed."""
    return "float32" if dtype in LOW else dtype


def op(name: str, *args: Expr, dtype: str | None = None) -> Expr:
    """A primitive applied; its result type follows from the operands unless given."""
    if dtype is None:
        dtype = "bool" if PRIMITIVES[name].result == "bool" else args[-1].dtype
    return Op(name, args, dtype)


def cast(value: Expr, dtype: str) -> Expr:
    """``value`` converted as torch's ``to`` does; itself where the type is the same."""
    if value.dtype == dtype:
        return value
    if isinstance(value, IndexValue) and dtype in INTEGERS:
        return IndexValue(value.index, dtype)
    if dtype == "float8_e4m3fn" and not stays_at_largest():
        number = cast(value, "float32")
        beyond = op("gt", op("abs", number), Const(_ROUNDED_DOWN, "float32"))
        return Op("cast", (op("where", beyond, Const(math.nan, "float32"), number),), dtype)
    return Op("cast", (value,), dtype)


_ROUNDED_DOWN = 464.0
"""Between the largest number of float8_e4m3fn and what would be the next: the last that is rounded to the largest."""


@functools.cache
def stays_at_largest() -> bool:
    """Whether torch converts what is too large for float8_e4m3fn to its largest number; NaN before 2.13."""
    return not math.isnan(torch.tensor(1e9, device=HOST).to(torch.float8_e4m3fn).item())


def const(value: bool | int | float | Index, dtype: str) -> Any:
    """A constant of ``dtype``; a size that is no number, converted to it (not where the IR wants a :class:`Const`)."""
    if isinstance(value, Index):
        return cast(index_value(value), dtype)
    if dtype == "bool":
        return Const(bool(value), dtype)
    if dtype in FLOAT8:  # a constant is one of the type's numbers
        return Const(torch.tensor(float(value), dtype=torch.float32, device=HOST).to(getattr(torch, dtype)).item(), dtype)
    return Const(float(value) if dtype in FLOATS else int(value), dtype)


def index_value(i: Index | int, dtype: str = "int64") -> Expr:
    """An index expression as a value."""
    i = index(i)
    return Const(i.constant, dtype) if i.constant is not None else IndexValue(i, dtype)


def all_of(conditions: Sequence[Expr]) -> Expr | None:
    """Their conjunction; None for none."""
    out: Expr | None = None
    for c in conditions:
        out = c if out is None else op("logical_and", out, c)
    return out


def known_order(low: Index | int, high: Index | int) -> bool | None:
    """Whether ``low <= high``; None where that depends on sizes."""
    difference = (index(high) - low).constant
    return None if difference is None else difference >= 0


__all__ = [
    "FLOATS",
    "INTEGERS",
    "LOW",
    "MOVABLE",
    "SUPPORTED",
    "Read",
    "Ref",
    "all_of",
    "cast",
    "const",
    "index_value",
    "known_order",
    "op",
    "wide",
]
