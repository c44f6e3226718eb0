"""Two stretches of a capture, compared: what the later wrote down and made is what the earlier did, with all names moved on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.symbolic import meta_tensor
from opmill_runtime_cache.devices.registry import types

from ..graph import NO_LABEL, Node, Value, replace_values
from ..record import Memory, Recorder, Track, meta_of
from ..sizes import recorded, size_of


@dataclass(frozen=True)
class Moment:
    """How far a capture is. ``tracks``: of each fake, where it is tracked, and the version of its memory."""

    nodes: int
    counter: int
    held: int
    constants: int
    state: tuple[Any, ...]
    tracks: dict[int, tuple[Track, int]]

    @classmethod
    def of(cls, recorder: Recorder) -> Moment:
        state, graph = recorder.state, recorder.state.graph
        ambient = (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            *((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in types()),
            len(graph.inputs),
            len(state.bound),
            state.again,
            object() if state.policy else None,  # which is asked of each operator, and may count them
        )
        tracks = {key: (track, track.base.version) for key, (_, track) in state.tracks.items()}
        return cls(len(graph.nodes), state.counter, len(graph.held), len(graph.constants), ambient, tracks)

    def undisturbed(self, later: Moment) -> bool:
        """Whether all that there was is as it was."""
        found = later.tracks
        return self.state == later.state and all(found.get(key) == now for key, now in self.tracks.items())

    def until(self, later: Moment) -> tuple[int, int, int]:
        """What was written down between two moments: nodes, values, constants."""
        return later.nodes - self.nodes, later.counter - self.counter, later.constants - self.constants


class Counterparts:
    """Pairs of names of an earlier and a later stretch. Each name belongs to one pair only, in which it is the same for both, a leaf, or
    one turn further on: ``step`` says how many numbers that is."""

    def __init__(self, recorder: Recorder, step: Callable[[str], int]) -> None:
        self.recorder, self.step = recorder, step
        self.graph = recorder.state.graph
        self.forward: dict[str, str] = {}
        self.back: dict[str, str] = {}
        self.copies: dict[tuple[Any, ...], FakeTensor] = {}
        self.memories: dict[str, Memory] = {}

    # ---- names ---------------------------------------------------------------------------------------------------------

    def pair(self, first: str, second: str, given: bool = False) -> bool:
        """Whether these are counterparts. ``given``: they are, if no other pair says otherwise."""
        fits = given or first == second or self.forward.get(first) == second or self.on(first, 1) == second
        return fits and self.forward.setdefault(first, second) == second and self.back.setdefault(second, first) == first

    def on(self, name: str, turns: int) -> str:
        """The name of a value or constant so many turns further on."""
        step = self.step(name) if name[1:].isdecimal() and name[0] in "vc" else 0
        return f"{name[0]}{int(name[1:]) + turns * step}" if step else name

    def moves(self, second: str) -> bool:
        """Whether the name is another in each turn."""
        return self.back.get(second, second) != second

    def moved_names(self, turns: int) -> dict[str, str]:
        """Of all names of the later stretch that move, those so many turns further on."""
        return {name: self.on(name, turns) for name in self.back if self.moves(name)}

    # ---- whether they are alike ----------------------------------------------------------------------------------------

    def nodes_agree(self, first: Iterable[Node], second: Iterable[Node]) -> bool:
        return all(map(self._node_agrees, first, second))

    def _node_agrees(self, first: Node, second: Node) -> bool:
        metas = self.graph.metas
        if (
            first.func is not second.func
            or first.binds
            or second.binds
            or (first.again, first.kept) != (second.again, second.kept)
            or len(first.results) != len(second.results)
        ):
            return False
        for here, there in zip(first.results, second.results, strict=True):
            if here is None or there is None:
                if here is not there:
                    return False
            elif metas[here] != metas[there] or not self.pair(here, there):
                return False
        return self._arguments_agree(first.args, second.args) and self._arguments_agree(first.kwargs, second.kwargs)

    def _arguments_agree(self, first: Any, second: Any) -> bool:
        if type(first) is not type(second):
            return False
        if type(first) is Value:
            return self.pair(first.name, second.name)
        if isinstance(first, (tuple, list)):
            return len(first) == len(second) and all(map(self._arguments_agree, first, second))
        if isinstance(first, dict):
            return first.keys() == second.keys() and all(self._arguments_agree(v, second[k]) for k, v in first.items())
        return same(first, second)

    def constants_agree(self, first: str, second: str) -> bool:
        a, b = self.graph.constants[first], self.graph.constants[second]
        with torch._C._DisableTorchDispatch():
            equal = torch.equal(a, b)
        return equal and self.graph.metas[first] == self.graph.metas[second] and self.pair(first, second)

    def values_agree(self, first: Any, second: Any) -> bool:
        """Whether values that the stretches gave are alike: so are then the states in which they leave the capture."""
        if isinstance(first, FakeTensor) and isinstance(second, FakeTensor):
            return self._fakes_agree(first, second)
        if isinstance(first, (tuple, list)):
            return type(first) is type(second) and len(first) == len(second) and all(map(self.values_agree, first, second))
        return same(first, second)

    def _fakes_agree(self, first: FakeTensor, second: FakeTensor) -> bool:
        one, other = self.recorder.track(first), self.recorder.track(second)
        here, there = one.base, other.base
        if first is not second:
            if not (alike(first, second) and alike(here.root, there.root) and first.dtype == here.root.dtype):
                return False
            if here is not there and here.outside is not None:
                return False
        steps = [[(s.func, recorded((s.rest, tuple(s.kwargs))), s.item) for s in t.chain] for t in (one, other)]
        return (
            one.version == here.version == there.version == other.version
            and here.written == there.written
            and self._arguments_agree(*steps)
            and self.pair(here.first, there.first)
            and self.pair(here.value, there.value)
            and self.pair(one.value, other.value)
        )

    # ---- the next turns --------------------------------------------------------------------------------------------------

    def write(self, node: Node, names: Mapping[str, str], origin: str, label: int = NO_LABEL) -> None:
        """Writes down a node of the later stretch under other names."""
        metas = self.graph.metas
        results = tuple(None if r is None else names[r] for r in node.results)
        metas.update((names[r], metas[r]) for r in node.results if r is not None)
        args, kwargs = replace_values(node.args, names), replace_values(node.kwargs, names)
        self.graph.nodes.append(Node(node.func, args, kwargs, results, origin, node.binds, node.again, label, node.kept))

    def write_constant(self, name: str, new: str) -> None:
        with torch._C._DisableTorchDispatch():
            self.graph.constants[new] = self.graph.constants[name].clone()
        self.graph.metas[new] = self.graph.metas[name]

    def moved(self, value: Any, turns: int) -> Any:
        """What stands so many turns behind a value of the later stretch."""
        if isinstance(value, FakeTensor):
            return self._moved_fake(value, turns)
        return (
            type(value)([self.moved(v, turns) for v in value])
            if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size)
            else value
        )

    def _moved_fake(self, fake: FakeTensor, turns: int) -> FakeTensor:
        track = self.recorder.track(fake)
        if not self.moves(track.value):
            return fake
        memory = self._moved_memory(track.base, turns) if self.moves(track.base.first) else track.base
        if track.base.root is fake:
            return memory.root
        name = self.on(track.value, turns)
        key = name, *looks(fake)
        if key not in self.copies:
            with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
                meta = torch.as_strided(memory.root.meta, fake.meta.size(), fake.meta.stride(), fake.meta.storage_offset())
            copy = self.copies[key] = self.recorder.from_meta(meta, fake.device)
            self.recorder.state.tracks[id(copy)] = copy, Track(memory, track.chain, name, memory.version)
        return self.copies[key]

    def _moved_memory(self, memory: Memory, turns: int) -> Memory:
        first, value = self.on(memory.first, turns), self.on(memory.value, turns)
        if first not in self.memories:
            meta, tracks = memory.root.meta, self.recorder.state.tracks
            with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
                meta = meta_tensor(meta.size(), meta.stride(), meta.storage_offset(), meta.dtype)
            root = self.recorder.from_meta(meta, memory.root.device)
            copy = self.memories[first] = Memory(value, root, first, memory.version, written=memory.written)
            if (known := tracks.get(id(memory.root))) is not None:  # else no operator sees it: what it was made as became a view of it
                tracks[id(root)] = root, Track(copy, (), value, known[1].version)
        return self.memories[first]


def alike(first: FakeTensor, second: FakeTensor) -> bool:
    """Whether two fakes look the same; such whose values are known, or that are conjugated, do not."""
    plain = all(not f.is_known() and not f.meta.is_conj() and not f.meta.is_neg() for f in (first, second))
    return plain and looks(first) == looks(second)


def looks(fake: FakeTensor) -> tuple[Any, ...]:
    """Geometry, and whether it has a gradient; to ask for its place in autograd's graph may run operators."""
    return meta_of(fake), recorded(fake.storage_offset()), fake.requires_grad


def same(first: Any, second: Any) -> bool:
    """Whether two numbers and the like are one, exactly and for all sizes."""
    kind = type(first)
    if kind is not type(second) or isinstance(first, (torch.Tensor, torch.SymFloat, torch.SymBool)):
        return False
    if kind is torch.SymInt:
        return size_of(first) == size_of(second)
    return repr(first) == repr(second) if kind in (float, complex) else bool(first == second)


__all__ = ["Counterparts", "Moment", "alike", "same"]
