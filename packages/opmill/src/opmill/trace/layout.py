"""Where the nodes of a graph stand in a picture: rows by the longest way from the inputs, in a row by where what they read stands."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

WIDTH, HEIGHT, GAP_X, GAP_Y = 190, 30, 14, 26
"""Of a node, and between nodes; in pixels."""
_ROUNDS = 4


class Placed(Struct, frozen=True):
    """``at``: left upper corner of each node; ``width`` and ``height`` of all together."""

    at: tuple[tuple[float, float], ...]
    width: float
    height: float


def place(reads: Sequence[Sequence[int]]) -> Placed:
    """``reads``: for each node those before it that it reads; smaller numbers than its own."""
    rank: list[int] = []
    for sources in reads:
        rank.append(1 + max((rank[s] for s in sources if s >= 0), default=-1))
    rows: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
    for node, level in enumerate(rank):
        rows[level].append(node)
    readers: list[list[int]] = [[] for _ in reads]
    for node, sources in enumerate(reads):
        for source in sources:
            if source >= 0:
                readers[source].append(node)
    position = {node: float(k) for row in rows for k, node in enumerate(row)}
    for turn in range(_ROUNDS):
        near = [[s for s in sources if s >= 0] for sources in reads] if turn % 2 == 0 else readers
        for row in rows if turn % 2 == 0 else reversed(rows):
            row.sort(key=lambda node: _mean([position[n] for n in near[node]], position[node]))
            for k, node in enumerate(row):
                position[node] = k - (len(row) - 1) / 2
    widest = max(map(len, rows), default=0)
    at = [(0.0, 0.0)] * len(reads)
    for number, nodes in enumerate(rows):
        for node in nodes:
            at[node] = ((position[node] + (widest - 1) / 2) * (WIDTH + GAP_X) + GAP_X, number * (HEIGHT + GAP_Y) + GAP_Y)
    return Placed(tuple(at), widest * (WIDTH + GAP_X) + GAP_X, len(rows) * (HEIGHT + GAP_Y) + GAP_Y)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


__all__ = ["GAP_X", "GAP_Y", "HEIGHT", "WIDTH", "Placed", "place"]
