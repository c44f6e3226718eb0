"""Calls that the program's own code makes before the graph, each time: what they give is an input of the graph.

A call may be made there if nothing that the captured code does comes in its way: it reads no tensor of outside and nothing that was changed
before, changes nothing, and draws no numbers. What captured code assumes of its result is checked natively right after the call; where
that does not hold, the function runs as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from opmill_guards.kinds import kind_of
from opmill_guards.source import Local, Source
from opmill_guards.tree import GuardSet

from ..values.base import Value

if TYPE_CHECKING:
    from opmill_guards.guard import Guard

    from ..codegen.rebuild import Rebuilder

PREFIX = "asked."
"""How names of results begin: no parameter has such a name."""


class Asked(Struct, eq=False):
    """A call: ``function(*args, **kwargs)``, each an object or, where it is a tracked value, what that stands for. ``source``: where the
    result is; None: nobody reads it."""

    function: object
    args: tuple[object, ...]
    kwargs: dict[str, object]
    source: Local | None


class Expected:
    """Says whether the results are what captured code assumes. ``guards`` is known when the capture ends."""

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self._check: Any = None

    def complete(self, guards: list[Guard], names: list[str]) -> None:
        self.guards = guards
        self._check = GuardSet(guards).native(names).check

    def __call__(self, *values: object) -> bool:
        return self._check(*values)


def new_source(asked: list[Asked]) -> Local:
    """The source of what the next call gives that is made before the graph."""
    return Local(f"{PREFIX}{len(asked)}")


def is_asked(source: Source | None) -> bool:
    """Whether a source leads to the result of such a call."""
    root = getattr(source, "root", None)
    return type(root) is Local and root.name.startswith(PREFIX)


def apart(guards: list[Guard]) -> tuple[list[Guard], list[Guard]]:
    """Guards that can be checked when the function is called, and those that look at results of such calls."""
    early: list[Guard] = []
    late: list[Guard] = []
    for guard in guards:
        (late if any(map(is_asked, kind_of(guard).sources(guard))) else early).append(guard)
    return early, late


def is_given(value: Value) -> bool:
    """Whether a value of before the call can be named before the graph."""
    return value.source is not None and not is_asked(value.source)


def statements(r: Rebuilder, calls: list[Asked], expected: Expected, names: list[str], otherwise: str) -> list[str]:
    """Makes the calls, and leaves by ``otherwise`` where the results are not what is expected. ``r``: the `Rebuilder`; ``names``: the
    function's parameters."""
    lines: list[str] = []
    results: list[str] = []

    def given(arg: object) -> str:
        return str(r.source(arg.source) if isinstance(arg, Value) else r.constants.name(arg))

    for call in calls:
        parts = [*map(given, call.args), *(f"{k}={given(v)}" for k, v in call.kwargs.items())]
        text = f"{r.constants.name(call.function)}({', '.join(parts)})"
        if call.source is not None:
            results.append(r.source(call.source))
            text = f"{results[-1]} = {text}"
        lines.append(text)
    if results:
        lines.append(f"if not {r.constants.name(expected)}({', '.join([*names, *results])}): {otherwise}")
    return lines


__all__ = ["Asked", "Expected", "apart", "is_asked", "is_given", "new_source", "statements"]
