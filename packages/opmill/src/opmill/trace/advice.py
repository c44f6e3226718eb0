"""What costs time in a trace and what to do about it, with numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .pictures import seconds, short
from .reading import ProcessTrace

_MANY = 3


def advice_for(trace: ProcessTrace) -> Iterator[str]:
    """A line for each."""
    graphs = list(trace.graphs.values())
    for where, times in Counter(found.where for found in trace.breaks).items():
        if times >= _MANY:
            yield f"{times} graph breaks at {short(where)}: each costs a graph of its own; the table of breaks says what to write instead."
    took = {g.begin.where: 0.0 for g in graphs}
    again = Counter(g.begin.where for g in graphs)
    for graph in graphs:
        took[graph.begin.where] += graph.end.seconds if graph.end else 0.0
    for where, times in again.items():
        if times > _MANY:
            yield (
                f"{times} graphs begin at the same line and took {seconds(took[where])}; "
                "the table of recompiles says which assumption changes."
            )
    uncached = [g for g in graphs if g.end and not g.end.cached]
    fallen = [g for g in graphs if g.end and g.end.fallback]
    if fallen:
        yield f"{len(fallen)} of {len(graphs)} graphs run uncompiled."
    if graphs and len(uncached) < len(graphs):
        yield f"{len(graphs) - len(uncached)} of {len(graphs)} graphs came from the cache; with an empty OPMILL_CACHE_DIR their steps show."


__all__ = ["advice_for"]
