"""Graphs that need gradients: two plans behind one autograd node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from opmill_runtime_cache.errors import PlanInputError
from opmill_runtime_cache.plan.expr import evaluate
from opmill_runtime_cache.plan.model import Size

from .differentiable import Past, again, versions_of
from .layout import Layout as Layout
from .layout import Tangent
from .layout import held_names as held_names
from .layout import layout_of as layout_of
from .layout import target_positions as target_positions
from .staged import StagedBackward

Executable = Callable[..., Sequence[Any]]


class TrainingGraph:
    """Calls the forward plan as an autograd node whose backward is the backward plan; with ``layout.stages`` a chain of nodes. ``module`` runs where
    a gradient is differentiated."""

    __slots__ = ("backward", "forward", "held", "layout", "module", "staged")

    def __init__(
        self,
        layout: Layout,
        forward: Executable,
        backward: Executable | StagedBackward,
        held: Sequence[torch.Tensor],
        module: torch.fx.GraphModule,
    ) -> None:
        self.layout, self.forward, self.held, self.module = layout, forward, tuple(held), module
        self.backward: Any = backward
        self.staged = backward if isinstance(backward, StagedBackward) else None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        layout = self.layout
        outputs: list[Any] = []
        if layout.tangents:
            token = (self.staged.token((*inputs, *self.held)),) if self.staged is not None else ()
            returned = _Node.apply(self, outputs, *inputs, *self.held, *token)  # type: ignore[no-untyped-call]
            for tangent, output in zip(layout.tangents, returned, strict=True):
                outputs[tangent.output] = output
        else:
            outputs += self.forward(*inputs)
        del outputs[layout.outputs :]
        sources = {"input": inputs, "held": self.held, "output": outputs}
        for position, kind, k, whole in layout.derived:
            base = sources[kind][k]
            outputs[position] = base if whole else _view_of(base, outputs[position])
        for position, first in layout.repeated:
            outputs[position] = outputs[first]
        del outputs[layout.outputs - len(layout.bases) :]
        return outputs


def _view_of(base: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The view of ``base`` that ``like`` shows, known to autograd."""
    with torch.enable_grad():
        return base.as_strided(like.shape, like.stride(), like.storage_offset())


class _Node(torch.autograd.Function):
    """``apply(graph, outputs, *inputs, *held)`` returns the differentiable outputs, and puts all into the list ``outputs``: autograd wraps
    what it returns, and the others shall be just what the plan gave."""

    @staticmethod
    def forward(ctx: Any, graph: TrainingGraph, outputs: list[Any], *tensors: Any) -> tuple[Any, ...]:
        layout = graph.layout
        past = Past.of(layout, tensors, graph.held)
        outputs += graph.forward(*tensors[: layout.inputs])
        sources = {"input": tensors, "held": graph.held, "output": outputs}
        for tangent in layout.tangents:
            if outputs[tangent.output]._is_view():  # autograd forbids writes to views that come out of a custom node
                outputs[tangent.output] = outputs[tangent.output].detach()
        for kind, k in layout.written:
            if not sources[kind][k].is_inference():
                torch.autograd.graph.increment_version(sources[kind][k])  # plans write behind autograd's back
        for k, kind, leader in layout.aliases:
            tracked = kind == "output" and any(t.output == leader for t in layout.tangents)
            outputs[k] = _sharing(outputs[k], sources[kind][leader], tracked)
        ctx.save_for_backward(*(sources[kind][k] for kind, k in layout.saved))
        ctx.set_materialize_grads(False)
        ctx.graph = graph
        ctx.packed = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        past.versions = versions_of(layout, tensors[: layout.inputs], graph.held)
        ctx.past = past
        ctx.sizes = outputs[len(outputs) - len(layout.symbols) :]
        return tuple(outputs[t.output] for t in layout.tangents)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        layout: Layout = ctx.graph.layout
        staged: StagedBackward | None = ctx.graph.staged
        saved = list(ctx.saved_tensors)
        present = [not reach or any(gradients[t] is not None for t in reach) for reach in layout.reach]
        token: tuple[Any, ...] = () if staged is None else (None,)
        if torch.is_grad_enabled() or any(map(_is_batched, gradients)):
            found = again(layout, ctx.graph.module, ctx.graph.held, ctx.past, saved, gradients)
        else:
            values = dict(zip(layout.symbols, ctx.sizes, strict=True))
            tangents = [_laid_out(g, t, values) for g, t in zip(gradients, layout.tangents, strict=True)]
            if _CAN_LET_GO and not torch._C._autograd._get_current_graph_task_keep_graph():
                ctx.maybe_clear_saved_tensors()
            if staged is None:
                found = _run_backward(ctx.graph, tangents, saved, values)
            else:
                given = [*tangents, *(_as_saved(layout, saved, values) if ctx.packed else saved)]
                saved.clear()
                found, passed_on = staged.begin(given, ctx.sizes, present)
                token = (passed_on,)
        result: list[Any] = [None] * (2 + layout.inputs + len(ctx.graph.held))
        for position, gradient, wanted in zip(target_positions(layout), found, present, strict=True):
            if wanted:
                result[2 + position] = gradient
        return (*result, *token)


def _is_batched(gradient: Any) -> bool:
    """Whether it stands for many at once, as under ``is_grads_batched``."""
    c = torch._C._functorch
    return gradient is not None and (c.is_functorch_wrapped_tensor(gradient) or c.is_legacy_batchedtensor(gradient))


_CAN_LET_GO = hasattr(torch._C._FunctionBase, "maybe_clear_saved_tensors")
"""Whether this torch can drop saved tensors before their backward ends."""


def _run_backward(graph: TrainingGraph, tangents: list[torch.Tensor], saved: list[torch.Tensor], sizes: Mapping[str, int]) -> Sequence[Any]:
    """The gradients. ``saved`` is emptied: the plan drops what it has used, and where autograd has let go of it, too, its memory is free."""
    given: list[Any] = [*tangents, *saved, *sizes.values()]
    saved.clear()
    try:
        return graph.backward.take(given)  # type: ignore[no-any-return]
    except PlanInputError:
        if not given:
            raise
        given[len(tangents) : len(given) - len(sizes)] = _as_saved(graph.layout, given[len(tangents) : len(given) - len(sizes)], sizes)
        return graph.backward.take(given)  # type: ignore[no-any-return]


def _as_saved(layout: Layout, saved: Sequence[torch.Tensor], sizes: Mapping[str, int]) -> Iterator[torch.Tensor]:
    """The saved tensors as the plans take them: hooks may bring them back laid out otherwise."""
    pairs = zip(saved, (_numbers(strides, sizes) for strides in layout.strides), strict=True)
    return (t if t.stride() == strides else _with_strides(t, strides) for t, strides in pairs)


def _numbers(values: tuple[Size, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(v, sizes) for v in values) if sizes else values  # type: ignore[return-value]


def _with_strides(t: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(t.shape, strides, dtype=t.dtype, device=t.device).copy_(t)


def _laid_out(gradient: torch.Tensor | None, tangent: Tangent, sizes: Mapping[str, int]) -> torch.Tensor:
    """The gradient of an output in the layout that the plan reads; zeros where none came."""
    dtype, strides = getattr(torch, tangent.dtype), _numbers(tangent.strides, sizes)
    if gradient is not None and gradient.stride() == strides and gradient.dtype == dtype:
        if not gradient.is_neg() and not gradient.is_conj():
            return gradient
    laid = torch.empty_strided(_numbers(tangent.sizes, sizes), strides, dtype=dtype, device=tangent.device)
    return laid.zero_() if gradient is None else laid.copy_(gradient)


def _sharing(view: torch.Tensor, leader: torch.Tensor, tracked: bool) -> torch.Tensor:
    """``view``, of ``leader``'s memory, such that a write to either is seen as one to both. ``tracked``: autograd will know the leader as
    a result of the graph, and shall not know the view as one."""
    with torch.enable_grad():
        base = leader.detach() if leader.requires_grad or tracked else leader
        return base.as_strided(view.shape, view.stride(), view.storage_offset())
