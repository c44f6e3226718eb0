"""What happened while compiling, kept per compiled callable so that ``opmill.explain`` can tell it."""

from __future__ import annotations

import inspect
import itertools
import logging
import re
import types
import weakref
from typing import Any

import torch
from msgspec import Struct, field
from msgspec.structs import replace

from .edits import Edits
from .logs import topic
from .metrics import count
from .shown import InNotebooks

Span = tuple[int | None, int | None, int | None, int | None]
"""First line, last line, first column, column behind the last."""
_MODULES = torch.nn.Module._call_impl.__code__.co_filename
"""Where the functions are that only call a module's ``forward``."""
_DATA_SIZES = re.compile(r"\bu\d+\b")
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


class BreakRecord(InNotebooks, Struct, frozen=True):
    """Where a graph ended: the number of the reason, what was met, where (``file:line``), why it cannot be captured, what to do; ``stack``:
    (file, line, function) of the user's frames that were being captured, innermost first; ``spans``: lines and columns of the expression in
    each. ``times``: how often it was met while compiling; ``turns``: whether a loop of the program meets it again and again."""

    code: str
    what: str
    where: str
    why: str
    hint: str
    stack: tuple[tuple[str, int, str], ...] = ()
    spans: tuple[Span, ...] = ()
    times: int = 1
    turns: bool = False

    def place(self) -> tuple[object, ...]:
        """What tells it from others: which sizes that only data tell take part (``u0``, ``u1``), and why, may differ from turn to turn."""
        return self.code, self.where, self.stack[:1], self.spans[:1], _DATA_SIZES.sub("u", self.what)

    def __str__(self) -> str:
        often = f" (met {self.times} times)" if self.times > 1 else ""
        from opmill_bytecode_frontend.messages.excerpt import excerpt  # there by now

        loop = "it is inside of a loop: each turn ends a graph, and starts another" if self.turns else ""
        told = (("at", self.where), ("why", self.why), ("loop", loop), ("hint", self.hint))
        lines = [f"{self.code}: {self.what}{often}", *(f"  {k}: {v}" for k, v in told if v)]
        return "\n".join([*lines, *excerpt(self.stack, self.spans)])


class RecompileRecord(InNotebooks, Struct, frozen=True):
    """A call that no specialisation was made for: of which function, and for each specialisation, the latest first, what it assumes that
    did not hold (``x.size(0): expected s0 >= 4 (...), found ...``). ``where``: the function (``file:line``); ``read``: the line of it that
    reads what changed, as a traceback shows it, where that is known; ``hint``: what to do."""

    function: str
    reasons: tuple[str, ...]
    where: str = ""
    hint: str = ""
    read: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = [f"  {reason}" for reason in self.reasons[:1]]
        if len(self.reasons) > 1:
            told.append(f"  nor does the call fit what was compiled before ({len(self.reasons) - 1} times)")
        told += [f"  {k}: {v}" for k, v in (("at", self.where), ("hint", self.hint)) if v]
        return "\n".join([f"{self.function} is compiled again, for the {_ordinal(len(self.reasons) + 1)} time:", *told, *self.read])


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def _reading(code: types.CodeType, source: Any) -> tuple[str, ...]:
    """The line that reads what a guard is about, marked with carets: the last name in the guard's source that the code reads."""
    from opmill_bytecode_frontend.messages.excerpt import excerpt, first_read

    arguments = code.co_argcount + code.co_kwonlyargcount
    takes_all = code.co_varnames[arguments : arguments + 2] if code.co_flags & _TAKES_ALL == _TAKES_ALL else ()
    for name in reversed(re.findall(r"[A-Za-z_]\w*", str(source))):
        if name not in _OF_GUARDS and name not in takes_all and (found := first_read(code, name)) is not None:
            file, line, function, span = found
            return tuple(excerpt([(file, line, function)], [span]))
    return ()


_TAKES_ALL = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
"""What a function is that is called with any arguments: where it reads these tells nothing."""
_OF_GUARDS = frozenset({"self", "__dict__", "cell_contents"})
"""Names in sources that say how a value is reached, not which it is."""


class Record(Struct):
    """All graphs compiled for one callable, all breaks, and why it was compiled again, oldest first. ``name`` and ``code``: what the
    program calls it, and its code. ``tracing``: where that is written as well (``trace.writer.Tracing``), None for nowhere. ``settings``:
    what it is compiled with. ``edits``: kernels that are being edited; ``folder``: where they are looked at and edited, once that was asked
    for. ``seconds``: that reading its code took, what backends took in between left out."""

    name: str
    code: types.CodeType
    graphs: list[GraphRecord] = []
    breaks: list[BreakRecord] = []
    recompiles: list[RecompileRecord] = []
    tracing: Any = None
    settings: Any = None
    edits: Edits | None = None
    folder: str = ""
    seconds: float = 0.0
    frozen: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """What runs graphs with weights that stay; each has a method ``thaw``."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def next_number(self) -> int:
        return next(self._numbers)

    def add(self, graph: GraphRecord) -> None:
        """Notes a graph; one with its number, which was compiled before, is that no more."""
        self.graphs[:] = [each for each in self.graphs if each.number != graph.number]
        self.graphs.append(graph)
        del self.graphs[:-_KEPT]

    def add_break(self, found: BreakRecord) -> None:
        """Notes a break once, and how often it was met: its code may be compiled again and again."""
        for number, known in enumerate(self.breaks):
            if known.place() == found.place():
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
        self.recompiles.append(self._recompile(function, failures[::-1]))
        if self.tracing is not None:
            self.tracing.recompiled(self.recompiles[-1])
        topic("recompiles").info("%s", self.recompiles[-1])
        del self.recompiles[:-_KEPT]

    def _recompile(self, function: Any, failures: Any) -> RecompileRecord:
        from opmill_bytecode_frontend.entry.capture import remedy  # there by now
        from opmill_bytecode_frontend.messages.excerpt import plainly

        own = function.__code__.co_filename != _MODULES
        name, code = (function.__qualname__, function.__code__) if own else (self.name, self.code)
        reasons = tuple(plainly(str(failure)) for failure in failures)
        if not failures:
            return RecompileRecord(name, reasons)
        guard = failures[0].guard
        source = getattr(guard, "source", "") or failures[0].found.partition(":")[0]
        where = f"{code.co_filename}:{code.co_firstlineno}"
        return RecompileRecord(name, reasons, where, remedy(guard), _reading(code, source))

    def captured(self, translation: Any) -> None:
        """Notes that a piece of code was captured."""
        count("captures")
        if self.tracing is not None:
            self.tracing.captured(translation, self.code)
        if topic("guards").isEnabledFor(logging.DEBUG):
            from opmill_guards.tree import describe  # there by now

            name = getattr(translation.target, "__qualname__", "code")
            topic("guards").debug("%s assumes:%s", name, "".join(f"\n  {describe(guard)}" for guard in translation.guards))

    def clear(self) -> None:
        self.seconds = 0.0
        self.recompiles.clear()
        self.graphs.clear()
        self.frozen.clear()
        self.breaks.clear()
