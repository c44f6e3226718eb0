"""Where lanes of a vector read that are not a step apart: each channel of a group its group's mean, each element that was repeated its
source."""

from __future__ import annotations

from collections.abc import Mapping

from opmill_graph_ir.loops.index import Index, index

_BLOCK, _LANE = "lane block", "lane"


def by_lane(i: Index, axis: str, lanes: int, extents: Mapping[str, int]) -> Index:
    """``i`` by vector and by lane of it, along ``axis``, whose vectors begin at multiples of ``lanes``."""
    blocks = extents.get(axis, 1 << 40) // lanes + 1
    return i.substitute({axis: index(_BLOCK) * lanes + _LANE}, {**extents, _LANE: lanes, _BLOCK: blocks})


def even_step(i: Index, axis: str, lanes: int, extents: Mapping[str, int]) -> Index | None:
    """What lies between two lanes, where that is the same everywhere: i // 64 and i % 64 are even within vectors of 8."""
    step = by_lane(i, axis, lanes, extents).stride_of(_LANE)
    return None if step is None or _BLOCK in step.symbols else step


def offsets(i: Index, axis: str, lanes: int, extents: Mapping[str, int]) -> tuple[int, ...] | None:
    """How far each lane is from the first, where that is the same in all vectors and they are of a few neighbours: i // 4 and i % 4."""
    parts = by_lane(i, axis, lanes, extents)
    first, found = parts.substitute({_LANE: 0}, extents), []
    for lane in range(lanes):
        distance = (parts.substitute({_LANE: lane}, extents) - first).constant
        if distance is None or not 0 <= distance < lanes:
            return None
        found.append(distance)
    return tuple(found)
