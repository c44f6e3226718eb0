"""Finds the longest stretch of a graph that is one block of operators over and over.

Two rows are alike when operator, constants and the looks of all tensors are. A stretch has period ``p`` when each row is like the one ``p``
further on and each operand there is the operand's counterpart: the value ``p`` rows further on, the same value of before, or an input or
held tensor in its place.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..capture.graph import AtenGraph, Meta, Node, Value
from ..periodicity import likely_periods, stretches

KEPT = 4
"""Blocks that a shortened graph keeps: one at each end, where what surrounds them may fuse with them, and two to tell one turn from."""
_WORTHWHILE = 12
"""Rows that must be left out at least."""

Source = tuple[int, int]
"""Where a value comes from: row and number of the result; an input, held tensor or constant has row -1."""


@dataclass(frozen=True)
class Repeats:
    """Row ``start + k * period + r`` does for block ``k`` what row ``start + r`` does for the first, ``count`` blocks in all. ``leaves``:
    by block, the inputs, held tensors and constants that it reads, in order; ``shared``: those of them that are the same for all blocks."""

    start: int
    period: int
    count: int
    leaves: tuple[tuple[str, ...], ...]
    shared: frozenset[str]

    @property
    def end(self) -> int:
        return self.start + self.period * self.count

    def block(self, row: int) -> int:
        """The block of a row; -1 before the first, ``count`` or more behind the last."""
        return (row - self.start) // self.period if row >= self.start else -1


class Rows:
    """A graph as rows: ``tokens`` are equal for rows that are alike, ``operands`` are the values that a row reads."""

    def __init__(self, graph: AtenGraph) -> None:
        self.graph = graph
        self.sources: dict[str, Source] = {r: (k, i) for k, n in enumerate(graph.nodes) for i, r in enumerate(n.results) if r is not None}
        self.operands: list[tuple[str, ...]] = []
        known: dict[Hashable, int] = {}
        looks = _Looks(graph.metas)
        self.tokens: list[int] = []
        for number, node in enumerate(graph.nodes):
            operands: list[str] = []
            token = _token(node, looks, operands)
            try:
                self.tokens.append(-1 - number if token is None else known.setdefault(token, len(known)))
            except TypeError:  # an argument that has no hash: like no other row
                self.tokens.append(-1 - number)
            self.operands.append(tuple(operands))

    def source(self, name: str) -> Source:
        return self.sources.get(name, (-1, 0))

    def alike(self, row: int, period: int) -> bool:
        """Whether ``row`` and the row a period on are counterparts."""
        if self.tokens[row] != self.tokens[row + period]:
            return False
        for here, there in zip(self.operands[row], self.operands[row + period], strict=True):
            if here != there:
                first, second = self.source(here), self.source(there)
                if (first[0] < 0) != (second[0] < 0) or (first[0] >= 0 and (first[0] + period, first[1]) != second):
                    return False
        return True


class _Looks(dict[str, int]):
    """By value, a number that is the same for all that look alike."""

    def __init__(self, metas: Mapping[str, Meta]) -> None:
        self.metas = metas
        self.known: dict[Meta, int] = {}

    def __missing__(self, name: str) -> int:
        self[name] = self.known.setdefault(self.metas[name], len(self.known))
        return self[name]


def _token(node: Node, looks: _Looks, operands: list[str]) -> Hashable | None:
    """Equal for nodes that are alike; None for one that is like no other, since it makes sizes known."""
    args = _frozen(node.args, looks, operands)
    kwargs = tuple((k, _frozen(v, looks, operands)) for k, v in node.kwargs.items())
    return (
        None
        if node.binds
        else (node.func, args, kwargs, tuple(None if r is None else looks[r] for r in node.results), node.again, node.kept)
    )


def _frozen(arg: Any, looks: _Looks, operands: list[str]) -> Hashable:
    """An argument by value, exactly; tensors by what they look like."""
    kind = type(arg)
    if kind is Value:
        operands.append(arg.name)
        return kind, looks[arg.name]
    if kind is tuple or kind is list:
        return kind, tuple([_frozen(a, looks, operands) for a in arg])
    return (kind, repr(arg)) if kind is float or kind is complex else (kind, arg)


def find(graph: AtenGraph) -> Repeats | None:
    """The stretch that leaves out most rows when it is cut to ``KEPT`` blocks; None where no stretch is worth it."""
    if len(graph.nodes) < KEPT + 1 + _WORTHWHILE:
        return None
    rows = Rows(graph)
    best, most = None, _WORTHWHILE - 1
    for period in likely_periods(rows.tokens):
        for start, end in stretches(rows, period, KEPT + 1):
            saved = ((end - start) // period - KEPT) * period
            if saved > most and (found := _checked(rows, start, end, period)) is not None:
                best, most = found, (found.count - KEPT) * period
    return best


def _checked(rows: Rows, start: int, end: int, period: int) -> Repeats | None:
    """Blocks in a stretch, cut where no input and held tensor is used on both sides, each of which is the counterpart of one in every other
    block."""
    offset = _cut(rows, start, end, period)
    if offset is None or (count := (end - start - offset) // period) <= KEPT:
        return None
    start += offset
    blocks = [
        [n for row in range(first, first + period) for n in rows.operands[row] if n not in rows.sources]
        for first in range(start, start + count * period, period)
    ]
    shared = {names[0] for names in zip(*blocks, strict=True) if len(set(names)) == 1}
    pattern = _pattern(blocks[0], rows.graph)
    owner: dict[str, int] = {}
    for k, names in enumerate(blocks):
        if _pattern(names, rows.graph) != pattern or any(owner.setdefault(n, k) != k for n in names if n not in shared):
            return None
    end = start + count * period
    outside = {n for row in (*range(start), *range(end, len(rows.tokens))) for n in rows.operands[row]}
    if (owner.keys() - shared) & (outside | rows.graph.constants.keys()):
        return None
    return Repeats(start, period, count, tuple(map(tuple, blocks)), frozenset(shared))


def _cut(rows: Rows, start: int, end: int, period: int) -> int | None:
    """The first row in a period before which no input or held tensor is used that is used behind it as well, but for those that all blocks
    use."""
    uses: dict[str, tuple[int, int]] = {}
    for row in range(start, end):
        for name in rows.operands[row]:
            if name not in rows.sources:
                uses[name] = uses.get(name, (row, row))[0], row
    free = [True] * period
    for first, last in uses.values():
        if last - first < period:
            for row in range(first + 1, last + 1):
                free[(row - start) % period] = False
    return next((k for k, is_free in enumerate(free) if is_free), None)


def _pattern(names: Sequence[str], graph: AtenGraph) -> list[tuple[int, bool]]:
    """Which leaves of a block are one, and which of them are held."""
    return [(names.index(n), n in graph.held) for n in names]


__all__ = ["KEPT", "Repeats", "Rows", "find"]
