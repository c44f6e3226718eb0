"""Runs the first blocks of a stretch of a graph, and writes down for the others what these wrote, with other names.

Why this is right: what a block does is decided by its rows, which are those of the block before, by the looks of what it reads, and by the
state of the capture. Two blocks in turn show that each leaves to the next what it found: values of the same looks (geometry, views of what,
versions), the same state, nothing written that was there before; and that the later wrote down what the earlier did with all names moved
on. So the block behind them finds what they found, and where its own inputs and held tensors look like theirs, it does once more what they
did.

Where gradients are captured too, the last blocks run as well: see :mod:`.backward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor

from ..graph import AtenGraph
from ..places import label_of
from ..record import Recorder
from .backward import LAST, Backward
from .compare import Counterparts, Moment, alike, same
from .find import RUN, Blocks, find_blocks

_EARLIER, _LATER = RUN - 2, RUN - 1
"""The two blocks that are compared."""


class Repeated:
    """Goes along while the nodes of a graph run, one after the other. ``env``: what they gave; ``attribute``: what the node of an attribute
    stands for; ``origin``: where a node comes from; ``opaque``: nodes that are like no other."""

    def __init__(
        self,
        nodes: Sequence[torch.fx.Node],
        env: dict[torch.fx.Node, Any],
        recorder: Recorder,
        attribute: Callable[[torch.fx.Node], Any],
        origin: Callable[[torch.fx.Node], str],
        opaque: Callable[[torch.fx.Node], bool],
    ) -> None:
        self.nodes, self.env, self.recorder, self.attribute, self.origin = nodes, env, recorder, attribute, origin
        fewest = RUN + 1 + (LAST if recorder.differentiate else 0)
        found = [blocks for blocks in find_blocks(nodes, opaque) if blocks.count >= fewest] if recorder.repeats else []
        self.marks: dict[int, tuple[Blocks, int]] = {}
        for blocks in found:
            last = range(blocks.count - LAST + 1, blocks.count + 1) if recorder.differentiate else ()
            self.marks.update((blocks.bounds[k], (blocks, k)) for k in (*range(_EARLIER, RUN + 1), *last))
        self.moments: dict[int, Moment] = {}
        self.written: dict[int, int] = {}
        """How many nodes were written down when a node's turn came, by its position."""
        self.backwards: dict[Blocks, Backward] = {}

    def held(self, node: torch.fx.Node) -> Any:
        """What the node of an attribute gives."""
        value = self.attribute(node)
        return self.recorder.from_tensor(value) if isinstance(value, torch.Tensor) else value

    def behind(self, position: int) -> int:
        """Where to go on when the turn of the node at ``position`` comes: there, or behind blocks that need not run."""
        if not self.marks:
            return position
        self.written[position] = len(self.recorder.state.graph.nodes)
        if position not in self.marks:
            return position
        blocks, number = self.marks[position]
        if number > RUN:
            if (backward := self.backwards.get(blocks)) is not None:
                backward.leave(number - 1)
            return position
        self.moments[position] = Moment.of(self.recorder)
        if number != RUN:
            return position
        turns = _Turns(blocks, [self.moments[blocks.bounds[k]] for k in range(_EARLIER, RUN + 1)], self)
        return blocks.bounds[turns.write() if turns.agree() else RUN]


class _Turns:
    """Compares two blocks, and writes down the next."""

    def __init__(self, blocks: Blocks, moments: Sequence[Moment], along: Repeated) -> None:
        self.blocks, self.along, self.recorder, self.env = blocks, along, along.recorder, along.env
        self.graph: AtenGraph = along.recorder.state.graph
        self.before, self.between, self.after = moments
        _, values, constants = self.between.until(self.after)
        self.parts = Counterparts(along.recorder, lambda name: values if name[0] == "v" else constants)
        self.values, self.steps = values, (values, constants)
        inside = [frozenset(block) for block in blocks.rows]
        self.leaving = [r for r in range(len(inside[0])) if any(not inside[k].issuperset(b[r].users) for k, b in enumerate(blocks.rows))]
        self.crossing: torch.fx.Node | None = None
        """The one value with gradients that the later block leaves to the next."""

    # ---- whether one block is like the next --------------------------------------------------------------------------

    def agree(self) -> bool:
        before, between, after = self.before, self.between, self.after
        if not (before.undisturbed(between) and between.undisturbed(after) and before.until(between) == between.until(after)):
            return False
        leaves = self.leaves(_EARLIER, _LATER)
        if leaves is None or not all(self.parts.pair(a, b, given=True) for a, b in leaves.items()) or not self._all_held_asked_for():
            return False
        nodes = self.graph.nodes
        first, second = nodes[before.nodes : between.nodes], nodes[between.nodes : after.nodes]
        return (
            all(map(self.parts.constants_agree, *self._constants()))
            and self.parts.nodes_agree(first, second)
            and all(self.parts.values_agree(*(self.env[self.blocks.rows[k][r]] for k in (_EARLIER, _LATER))) for r in self.leaving)
            and self._gradients_stay()
        )

    def leaves(self, one: int, other: int) -> dict[str, str] | None:
        """The names of what two blocks read from outside, of the one and the other; None where these look different."""
        found: dict[str, str] = {}
        for a, b in zip(self.blocks.leaves[one], self.blocks.leaves[other], strict=True):
            first, second = self.env[a], self.env[b]
            if first is second:
                if isinstance(first, FakeTensor):
                    name = self.recorder.track(first).base.first
                    if found.setdefault(name, name) != name:
                        return None
            elif isinstance(first, FakeTensor) and isinstance(second, FakeTensor):
                if not alike(first, second) or not (self._is_untouched(first) and self._is_untouched(second)):
                    return None
                names = self.recorder.track(first).value, self.recorder.track(second).value
                if found.setdefault(names[0], names[1]) != names[1]:
                    return None
            elif not same(first, second):
                return None
        return found if len(set(found.values())) == len(found) else None

    def _is_untouched(self, leaf: FakeTensor) -> bool:
        track = self.recorder.track(leaf)
        return track.base.root is leaf and track.base.version == 0 and track.base.outside is not None

    def _all_held_asked_for(self) -> bool:
        """Whether all that the blocks began to hold was asked for by nodes of the graph."""
        first, last = self.blocks.bounds[_EARLIER], self.blocks.bounds[RUN]
        asked = {id(self.env[n]) for n in self.along.nodes[first:last] if n.op == "get_attr"}
        held = self.recorder.state.held
        return all(id(held[id(t)]) in asked for t in self.graph.held_tensors[self.before.held : self.after.held])

    def _constants(self) -> tuple[list[str], list[str]]:
        names = list(self.graph.constants)
        return names[self.before.constants : self.between.constants], names[self.between.constants : self.after.constants]

    # ---- gradients ------------------------------------------------------------------------------------------------------

    def _gradients_stay(self) -> bool:
        """Whether gradients reach a block by one value alone, and leave it by that of the block before and by tensors of its own."""
        if not self.recorder.differentiate:
            return True
        crossing = [r for r in self.leaving if self._is_differentiated(self.env[self.blocks.rows[_LATER][r]])]
        if len(crossing) != 1:
            return False
        [row] = crossing
        rows = self.blocks.rows
        self.crossing = rows[_LATER][row]
        users = [(set(rows[k][row].users) - set(rows[k]), set(rows[k + 1])) for k in range(_EARLIER, len(rows) - 1)]
        left = self.env[self.crossing]
        if not isinstance(left, FakeTensor) or not all(outside and outside <= behind for outside, behind in users):
            return False
        if left._is_view() and self.recorder.track(left).base.version:  # to ask for its place in autograd's graph runs operators
            return False
        own = {*rows[_LATER], *self.blocks.leaves[_LATER], rows[_EARLIER][row]} - set(self.blocks.leaves[_EARLIER])
        read = {n for each in rows[_LATER] for n in each.all_input_nodes}
        return not any(self._is_differentiated(self.env[n]) for n in read - own) and self._leaves_are_own()

    def _is_differentiated(self, value: Any) -> bool:
        if isinstance(value, (tuple, list)):
            return any(map(self._is_differentiated, value))
        return isinstance(value, torch.Tensor) and value.requires_grad

    def _leaves_are_own(self) -> bool:
        """Whether no block reads a tensor with gradients that anything else reads."""
        users: dict[int, set[torch.fx.Node]] = {}
        for node in self.along.nodes:
            if node.op in ("get_attr", "placeholder"):
                users.setdefault(self._identity(node), set()).update(node.users)
        for block, leaves in zip(self.blocks.rows[_EARLIER:], self.blocks.leaves[_EARLIER:], strict=True):
            for leaf in leaves:
                value = self.env[leaf] if leaf.op == "placeholder" else self.along.attribute(leaf)
                if self._is_differentiated(value) and not users[self._identity(leaf)] <= set(block):
                    return False
        return True

    def _identity(self, leaf: torch.fx.Node) -> int:
        return id(self.along.attribute(leaf) if leaf.op == "get_attr" else leaf)

    # ---- writing down -------------------------------------------------------------------------------------------------

    def write(self) -> int:
        """Writes down all blocks that look like the later one, but for those that must run; the number of the next."""
        count = self.blocks.count - LAST if self.recorder.differentiate else self.blocks.count
        leaves: list[Mapping[str, str]] = []
        for k in range(RUN, count):
            for node in self.along.nodes[self.blocks.bounds[k] : self.blocks.bounds[k + 1]]:
                if node.op == "get_attr":
                    self.env[node] = self.along.held(node)
            found = self.leaves(_LATER, k)
            if found is None or any(not self.parts.moves(a) and a != b for a, b in found.items()):
                break
            leaves.append(found)
        last = RUN + len(leaves)
        if self.recorder.differentiate and last < count:
            return RUN
        skipped = {row for block in self.blocks.rows[RUN:last] for row in block}
        rows = self._rows()
        for k, names in enumerate(leaves, RUN):
            self._write_nodes(k, names, rows)
            for there, here in zip(self.blocks.rows[k], self.blocks.rows[_LATER], strict=True):
                if not skipped.issuperset(there.users):
                    self.env[there] = self.parts.moved(self.env[here], k - _LATER)
        if self.crossing is not None:
            self._join(last)
        return last

    def _rows(self) -> list[int]:
        """Of each node that the later block wrote down, the number of its row."""
        positions = range(self.blocks.bounds[_LATER], self.blocks.bounds[RUN])
        written = [self.along.written[p] for p in (*positions, positions.stop)]
        found: list[int] = []
        row = -1
        for position, (first, last) in zip(positions, pairwise(written), strict=True):
            row += self.along.nodes[position].op != "get_attr"
            found += [row] * (last - first)
        return found

    def _origins(self, block: int) -> list[str]:
        return [self.along.origin(node) for node in self.blocks.rows[block]]

    def _write_nodes(self, block: int, leaves: Mapping[str, str], rows: Sequence[int]) -> None:
        origins = self._origins(block)
        labels = [label_of(node) for node in self.blocks.rows[block]]
        names = self.parts.moved_names(block - _LATER) | dict(leaves)
        for name in self._constants()[1]:
            self.parts.write_constant(name, names[name])
        for node, row in zip(self.graph.nodes[self.between.nodes : self.after.nodes], rows, strict=True):
            self.parts.write(node, names, origins[row], labels[row])
        self.recorder.state.counter += self.values

    def _join(self, last: int) -> None:
        """Lets the gradient of what the last block written down leaves be that of what the later block leaves, with what is between
        them."""
        assert self.crossing is not None
        row = self.blocks.rows[_LATER].index(self.crossing)
        tail = self.blocks.rows[last - 1][row]
        ends = [self.blocks.rows[k][row] for k in range(last, self.blocks.count)]
        backward = Backward(self.recorder, last - RUN, self.steps, self.leaves, ends, self.env, last, self._origins)
        self.env[tail] = backward.join(self.env[self.crossing], self.env[tail])
        self.along.backwards[self.blocks] = backward


__all__ = ["Repeated"]
