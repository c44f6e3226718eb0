"""Where comparisons of positions with constants change along the vector axis: between two such points they are the same for all lanes,
so that the halves of a rotary embedding or the parts of a concatenation need no masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Const, IndexValue, Op, Phase

from .. import walk
from .ranges import Ranges
from .simplify import simplified

_MOST = 4
_OFFSET = {"lt": 0, "ge": 0, "le": 1, "gt": 1}
"""``i < k`` changes between k - 1 and k, ``i <= k`` one later."""


@dataclass(frozen=True)
class Segment:
    """Points [begin, end) of the axis, and the phases as they are there."""

    begin: int
    end: int
    phases: tuple[Phase, ...]


def segments(phases: tuple[Phase, ...], axis: str, extent: int, lanes: int, ranges: Ranges) -> list[Segment]:
    """The axis in pieces that begin at whole vectors; one where nothing changes, or too much does."""
    cuts = sorted({p for p in _changes(phases, axis) if 0 < p < extent and p % lanes == 0})
    if not cuts or len(cuts) >= _MOST:
        return [Segment(0, extent, phases)]
    edges = [0, *cuts, extent]
    return [Segment(a, b, simplified(phases, {**ranges, axis: (a, b - 1)})) for a, b in pairwise(edges)]


def _changes(phases: tuple[Phase, ...], axis: str) -> Iterator[int]:
    for phase in phases:
        for e in walk.expressions(phase):
            if isinstance(e, Op) and e.name in _OFFSET and isinstance(e.args[0], IndexValue) and isinstance(e.args[1], Const):
                offset = (e.args[0].index - index(axis)).constant
                if offset is not None:
                    yield int(e.args[1].value) - offset + _OFFSET[e.name]
