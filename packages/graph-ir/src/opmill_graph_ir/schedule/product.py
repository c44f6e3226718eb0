"""Sums of products in which each operand is used again at many points: convolutions. Generators write them as blocked products.

What matters to them is that operands are read from memory as they are, and that whatever follows is done point by point."""

from __future__ import annotations

from ..loops.ir import Op
from ..lowered import Read
from .loop import Loop


def is_product(loop: Loop) -> bool:
    """Whether the loop is one sum of ``a * b`` where each of them lacks an outer axis that the other has."""
    if len(loop.reductions) != 1 or loop.reductions[0].op != "sum" or loop.lets or loop.checks:
        return False
    value = loop.reductions[0].value
    if type(value) is not Op or value.name != "mul" or not all(type(a) is Read for a in value.args):
        return False
    outer = {a.name for a in loop.axes}
    first, second = (outer & {s for i in a.indices for s in i.symbols} for a in value.args)  # type: ignore[union-attr]
    return not first <= second and not second <= first
