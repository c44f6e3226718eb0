"""What a piece of text needs before it: type definitions, helper functions, declarations. Ordered, each once."""

from __future__ import annotations

from collections.abc import Iterable

from .types import C_OF_SHORT, vector


class Needs:
    """Collects prelude items by name, in order of first need (an item comes after what it needs itself). ``family``: whose processor's
    instructions they may ask for."""

    def __init__(self, family: str = "") -> None:
        self.family = family
        self.items: dict[str, str] = {}

    def vector(self, short: str, lanes: int) -> str:
        """Defines a vector type and its unaligned twin (suffix ``u``, for memory); returns its name."""
        name = vector(short, lanes)
        if name not in self.items:
            c, size = C_OF_SHORT[short]
            self.items[name] = (
                f"typedef {c} {name} __attribute__((vector_size({size * lanes})));\n"
                f"typedef {c} {name}u __attribute__((vector_size({size * lanes}), aligned({size}), may_alias));"
            )
        return name

    def add(self, name: str, text: str) -> str:
        self.items.setdefault(name, text)
        return name

    def update(self, items: Iterable[tuple[str, str]]) -> None:
        for name, text in items:
            self.items.setdefault(name, text)
