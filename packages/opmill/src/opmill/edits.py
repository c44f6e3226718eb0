"""Kernels of a compiled callable that are being edited: where their files are, and graphs that are compiled anew when one of them
changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

Runner = Callable[..., Sequence[Any]]


class Edits(Struct):
    """``folder``: where a callable's kernels are taken from; ``files``: those that somebody was given to edit; ``begun``: whether nothing
    was compiled since the last of them was given."""

    folder: Path
    files: list[Path] = []
    begun: bool = False

    def stamps(self) -> tuple[object, ...]:
        """Another value once one of the files was written again."""
        return tuple(map(_stamp, self.files))


def _stamp(file: Path) -> object:
    try:
        found = os.stat(file)
    except OSError:  # removed, or about to be put in its place
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class EditedGraph:
    """Runs a graph whose kernels are being edited. ``again(inputs)`` compiles it: that is done in the call behind an edit."""

    def __init__(self, runner: Runner, edits: Edits, again: Callable[[Sequence[Any]], Runner]) -> None:
        self._runner, self._edits, self._again = runner, edits, again
        self._stamps = edits.stamps()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if (stamps := self._edits.stamps()) != self._stamps:
            self._stamps = stamps
            self._runner = self._again(inputs)
        return self._runner(*inputs)


__all__ = ["EditedGraph", "Edits"]
