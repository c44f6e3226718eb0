"""How much of attention a program does."""

from __future__ import annotations

from collections.abc import Mapping

from opmill_graph_ir.loops.ir import Attention, Ref

from ..budget import DEFAULT, AttentionShape, Budget
from ..emit.types import TYPES
from .bounds import band_of

_FEWEST = 16
"""Rows of a tile that matrix units take."""

_SHAPES = {
    "forward": {
        (2, 64): AttentionShape(64, 64, 4, 3),
        (2, 128): AttentionShape(128, 64, 8, 3),
        (2, 256): AttentionShape(64, 32, 4, 2),
        (4, 64): AttentionShape(64, 32, 4, 2),
        (4, 128): AttentionShape(32, 32, 8, 1),
        (4, 256): AttentionShape(16, 16, 4, 1),
    },
    "keys": {
        (2, 64): AttentionShape(64, 128, 4, 2),
        (2, 128): AttentionShape(128, 64, 8, 3),
        (2, 256): AttentionShape(32, 32, 8, 1),
        (4, 64): AttentionShape(64, 32, 8, 1),
        (4, 128): AttentionShape(32, 32, 8, 1),
        (4, 256): AttentionShape(16, 16, 4, 1),
    },
    "queries": {
        (2, 64): AttentionShape(64, 64, 4, 3),
        (2, 128): AttentionShape(128, 64, 8, 3),
        (2, 256): AttentionShape(32, 32, 8, 1),
        (4, 64): AttentionShape(64, 32, 4, 1),
        (4, 128): AttentionShape(16, 32, 4, 1),
        (4, 256): AttentionShape(16, 16, 4, 1),
    },
}
"""By the size of elements in bytes and the larger head dimension, up to which they are taken: in half precision the quickest of fourteen on
an H100 (a causal mask, 4,096 positions), else what needs no more registers than there are on compute capability 9.0, or few more."""
_CHANGED: dict[str, dict[tuple[int, int], AttentionShape]] = {
    "forward": {(2, 128): AttentionShape(64, 64, 4, 3)},
    "keys": {(2, 64): AttentionShape(64, 64, 4, 2), (2, 128): AttentionShape(64, 64, 4, 2)},
    "queries": {},
}
"""The same where scores are changed, which takes registers."""
_OPEN: dict[str, dict[tuple[int, int], AttentionShape]] = {
    "forward": {(2, 128): AttentionShape(128, 128, 8, 3)},
    "keys": {(2, 128): AttentionShape(128, 128, 8, 2)},
    "queries": {(2, 128): AttentionShape(128, 128, 8, 2)},
}
"""The same where scores are what products give, and a mask says between which places, open on one side: with windows, gradients of keys
took 2.9 ms so, and 0.6 in smaller tiles."""
OTHERS = (
    AttentionShape(128, 64, 8, 3),
    AttentionShape(128, 128, 8, 2),
    AttentionShape(128, 128, 8, 3),
    AttentionShape(128, 32, 8, 3),
    AttentionShape(64, 128, 4, 2),
    AttentionShape(64, 64, 4, 3),
    AttentionShape(64, 64, 4, 2),
    AttentionShape(64, 32, 4, 3),
    AttentionShape(128, 64, 8, 3, ahead=True),
)
"""What is measured beside them where that is asked for."""


def shape_of(found: Attention, budget: Budget) -> AttentionShape:
    """The shape of a kernel; smaller ones where the budget is smaller, or where there are few rows."""
    size, width = TYPES[found.dtype].size, max(found.width, found.depth)
    place = next(place for place in _SHAPES[found.part] if place[0] == size and width <= place[1])
    shape = budget.attention or _special(found).get(place) or _SHAPES[found.part][place]
    rows, steps, warps, stages = shape.rows, shape.steps, shape.warps, shape.stages
    tile = budget.tile
    while tile < DEFAULT.tile:
        rows, steps = max(rows // 2, _FEWEST), max(steps // 2, _FEWEST)
        stages, tile = max(stages - 1, 1), tile * 2
    count = found.keys if found.part == "keys" else found.queries
    while rows >= 2 * max(count, _FEWEST):
        rows //= 2
    if found.query_block:  # tiles are parts of blocks
        own, others = (found.key_block, found.query_block) if found.part == "keys" else (found.query_block, found.key_block)
        rows, steps = min(rows, own & -own), min(steps, others & -others)
    return AttentionShape(rows, steps, min(warps, 4) if rows < 64 and size == 2 else warps, stages, shape.ahead)


def _special(found: Attention) -> Mapping[tuple[int, int], AttentionShape]:
    """Shapes that go before the usual ones."""
    if type(found.score) is not Ref:
        return _CHANGED[found.part]
    band = band_of(found.kept, "i", "j")
    return _OPEN[found.part] if band.whole and (band.low is None or band.high is None) else {}


__all__ = ["OTHERS", "shape_of"]
