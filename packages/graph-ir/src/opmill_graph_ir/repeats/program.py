"""A graph's schedule, with its repeated blocks lowered and scheduled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType

from ..capture.graph import AtenGraph
from ..lowered import Lowered
from ..ops.lower import lower
from ..options import GraphOptions
from ..report import Report, show
from ..schedule.steps import Schedule, schedule
from .extend import extend
from .find import find
from .shorten import Shortened, shorten

_MOST = 0.8
"""Share of the rows that may be left: what is scheduled and turns out not to repeat was scheduled in vain."""


def scheduled(
    graph: AtenGraph, calls: Set[str], options: GraphOptions, report: Report, products: Mapping[str, bool] = MappingProxyType({})
) -> tuple[Lowered, Schedule]:
    """The program that was lowered (of the graph without the blocks that the schedule repeats), and the schedule of all. Operators whose origin is among
    ``calls`` are called as torch's; ``products``: results of matrix products that are loops, and whether they compute their operands."""
    with report.step("repeats"):
        found = cuts(graph) if options.fusion else []
    while True:
        with report.step("lower"):
            lowered = lower(found[-1].graph if found else graph, calls, exact=options.numerics == "eager", products=products)
            show("lower", lowered, options)
        with report.step("schedule"):
            program = schedule(lowered, fusion=options.fusion)
        with report.step("repeats"):
            whole, done = _extended(program, found)
        if whole is not None:
            show("schedule", whole, options)
            return lowered, whole
        found = _worthwhile(found[: -1 - done])  # that one does not repeat once it is scheduled


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


__all__ = ["cuts", "scheduled"]
