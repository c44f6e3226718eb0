"""Memory without gaps, the last dimension innermost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from .loops.index import Index

Size = Union[int, Index]
"""A size, stride or offset: a number, or an expression over size symbols that is none. Comparing it with ``==`` tells whether it is
certainly the same; an order that it does not tell raises ``SizeUnknown``."""


def contiguous(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Row-major strides in elements, as torch counts them: a size of zero counts as one."""
    out: list[Size] = []
    step: Size = 1
    for size in reversed(sizes):
        out.append(step)
        number = size if isinstance(size, int) else size.constant
        step = step * (size if number is None else max(number, 1))
    return tuple(reversed(out))
