"""Finds where a torch-level graph does the same over and over: the layers of a model, before any of their operators runs.

Rows are the nodes that compute. Two are alike when they call the same with the same constants, on values of which each is the counterpart
of the other's: what is computed a period further on, the same value of before, or an input or held tensor in its place. What values look
like is not asked here: it is known once the first blocks have run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch.fx import Node

from ...periodicity import likely_periods, stretches

RUN = 3
"""Blocks of a stretch that run. The first is surrounded by something else; the next two show what one does after another like it."""
_WORTHWHILE = 12
"""Rows that need not run at least."""
_LEAVES = ("placeholder", "get_attr")
_KNOWN = ("torch", "_operator", "math", "builtins")
"""Modules whose functions do no more than their results show, or what :mod:`.forward` looks at."""


@dataclass(frozen=True)
class Blocks:
    """``bounds``: positions in the graph's nodes where each block begins, and where the last one ends; leaves between rows count to
    the block that they stand in. ``rows``: the rows of each block; row ``r`` of one is the counterpart of row ``r`` of another. ``leaves``:
    the inputs and held tensors that the rows of each block read, as often as they read them, in order."""

    bounds: tuple[int, ...]
    rows: tuple[tuple[Node, ...], ...]
    leaves: tuple[tuple[Node, ...], ...]

    @property
    def count(self) -> int:
        return len(self.rows)


class _Rows:
    def __init__(self, nodes: Sequence[Node], opaque: Callable[[Node], bool]) -> None:
        self.nodes = [n for n in nodes if n.op not in (*_LEAVES, "output")]
        self.numbers = {n: k for k, n in enumerate(self.nodes)}
        self.operands: list[list[Node]] = []
        known: dict[Hashable, int] = {}
        self.tokens: list[int] = []
        for number, node in enumerate(self.nodes):
            operands: list[Node] = []
            try:
                token = -1 - number if opaque(node) or not _is_known(node) else known.setdefault(_token(node, operands), len(known))
            except TypeError:  # an argument that has no hash: like no other row
                token = -1 - number
            self.tokens.append(token)
            self.operands.append(operands)

    def alike(self, row: int, period: int) -> bool:
        if self.tokens[row] != self.tokens[row + period]:
            return False
        numbers = self.numbers
        for here, there in zip(self.operands[row], self.operands[row + period], strict=True):
            if here is not there:
                first, second = numbers.get(here), numbers.get(there)
                if (first is None) != (second is None) or (first is not None and first + period != second):
                    return False
        return True


def find_blocks(nodes: Sequence[Node], opaque: Callable[[Node], bool]) -> list[Blocks]:
    """Stretches of blocks, none inside another, in their order. ``opaque`` nodes are like no other."""
    if len(nodes) < (RUN + 1) * 2 + _WORTHWHILE:
        return []
    rows = _Rows(nodes, opaque)
    found = [
        (saved, start, end, period)
        for period in likely_periods(rows.tokens)
        for start, end in stretches(rows, period, RUN + 1)
        if (saved := ((end - start) // period - RUN) * period) >= _WORTHWHILE
    ]
    taken: list[tuple[int, int, int]] = []
    for _, start, end, period in sorted(found, key=lambda f: (-f[0], f[3])):
        if all(end <= first or last <= start for first, last, _ in taken):
            taken.append((start, end, period))
    positions = {n: k for k, n in enumerate(nodes)} if taken else {}
    return [blocks for each in sorted(taken) if (blocks := _blocks(rows, positions, *each)).count > RUN]


def _blocks(rows: _Rows, positions: dict[Node, int], start: int, end: int, period: int) -> Blocks:
    start += _cut(rows, start, period)
    spans = [(first, first + period) for first in range(start, end - period + 1, period)]
    leaves = ([n for row in rows.operands[first:last] for n in row if n.op in _LEAVES] for first, last in spans)
    return Blocks(
        (*(positions[rows.nodes[first]] for first, _ in spans), positions[rows.nodes[spans[-1][1] - 1]] + 1),
        tuple(tuple(rows.nodes[first:last]) for first, last in spans),
        tuple(map(tuple, leaves)),
    )


def _cut(rows: _Rows, start: int, period: int) -> int:
    """How many rows behind the start of a stretch its blocks begin best: where few values go from one to the next, and none is written at
    once."""
    crossing = [0] * period
    for row in range(start, start + period):
        last = max((k for user in rows.nodes[row].users if (k := rows.numbers.get(user, 0)) <= row + period), default=row)
        for k in range(row + 1, last + 1):
            crossing[(k - start) % period] += 1
    return min(range(period), key=lambda k: (crossing[k], _writes(rows.nodes[start + k]), k))


def _writes(node: Node) -> bool:
    """Whether it may write, by the looks of it."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return (
        name.endswith("_")
        or (name.startswith("i") and getattr(node.target, "__module__", "") == "_operator")
        or True in (*node.args, *node.kwargs.values())
    )


def _is_known(node: Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if node.op == "call_method" or isinstance(
        target, (BuiltinFunctionType, MethodDescriptorType, torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    ):
        return True
    return node.op == "call_function" and str(getattr(target, "__module__", "")).partition(".")[0] in _KNOWN


def _token(node: Node, operands: list[Node]) -> Hashable:
    return node.op, node.target, _frozen(node.args, operands), tuple([(k, _frozen(v, operands)) for k, v in node.kwargs.items()])


def _frozen(arg: Any, operands: list[Node]) -> Hashable:
    """An argument by value, exactly; what the graph computes by nothing but its place."""
    kind = type(arg)
    if kind is Node:
        operands.append(arg)
        return Node
    if isinstance(arg, (tuple, list)):
        return kind, tuple([_frozen(a, operands) for a in arg])
    if isinstance(arg, dict):
        return kind, tuple([(k, _frozen(v, operands)) for k, v in arg.items()])
    if kind is slice:
        return kind, _frozen((arg.start, arg.stop, arg.step), operands)
    return (kind, repr(arg)) if kind is float or kind is complex else (kind, arg)


__all__ = ["RUN", "Blocks", "find_blocks"]
