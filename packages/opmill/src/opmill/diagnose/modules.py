"""Time by module: how long each takes in eager, and which of them the steps of plans belong to.

Eager is timed by hooks: of each module's forward, and of each step that autograd makes of it."""

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
        self._ran: set[str] = set()
        self._calls: list[dict[str, float]] = []
        self._removers: list[Any] = []
        self._running: list[tuple[int, float]] = []
        """Of the modules whose forward runs: autograd's number of the step that comes next, and the time, at their beginning."""
        self._over: list[tuple[int, int, str]] = []
        """Of those that ended inside of the outermost one: the numbers of their steps, and the name."""
        self._backward: list[Any] = []
        """What removes the hooks of the backward."""

    def __enter__(self) -> EagerModules:
        for name, module in self._named.items():
            end = functools.partial(self._end, name)
            self._removers.append(module.register_forward_pre_hook(self._begin, with_kwargs=True))
            self._removers.append(module.register_forward_hook(end, with_kwargs=True, always_call=True))
        return self

    def __exit__(self, *error: object) -> None:
        for remover in (*self._removers, *self._backward):
            remover.remove()

    def _begin(self, module: Any, args: Any, kwargs: Any) -> None:
        self._running.append((torch.autograd._get_sequence_nr(), self.time()))

    def _end(self, name: str, module: torch.nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        number, begun = self._running.pop()
        self._now[name] += self.time() - begun
        self._ran.add(name)
        self._over.append((number, torch.autograd._get_sequence_nr(), name))
        if not self._running:
            self._follow(result, number)
            self._over.clear()

    def _follow(self, result: Any, first: int) -> None:
        """Has the backward of the steps since ``first`` timed, each for the innermost module that made it. Adding up the gradient of a
        parameter is the module's that used it."""
        found: dict[Any, str] = {}
        waiting = [(t.grad_fn, "") for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.grad_fn is not None]
        while waiting:
            step, reader = waiting.pop()
            number = step._sequence_nr()
            adds = step.name() == _ADDS
            if step not in found and (adds or number >= first):
                owner = reader if adds else next((name for begin, end, name in self._over if begin <= number < end), "")
                found[step] = owner
                waiting += [(behind, owner) for behind, _ in step.next_functions if behind is not None]
        for step, name in found.items():
            if name in self._now:
                timed = _Step(self, name)
                self._backward += [step.register_prehook(timed.begin), step.register_hook(timed.end)]

    def time(self) -> float:
        wait(self._device)
        return time.perf_counter()

    def add(self, name: str, seconds: float) -> None:
        """Adds to a module and to those that it is inside of."""
        for each in _around(name):
            if each in self._now:
                self._now[each] += seconds

    def end_call(self) -> None:
        self._calls.append(dict(self._now))
        self._now = dict.fromkeys(self._named, 0.0)
        for remover in self._backward:
            remover.remove()
        self._backward.clear()

    def seconds(self) -> dict[str, tuple[str, float]]:
        """The class of each module that ran, and its seconds in a call: the median of all calls."""
        found = {name: statistics.median(call[name] for call in self._calls) for name in self._named if name in self._ran}
        return {name: (type(self._named[name]).__qualname__, each) for name, each in found.items() if each}


_ADDS = "torch::autograd::AccumulateGrad"


class _Step:
    """The time of a step of autograd."""

    def __init__(self, modules: EagerModules, name: str) -> None:
        self._modules, self._name, self._begun = modules, name, 0.0

    def begin(self, gradients: Any) -> None:
        self._begun = self._modules.time()

    def end(self, given: Any, taken: Any) -> None:
        self._modules.add(self._name, self._modules.time() - self._begun)


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
