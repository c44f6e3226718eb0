"""Time by module: how long each takes in eager, and which of them the steps of plans belong to.

Eager is timed by hooks. The backward of a module is from the gradient of its output being there to those of all its inputs, and of its own
parameters, being there."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opmill_graph_ir.capture.places import line_of

from .copies import named_modules_of
from .limits import wait
from .profiled import ModuleProfile, StepProfile

_AT = "@"


def note_modules(gm: torch.fx.GraphModule) -> None:
    """Has each node's origin tell its module as well: what is made of the origin in a plan is read by ``without_modules``."""
    for node in gm.graph.nodes:
        if "module" in node.meta and (line := line_of(node.meta.get("stack_trace"))):
            node.meta["origin"] = f"{line}{_AT}{_plain(node.meta['module'])}"


def _plain(name: str) -> str:
    """A name without what separates parts of origins."""
    return name.replace(" ", "_").replace(";", "_")


def without_modules(origin: str) -> tuple[str, tuple[str, ...]]:
    """An origin without modules, and these."""
    parts = [part.partition(_AT) for part in origin.split("; ")]
    return "; ".join(dict.fromkeys(place for place, _, _ in parts)), tuple(dict.fromkeys(name for _, at, name in parts if at))


class EagerModules:
    """While it is entered, takes the time of each module of a program in eager."""

    def __init__(self, function: Any, given: Any, device: str) -> None:
        self._device = device
        arguments = [v for v in pytree.tree_leaves(given) if isinstance(v, torch.nn.Module)]
        self._named = {_plain(name): module for name, module in named_modules_of(function, arguments)}
        self._now = dict.fromkeys(self._named, 0.0)
        self._calls: list[dict[str, float]] = []
        self._removers: list[Any] = []
        self._begun: dict[str, list[float]] = {name: [] for name in self._named}

    def __enter__(self) -> EagerModules:
        for name, module in self._named.items():
            begin, end = functools.partial(self._begin, name), functools.partial(self._end, name)
            self._removers.append(module.register_forward_pre_hook(begin, with_kwargs=True))
            self._removers.append(module.register_forward_hook(end, with_kwargs=True, always_call=True))
        return self

    def __exit__(self, *error: object) -> None:
        for remover in self._removers:
            remover.remove()

    def _begin(self, name: str, module: Any, args: Any, kwargs: Any) -> None:
        self._begun[name].append(self.time())

    def _end(self, name: str, module: torch.nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        self._now[name] += self.time() - self._begun[name].pop()
        outputs, inputs = _differentiated(result), _differentiated((args, kwargs))
        if outputs and torch.is_grad_enabled():
            _Backward(self, name, outputs, [*inputs, *(p for p in module.parameters() if p.requires_grad)])

    def time(self) -> float:
        wait(self._device)
        return time.perf_counter()

    def add(self, name: str, seconds: float) -> None:
        self._now[name] += seconds

    def end_call(self) -> None:
        self._calls.append(dict(self._now))
        self._now = dict.fromkeys(self._named, 0.0)

    def seconds(self) -> dict[str, tuple[str, float]]:
        """The class of each module that ran, and its seconds in a call: the median of all calls."""
        found = {name: statistics.median(call[name] for call in self._calls) for name in self._named}
        return {name: (type(self._named[name]).__qualname__, each) for name, each in found.items() if each}


class _Backward:
    """The time from the first gradient of a module's outputs to the last one of what it is computed from. Gradients of parameters are taken
    as they come to be added up."""

    def __init__(self, modules: EagerModules, name: str, outputs: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
        self._modules, self._name = modules, name
        self._begun = self._ended = 0.0
        own = {id(t) for t in outputs}
        for tensor in outputs:
            tensor.register_hook(self._begin)
        for tensor in sources:
            if id(tensor) not in own:
                remover: list[Any] = []
                remover.append(tensor.register_hook(functools.partial(self._end, remover if tensor.is_leaf else [])))

    def _begin(self, gradient: torch.Tensor) -> None:
        if not self._begun:
            self._begun = self._ended = self._modules.time()

    def _end(self, remover: list[Any], gradient: torch.Tensor) -> None:
        """Leaves live on: their hooks go once they were called."""
        for each in remover:
            each.remove()
        if self._begun:
            now = self._modules.time()
            self._modules.add(self._name, now - self._ended)
            self._ended = now


def _differentiated(values: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor) and t.requires_grad]


def together(eager: Mapping[str, tuple[str, float]], rows: Iterable[tuple[tuple[str, ...], StepProfile]]) -> tuple[ModuleProfile, ...]:
    """Each module that ran in eager with its part of the steps, those of modules inside of it among them. A step of several modules is
    divided evenly among them."""
    steps: dict[str, list[tuple[float, StepProfile]]] = {name: [] for name in eager}
    for modules, step in rows:
        for module in modules:
            for name in _around(module):
                if name in steps:
                    steps[name].append((1 / len(modules), step))
    return tuple(_module(name, kind, seconds, steps[name]) for name, (kind, seconds) in eager.items())


def _around(name: str) -> Iterator[str]:
    """The module and those that it is inside of, up to the outermost one."""
    while name:
        yield name
        name = name.rpartition(".")[0]
    yield ""


def _module(name: str, kind: str, eager: float, parts: Sequence[tuple[float, StepProfile]]) -> ModuleProfile:
    seconds = sum(part * step.seconds for part, step in parts)
    share = sum(part * step.seconds * step.share for part, step in parts) / seconds if seconds else 0.0
    moved, flops = (round(sum(part * getattr(step, what) for part, step in parts)) for what in ("bytes", "flops"))
    return ModuleProfile(name, kind, eager, seconds, moved, flops, share)


__all__ = ["EagerModules", "note_modules", "together", "without_modules"]
