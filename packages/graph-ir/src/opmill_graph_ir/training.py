"""Graphs that need gradients: two plans behind one autograd node."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from opmill_runtime_cache.errors import PlanInputError
from opmill_runtime_cache.plan.expr import evaluate
from opmill_runtime_cache.plan.model import Size

from .capture.graph import AtenGraph, Meta, OutputTensor, values_in
from .errors import GraphError
from .planning.size import size
from .staged import Stage, StagedBackward

if TYPE_CHECKING:
    from .capture.joint import Joint
    from .capture.partition import Halves

Executable = Callable[..., Sequence[Any]]


class Tangent(msgspec.Struct, frozen=True):
    """What the backward plan takes for one differentiable output. Sizes and strides may be expressions over ``Layout.symbols``."""

    output: int
    dtype: str
    device: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


class Layout(msgspec.Struct, frozen=True):
    """How two plans are joined. ``saved`` says where each tensor that the backward takes is found after the forward: ``("input", i)``,
    ``("held", j)`` or ``("output", k)``. ``targets`` says for whom each gradient is, ``("input", i)`` or ``("held", j)``; ``held`` numbers
    count in ``held``, paths of the module's tensors.

    ``strides`` are those of the saved tensors (elements). ``symbols`` are the sizes that the forward returns last and the backward takes last.
    ``reach`` holds the tangents that each gradient is made of (numbers in ``tangents``): where none of them comes, there is no gradient.
    ``derived`` are outputs that are made as views of an input, a held tensor or another output (or are it: True), such that autograd knows; the last
    outputs are memories that such views share, one for each of ``bases``, an output that is a view of it. ``stages``: those of a backward in several
    plans.
    ``aliases`` names outputs of the forward plan that share memory with an input, a held tensor or another output. ``written`` are
    inputs and held tensors that the forward writes. ``replayable``: the module may run once more and give the same."""

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
    replayable: bool
    symbols: tuple[str, ...] = ()
    derived: tuple[tuple[int, str, int, bool], ...] = ()
    bases: tuple[int, ...] = ()
    stages: tuple[Stage, ...] = ()


def layout_of(joint: Joint, halves: Halves, held: Sequence[str], stages: Sequence[Stage] = ()) -> Layout:
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
    targets = tuple(places[name] for name in joint.targets)
    aliases = tuple(_aliases(joint, halves, places))
    strides = tuple(tuple(map(size, graph.metas[name].strides)) for name in halves.saved)
    written = tuple(places[name] for name in graph.mutations)
    return Layout(
        inputs=joint.inputs, outputs=joint.outputs, tangents=tangents, repeated=joint.repeated, saved=saved, strides=strides,
        targets=targets, reach=_reach(joint), aliases=aliases, written=written, replayable=joint.replayable, symbols=halves.sizes,
        derived=tuple(_derived(joint, halves, places)), bases=joint.bases, stages=tuple(stages),
    )  # fmt: skip


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
        ctx.inputs = [_reference(t) for t in tensors[: layout.inputs]]
        ctx.versions = _versions(tensors)
        ctx.sizes = outputs[len(outputs) - len(layout.symbols) :]
        return tuple(outputs[t.output] for t in layout.tangents)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        layout: Layout = ctx.graph.layout
        staged: StagedBackward | None = ctx.graph.staged
        saved = list(ctx.saved_tensors)
        present = [not reach or any(gradients[t] is not None for t in reach) for reach in layout.reach]
        token: tuple[Any, ...] = () if staged is None else (None,)
        if torch.is_grad_enabled():
            found = _differentiable(ctx, gradients)
        else:
            values = dict(zip(layout.symbols, ctx.sizes, strict=True))
            tangents = [_laid_out(g, t, values) for g, t in zip(gradients, layout.tangents, strict=True)]
            if _CAN_LET_GO and not torch._C._autograd._get_current_graph_task_keep_graph():
                ctx.maybe_clear_saved_tensors()
            if staged is None:
                found = _run_backward(ctx.graph, tangents, saved, values)
            else:
                found, passed_on = staged.begin([*tangents, *_as_saved(layout, saved, values)], ctx.sizes, present)
                token = (passed_on,)
        result: list[Any] = [None] * (2 + layout.inputs + len(ctx.graph.held))
        for position, gradient, wanted in zip(target_positions(layout), found, present, strict=True):
            if wanted:
                result[2 + position] = gradient
        return (*result, *token)


_CAN_LET_GO = hasattr(torch._C._FunctionBase, "maybe_clear_saved_tensors")
"""Whether this torch can drop saved tensors before their backward ends."""


def _run_backward(graph: TrainingGraph, tangents: list[torch.Tensor], saved: list[torch.Tensor], sizes: Mapping[str, int]) -> Sequence[Any]:
    """The gradients. ``saved`` is emptied: the plan drops what it has used, and where autograd has let go of it, too, its memory is free."""
    given = [*tangents, *saved, *sizes.values()]
    saved.clear()
    try:
        return graph.backward.take(given)  # type: ignore[no-any-return]
    except PlanInputError:
        if not given:
            raise
        given[len(tangents) : len(given) - len(sizes)] = _as_saved(graph.layout, given[len(tangents) : len(given) - len(sizes)], sizes)
        return graph.backward.take(given)  # type: ignore[no-any-return]


def target_positions(layout: Layout) -> list[int]:
    """Where each gradient's tensor stands among the inputs and held tensors."""
    return [k + (layout.inputs if kind == "held" else 0) for kind, k in layout.targets]


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


# ---- second derivatives --------------------------------------------------------------------------------------------------


def _reference(value: Any) -> Any:
    return weakref.ref(value) if isinstance(value, torch.Tensor) else lambda: value


def _versions(tensors: Sequence[Any]) -> int:
    """Changes with every write to one of the tensors."""
    return sum([t._version for t in tensors if isinstance(t, torch.Tensor) and not t.is_inference()])


def _differentiable(ctx: Any, gradients: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
    """The gradients as eager computes them, so that they can be differentiated: the module runs again.

    Raises ``GraphError`` GI007 where that would not be what ran before."""
    graph: TrainingGraph = ctx.graph
    layout = graph.layout
    inputs = [reference() for reference in ctx.inputs]
    for (kind, k), tensor in zip(layout.saved, ctx.saved_tensors, strict=True):
        if kind == "input":
            inputs[k] = tensor
    lost = any(t is None for t in inputs)
    if not layout.replayable or lost or _versions((*inputs, *graph.held)) != ctx.versions:
        why = "random numbers, writes or autocast inside it" if not layout.replayable else "an input is gone or was written in place since"
        raise GraphError("GI007", "a compiled graph cannot be differentiated twice", why=why, hint="leave this part uncompiled")
    # Each use stands for itself: an input may have been made from another, or from a parameter.
    own = [t.view_as(t) if isinstance(t, torch.Tensor) and t.requires_grad else t for t in inputs]
    held = [t.view_as(t) for t in graph.held]
    aliases = {id(t): alias for t, alias in zip(graph.held, held, strict=True)}
    everything = [*graph.module.named_parameters(remove_duplicate=False), *graph.module.named_buffers(remove_duplicate=False)]
    replaced = {n: aliases[id(t)] for n, t in everything if id(t) in aliases}
    result = torch.func.functional_call(graph.module, replaced, tuple(own), tie_weights=False)
    items = list(result) if isinstance(result, (list, tuple)) else [result]
    items += [items[k]._base for k in layout.bases]
    pairs = [(items[t.output], g) for t, g in zip(layout.tangents, gradients, strict=True) if g is not None]
    sources = {"input": own, "held": held}
    wanted = [sources[kind][k] for kind, k in layout.targets]
    return torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], create_graph=True, allow_unused=True)
