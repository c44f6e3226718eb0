"""``optimizer.step`` with its arithmetic compiled: torch's own code gathers gradients and keeps the state, kernels move the parameters."""

from __future__ import annotations

import inspect
import operator
import types
import weakref
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from opmill_runtime_cache.devices.host import HOST
from opmill_runtime_cache.errors import PlanInputError
from opmill_runtime_cache.store import Store

from ..errors import KernelBuildError
from ..generator.protocol import GeneratorOptions, KernelGenerator
from .parts import parts_here, wholes
from .rules import RULES, Rule

if TYPE_CHECKING:
    from .update import Entry

_FALSE = ("differentiable", "has_complex", "has_sparse_grad", "fused")
_ABSENT = ("grad_scale", "found_inf")
_known: weakref.WeakKeyDictionary[torch.optim.Optimizer, CompiledStep] = weakref.WeakKeyDictionary()
"""What code that calls ``step`` itself runs; by optimizer, since each has state of its own."""


def optimizer_of(step: object) -> torch.optim.Optimizer | None:
    """The optimizer whose ``step`` method this is, where its arithmetic can be compiled; None for anything else."""
    if getattr(step, "_wrapped_by_lr_sched", False) and isinstance(step, types.FunctionType):  # it notes that there was a step
        cells = dict(zip(step.__code__.co_freevars, step.__closure__ or (), strict=True))
        owner = cells["opt_ref"].cell_contents() if "opt_ref" in cells else None
    else:
        owner = getattr(step, "__self__", None)
        if not isinstance(step, types.MethodType) or step.__func__ is not getattr(type(owner), "step", None):
            return None
    return owner if isinstance(owner, torch.optim.Optimizer) and has_rule(type(owner).step) else None


def has_rule(step: Any) -> bool:
    """Whether ``step``, as a class of ``torch.optim`` has it, calls a function that there is a rule for."""
    around = getattr(step, "_wrapped_by_lr_sched", False)  # a scheduler's function around the method of one optimizer
    return bool(getattr(step, "hooked", False) and not around and _functions(_innermost(step)))


def _innermost(function: Any) -> Any:
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    return function


def _functions(step: Any) -> dict[str, Any]:
    """The functions of ``torch.optim`` that a ``step`` calls by name and that there is a rule for."""
    if not isinstance(step, types.FunctionType):
        return {}
    named = {n: step.__globals__.get(n) for n in step.__code__.co_names if n in RULES}
    return {n: f for n, f in named.items() if isinstance(f, types.FunctionType) and f.__module__.startswith("torch.optim.")}


def stand_in(function: Any, settings: GeneratorOptions, store: Store, generators: Sequence[KernelGenerator]) -> Callable[..., Any] | None:
    """What runs instead of ``function`` where that is the ``step`` of an optimizer's class with a rule; None for anything else."""
    if not has_rule(function):
        return None

    def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if type(optimizer).step is not function:
            return function(optimizer, *args, **kwargs)
        known = _known.get(optimizer)
        if known is None:
            known = _known[optimizer] = CompiledStep(optimizer, settings, store, generators)
        return known(*args, **kwargs)

    return step


class Update(Struct, frozen=True):
    """One call of a function of ``torch.optim`` (``rule``) in a step, for parameter group ``group``: how many parameters kernels move, and
    how many are left to torch."""

    rule: str
    group: int
    compiled: int
    left: int


class CompiledStep:
    """Called as ``optimizer.step``; hooks, closures and the state's layout are torch's. ``generators``, ``store``: for the kernels.
    ``disabled``: while true, calls are the optimizer's own."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, settings: GeneratorOptions, store: Store, generators: Sequence[KernelGenerator]
    ) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.disabled = False
        inner = _innermost(type(optimizer).step)
        self.sites = {n: _Site(n, f, settings, store, generators) for n, f in _functions(inner).items()}
        names = {**inner.__globals__, **self.sites}
        own = types.FunctionType(inner.__code__, names, inner.__name__, inner.__defaults__, inner.__closure__)
        own.__kwdefaults__ = inner.__kwdefaults__

        def step(*args: Any, **kwargs: Any) -> Any:
            for site in self.sites.values():
                site.calls = 0
            with torch.set_grad_enabled(args[0].defaults["differentiable"]):
                return own(*args, **kwargs)

        self._step = torch.optim.Optimizer.profile_hook_step(step)

    def updates(self) -> list[Update]:
        """What has been compiled until now, by parameter group."""
        return [
            Update(site.name, number, len(made.ours), len(made.rest))
            for site in self.sites.values()
            for number, made in sorted(site.made.items())
        ]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        optimizer = self.optimizer()
        if optimizer is None:
            raise ReferenceError("the optimizer of a compiled step is gone")
        if self.disabled:
            return type(optimizer).step(optimizer, *args, **kwargs)
        if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
            vars(optimizer)["_opt_called"] = True  # as steps note it that a scheduler listens to
        return self._step(optimizer, *args, **kwargs)


class _Site:
    """Stands for one function of ``torch.optim`` (``adam``) in a step. It is called once a parameter group, in the same order each time."""

    def __init__(self, name: str, function: Any, settings: GeneratorOptions, store: Store, generators: Sequence[KernelGenerator]) -> None:
        self.name, self.function, self.rule = name, function, RULES[name]
        self.settings, self.store, self.generators = settings, store, generators
        self.signature = inspect.signature(function)
        self.calls = 0
        self.made: dict[int, _Made] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given, call = bound.arguments, self.calls
        self.calls += 1
        numbers = _numbers(self.rule, given)
        if numbers is None or not self.generators:
            self.function(*args, **kwargs)
            return
        flags = frozenset(n for n in (*self.rule.switches, *self.rule.numbers) if given[n])
        whole = _lists(self.rule, given)
        lists = parts_here(whole)
        made = self.made.get(call)
        for _ in range(2):
            if made is None or made.flags != flags or not made.is_for(lists):
                made = self.made[call] = _Made(self, flags, lists)
            try:
                made.run(numbers, lists, given)
                if lists is not whole:
                    torch.autograd.graph.increment_version(wholes(whole, made.ours, [n for n in made.names if n != "grad"]))
                return
            except PlanInputError:  # a tensor has another layout by now; nothing was written
                made = None
        self.function(*args, **kwargs)


def _numbers(rule: Rule, given: dict[str, Any]) -> tuple[float, ...] | None:
    """The hyperparameters; None where the call is one for torch."""
    if any(given.get(n) for n in _FALSE) or any(given.get(n) is not None for n in _ABSENT):
        return None
    values = [given[n] for n in rule.numbers]
    if any(isinstance(v, torch.Tensor) and (v.numel() != 1 or v.requires_grad or v.is_complex()) for v in values):
        return None
    return tuple(float(v) for v in values)


def _lists(rule: Rule, given: dict[str, Any]) -> dict[str, list[Any]]:
    """The lists of tensors that are not empty, by the rule's names, which are all as long as the list of parameters."""
    lists = {"param": given["params"], "grad": given["grads" if "grads" in given else "d_p_list"]}
    lists |= {name: given[theirs] for theirs, name in rule.state if given[theirs]}
    return {**lists, "count": given["state_steps"]} if rule.steps else lists


class _Made:
    """What was built for the tensors of one parameter group. Those that no kernel can walk are left to torch's function."""

    def __init__(self, site: _Site, flags: frozenset[str], lists: dict[str, list[Any]]) -> None:
        from .update import build_update, counted_outside, fits

        self.site, self.flags = site, flags
        self.known = {n: list(ts) for n, ts in lists.items() if n != "grad"}
        entries: list[Entry] = [dict(zip(lists, ts, strict=True)) for ts in zip(*lists.values(), strict=True)]
        ours = [k for k, entry in enumerate(entries) if all(isinstance(t, torch.Tensor) for t in entry.values()) and fits(entry)]
        self.update: Callable[..., Any] | None = None
        first = entries[ours[0]] if ours else {}
        self.outside = bool(first) and counted_outside(first)
        ours = [k for k in ours if entries[k]["param"].device == first["param"].device and counted_outside(entries[k]) == self.outside]
        self.device = first["param"].device if ours else torch.device(HOST)
        self.counts = [entries[k]["count"] for k in ours] if self.outside else []
        self.names = [n for n in lists if not (self.outside and n == "count")]
        if ours:
            try:
                self.update = build_update(
                    site.name, flags, [{n: entries[k][n] for n in self.names} for k in ours], site.settings, site.store, site.generators
                )
            except KernelBuildError:
                ours = []
        self.ours, self.rest = ours, sorted({*range(len(entries))} - {*ours})
        twice = site.rule.written_twice(flags)
        self.twice = [entries[k][n] for k in ours for n in self.names if n in twice]
        self.numbers: tuple[float, ...] = ()
        self.buffer = torch.empty(0, dtype=torch.float64)

    def is_for(self, lists: dict[str, list[Any]]) -> bool:
        """Whether parameters and state are the same objects."""
        if lists.keys() - {"grad"} != self.known.keys():
            return False
        return all(len(lists[n]) == len(ts) and all(map(operator.is_, lists[n], ts)) for n, ts in self.known.items())

    def run(self, numbers: tuple[float, ...], lists: dict[str, list[Any]], given: dict[str, Any]) -> None:
        if self.update is not None:
            if self.outside:
                steps = set(torch.stack(self.counts).tolist())
                if len(steps) > 1:
                    self.site.function(**given)
                    return
                numbers = (*numbers, steps.pop() + 1.0)
            if numbers != self.numbers:
                self.numbers, self.buffer = numbers, torch.tensor(numbers, dtype=torch.float64, device=self.device)
            columns = list(zip(*(lists[n] for n in self.names), strict=True))
            chosen = columns if not self.rest else [columns[k] for k in self.ours]
            self.update(self.buffer, *chain.from_iterable(chosen))
            torch.autograd.graph.increment_version(self.twice)  # kernels have counted once
            if self.outside:
                torch._foreach_add_(self.counts, 1.0)
        if self.rest:
            parts = {n: [v[k] for k in self.rest] if isinstance(v, list) and v else v for n, v in given.items()}
            self.site.function(**parts)
            for theirs, _ in self.site.rule.state:  # a first step may put new state into the list
                for k, v in zip(self.rest, parts[theirs], strict=False):
                    given[theirs][k] = v
