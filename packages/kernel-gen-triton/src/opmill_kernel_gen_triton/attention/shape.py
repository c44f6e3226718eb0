"""How much of attention a program does."""

from __future__ import annotations

from dataclasses import dataclass

from opmill_graph_ir.loops.ir import Attention

from ..budget import DEFAULT, Budget
from ..emit.types import TYPES


@dataclass(frozen=True)
class AttentionShape:
    """A program has ``rows`` rows and walks over the others ``steps`` at a time, with loads ``stages`` steps ahead. Powers of two."""

    rows: int
    steps: int
    warps: int
    stages: int


FORWARD = {
    (2, 64): AttentionShape(128, 64, 4, 3),
    (2, 128): AttentionShape(128, 64, 8, 3),
    (2, 256): AttentionShape(64, 32, 4, 2),
    (4, 64): AttentionShape(64, 32, 4, 2),
    (4, 128): AttentionShape(32, 32, 4, 2),
    (4, 256): AttentionShape(16, 16, 4, 1),
}
"""By the size of elements in bytes and the larger head dimension, up to which they are taken."""
BACKWARD = {
    (2, 64): AttentionShape(64, 64, 4, 2),
    (2, 128): AttentionShape(64, 64, 8, 2),
    (2, 256): AttentionShape(32, 32, 8, 1),
    (4, 64): AttentionShape(32, 32, 4, 1),
    (4, 128): AttentionShape(16, 32, 4, 1),
    (4, 256): AttentionShape(16, 16, 4, 1),
}


def shape_of(found: Attention, budget: Budget) -> AttentionShape:
    """The shape of a kernel; smaller ones where the budget is smaller."""
    size, width = TYPES[found.dtype].size, max(found.width, found.depth)
    table = FORWARD if found.part == "forward" else BACKWARD
    shape = next(s for (bytes_, widest), s in table.items() if bytes_ == size and width <= widest)
    tile = budget.tile
    while tile < DEFAULT.tile:
        rows, steps = max(shape.rows // 2, 16), max(shape.steps // 2, 16)
        shape, tile = AttentionShape(rows, steps, shape.warps, max(shape.stages - 1, 1)), tile * 2
    return shape


__all__ = ["AttentionShape", "shape_of"]
