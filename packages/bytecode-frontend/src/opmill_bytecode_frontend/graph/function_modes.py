"""The torch function modes that captured code has entered: which of them a call of a torch function asks, and where their blocks began."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..values.base import Value


class FunctionModes:
    """``on``: those that are asked, the innermost last; while one answers it is not among them. ``began``: the places of the capture where
    the blocks that it is in were entered."""

    def __init__(self) -> None:
        self.on: list[Value] = []
        self.began: list[int] = []

    def enter(self, mode: Value, place: int) -> None:
        self.on.append(mode)
        self.began.append(place)

    def leave(self) -> bool:
        """Ends the innermost block; False where there is none."""
        if not self.on:
            return False
        self.on.pop()
        self.began.pop()
        return True

    @contextmanager
    def asking(self) -> Iterator[Value]:
        """The innermost, which answers meanwhile: what it calls asks the next."""
        mode = self.on.pop()
        try:
            yield mode
        finally:
            self.on.append(mode)


__all__ = ["FunctionModes"]
