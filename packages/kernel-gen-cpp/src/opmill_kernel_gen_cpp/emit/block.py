"""Nested blocks of C++ lines. What does not depend on an inner loop is written into an outer block while the inner one is still open."""

from __future__ import annotations

from typing import Any


class Block:
    """Lines between braces. ``memo`` names values already computed here; ``depth`` orders nested blocks."""

    def __init__(self, parent: Block | None = None, header: str = "") -> None:
        self.parent, self.header = parent, header
        self.depth: int = parent.depth + 1 if parent else 0
        self.lines: list[str] = []
        self.memo: dict[tuple[object, ...], Any] = {}

    def add(self, line: str) -> None:
        self.lines.append(line)

    def nested(self, header: str) -> Block:
        """Opens a block after what stands here at its closing."""
        return Block(self, header)

    def close(self) -> None:
        """Appends this block to its parent."""
        assert self.parent is not None
        self.parent.lines += [f"{self.header} {{", *("  " + line for line in self.lines), "}"]
