"""What captured code assumes of an array, or a number, of NumPy."""

from __future__ import annotations

import sys
from typing import Any

from msgspec import Struct

Array = Any
"""An array or number of NumPy's, which may be absent."""


class Laid(Struct, frozen=True):
    """Whether an array has this dtype and these sizes, and may be written. ``strides``: in bytes; None: items lie side by side, the last
    dimension's first, which arrays whose sizes are not all assumed do (None in ``sizes``)."""

    dtype: object
    sizes: tuple[int | None, ...]
    strides: tuple[int, ...] | None

    def __call__(self, now: Array) -> bool:
        if now.dtype != self.dtype or not now.flags.writeable or not now.flags.aligned or now.ndim != len(self.sizes):
            return False
        if self.strides is not None:
            return bool(now.shape == self.sizes and now.strides == self.strides)
        return all(n is None or n == m for n, m in zip(self.sizes, now.shape)) and side_by_side(now)

    def changed(self, now: Array) -> set[int]:
        """Dimensions whose sizes are others; none, where more is than sizes."""
        if not is_array(now) or now.dtype != self.dtype or now.ndim != len(self.sizes) or not side_by_side(now):
            return set()
        return {d for d, n in enumerate(self.sizes) if n is not None and n != now.shape[d]}

    def __str__(self) -> str:
        return f"is {self.dtype}{['?' if n is None else n for n in self.sizes]}".replace("'", "")


class Number(Struct, frozen=True):
    """Whether a number of NumPy's is of this class and has these bytes: zeros have signs, and NaN is NaN."""

    cls: type
    held: bytes
    floating: bool

    def __call__(self, now: Array) -> bool:
        held: Array = now
        return type(now) is self.cls and bool(held.tobytes() == self.held)


def is_array(found: object) -> bool:
    """Whether what is found where an array was is one: NumPy takes None for a dtype, so that one that is missing equals float64."""
    return isinstance(found, sys.modules["numpy"].ndarray)


def side_by_side(array: Array) -> bool:
    """Whether strides are what the sizes say, those of dimensions of one item too."""
    stride = array.itemsize
    for size, own in zip(reversed(array.shape), reversed(array.strides)):
        if own != stride:
            return False
        stride *= size
    return True


__all__ = ["Laid", "Number", "side_by_side"]
