"""What happened while compiling, kept per compiled callable so that ``opmill.explain`` can tell it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

_KEPT = 256  # records of one callable; the oldest go first, so that a program that recompiles for ever does not grow for ever


@dataclass
class GraphRecord:
    """One graph given to the backend. ``seconds``: the backend's time. ``report``: the backend's own account (phases, kernels), if it gave
    one. ``fallback``: why the graph runs as torch's own operators; empty where it was compiled."""

    number: int
    operators: int
    inputs: int
    text: str
    seconds: float
    where: str = ""
    report: Any = None
    fallback: str = ""


@dataclass
class Record:
    """All graphs compiled for one callable, oldest first."""

    graphs: list[GraphRecord] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def next_number(self) -> int:
        return next(self._numbers)

    def add(self, graph: GraphRecord) -> None:
        self.graphs.append(graph)
        del self.graphs[:-_KEPT]
