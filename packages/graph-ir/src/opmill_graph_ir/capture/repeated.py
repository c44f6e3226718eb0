"""Runs the first blocks of a stretch of a graph, and writes down for the others what these wrote, with other names.

Why this is right: what a block does is decided by its rows, which are those of the block before, by the looks of what it reads, and by the state of
the capture. Two blocks in turn show that each leaves to the next what it found: values of the same looks (geometry, views of what, versions),
the same state, nothing written that was there before; and that the later wrote down what the earlier did with all names moved on. So the block behind
them finds what they found, and where its own inputs and held tensors look like theirs, it does once more what they did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.symbolic import meta_tensor

from .blocks import RUN, Blocks, find_blocks
from .graph import AtenGraph, Node, Value, replace_values
from .record import Memory, Recorder, Track, meta_of
from .sizes import recorded, size_of

_EARLIER, _LATER = RUN - 2, RUN - 1
"""The two blocks that are compared."""
_DEVICES = ("cpu", "cuda")


class Repeated:
    """Goes along while the nodes of a graph run, one after the other. ``env``: what they gave; ``held``: what the node of a held tensor gives;
    ``origin``: where a node comes from; ``opaque``: nodes that are like no other."""

    def __init__(
        self,
        nodes: Sequence[torch.fx.Node],
        env: dict[torch.fx.Node, Any],
        recorder: Recorder,
        held: Callable[[torch.fx.Node], Any],
        origin: Callable[[torch.fx.Node], str],
        opaque: Callable[[torch.fx.Node], bool],
    ) -> None:
        self.nodes, self.env, self.recorder, self.held, self.origin = nodes, env, recorder, held, origin
        found = [] if recorder.differentiate else find_blocks(nodes, opaque)
        self.marks = {blocks.bounds[k]: (blocks, k) for blocks in found for k in range(_EARLIER, RUN + 1)}
        self.moments: dict[int, _Moment] = {}
        self.written: dict[int, int] = {}
        """How many nodes were written down when a node's turn came, by its position."""

    def behind(self, position: int) -> int:
        """Where to go on when the turn of the node at ``position`` comes: there, or behind blocks that need not run."""
        if not self.marks:
            return position
        self.written[position] = len(self.recorder.state.graph.nodes)
        if position not in self.marks:
            return position
        blocks, number = self.marks[position]
        self.moments[position] = _Moment.of(self.recorder)
        if number != RUN:
            return position
        moments = [self.moments[blocks.bounds[k]] for k in range(_EARLIER, RUN + 1)]
        turns = _Turns(blocks, moments, self)
        return blocks.bounds[turns.write() if turns.agree() else RUN]


@dataclass(frozen=True)
class _Moment:
    """How far a capture is. ``tracks``: of each fake, where it is tracked, and the version of its memory."""

    nodes: int
    counter: int
    held: int
    constants: int
    state: tuple[Any, ...]
    tracks: dict[int, tuple[Track, int]]

    @classmethod
    def of(cls, recorder: Recorder) -> _Moment:
        state, graph = recorder.state, recorder.state.graph
        ambient = (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            *((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES),
            len(graph.inputs),
            len(state.bound),
            state.again,
        )
        tracks = {key: (track, track.base.version) for key, (_, track) in state.tracks.items()}
        return cls(len(graph.nodes), state.counter, len(graph.held), len(graph.constants), ambient, tracks)

    def undisturbed(self, later: _Moment) -> bool:
        """Whether all that there was is as it was."""
        found = later.tracks
        return self.state == later.state and all(found.get(key) == now for key, now in self.tracks.items())

    def until(self, later: _Moment) -> tuple[int, int, int]:
        """What was written down between two moments: nodes, values, constants."""
        return later.nodes - self.nodes, later.counter - self.counter, later.constants - self.constants


class _Names:
    """Pairs of names of the earlier and the later block. Each belongs to one pair only, in which it is the same, a leaf, or one turn further on."""

    def __init__(self, values: int, constants: int) -> None:
        self.steps = {"v": values, "c": constants}
        self.forward: dict[str, str] = {}
        self.back: dict[str, str] = {}

    def pair(self, first: str, second: str, leaves: bool = False) -> bool:
        fits = leaves or first == second or self.forward.get(first) == second or self.on(first, 1) == second
        return fits and self.forward.setdefault(first, second) == second and self.back.setdefault(second, first) == first

    def on(self, name: str, turns: int) -> str:
        """The name of a value or constant of a block so many turns further on."""
        step = self.steps.get(name[:1], 0) if name[1:].isdecimal() else 0
        return f"{name[0]}{int(name[1:]) + turns * step}" if step else name

    def moves(self, second: str) -> bool:
        """Whether the name is another in each block."""
        return self.back.get(second, second) != second


class _Turns:
    """Compares two blocks, and writes down the next."""

    def __init__(self, blocks: Blocks, moments: Sequence[_Moment], along: Repeated) -> None:
        self.blocks, self.along, self.recorder = blocks, along, along.recorder
        self.graph: AtenGraph = along.recorder.state.graph
        self.before, self.between, self.after = moments
        _, values, constants = self.between.until(self.after)
        self.names = _Names(values, constants)
        self.copies: dict[tuple[Any, ...], FakeTensor] = {}
        self.memories: dict[str, Memory] = {}

    # ---- whether one block is like the next --------------------------------------------------------------------------

    def agree(self) -> bool:
        before, between, after = self.before, self.between, self.after
        if not (before.undisturbed(between) and between.undisturbed(after) and before.until(between) == between.until(after)):
            return False
        leaves = self._leaves(_EARLIER, _LATER)
        if leaves is None or not all(self.names.pair(a, b, leaves=True) for a, b in leaves.items()) or not self._all_held_asked_for():
            return False
        return all(map(self._constants_agree, *self._constants())) and all(map(self._nodes_agree, *self._nodes())) and self._values_agree()

    def _leaves(self, one: int, other: int) -> dict[str, str] | None:
        """The names of what two blocks read from outside, of the one and the other; None where these look different."""
        found: dict[str, str] = {}
        env = self.along.env
        for a, b in zip(self.blocks.leaves[one], self.blocks.leaves[other], strict=True):
            first, second = env[a], env[b]
            if first is second:
                if isinstance(first, FakeTensor):
                    name = self._track(first).base.first
                    if found.setdefault(name, name) != name:
                        return None
            elif isinstance(first, FakeTensor) and isinstance(second, FakeTensor):
                if not self._alike(first, second) or not (self._is_untouched(first) and self._is_untouched(second)):
                    return None
                names = self._track(first).value, self._track(second).value
                if found.setdefault(names[0], names[1]) != names[1]:
                    return None
            elif not _same(first, second):
                return None
        return found if len(set(found.values())) == len(found) else None

    def _is_untouched(self, leaf: FakeTensor) -> bool:
        track = self._track(leaf)
        return track.base.root is leaf and track.base.version == 0 and track.base.outside is not None

    def _all_held_asked_for(self) -> bool:
        """Whether all that the blocks began to hold was asked for by nodes of the graph."""
        first, last = self.blocks.bounds[_EARLIER], self.blocks.bounds[RUN]
        asked = {id(self.along.env[n]) for n in self.along.nodes[first:last] if n.op == "get_attr"}
        held = self.recorder.state.held
        return all(id(held[id(t)]) in asked for t in self.graph.held_tensors[self.before.held : self.after.held])

    def _constants(self) -> tuple[list[str], list[str]]:
        names = list(self.graph.constants)
        return names[self.before.constants : self.between.constants], names[self.between.constants : self.after.constants]

    def _constants_agree(self, first: str, second: str) -> bool:
        a, b = self.graph.constants[first], self.graph.constants[second]
        with torch._C._DisableTorchDispatch():
            equal = torch.equal(a, b)
        return equal and self.graph.metas[first] == self.graph.metas[second] and self.names.pair(first, second)

    def _nodes(self) -> tuple[list[Node], list[Node]]:
        nodes = self.graph.nodes
        return nodes[self.before.nodes : self.between.nodes], nodes[self.between.nodes : self.after.nodes]

    def _nodes_agree(self, first: Node, second: Node) -> bool:
        metas = self.graph.metas
        if first.func is not second.func or first.binds or second.binds or first.again != second.again or len(first.results) != len(second.results):
            return False
        for here, there in zip(first.results, second.results, strict=True):
            if here is None or there is None:
                if here is not there:
                    return False
            elif metas[here] != metas[there] or not self.names.pair(here, there):
                return False
        return self._arguments_agree(first.args, second.args) and self._arguments_agree(first.kwargs, second.kwargs)

    def _arguments_agree(self, first: Any, second: Any) -> bool:
        if type(first) is not type(second):
            return False
        if type(first) is Value:
            return self.names.pair(first.name, second.name)
        if isinstance(first, (tuple, list)):
            return len(first) == len(second) and all(map(self._arguments_agree, first, second))
        if isinstance(first, dict):
            return first.keys() == second.keys() and all(self._arguments_agree(v, second[k]) for k, v in first.items())
        return _same(first, second)

    # ---- what later blocks, and what is behind them, find ------------------------------------------------------------

    def _values_agree(self) -> bool:
        env = self.along.env
        rows = self.blocks.rows
        inside = [frozenset(block) for block in rows]
        leaving = [r for r in range(len(rows[0])) if any(not inside[k].issuperset(rows[k][r].users) for k in range(len(rows)))]
        return all(self._agree(env[rows[_EARLIER][r]], env[rows[_LATER][r]]) for r in leaving)

    def _agree(self, first: Any, second: Any) -> bool:
        if isinstance(first, FakeTensor) and isinstance(second, FakeTensor):
            return self._fakes_agree(first, second)
        if isinstance(first, (tuple, list)):
            return type(first) is type(second) and len(first) == len(second) and all(map(self._agree, first, second))
        return _same(first, second)

    def _fakes_agree(self, first: FakeTensor, second: FakeTensor) -> bool:
        one, other = self._track(first), self._track(second)
        here, there = one.base, other.base
        if first is not second:
            alike = self._alike(first, second) and self._alike(here.root, there.root) and first.dtype == here.root.dtype
            if not alike or (here is not there and here.outside is not None) or first.requires_grad:
                return False
        steps = [[(s.func, recorded((s.rest, tuple(s.kwargs))), s.item) for s in t.chain] for t in (one, other)]
        return (
            one.version == here.version == there.version == other.version
            and here.written == there.written
            and self._arguments_agree(*steps)
            and self.names.pair(here.first, there.first)
            and self.names.pair(here.value, there.value)
            and self.names.pair(one.value, other.value)
        )

    def _alike(self, first: FakeTensor, second: FakeTensor) -> bool:
        """Whether two fakes look the same; such whose values are known, or that are conjugated, do not."""
        return all(f.constant is None and not f.meta.is_conj() and not f.meta.is_neg() for f in (first, second)) and _looks(first) == _looks(second)

    def _track(self, fake: FakeTensor) -> Track:
        return self.recorder.track(fake)

    # ---- writing down -------------------------------------------------------------------------------------------------

    def write(self) -> int:
        """Writes down all blocks that look like the later one; the number of the next."""
        leaves: list[Mapping[str, str]] = []
        for k in range(RUN, self.blocks.count):
            for node in self.along.nodes[self.blocks.bounds[k] : self.blocks.bounds[k + 1]]:
                if node.op == "get_attr":
                    self.along.env[node] = self.along.held(node)
            found = self._leaves(_LATER, k)
            if found is None or any(not self.names.moves(a) and a != b for a, b in found.items()):
                break
            leaves.append(found)
        last = RUN + len(leaves)
        skipped = {row for block in self.blocks.rows[RUN:last] for row in block}
        rows = self._rows()
        for k, names in enumerate(leaves, RUN):
            self._write_nodes(k, names, rows)
            for there, here in zip(self.blocks.rows[k], self.blocks.rows[_LATER], strict=True):
                if not skipped.issuperset(there.users):
                    self.along.env[there] = self._moved(self.along.env[here], k - _LATER)
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

    def _write_nodes(self, block: int, leaves: Mapping[str, str], rows: Sequence[int]) -> None:
        graph, turns, names = self.graph, block - _LATER, self.names
        origins = [self.along.origin(node) for node in self.blocks.rows[block]]
        new = {name: names.on(name, turns) for name in names.back if names.moves(name)} | dict(leaves)
        for name in self._constants()[1]:
            with torch._C._DisableTorchDispatch():
                graph.constants[new[name]] = graph.constants[name].clone()
            graph.metas[new[name]] = graph.metas[name]
        for node, row in zip(self._nodes()[1], rows, strict=True):
            results = tuple(None if r is None else new[r] for r in node.results)
            graph.metas.update((new[r], graph.metas[r]) for r in node.results if r is not None)
            args, kwargs = replace_values(node.args, new), replace_values(node.kwargs, new)
            graph.nodes.append(replace(node, args=args, kwargs=kwargs, results=results, origin=origins[row]))
        self.recorder.state.counter += names.steps["v"]

    def _moved(self, value: Any, turns: int) -> Any:
        """What a row of a block so many turns behind the later one gives, which did not run."""
        if isinstance(value, FakeTensor):
            return self._moved_fake(value, turns)
        return type(value)([self._moved(v, turns) for v in value]) if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size) else value

    def _moved_fake(self, fake: FakeTensor, turns: int) -> FakeTensor:
        track = self._track(fake)
        if not self.names.moves(track.value):
            return fake
        memory = self._moved_memory(track.base, turns) if self.names.moves(track.base.first) else track.base
        if track.base.root is fake:
            return memory.root
        name = self.names.on(track.value, turns)
        key = name, *_looks(fake)
        if key not in self.copies:
            with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
                meta = torch.as_strided(memory.root.meta, fake.meta.size(), fake.meta.stride(), fake.meta.storage_offset())
            copy = self.copies[key] = self.recorder.from_meta(meta, fake.device)
            self.recorder.state.tracks[id(copy)] = copy, Track(memory, track.chain, name, memory.version)
        return self.copies[key]

    def _moved_memory(self, memory: Memory, turns: int) -> Memory:
        first, value = (self.names.on(name, turns) for name in (memory.first, memory.value))
        if first not in self.memories:
            meta, tracks = memory.root.meta, self.recorder.state.tracks
            with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
                meta = meta_tensor(meta.size(), meta.stride(), meta.storage_offset(), meta.dtype)
            root = self.recorder.from_meta(meta, memory.root.device)
            copy = self.memories[first] = Memory(value, root, first, memory.version, written=memory.written)
            if (known := tracks.get(id(memory.root))) is not None:  # else no operator sees it: what it was made as became a view of it
                tracks[id(root)] = root, Track(copy, (), value, known[1].version)
        return self.memories[first]


def _same(first: Any, second: Any) -> bool:
    """Whether two numbers and the like are one, exactly and for all sizes."""
    kind = type(first)
    if kind is not type(second) or isinstance(first, (torch.Tensor, torch.SymFloat, torch.SymBool)):
        return False
    if kind is torch.SymInt:
        return size_of(first) == size_of(second)
    return repr(first) == repr(second) if kind in (float, complex) else bool(first == second)


def _looks(fake: FakeTensor) -> tuple[Any, ...]:
    return meta_of(fake), recorded(fake.storage_offset()), fake.requires_grad, fake.is_leaf


__all__ = ["Repeated"]
