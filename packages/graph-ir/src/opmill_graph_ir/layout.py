"""How the two plans of a graph with gradients are joined: data, kept with them in the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import torch

from opmill_runtime_cache.plan.model import Size

from .capture.graph import AtenGraph, Meta, OutputTensor, values_in
from .capture.replay import Replay
from .planning.size import size
from .staged import Stage

if TYPE_CHECKING:
    from .capture import joint, partition
    from .capture.joint import Joint
    from .capture.partition import Halves


class Tangent(msgspec.Struct, frozen=True):
    """What the backward plan takes for one differentiable output. Sizes and strides may be expressions over ``Layout.symbols``."""

    output: int
    dtype: str
    device: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


class Part(msgspec.Struct, frozen=True):
    """What one of the backward plans takes: numbers in ``Layout.tangents``, ``Layout.saved`` and ``Layout.symbols``, in the order of its
    inputs; and its gradients, numbers in ``Layout.targets``. ``spent``: the error that it is instead, of a graph that the program has
    differentiated and freed."""

    tangents: tuple[int, ...]
    saved: tuple[int, ...]
    symbols: tuple[int, ...]
    gradients: tuple[int, ...]
    spent: str = ""


class Layout(msgspec.Struct, frozen=True):
    """How two plans are joined, or more: each of ``parts`` is a backward by itself. ``saved`` says where each tensor that the backward
    takes is found after the forward: ``("input", i)``, ``("held", j)`` or ``("output", k)``. ``targets`` says for whom each gradient is,
    ``("input", i)`` or ``("held", j)``; ``held`` numbers count in ``held``, paths of the module's tensors.

    ``strides`` are those of the saved tensors (elements). ``symbols`` are the sizes that the forward returns last and the backward takes
    last. ``reach`` holds the tangents that each gradient is made of (numbers in ``tangents``): where none of them comes, there is no
    gradient. ``derived`` are outputs that are made as views of an input, a held tensor or another output (or are it: True), such that
    autograd knows; the last outputs are memories that such views share, one for each of ``bases``, an output that is a view of it.
    ``stages``: those of a backward in several plans. ``silent``: tangents (numbers) that usually do not come; one plan more, the last, is
    for that.
    ``aliases`` names outputs of the forward plan that share memory with an input, a held tensor or another output. ``written`` are
    inputs and held tensors that the forward writes; ``before``: those of them whose contents before the write the module needs to run
    again. ``grown`` are those of ``written`` that begin a new history: what they become are the last of ``outputs``, one each.
    ``linear`` says which of them have gradients whatever they held before. ``counted``: those of ``written`` that a backward reads, with
    how many of the writes autograd counts."""

    inputs: int
    outputs: int
    tangents: tuple[Tangent, ...]
    repeated: tuple[tuple[int, int], ...]
    saved: tuple[tuple[str, int], ...]
    strides: tuple[tuple[Size, ...], ...]
    targets: tuple[tuple[str, int], ...]
    reach: tuple[tuple[int, ...], ...]
    aliases: tuple[tuple[int, str, int], ...]
    written: tuple[tuple[str, int], ...]
    replay: Replay
    parts: tuple[Part, ...]
    before: tuple[tuple[str, int], ...] = ()
    symbols: tuple[str, ...] = ()
    derived: tuple[tuple[int, str, int, bool], ...] = ()
    bases: tuple[int, ...] = ()
    stages: tuple[Stage, ...] = ()
    silent: tuple[int, ...] = ()
    grown: tuple[tuple[str, int], ...] = ()
    linear: tuple[bool, ...] = ()
    counted: tuple[tuple[str, int, int], ...] = ()


def layout_of(joint: Joint, halves: Halves, held: Sequence[str], stages: Sequence[Stage] = (), silent: tuple[int, ...] = ()) -> Layout:
    """The layout of a partitioned graph; ``held`` names all held values that either half or autograd needs, in order."""
    graph = joint.graph
    places = {name: ("held", j) for j, name in enumerate(held)}
    places |= {name: ("input", i) for i, name in enumerate(graph.inputs[: joint.inputs])}
    outputs = halves.forward.outputs
    for k, name in enumerate(joint.grown, joint.outputs - len(joint.grown)):
        if name in joint.as_left:
            places.setdefault(graph.mutations[name], ("output", k))
    for k, out in reversed(list(enumerate(outputs))):
        if isinstance(out, OutputTensor) and out.sizes is None:
            places.setdefault(out.value, ("output", k))
    tangents = tuple(_tangent(k, meta) for k, meta in zip(joint.differentiable, joint.tangents, strict=True))
    saved = tuple(places[halves.left.get(name, name)] for name in halves.saved)
    parts = tuple(_part(part, backward, halves) for part, backward in zip(joint.parts, halves.backwards, strict=True))
    targets = tuple(places[name] for name in joint.targets)
    aliases = tuple(_aliases(joint, halves, places))
    strides = tuple(tuple(map(size, graph.metas[name].strides)) for name in halves.saved)
    written = tuple(places[name] for name in graph.mutations)
    return Layout(
        inputs=joint.inputs, outputs=joint.outputs, tangents=tangents, repeated=joint.repeated, saved=saved, strides=strides,
        targets=targets, reach=_reach(joint), aliases=aliases, written=written, replay=joint.replay, parts=parts,
        symbols=halves.sizes, before=tuple(places[name] for name in joint.replay.before),
        derived=tuple(_derived(joint, halves, places)), bases=joint.bases, stages=tuple(stages), silent=silent,
        grown=tuple(places[name] for name in joint.grown), linear=tuple(name in joint.linear for name in joint.grown),
        counted=tuple((*places[name], joint.counted[name]) for name in dict.fromkeys(halves.left.values())),
    )  # fmt: skip


def _part(part: joint.Part, backward: partition.Backward | None, halves: Halves) -> Part:
    if backward is None:
        return Part(part.tangents, (), (), (), part.spent)
    saved, sizes = halves.saved.index, halves.sizes.index
    return Part(part.tangents, tuple(map(saved, backward.saved)), tuple(map(sizes, backward.sizes)), part.gradients)


def _tangent(output: int, meta: Meta) -> Tangent:
    return Tangent(output, meta.dtype, meta.device, tuple(map(size, meta.sizes)), tuple(map(size, meta.strides)))


def _reach(joint: Joint) -> tuple[tuple[int, ...], ...]:
    """The tangents that each gradient depends on."""
    reach: dict[str, frozenset[int]] = {name: frozenset((k,)) for k, name in enumerate(joint.graph.inputs[joint.inputs :])}
    none: frozenset[int] = frozenset()
    for node in joint.graph.nodes:
        found = none.union(*(reach.get(v.name, none) for v in values_in((node.args, node.kwargs))))
        reach.update((r, found) for r in node.results if r)
    gradients = joint.graph.outputs[joint.outputs :]
    return tuple(tuple(sorted(reach.get(o.value, none))) if isinstance(o, OutputTensor) else () for o in gradients)


def _derived(joint: Joint, halves: Halves, places: dict[str, tuple[str, int]]) -> Iterator[tuple[int, str, int, bool]]:
    """Positions of derived outputs, with what each is a view of, and whether it is just that."""
    for k in joint.derived:
        out = halves.forward.outputs[k]
        assert isinstance(out, OutputTensor)
        yield k, *places[out.value], out.sizes is None


def _aliases(joint: Joint, halves: Halves, places: dict[str, tuple[str, int]]) -> list[tuple[int, str, int]]:
    """Which forward outputs share memory with what: they must also share its version, or a write that spoils the backward goes unseen."""
    outputs = halves.forward.outputs
    leaders = {name: place for name, place in places.items() if place[0] != "output"}
    order = [*joint.differentiable, *range(len(outputs))]
    found = []
    for k in dict.fromkeys(order):
        out = outputs[k]
        if not isinstance(out, OutputTensor) or any(k == later for later, _ in joint.repeated):
            continue
        leader = leaders.setdefault(out.value, ("output", k))
        if leader != ("output", k) and (out.sizes is not None or leader[0] == "output"):
            found.append((k, *leader))
    return found


def held_names(joint: Joint, *graphs: AtenGraph) -> tuple[list[str], list[torch.Tensor]]:
    """Held values that the graphs read, are saved, or get a gradient, with their tensors."""
    tensors = dict(zip(joint.graph.held, joint.graph.held_tensors, strict=True))
    wanted = {name for graph in graphs for name in (*graph.held, *graph.inputs)} | {*joint.targets, *joint.graph.mutations}
    names = [name for name in tensors if name in wanted]
    return names, [tensors[name] for name in names]


def positions(layout: Layout, places: Sequence[tuple[str, int]]) -> list[int]:
    """Where tensors stand among the inputs and held tensors."""
    return [k + (layout.inputs if kind == "held" else 0) for kind, k in places]
