"""What happened while compiling, kept per compiled callable so that ``opmill.explain`` can tell it."""

from __future__ import annotations

import itertools
from typing import Any

from msgspec import Struct, field

_KEPT = 256  # records of one callable; the oldest go first, so that a program that recompiles for ever does not grow for ever


class GraphRecord(Struct):
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


class BreakRecord(Struct, frozen=True):
    """Where a graph ended: the number of the reason, what was met, where (``file:line``), why it cannot be captured, what to do; ``stack``:
    (file, line, function) of the user's frames that were being captured, innermost first."""

    code: str
    what: str
    where: str
    why: str
    hint: str
    stack: tuple[tuple[str, int, str], ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.what}", *(f"  {k}: {v}" for k, v in (("at", self.where), ("why", self.why), ("hint", self.hint)) if v)]
        if len(self.stack) > 1:
            lines += [f"  {'called at' if number else 'in'}: {file}:{line} in {name}" for number, (file, line, name) in enumerate(self.stack)]
        return "\n".join(lines)


class RecompileRecord(Struct, frozen=True):
    """A call that no specialisation was made for: of which function, and for each specialisation, the latest first, what it assumes that did
    not hold (``x.size(0): expected s0 >= 4 (...), found ...``)."""

    function: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.function} is compiled again:", *(f"  {reason}" for reason in self.reasons)])


class Record(Struct):
    """All graphs compiled for one callable, all breaks, and why it was compiled again, oldest first."""

    graphs: list[GraphRecord] = []
    breaks: list[BreakRecord] = []
    recompiles: list[RecompileRecord] = []
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def next_number(self) -> int:
        return next(self._numbers)

    def add(self, graph: GraphRecord) -> None:
        self.graphs.append(graph)
        del self.graphs[:-_KEPT]

    def add_break(self, found: BreakRecord) -> None:
        """Notes a break once, however often its code is compiled again."""
        if found not in self.breaks:
            self.breaks.append(found)
            del self.breaks[:-_KEPT]

    def add_recompile(self, function: Any, failures: Any) -> None:
        """Notes why a call fits no specialisation of ``function``."""
        self.recompiles.append(RecompileRecord(function.__qualname__, tuple(str(failure) for failure in failures[::-1])))
        del self.recompiles[:-_KEPT]

    def clear(self) -> None:
        self.recompiles.clear()
        self.graphs.clear()
        self.breaks.clear()
