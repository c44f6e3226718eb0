"""Graphs that need gradients: two plans behind one autograd node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from .capture.graph import AtenGraph, Meta, OutputTensor
from .capture.joint import Joint
from .capture.partition import Halves

Executable = Callable[..., Sequence[Any]]


class Tangent(msgspec.Struct, frozen=True):
    """What the backward plan takes for one differentiable output."""

    output: int
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class Layout(msgspec.Struct, frozen=True):
    """How two plans are joined. ``saved`` says where each tensor that the backward takes is found after the forward: ``("input", i)``,
    ``("held", j)`` or ``("output", k)``. ``targets`` says for whom each gradient is, ``("input", i)`` or ``("held", j)``; ``held`` numbers
    count in ``held``, paths of the module's tensors."""

    inputs: int
    outputs: int
    tangents: tuple[Tangent, ...]
    repeated: tuple[tuple[int, int], ...]
    saved: tuple[tuple[str, int], ...]
    targets: tuple[tuple[str, int], ...]


def layout_of(joint: Joint, halves: Halves, held: Sequence[str]) -> Layout:
    """The layout of a partitioned graph; ``held`` names all held values that either half or autograd needs, in order."""
    graph = joint.graph
    places = {name: ("held", j) for j, name in enumerate(held)}
    places |= {name: ("input", i) for i, name in enumerate(graph.inputs[: joint.inputs])}
    outputs = halves.forward.outputs
    for k, out in reversed(list(enumerate(outputs))):
        if isinstance(out, OutputTensor) and out.sizes is None:
            places.setdefault(out.value, ("output", k))
    tangents = tuple(_tangent(k, meta) for k, meta in zip(joint.differentiable, joint.tangents, strict=True))
    saved = tuple(places[name] for name in halves.saved)
    return Layout(joint.inputs, joint.outputs, tangents, joint.repeated, saved, tuple(places[name] for name in joint.targets))


def _tangent(output: int, meta: Meta) -> Tangent:
    return Tangent(output, meta.dtype, meta.sizes, meta.strides)


def held_names(joint: Joint, *graphs: AtenGraph) -> tuple[list[str], list[torch.Tensor]]:
    """Held values that the graphs read, are saved, or get a gradient, with their tensors."""
    tensors = dict(zip(joint.graph.held, joint.graph.held_tensors, strict=True))
    wanted = {name for graph in graphs for name in (*graph.held, *graph.inputs)} | set(joint.targets)
    names = [name for name in tensors if name in wanted]
    return names, [tensors[name] for name in names]


class TrainingGraph:
    """Calls the forward plan as an autograd node whose backward is the backward plan."""

    __slots__ = ("backward", "forward", "held", "layout")

    def __init__(self, layout: Layout, forward: Executable, backward: Executable, held: Sequence[torch.Tensor]) -> None:
        self.layout, self.forward, self.backward, self.held = layout, forward, backward, tuple(held)

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if not self.layout.tangents:
            return self.forward(*inputs)
        outputs = list(_Node.apply(self, *inputs, *self.held))  # type: ignore[no-untyped-call]
        for position, first in self.layout.repeated:
            outputs[position] = outputs[first]
        return outputs


class _Node(torch.autograd.Function):
    """``apply(graph, *inputs, *held)``. Differentiating twice raises: the second derivative of a plan is not known."""

    @staticmethod
    def forward(ctx: Any, graph: TrainingGraph, *tensors: Any) -> tuple[Any, ...]:
        layout = graph.layout
        outputs = list(graph.forward(*tensors[: layout.inputs]))
        sources = {"input": tensors, "held": graph.held, "output": outputs}
        ctx.save_for_backward(*(sources[kind][k] for kind, k in layout.saved))
        returned = outputs[: layout.outputs]
        for position, _ in layout.repeated:
            returned[position] = None
        differentiable = {t.output for t in layout.tangents}
        ctx.mark_non_differentiable(*(o for k, o in enumerate(returned) if k not in differentiable and isinstance(o, torch.Tensor)))
        ctx.set_materialize_grads(False)
        ctx.graph = graph
        return tuple(returned)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        layout: Layout = ctx.graph.layout
        tangents = [_laid_out(gradients[t.output], t) for t in layout.tangents]
        found = ctx.graph.backward(*tangents, *ctx.saved_tensors)
        result: list[Any] = [None] * (1 + layout.inputs + len(ctx.graph.held))
        for (kind, k), gradient in zip(layout.targets, found, strict=True):
            result[1 + k + (layout.inputs if kind == "held" else 0)] = gradient
        return tuple(result)


def _laid_out(gradient: torch.Tensor | None, tangent: Tangent) -> torch.Tensor:
    """The gradient of an output in the layout that the plan reads; zeros where none came."""
    dtype = getattr(torch, tangent.dtype)
    if gradient is not None and gradient.stride() == tangent.strides and gradient.dtype == dtype and not gradient.is_neg():
        return gradient
    laid = torch.empty_strided(tangent.sizes, tangent.strides, dtype=dtype)
    return laid.zero_() if gradient is None else laid.copy_(gradient)
