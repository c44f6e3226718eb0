"""Minimum cuts by maximum flow (Dinitz' algorithm: E. A. Dinic, 1970): shortest augmenting paths, a level graph at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

INFINITE = 1 << 62


class Network:
    """A directed graph with capacities. Nodes are whatever hashes."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._edges: list[list[int]] = []  # by node: numbers of edges that leave it
        self._heads: list[int] = []  # by edge; an edge and its reverse are 2k and 2k + 1
        self._left: list[int] = []

    def add(self, tail: Hashable, head: Hashable, capacity: int) -> None:
        for a, b, left in ((tail, head, capacity), (head, tail, 0)):
            self._edges[self._number(a)].append(len(self._heads))
            self._heads.append(self._number(b))
            self._left.append(left)

    def _number(self, node: Hashable) -> int:
        if node not in self._numbers:
            self._numbers[node] = len(self._edges)
            self._edges.append([])
        return self._numbers[node]

    def sink_side(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """The nodes behind the minimum cut that lies nearest to ``sink``: those from which the sink can still take more."""
        start, end = self._number(source), self._number(sink)
        while (levels := self._levels(start))[end] >= 0:
            tried = [0] * len(self._edges)
            while self._augment(start, end, levels, tried):
                pass
        reached, stack = {end}, [end]
        while stack:
            for edge in self._edges[stack.pop()]:
                tail = self._heads[edge]
                if self._left[edge ^ 1] and tail not in reached:
                    reached.add(tail)
                    stack.append(tail)
        return {node for node, number in self._numbers.items() if number in reached}

    def _levels(self, start: int) -> list[int]:
        """Distance of each node from ``start`` over edges with room; -1: none."""
        levels = [-1] * len(self._edges)
        levels[start] = 0
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for edge in self._edges[node]:
                if self._left[edge] and levels[self._heads[edge]] < 0:
                    levels[self._heads[edge]] = levels[node] + 1
                    queue.append(self._heads[edge])
        return levels

    def _augment(self, start: int, end: int, levels: list[int], tried: list[int]) -> bool:
        """Sends flow along one path of the level graph; ``tried`` counts the edges of each node that lead nowhere any more."""
        path: list[int] = []
        node = start
        while node != end:
            edges = self._edges[node]
            while tried[node] < len(edges):
                edge = edges[tried[node]]
                if self._left[edge] and levels[self._heads[edge]] == levels[node] + 1:
                    break
                tried[node] += 1
            else:
                if not path:
                    return False
                node = self._heads[path.pop() ^ 1]
                tried[node] += 1
                continue
            path.append(edge)
            node = self._heads[edge]
        room = min(self._left[edge] for edge in path)
        for edge in path:
            self._left[edge] -= room
            self._left[edge ^ 1] += room
        return True
