"""A graph with all but a few of its repeated blocks left out, and how its names and those of the whole graph belong together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..capture.graph import AtenGraph, Node, OutputTensor, replace_values, values_in
from .find import KEPT, Repeats

HEAD = KEPT // 2
"""Blocks that are kept in front of those left out; as many are kept behind them."""

Key = tuple[int, int]
"""What a block's value is, whichever block: row and result in the block, or (-1, slot) for its inputs and held tensors."""


@dataclass(frozen=True)
class Shortened:
    """``graph``: the whole one without ``left_out`` blocks behind the first ``HEAD``; what they return is None there.

    ``places``: of each name of a kept block, the number of the block among those that are kept, and what it is in it; what the first block
    reads where others read of the block before is of block -1. ``names``: by block of the whole graph, the name of each thing in it.
    ``outputs``: by position of an output of a block left out, that block and the positions of its counterparts, each with its block of the
    head."""

    whole: AtenGraph
    graph: AtenGraph
    left_out: int
    places: dict[str, tuple[int, Key]]
    names: tuple[dict[Key, str], ...]
    outputs: dict[int, tuple[int, tuple[tuple[int, int], ...]]]

    def moved(self, name: str, blocks: int) -> str:
        """The counterpart of a name of the short graph's, in the whole graph: so many blocks further on."""
        block, key = self.places.get(name, (-1, (0, 0)))
        return name if block + blocks < 0 or name not in self.places else self.names[block + blocks][key]

    def next(self, name: str) -> str | None:
        """Its counterpart in the next block of the short graph; None where that has none."""
        block, key = self.places[name]
        if block + 1 == KEPT:
            return None
        return self.names[block + 1 if block + 1 < HEAD else block + 1 + self.left_out][key]


def shorten(graph: AtenGraph, repeats: Repeats) -> Shortened | None:
    """None where something but the next block, or the end of the graph, needs what blocks that would be left out compute."""
    left_out = repeats.count - KEPT
    first, last = (repeats.start + blocks * repeats.period for blocks in (HEAD, HEAD + left_out))  # rows left out
    if not _can_leave_out(graph, repeats, last) or (outputs := _outputs(graph, repeats)) is None:
        return None
    names = tuple(_names(graph, repeats, k) for k in range(repeats.count))
    renamed = {names[k + left_out][key]: name for k in range(HEAD) for key, name in names[k].items() if key[0] >= 0}
    short = replace(
        graph,
        nodes=[*graph.nodes[:first], *(_renamed(node, renamed) for node in graph.nodes[last:])],
        outputs=[None if k in outputs else o for k, o in enumerate(graph.outputs)],
    )
    kept = (*range(HEAD), *range(HEAD + left_out, repeats.count))
    places = {name: (k, key) for k, block in enumerate(kept) for key, name in names[block].items() if name not in repeats.shared}
    places |= _entering(graph, repeats, places)
    return Shortened(graph, short, left_out, places, names, outputs)


def _can_leave_out(graph: AtenGraph, repeats: Repeats, last: int) -> bool:
    """Whether the rows from ``last`` on read nothing of the repeated rows before but what the block next to them computes, and whether all
    written tensors are none of the blocks'."""
    rows = {r: k for k, node in enumerate(graph.nodes) for r in node.results if r is not None}
    leaves = {name for block in repeats.leaves for name in block}
    if any(target in leaves or repeats.start <= rows.get(value, -1) < repeats.end for target, value in graph.mutations.items()):
        return False
    for k in range(last, len(graph.nodes)):
        node = graph.nodes[k]
        nearest = last - repeats.period if k < repeats.end else last
        if any(repeats.start <= rows.get(v.name, -1) < nearest for v in values_in((node.args, node.kwargs))):
            return False
    return True


def _outputs(graph: AtenGraph, repeats: Repeats) -> dict[int, tuple[int, tuple[tuple[int, int], ...]]] | None:
    """Positions of outputs of the blocks left out, as in ``Shortened``; None where blocks between the first and the last return different
    things."""
    rows = {r: (k, i) for k, node in enumerate(graph.nodes) for i, r in enumerate(node.results) if r is not None}
    returned: list[list[tuple[object, int]]] = [[] for _ in range(repeats.count)]
    for position, o in enumerate(graph.outputs):
        if isinstance(o, OutputTensor) and repeats.start <= (row := rows.get(o.value, (-1, 0)))[0] < repeats.end:
            what = (row[0] - repeats.start) % repeats.period, row[1], o.sizes, o.strides, o.offset, o.detached, o.twin
            returned[(row[0] - repeats.start) // repeats.period].append((what, position))
    ordered = [sorted(found, key=repr) for found in returned]
    kinds = [[what for what, _ in found] for found in ordered]
    if any(kind != kinds[1] for kind in kinds[1:-1]):
        return None
    heads = [k for k in range(HEAD) if kinds[k] == kinds[1]]
    gone = range(HEAD, repeats.count - KEPT + HEAD)
    return {position: (k, tuple((h, ordered[h][i][1]) for h in heads)) for k in gone for i, (_, position) in enumerate(ordered[k])}


def _entering(graph: AtenGraph, repeats: Repeats, places: dict[str, tuple[int, Key]]) -> dict[str, tuple[int, Key]]:
    """What the first block reads of the rows before it where the second reads of the first."""
    found: dict[str, tuple[int, Key]] = {}
    for row in range(repeats.start, repeats.start + repeats.period):
        first, second = (values_in((n.args, n.kwargs)) for n in (graph.nodes[row], graph.nodes[row + repeats.period]))
        for here, there in zip(first, second, strict=True):
            if here.name not in places and places.get(there.name, (1, ()))[0] == 0:
                found[here.name] = -1, places[there.name][1]
    return found


def _names(graph: AtenGraph, repeats: Repeats, block: int) -> dict[Key, str]:
    first = repeats.start + block * repeats.period
    found: dict[Key, str] = {(-1, slot): name for slot, name in enumerate(repeats.leaves[block])}
    for row in range(repeats.period):
        for i, result in enumerate(graph.nodes[first + row].results):
            if result is not None:
                found[row, i] = result
    return found


def _renamed(node: Node, renamed: dict[str, str]) -> Node:
    return replace(node, args=replace_values(node.args, renamed), kwargs=replace_values(node.kwargs, renamed))
