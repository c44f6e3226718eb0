"""A backward for the usual case that large results besides the loss have no gradient.

Language models return their logits beside the loss. A caller who differentiates the loss alone has no gradient for them, and the backward
would be given as many zeros: to be written, read and added, and for all of its first part in memory. The backward is compiled a second
time, with zeros that it knows. So it is where a block writes to what it was given and returns something else: the former is looked at no
more.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from opmill_runtime_cache.devices.registry import traits_of

from .graph import AtenGraph, Meta, Node, OutputTensor
from .joint import Joint
from .partition import Halves
from .places import BACKWARD

_LARGE = 16 << 20
_LARGE_WRITTEN = 1 << 18
"""Bytes of a gradient from which on its zeros are worth a second plan: of a result, and of what is written."""


def silent_tangents(joint: Joint, halves: Halves) -> tuple[int, ...]:
    """The numbers of the tangents that usually do not come: large ones on GPUs, where one is of a single number, and those of what is
    written and not returned. Only of a graph with one backward and known sizes."""
    if len(joint.parts) != 1 or halves.sizes or halves.backwards[0] is None:
        return ()
    found = {k for k in _left_behind(joint) if _bytes(joint.tangents[k]) >= _LARGE_WRITTEN}
    if any(map(_is_loss, joint.tangents)):
        found.update(k for k, meta in enumerate(joint.tangents) if not _is_loss(meta) and _is_large(meta))
    return tuple(sorted(found)) if len(found) < len(joint.tangents) else ()


def _left_behind(joint: Joint) -> list[int]:
    """Tangents of what begins a new history and is no result."""
    returned = {out.value for k in joint.derived if isinstance(out := joint.graph.outputs[k], OutputTensor)}
    first = len(joint.differentiable) - len(joint.grown)
    return [k for k, name in enumerate(joint.grown, first) if name not in returned]


def without(joint: Joint, halves: Halves, silent: tuple[int, ...]) -> AtenGraph:
    """The backward with zeros in place of these tangents."""
    graph = halves.backward
    names = [joint.graph.inputs[joint.inputs + k] for k in silent]
    zeros = [
        Node(
            torch.ops.aten.full.default,
            (list(meta.sizes), 0),
            {"dtype": getattr(torch, meta.dtype), "device": torch.device(meta.device)},
            (name,),
            BACKWARD,
        )
        for name in names
        for meta in (graph.metas[name],)
    ]
    return replace(graph, inputs=[name for name in graph.inputs if name not in names], nodes=[*zeros, *graph.nodes])


def _is_loss(meta: Meta) -> bool:
    return not meta.sizes


def _is_large(meta: Meta) -> bool:
    return traits_of(meta.device).grid and _bytes(meta) >= _LARGE


def _bytes(meta: Meta) -> int:
    """0 where sizes are no numbers."""
    known = all(type(n) is int for n in (*meta.sizes, *meta.strides))
    return int(math.prod(meta.sizes) * getattr(torch, meta.dtype).itemsize) if known else 0


__all__ = ["silent_tangents", "without"]
