"""How rows are found, and what they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..record import Recorder

ROWS: dict[str, Callable[..., Any]] = {}
"""By the name of the operator."""

Call = Callable[[Any, Sequence[Any], Recorder], Any]
"""``call(function, args, recorder)``: what a graph module, or another function, gives for fakes, written down by the recorder."""


@dataclass(frozen=True)
class Run:
    """The capture that meets the operator."""

    recorder: Recorder
    call: Call

    def inline(self, function: Any, *args: Any) -> Any:
        """``function`` as a part of the graph being captured."""
        return self.call(function, args, self.recorder)


def row(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorated function is the row of these operators."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        ROWS.update(dict.fromkeys(names, function))
        return function

    return add
