"""Inputs and held tensors that begin a new history: differentiated values are written into them.

Eager rewrites the history of such a tensor, of its views and of what it is a view of. A graph gives what the tensor becomes as one more
result, differentiable like any other; behind the plan the tensor itself is told that it was computed from that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.context import computed

from ..errors import GraphError
from .clean import IDENTITY
from .graph import AtenGraph, Node, Output, OutputTensor, Value, replace_values, values_in
from .record import Recorder, Track

_REFUSED = "leaf Variable that requires grad"


def refused_as_leaf(error: GraphError, example_inputs: Sequence[Any]) -> bool:
    """Whether the graph was refused because it writes to an input that was taken for a leaf, and may be none."""
    return _REFUSED in (error.why or "") and any(map(_is_result, example_inputs))


def _is_result(x: Any) -> bool:
    if not isinstance(x, torch.Tensor) or not x.requires_grad:
        return False
    try:
        return not x.is_leaf
    except RuntimeError:  # a view from no_grad of what was written since: to be refused when it is written
        return False


class ResultsRecorder(Recorder):
    """Takes inputs that are results for results, such that they can be written to. ``sources``: by name, the leaves that stand for what
    they were computed from, and the node of autograd that says so."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sources: dict[str, tuple[FakeTensor, Any]] = {}

    def add_input(self, tensor: torch.Tensor) -> FakeTensor:
        leaf = super().add_input(tensor)
        if not _is_result(tensor):
            return leaf
        track = self.track(leaf)
        result = computed(leaf, self.from_meta(leaf.meta, leaf.device))
        track.base.root = result
        self.state.tracks[id(result)] = result, Track(track.base, (), track.value, 0)
        self.sources[track.value] = leaf, result.grad_fn
        return result

    def close(self) -> None:
        super().close()
        self.sources.clear()


def sources_of(recorder: Recorder) -> dict[str, FakeTensor]:
    """What gradients are asked for, by name: the inputs and held tensors that the graph began with."""
    found = {name: fake for name, fake in recorder.outside().items() if fake.requires_grad and fake.is_leaf}
    if isinstance(recorder, ResultsRecorder):
        found |= {name: leaf for name, (leaf, _) in recorder.sources.items()}
    return {name: found[name] for name in recorder.outside() if name in found}


def new_histories(recorder: Recorder, example_inputs: Sequence[Any]) -> dict[str, FakeTensor]:
    """What the inputs and held tensors that begin a new history have become, by name.

    Raises GraphError GI001 for one that the graph makes require grad by asking for it: it would be given back without."""
    graph, outside, found = recorder.state.graph, recorder.outside(), {}
    before = recorder.sources if isinstance(recorder, ResultsRecorder) else {}
    for name, given in (*zip(graph.inputs, example_inputs, strict=False), *zip(graph.held, graph.held_tensors, strict=True)):
        if not isinstance(given, torch.Tensor) or name not in outside or not (now := outside[name]).requires_grad:
            continue
        if now.is_leaf and not given.requires_grad:
            raise GraphError("GI001", f"{name} begins to require grad", why="the graph asks for it", hint="call requires_grad_() before")
        if not now.is_leaf and (name not in before or now.grad_fn is not before[name][1]):
            found[name] = now
    return found


def written_once(recorder: Recorder, fakes: Mapping[str, FakeTensor]) -> frozenset[str]:
    """Those of them that hold, when the graph ends, what eager may have saved of them as it is: they were written by one operator."""
    return frozenset(name for name, fake in fakes.items() if recorder.track(fake).base.version == fake._version == 1)


def left_in_place(graph: AtenGraph, places: Collection[str]) -> dict[str, str]:
    """What the graph leaves in those inputs and held tensors of ``places`` that it writes, with their names. What autograd has saved of
    such a tensor is the tensor: a backward reads what it holds by then, which writes that are not counted (``.data``) may have changed."""
    makers, outside = graph.makers(), {*graph.inputs, *graph.held, *graph.constants}
    found: dict[str, str] = {}
    for place, name in graph.mutations.items():
        names = [name]
        while (node := makers.get(names[-1])) is not None and node.func in IDENTITY and isinstance(node.args[0], Value):
            names.append(node.args[0].name)
        if place in places and names[-1] not in outside:
            found.update(dict.fromkeys(names, place))
    return found


def read_by(graph: AtenGraph, outputs: Iterable[Output]) -> set[str]:
    """Values that these outputs depend on, and the operators that run for what they do."""
    found = {out.value for out in outputs if isinstance(out, OutputTensor)}
    for node in reversed(graph.nodes):
        if not any(node.results) or found.intersection(filter(None, node.results)):
            found.update(v.name for v in values_in((node.args, node.kwargs)))
    return found


def keep_before(graph: AtenGraph, names: Iterable[str]) -> None:
    """Lets everything read copies of these inputs and held values: they are written, and a backward needs what they held before."""
    copies = {name: f"{name}_before" for name in names}
    for node in graph.nodes:
        node.args, node.kwargs = replace_values(node.args, copies), replace_values(node.kwargs, copies)
    clones = []
    for name, copy in copies.items():
        graph.metas[copy] = graph.metas[name]
        clones.append(Node(torch.ops.aten.clone.default, (Value(name),), {}, (copy,), ""))
    graph.nodes[:0] = clones


__all__ = ["ResultsRecorder", "keep_before", "left_in_place", "new_histories", "read_by", "refused_as_leaf", "sources_of", "written_once"]
