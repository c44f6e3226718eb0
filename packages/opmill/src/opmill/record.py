"""What happened while compiling, kept per compiled callable so that ``opmill.explain`` can tell it."""

from __future__ import annotations

import itertools
import logging
import weakref
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from .excerpt import Span, excerpt
from .logs import topic
from .metrics import count

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
    (file, line, function) of the user's frames that were being captured, innermost first; ``span``: lines and columns of the expression.
    ``times``: how often it was met while compiling."""

    code: str
    what: str
    where: str
    why: str
    hint: str
    stack: tuple[tuple[str, int, str], ...] = ()
    span: Span | None = None
    times: int = 1

    def __str__(self) -> str:
        often = f" (met {self.times} times)" if self.times > 1 else ""
        lines = [
            f"{self.code}: {self.what}{often}",
            *(f"  {k}: {v}" for k, v in (("at", self.where), ("why", self.why), ("hint", self.hint)) if v),
        ]
        return "\n".join([*lines, *excerpt(self.stack, self.span)])


class RecompileRecord(Struct, frozen=True):
    """A call that no specialisation was made for: of which function, and for each specialisation, the latest first, what it assumes that
    did not hold (``x.size(0): expected s0 >= 4 (...), found ...``)."""

    function: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.function} is compiled again:", *(f"  {reason}" for reason in self.reasons)])


class Record(Struct):
    """All graphs compiled for one callable, all breaks, and why it was compiled again, oldest first. ``tracing``: where that is written
    as well (``trace.writer.Tracing``), None for nowhere."""

    graphs: list[GraphRecord] = []
    breaks: list[BreakRecord] = []
    recompiles: list[RecompileRecord] = []
    tracing: Any = None
    frozen: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """What runs graphs with weights that stay; each has a method ``thaw``."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def next_number(self) -> int:
        return next(self._numbers)

    def add(self, graph: GraphRecord) -> None:
        self.graphs.append(graph)
        del self.graphs[:-_KEPT]

    def add_break(self, found: BreakRecord) -> None:
        """Notes a break once, and how often it was met: its code may be compiled again and again."""
        for number, known in enumerate(self.breaks):
            if replace(known, times=1) == found:
                self.breaks[number] = replace(known, times=known.times + 1)
                return
        count("breaks")
        if self.tracing is not None:
            self.tracing.broken(found)
        topic("breaks").info("%s", found)
        self.breaks.append(found)
        del self.breaks[:-_KEPT]

    def add_recompile(self, function: Any, failures: Any) -> None:
        """Notes why a call fits no specialisation of ``function``."""
        count("recompiles")
        self.recompiles.append(RecompileRecord(function.__qualname__, tuple(str(failure) for failure in failures[::-1])))
        if self.tracing is not None:
            self.tracing.recompiled(self.recompiles[-1])
        topic("recompiles").info("%s", self.recompiles[-1])
        del self.recompiles[:-_KEPT]

    def captured(self, translation: Any) -> None:
        """Notes that a piece of code was captured."""
        count("captures")
        if self.tracing is not None:
            self.tracing.captured(translation)
        if topic("guards").isEnabledFor(logging.DEBUG):
            name = getattr(translation.target, "__qualname__", "code")
            topic("guards").debug("%s assumes:%s", name, "".join(f"\n  {guard}" for guard in translation.guards))

    def clear(self) -> None:
        self.recompiles.clear()
        self.graphs.clear()
        self.frozen.clear()
        self.breaks.clear()
