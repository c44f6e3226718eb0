"""Values that may be None."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def all_known(values: Iterable[T | None]) -> list[T] | None:
    """The values; None where one of them is None."""
    found = []
    for value in values:
        if value is None:
            return None
        found.append(value)
    return found


__all__ = ["all_known"]
