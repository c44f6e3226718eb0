"""Sums of products in which each operand is used again at many points: convolutions. Generators write them as
blocked products.

What matters to them is that operands are read from memory as they are, and that whatever follows is done point by point."""

from __future__ import annotations

from ..loops.ir import Op
from ..lowered import Read
from .loop import Loop


def is_product(loop: Loop) -> bool:
    """Whether the loop is one sum of ``a * b`` where elements of both occur in the sums of several points: where an operand lacks an
    outer axis, or a window moves over it."""
    if len(loop.reductions) != 1 or loop.reductions[0].op != "sum" or loop.lets or loop.checks:
        return False
    value = loop.reductions[0].value
    if type(value) is not Op or value.name != "mul" or not all(type(a) is Read for a in value.args):
        return False
    outer, inner = {a.name for a in loop.axes}, {a.name for a in loop.inner}
    first, second = value.args
    return _recurs(first, outer, inner) and _recurs(second, outer, inner)  # type: ignore[arg-type]


def _recurs(read: Read, outer: set[str], inner: set[str]) -> bool:
    lacking = outer - {s for i in read.indices for s in i.symbols}
    return bool(lacking) or any(i.symbols & outer and i.symbols & inner for i in read.indices)
