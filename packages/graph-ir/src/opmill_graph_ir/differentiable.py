"""Gradients that can be differentiated: they are eager's, of the module run again on what it ran on before."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from opmill_runtime_cache import _native
from opmill_runtime_cache.devices.registry import types

from .errors import GraphError
from .layout import Layout


@dataclass(slots=True)
class Past:
    """What a call leaves for running it again. ``inputs``: references to those that are saved, and to leaves of autograd: what made the
    others may be all that knew them. ``before``: copies of what it was to write. ``generator``: the state of the CPU's, where numbers were
    drawn from it. ``versions`` changes with every write. ``grown``: what was to begin a new history, as ``as_before`` gives it."""

    inputs: list[Any]
    before: list[torch.Tensor]
    generator: torch.Tensor | None
    versions: int = 0
    grown: Sequence[torch.Tensor] = ()

    @staticmethod
    def of(layout: Layout, tensors: tuple[Any, ...], held: Sequence[torch.Tensor], saved: bytes) -> Past:
        """Before the call. ``tensors`` are its inputs, then ``held``; ``saved``: which inputs autograd keeps, a byte each."""
        sources = {"input": tensors, "held": held} if layout.before else {}
        inputs = _native.references(tensors, layout.inputs, saved)
        return Past(
            _references(tensors, saved) if inputs is None else inputs,
            [sources[kind][k].clone() for kind, k in layout.before],
            torch.get_rng_state() if layout.replay.random else None,
        )


def as_before(tensor: torch.Tensor, linear: bool) -> torch.Tensor:
    """What stands for a tensor that is written next, when the module runs again: a copy with the history that it has now, or, where no
    gradient depends on what it holds, one without memory."""
    return tensor.detach().new_zeros(()).expand(tensor.shape) if linear else tensor.clone()


def _references(tensors: Sequence[Any], saved: bytes) -> list[Any]:
    """Where native code knows no tensors."""
    pairs = zip(tensors, saved, strict=False)
    return [weakref.ref(t) if isinstance(t, torch.Tensor) and (kept or _is_leaf(t)) else t for t, kept in pairs]


def _is_leaf(tensor: torch.Tensor) -> bool:
    """Whether gradients are summed up in it: what it refers to may refer to the graph."""
    return tensor.requires_grad and tensor.is_leaf


def versions_of(layout: Layout, inputs: tuple[Any, ...], held: tuple[torch.Tensor, ...]) -> int:
    """Changes with every write to a tensor that the graph itself does not write."""
    found = _native.versions(inputs, held)
    if found is None:
        found = sum([t._version for t in (*inputs, *held) if isinstance(t, torch.Tensor) and not t.is_inference()])
    if not layout.written:
        return found
    sources = {"input": inputs, "held": held}
    return found - sum([t._version for t in (sources[kind][k] for kind, k in layout.written) if not t.is_inference()])


def again(
    layout: Layout,
    module: torch.fx.GraphModule,
    held: tuple[torch.Tensor, ...],
    past: Past,
    saved: Mapping[int, torch.Tensor],
    gradients: Mapping[int, torch.Tensor | None],
) -> Sequence[torch.Tensor | None]:
    """The gradients for ``layout.targets``. ``saved`` are tensors that autograd kept, by their numbers in ``layout.saved``; ``gradients``
    came for tangents of these numbers.

    Raises ``GraphError`` GI007 where running the module again would not be what ran before."""
    inputs = [t() if isinstance(t, weakref.ref) else t for t in past.inputs]
    for number, tensor in saved.items():
        kind, k = layout.saved[number]
        if kind == "input":
            inputs[k] = tensor
    problem = layout.replay.obstacle
    anew = {k for kind, k in layout.grown if kind == "input"}
    if not problem and any(t is None and k not in anew for k, t in enumerate(inputs)):
        problem = "an input is gone"
    if not problem and versions_of(layout, tuple(inputs), held) != past.versions:
        problem = "an input or a parameter was written in place since"
    if problem:
        raise GraphError("GI007", "a compiled graph cannot be differentiated twice", why=problem, hint="leave this part uncompiled")
    with torch.enable_grad():  # each use stands for itself: an input may have been made from another, or from a parameter
        own = [t.view_as(t) if isinstance(t, torch.Tensor) and t.requires_grad else t for t in inputs]
        kept: list[Any] = [t.view_as(t) for t in held]
        sources: dict[str, list[Any]] = {"input": own, "held": kept}
        for place, tensor, linear in zip(layout.grown, past.grown, layout.linear, strict=True):
            kind, k = place
            sources[kind][k] = tensor.detach().requires_grad_(place in layout.targets) if linear else tensor.view_as(tensor)
        wanted = [sources[kind][k] for kind, k in layout.targets]
        for kind, k in layout.written:
            sources[kind][k] = sources[kind][k].clone()
        for (kind, k), tensor in zip(layout.before, past.before, strict=True):
            sources[kind][k] = _Holding.apply(sources[kind][k], tensor)
        items = _run(module, own, held, kept, layout, past)
    items += [items[k]._base for k in layout.bases]
    items += [sources[kind][k] for kind, k in layout.grown]
    pairs = [(items[layout.tangents[k].output], g) for k, g in gradients.items() if g is not None]
    outputs, tangents = [o for o, _ in pairs], [g for _, g in pairs]
    return torch.autograd.grad(outputs, wanted, tangents, create_graph=torch.is_grad_enabled(), allow_unused=True)


class _Holding(torch.autograd.Function):
    """``apply(tensor, contents)``: the tensor with its history, which holds something else."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, contents: torch.Tensor) -> torch.Tensor:
        return contents.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, None]:
        return gradients[0], None


class _Unheard(torch.nn.Module):
    """A graph that is run without a call of a module: hooks that the program registered for all modules are for its own."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph

    def __call__(self, *inputs: Any) -> Any:
        return self.graph.forward(*inputs)


def _run(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    held: tuple[torch.Tensor, ...],
    stand_ins: Sequence[torch.Tensor],
    layout: Layout,
    past: Past,
) -> list[Any]:
    aliases = {id(t): alias for t, alias in zip(held, stand_ins, strict=True)}
    everything = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    replaced = {f"graph.{name}": aliases[id(t)] for name, t in everything if id(t) in aliases}
    with _as_captured(layout, past):
        result = torch.func.functional_call(_Unheard(module), replaced, tuple(inputs), tie_weights=False)
    return list(result) if isinstance(result, (list, tuple)) else [result]


@contextlib.contextmanager
def under_autocast(cast: Mapping[str, torch.dtype]) -> Iterator[None]:
    """Autocast as it was: on for these types of devices, off for others."""
    with contextlib.ExitStack() as stack:
        for device in types():
            if device in cast or torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, cast.get(device), enabled=device in cast, cache_enabled=False))
        yield


@contextlib.contextmanager
def _as_captured(layout: Layout, past: Past) -> Iterator[None]:
    """With autocast as it was, and the numbers that were drawn."""
    cast = {device: getattr(torch, dtype) for device, dtype in layout.replay.autocast}
    now = torch.get_rng_state() if past.generator is not None else None
    with under_autocast(cast):
        try:
            if past.generator is not None:
                torch.set_rng_state(past.generator)
            yield
        finally:
            if now is not None:
                torch.set_rng_state(now)
