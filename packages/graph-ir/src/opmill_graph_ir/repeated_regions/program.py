"""A graph without its repeated blocks, and its schedule with them: blocks are lowered and scheduled once."""

from __future__ import annotations

from collections.abc import Sequence

from ..capture.graph import AtenGraph
from ..schedule.steps import Schedule
from .extend import extend
from .find import find
from .shorten import Shortened, shorten

_MOST = 0.8
"""Share of the rows that may be left: what is scheduled and turns out not to repeat was scheduled in vain."""


def put_back(program: Schedule, found: list[Shortened]) -> tuple[Schedule | None, list[Shortened]]:
    """The schedule with all blocks that ``found`` left out; or None, and the cuts to try instead: one did not repeat once it was
    scheduled."""
    whole, done = _extended(program, found)
    return whole, found if whole is not None else _worthwhile(found[: -1 - done])


def cuts(graph: AtenGraph) -> list[Shortened]:
    """The graph shortened at its longest repetition, this again at its longest, and so on, if that leaves out enough."""
    found: list[Shortened] = []
    while (repeats := find(graph)) is not None and (cut := shorten(graph, repeats)) is not None:
        found.append(cut)
        graph = cut.graph
    return _worthwhile(found)


def _worthwhile(found: list[Shortened]) -> list[Shortened]:
    return found if found and len(found[-1].graph.nodes) <= _MOST * len(found[0].whole.nodes) else []


def _extended(program: Schedule, found: Sequence[Shortened]) -> tuple[Schedule | None, int]:
    """The schedule with all blocks, the last cut undone first; None where one cannot be undone, and how many could."""
    for done, cut in enumerate(reversed(found)):
        if (whole := extend(program, cut)) is None:
            return None, done
        program = whole
    return program, len(found)


__all__ = ["cuts", "put_back"]
