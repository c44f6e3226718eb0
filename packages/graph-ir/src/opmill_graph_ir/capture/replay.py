"""What it takes to run a captured module once more such that it gives the same: second derivatives are eager's, of the module run again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
import torch

from opmill_fake_tensors.operator import describe
from opmill_runtime_cache.devices.registry import traits_of, types

from .graph import AtenGraph, Meta, Node, OutputTensor, Value, values_in

aten = torch.ops.aten


class Replay(msgspec.Struct, frozen=True):
    """``obstacle``: why the module cannot run again, empty where it can. ``before``: inputs and held values, by name, that it writes and
    whose contents before the write its results depend on. ``random``: it draws numbers from the CPU's generator. ``autocast``: devices with
    the element type that they were cast to, while the module was captured."""

    obstacle: str = ""
    before: tuple[str, ...] = ()
    random: bool = False
    autocast: tuple[tuple[str, str], ...] = ()


def replay_of(graph: AtenGraph, grown: Collection[str] = ()) -> Replay:
    """For a joint graph, while it is being captured. ``grown``: what begins a new history, of which the call keeps a copy in any case."""
    drawing = [node for node in graph.nodes if torch.Tag.nondeterministic_seeded in node.func.tags]
    needed = _needed(graph, grown) if graph.mutations else frozenset()
    return Replay(
        obstacle=next((text for node in graph.nodes if (text := _obstacle(node, graph))), ""),
        before=tuple(name for name in graph.mutations if name in needed and name not in grown),
        random=bool(drawing),
        autocast=tuple(
            (device, str(torch.get_autocast_dtype(device)).removeprefix("torch."))
            for device in types()
            if torch.is_autocast_enabled(device)
        ),
    )


def _obstacle(node: Node, graph: AtenGraph) -> str:
    if getattr(describe(node.func), "exchanges", False):
        return "an exchange with other processes inside it"
    if torch.Tag.nondeterministic_seeded not in node.func.tags:
        return ""
    if node.kwargs.get("generator") is not None:
        return "random numbers of a generator inside it"
    metas: Iterable[Meta] = (graph.metas[r] for r in node.results if r)
    return "random numbers of a GPU inside it" if not all(traits_of(m.device).host for m in metas) else ""


def _needed(graph: AtenGraph, grown: Iterable[str]) -> set[str]:
    """Values that the graph's outputs depend on."""
    needed = {out.value for out in graph.outputs if isinstance(out, OutputTensor)} | {graph.mutations[name] for name in grown}
    for node in reversed(graph.nodes):
        if any(r in needed for r in node.results):
            needed.update(v.name for v in _read(node, needed))
    return needed


def _read(node: Node, needed: set[str]) -> Sequence[Value]:
    """What the results that are needed depend on: a batch norm in training moves running statistics and normalises without them."""
    if (
        node.func is aten._native_batch_norm_legit_functional.default
        and node.args[5] is True
        and not needed.intersection(filter(None, node.results[3:]))
    ):
        return values_in((node.args[:3], node.args[5:]))
    return values_in((node.args, node.kwargs))
