"""Sequences that do one thing over and over: where rows are like the rows a period further on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

_PERIODS = 12
"""Periods that are tried, the most frequent distances between like rows."""


class Rows(Protocol):
    """``tokens`` are equal for rows that may be alike, whatever they read."""

    tokens: list[int]

    def alike(self, row: int, period: int) -> bool:
        """Whether ``row`` and the row a period on are counterparts, also in what they read."""


def likely_periods(tokens: Sequence[int]) -> list[int]:
    """The most frequent first."""
    last: dict[int, int] = {}
    distances: Counter[int] = Counter()
    for k, token in enumerate(tokens):
        if token in last:
            distances[k - last[token]] += 1
        last[token] = k
    return [distance for distance, _ in distances.most_common(_PERIODS)]


def stretches(rows: Rows, period: int, fewest: int) -> list[tuple[int, int]]:
    """Maximal ranges of rows that have this period, at least ``fewest`` times."""
    found: list[tuple[int, int]] = []
    start = 0
    last = len(rows.tokens) - period
    for k in range(last + 1):
        if k == last or not rows.alike(k, period):
            if k - start >= period * (fewest - 1):
                found.append((start, k + period))
            start = k + 1
    return found


__all__ = ["Rows", "likely_periods", "stretches"]
