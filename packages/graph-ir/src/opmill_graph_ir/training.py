"""Graphs that need gradients: two plans behind one autograd node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from opmill_fake_tensors.strides import extent
from opmill_fake_tensors.wrappers import takes_operators
from opmill_runtime_cache import _native
from opmill_runtime_cache.errors import PlanInputError
from opmill_runtime_cache.plan.expr import evaluate
from opmill_runtime_cache.plan.model import DTYPES, Size

from .capture.inverse import shares_elements
from .differentiable import Past, again, as_before, versions_of
from .errors import GraphError
from .growing import grow, may_grow, may_write
from .layout import Layout as Layout
from .layout import Part, Tangent
from .layout import held_names as held_names
from .layout import layout_of as layout_of
from .layout import positions as positions
from .staged import StagedBackward

Executable = Callable[..., Sequence[Any]]


class TrainingGraph:
    """Calls the forward plan as an autograd node whose backward is the backward plan; with ``layout.stages`` a chain of nodes, with several
    ``layout.parts`` a node for each. ``backwards``: the plans of those that are not spent. ``module`` runs where a gradient is
    differentiated. ``native``: what does the same as a call, with no Python between autograd and the plans; None where there is more to
    do."""

    __slots__ = ("becoming", "behind", "forward", "grown", "held", "layout", "module", "native", "saved_inputs", "written")

    def __init__(
        self,
        layout: Layout,
        forward: Executable,
        backwards: Sequence[Executable | StagedBackward],
        held: Sequence[torch.Tensor],
        module: torch.fx.GraphModule,
    ) -> None:
        self.layout, self.forward, self.held, self.module = layout, forward, tuple(held), module
        saved = {k for kind, k in layout.saved if kind == "input"}
        self.saved_inputs = bytes(k in saved for k in range(layout.inputs))
        plans = iter(backwards)
        parts = layout.parts if layout.tangents else ()
        self.behind = [_Behind(self, part, None if part.spent else next(plans)) for part in parts]
        if layout.silent:
            self.behind[0].usual = next(plans)
        self.written, self.grown = positions(layout, layout.written), positions(layout, layout.grown)
        self.becoming = list(enumerate(self.grown, layout.outputs - len(self.grown)))
        self.native = _natively(self) if _is_simple(layout) else None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        return (self.native or self.in_python)(*inputs)

    def in_python(self, *inputs: Any) -> Sequence[Any]:
        """A call that needs no native code."""
        layout = self.layout
        outputs: list[Any] = []
        tensors = (*inputs, *self.held)
        grown = [tensors[k] for k in self.grown]
        if not (all(may_write(tensors[k]) for k in self.written) and all(map(may_grow, grown))):
            return cast("Sequence[Any]", self.module.forward(*inputs))  # which refuses as eager does
        call = _Call(self, tensors, outputs, [as_before(*each) for each in zip(grown, layout.linear, strict=True)])
        for behind in self.behind:
            returned = _applied(behind, call, behind.connected(call.tensors))
            for k, output in zip(behind.outputs, returned, strict=True):
                outputs[k] = output
        if not self.behind:
            outputs += self.forward(*inputs)
        del outputs[layout.outputs :]
        if grown:
            grow(grown, outputs[-len(grown) :])
            del outputs[-len(grown) :]
        sources = {"input": inputs, "held": self.held, "output": outputs} if layout.derived else {}
        for position, kind, k, whole in layout.derived:
            base = sources[kind][k]
            outputs[position] = base if whole else _view_of(base, outputs[position])
        for position, first in layout.repeated:
            outputs[position] = outputs[first]
        if layout.bases:
            del outputs[-len(layout.bases) :]
        return outputs


class _Behind:
    """One of the parts of the backward of ``graph``. ``outputs``: positions of what it differentiates; ``owners``: for whom its gradients
    are, as positions among inputs and held tensors; ``reach``: for each gradient, which of the part's tangents it is made of."""

    __slots__ = (
        "backward",
        "dtypes",
        "graph",
        "outputs",
        "owners",
        "part",
        "reach",
        "saved",
        "staged",
        "strides",
        "symbols",
        "tangents",
        "usual",
    )

    def __init__(self, graph: TrainingGraph, part: Part, backward: Any) -> None:
        layout = graph.layout
        self.graph, self.part, self.backward = graph, part, backward
        self.usual: Any = None
        """The plan for when no silent tangent comes."""
        self.staged: StagedBackward | None = backward if isinstance(backward, StagedBackward) else None
        self.tangents = [layout.tangents[k] for k in part.tangents]
        self.dtypes: list[torch.dtype] = [getattr(torch, tangent.dtype) for tangent in self.tangents]
        self.outputs = [t.output for t in self.tangents]
        owners = positions(layout, layout.targets)
        self.owners = [owners[k] for k in part.gradients]
        self.reach = [[part.tangents.index(t) for t in layout.reach[k]] for k in part.gradients]
        self.saved = [layout.saved[k] for k in part.saved]
        self.strides = [layout.strides[k] for k in part.saved]
        self.symbols = [layout.symbols[k] for k in part.symbols]

    def connected(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """What autograd connects the node to: the owners of its gradients, or, so that its results require grad, whatever there is; and the
        token of a backward in stages."""
        owners = [tensors[k] for k in self.owners] or [t for t in tensors if isinstance(t, torch.Tensor)]
        return owners if self.staged is None else [*owners, self.staged.token(tensors)]

    def slowly(self, ctx: Any, noted: Any, *gradients: Any) -> tuple[Any, ...]:
        """The gradients of a call that was ``noted``, for what native code leaves: some that do not come, or that are differentiated."""
        ctx.behind, ctx.past, ctx.count = self, Past(noted.inputs, [], noted.drawn, noted.versions), noted.count
        ctx.packed, ctx.sizes = False, []
        return _Node.backward(ctx, *gradients)[1:]

    def relaid(self, given: list[Any]) -> Sequence[Any]:
        """The gradients from tangents and saved tensors that may be laid out otherwise, or have no memory (zeros of autograd's own)."""
        count = len(self.tangents)
        tangents = [_laid_out(*each, _NONE) for each in zip(given[:count], self.tangents, self.dtypes, strict=True)]
        return _run_backward(self, self.backward, tangents, given[count:], _NONE)

    def others(self) -> set[int]:
        """Positions of outputs that other nodes will differentiate."""
        return {t.output for t in self.graph.layout.tangents}.difference(self.outputs)


class _Call:
    """A call of ``graph``. ``tensors``: inputs and held tensors; ``outputs`` is filled when the first node runs the plan. ``grown``: copies
    of what begins a new history."""

    __slots__ = ("graph", "grown", "outputs", "past", "tensors")

    def __init__(self, graph: TrainingGraph, tensors: tuple[Any, ...], outputs: list[Any], grown: Sequence[torch.Tensor]) -> None:
        self.graph, self.tensors, self.outputs, self.grown = graph, tensors, outputs, grown

    def run(self) -> None:
        """The forward plan. Autograd wraps what its nodes return: all others shall be just what the plan gave."""
        graph, layout, tensors, outputs = self.graph, self.graph.layout, self.tensors, self.outputs
        inputs = tensors[: layout.inputs]
        self.past = Past.of(layout, tensors, graph.held, graph.saved_inputs)
        self.past.grown = self.grown
        told: dict[str, Sequence[Any]] = {"input": tensors, "held": graph.held}
        before = [_version(told[kind][k]) for kind, k in layout.written]
        outputs += graph.forward(*inputs)
        for k, number in graph.becoming:
            outputs[k] = tensors[number].detach()
        for k, output in enumerate(outputs[: layout.outputs]):
            if (
                isinstance(output, torch.Tensor) and output._is_view()
            ):  # autograd forbids writes to views that are made here, where it does not look
                outputs[k] = output.detach()
        if layout.written or layout.aliases:
            self._tell({**told, "output": outputs}, before)
        self.past.versions = versions_of(layout, inputs, graph.held)

    def _tell(self, sources: Mapping[str, Sequence[Any]], before: Sequence[int]) -> None:
        """Autograd, what was written behind its back, and which results share memory."""
        layout, outputs = self.graph.layout, self.outputs
        counted = {(kind, k): count for kind, k, count in layout.counted}
        for (kind, k), version in zip(layout.written, before, strict=True):
            tensor = sources[kind][k]
            if tensor.is_inference():
                continue
            if (kind, k) in counted:
                torch._C._autograd._unsafe_set_version_counter((tensor,), (version + counted[kind, k],))
            elif version == tensor._version:  # what kernels write is counted
                torch.autograd.graph.increment_version(tensor)
        for k, kind, leader in layout.aliases:
            tracked = (kind, leader) in layout.grown or (kind == "output" and any(t.output == leader for t in layout.tangents))
            outputs[k] = _sharing(outputs[k], sources[kind][leader], tracked)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _view_of(base: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The view of ``base`` that ``like`` shows, known to autograd."""
    with torch.enable_grad():
        return base.as_strided(like.shape, like.stride(), like.storage_offset())


def _applied(behind: _Behind, call: _Call, connected: Sequence[Any]) -> tuple[Any, ...]:
    """``_Node.apply``. What its Python part does for signatures and transformations is left out where there are none: small graphs take
    no longer than that."""
    if torch._C._are_functorch_transforms_active():
        return _Node.apply(behind, call, *connected)
    return _applied_now(behind, call, *map(torch._C._functorch.unwrap_if_dead, connected))


class _Node(torch.autograd.Function):
    """``apply(behind, call, *connected)`` returns the outputs that this part of the backward differentiates; the first one runs the
    forward."""

    @staticmethod
    def forward(ctx: Any, behind: _Behind, call: _Call, *connected: Any) -> tuple[Any, ...]:
        graph, outputs = behind.graph, call.outputs
        if not outputs:
            call.run()
        sources: dict[str, Sequence[Any]] = {"input": call.tensors, "held": graph.held, "output": outputs}
        if len(graph.behind) > 1:  # what is another node's result is kept without its history
            others = behind.others()
            sources["output"] = [o.detach() if k in others else o for k, o in enumerate(outputs)]
        ctx.save_for_backward(*[sources[kind][k] for kind, k in behind.saved])
        ctx.set_materialize_grads(False)
        ctx.behind, ctx.past, ctx.count = behind, call.past, len(connected)
        ctx.packed = behind.staged is not None and torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        symbols = outputs[len(outputs) - len(graph.layout.symbols) :]
        ctx.sizes = [symbols[k] for k in behind.part.symbols]
        return tuple([outputs[k] for k in behind.outputs])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        behind: _Behind = ctx.behind
        if behind.part.spent:
            raise RuntimeError(behind.part.spent)
        here = [g is not None for g in gradients]
        if all(here):
            if behind.staged is None:
                found = _found(ctx, behind, gradients, here)[0]
                return None, None, *found, *(None,) * (ctx.count - len(found))
            present = [True] * len(behind.reach)
        elif behind.staged is None and not any(here):
            return (None,) * (2 + ctx.count)
        else:
            present = [not reach or any(here[t] for t in reach) for reach in behind.reach]
        result: list[Any] = [None] * (2 + ctx.count)
        found, token = _found(ctx, behind, gradients, present)
        for position, (gradient, wanted) in enumerate(zip(found, present, strict=True)):
            if wanted:
                result[2 + position] = gradient
        if token is not None:
            result[-1] = token
        return tuple(result)


_applied_now: Callable[..., tuple[Any, ...]] = super(torch.autograd.Function, _Node).apply


class _Direct(torch.autograd.Function):
    """The same for one part with nothing to tell autograd, and in native code: ``apply(noted, *connected)``."""

    forward = staticmethod(_native.forward)


_Direct._backward_cls.apply = _native.backward  # type: ignore[attr-defined]
_applied_directly: Callable[..., tuple[Any, ...]] = super(torch.autograd.Function, _Direct).apply


def _is_simple(layout: Layout) -> bool:
    """Whether there is but one node, which gives a gradient, of a plan that writes nothing, and whose results are just what they are."""
    more = layout.stages or layout.silent or layout.symbols or layout.written or layout.aliases or layout.derived or layout.bases
    if more or layout.repeated or len(layout.parts) != 1:
        return False
    [part] = layout.parts
    return bool(layout.tangents) and bool(part.gradients) and not part.spent


def _natively(graph: TrainingGraph) -> Callable[..., Sequence[Any]] | None:
    """None where native code knows no tensors."""
    layout, [behind] = graph.layout, graph.behind
    places = {"input": 0, "held": 1, "output": 2}
    try:
        return _native.Differentiated(
            apply=_applied_directly,
            transformed=torch._C._are_functorch_transforms_active,
            keeps=torch._C._autograd._get_current_graph_task_keep_graph if _CAN_LET_GO else None,
            drawn=torch.get_rng_state if layout.replay.random else None,
            run=graph.forward,
            owner=behind,
            held=graph.held,
            otherwise=graph.in_python,
            relaid=behind.relaid,
            refused=PlanInputError,
            tensor=torch.Tensor,
            inputs=layout.inputs,
            outputs=layout.outputs,
            gradients=len(behind.owners),
            owned=graph.saved_inputs,
            saved=tuple((places[kind], k) for kind, k in behind.saved),
            connected=tuple(behind.owners),
            tangents=tuple((t.output, DTYPES.index(t.dtype), _numbers(t.strides, _NONE)) for t in behind.tangents),
        )
    except RuntimeError:
        return None


def _found(ctx: Any, behind: _Behind, gradients: Sequence[Any], present: Sequence[bool]) -> tuple[Sequence[Any], Any]:
    """The gradients of a part, and that of its token. ``present`` says which of them are wanted."""
    graph, part, staged = behind.graph, behind.part, behind.staged
    saved = list(ctx.saved_tensors)
    if torch.is_grad_enabled() or any(map(_is_batched, gradients)):
        kept, came = dict(zip(part.saved, saved, strict=True)), dict(zip(part.tangents, gradients, strict=True))
        found = again(graph.layout, graph.module, graph.held, ctx.past, kept, came)
        return [found[k] for k in part.gradients], None
    values = dict(zip(behind.symbols, ctx.sizes, strict=True)) if behind.symbols else _NONE
    silent = graph.layout.silent
    plan = behind.usual if silent and all(gradients[k] is None for k in silent) else None
    given = zip(gradients, behind.tangents, behind.dtypes, strict=True)
    tangents = [_laid_out(*each, values) for k, each in enumerate(given) if plan is None or k not in silent]
    if _CAN_LET_GO and not torch._C._autograd._get_current_graph_task_keep_graph():
        ctx.maybe_clear_saved_tensors()
        ctx.past = None
    if staged is None:
        return _run_backward(behind, plan or behind.backward, tangents, saved, values), None
    pool = [*tangents, *(_as_saved(behind.strides, saved, values) if ctx.packed else saved)]
    saved.clear()
    return staged.begin(pool, ctx.sizes, present)


def _is_batched(gradient: Any) -> bool:
    """Whether it stands for many at once, as under ``is_grads_batched``."""
    return gradient is not None and (_is_wrapped(gradient) or _is_legacy(gradient))


_is_wrapped: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor
_is_legacy: Callable[[torch.Tensor], bool] = torch._C._functorch.is_legacy_batchedtensor


_NONE: Mapping[str, int] = {}
_CAN_LET_GO = hasattr(torch._C._FunctionBase, "maybe_clear_saved_tensors")
"""Whether this torch can drop saved tensors before their backward ends."""


def _run_backward(
    behind: _Behind, plan: Any, tangents: list[torch.Tensor], saved: list[torch.Tensor], sizes: Mapping[str, int]
) -> Sequence[Any]:
    """The gradients. ``saved`` is emptied: the plan drops what it has used, and where autograd has let go of it, too, its memory is
    free."""
    given: list[Any] = [*tangents, *saved, *sizes.values()]
    saved.clear()
    try:
        return plan.take(given)
    except PlanInputError:
        if not given:
            raise
        given[len(tangents) : len(given) - len(sizes)] = _as_saved(behind.strides, given[len(tangents) : len(given) - len(sizes)], sizes)
        return plan.take(given)


def _as_saved(laid: Sequence[tuple[Size, ...]], saved: Sequence[torch.Tensor], sizes: Mapping[str, int]) -> Iterator[torch.Tensor]:
    """The saved tensors as the plans take them: hooks may bring them back laid out otherwise."""
    pairs = zip(saved, (_numbers(strides, sizes) for strides in laid), strict=True)
    return (t if t.stride() == strides else _with_strides(t, strides) for t, strides in pairs)


def _numbers(values: tuple[Size, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(v, sizes) for v in values) if sizes else cast("tuple[int, ...]", values)


def _with_strides(t: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The values of a saved tensor laid out so. Raises GI064 where values that differ have one place."""
    made = torch.empty_strided(t.shape, strides, dtype=t.dtype, device=t.device)
    if t.numel() == 0 or not shares_elements(t.shape, strides):
        return made.copy_(t)
    places = torch.zeros((), dtype=torch.int64, device=t.device)
    for size, step in zip(t.shape, strides, strict=True):
        places = places.unsqueeze(-1) + torch.arange(size, device=t.device) * step
    made.as_strided((extent(t.shape, strides),), (1,))[places] = t
    if not bool(((made == t) | (t != t)).all()):
        what = f"hooks brought a saved tensor of {list(t.shape)} back with values that differ where they were one"
        why = f"the backward reads it with strides {list(strides)}"
        raise GraphError("GI064", what, why=why, hint="give equal values back, or make the tensor contiguous before it is used")
    return made


def _laid_out(gradient: torch.Tensor | None, tangent: Tangent, dtype: torch.dtype, sizes: Mapping[str, int]) -> torch.Tensor:
    """The gradient of an output in the layout that the plan reads; zeros where none came."""
    strides = _numbers(tangent.strides, sizes)
    if gradient is not None and type(gradient) is not torch.Tensor and takes_operators(type(gradient)):
        what = f"a gradient that is a {type(gradient).__qualname__}, of an output that is a plain tensor"
        raise GraphError("GI063", what, why="the backward was compiled for gradients like the output", hint="give a plain one")
    if gradient is not None and gradient.stride() == strides and gradient.dtype == dtype:
        if not (gradient.is_neg() or gradient.is_conj() or gradient._is_zerotensor()):
            return gradient
    laid = torch.empty_strided(_numbers(tangent.sizes, sizes), strides, dtype=dtype, device=tangent.device)
    return laid.zero_() if gradient is None else laid.copy_(gradient)


def _sharing(view: torch.Tensor, leader: torch.Tensor, tracked: bool) -> torch.Tensor:
    """``view``, of ``leader``'s memory, such that a write to either is seen as one to both. ``tracked``: autograd will know the leader as
    a result of the graph, and shall not know the view as one."""
    with torch.enable_grad():
        base = leader.detach() if leader.requires_grad or tracked else leader
        return base.as_strided(view.shape, view.stride(), view.storage_offset())
