"""Behind ``opmill.profile``: the plans of a program run step by step, each step timed."""

from __future__ import annotations

import functools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opmill_graph_ir.backend import compile_graph
from opmill_runtime_cache.executor.reference import bind_reference
from opmill_runtime_cache.plan.model import Call, Launch, Plan

from ..compile import compile
from ..errors import UsageValueError
from ..native import graph_options, loaded_generators, open_store
from ..options import Options
from ..origins import operators_in
from ..settings import resolve_arguments
from .copies import uncompiled
from .costs import bytes_of, flops_of
from .limits import Limits, limits_of, wait
from .modules import EagerModules, note_modules, together, without_modules
from .profiled import Profile, StepProfile

_WARM = 3


def measure(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], arguments: dict[str, Any], calls: int) -> Profile:
    """The profile of ``calls`` calls."""
    settings = resolve_arguments(arguments)
    if not settings.native:
        raise UsageValueError("OM015", "opmill.profile measures opmill's own backend", hint="leave the argument backend out")
    function = uncompiled(model)
    watching = Watching(settings.options)
    shape = {k: v for k, v in arguments.items() if k in ("fullgraph", "dynamic")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        watched = functools.partial(compile(function, backend=watching, **shape), *args, **kwargs)
        native = functools.partial(compile(function, **arguments), *args, **kwargs)
    device = _device_of((args, kwargs))
    once = functools.partial(function, *args, **kwargs)
    eager = _seconds(once, calls, device)
    with EagerModules(function, (args, kwargs), device) as modules:
        for _ in range(calls):
            _once(once)
            modules.end_call()
    compiled = _seconds(native, calls, device)
    _seconds(watched, 0, device)
    watching.begin()
    for _ in range(calls):
        _once(watched)
        watching.end_call()
    note = "" if watching.steps else "nothing was compiled: opmill.explain says why"
    return Profile(tuple(watching.profiles()), eager, compiled, note, together(modules.seconds(), watching.rows()))


def _seconds(run: Callable[[], Any], calls: int, device: str) -> float:
    for _ in range(_WARM):
        _once(run)
    found = []
    for _ in range(calls):
        wait(device)
        start = time.perf_counter()
        _once(run)
        wait(device)
        found.append(time.perf_counter() - start)
    return statistics.median(found) if found else 0.0


def _once(run: Callable[[], Any]) -> None:
    """A call, and the backward of what it returns where that requires grad."""
    results = [t for t in pytree.tree_leaves(run()) if isinstance(t, torch.Tensor) and t.requires_grad]
    if results and torch.is_grad_enabled():
        torch.autograd.backward(results, [torch.ones_like(t) for t in results])


def _device_of(values: Any) -> str:
    devices = [str(t.device) for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)]
    return next((d for d in devices if d != "cpu"), "cpu")


class _Seen:
    """A kernel or operator: what is known of it, and its seconds in the call at hand and in those before."""

    __slots__ = ("bytes", "calls", "count", "device", "dtype", "flops", "kind", "name", "now", "origin")

    def __init__(self, name: str, kind: str, origin: str, device: str, dtype: torch.dtype) -> None:
        self.name, self.kind, self.origin, self.device, self.dtype = name, kind, origin, device, dtype
        self.bytes = self.flops = self.count = 0
        self.now = 0.0
        self.calls: list[float] = []


class Watching:
    """A backend whose plans run step by step, each step timed. ``steps``: by plan and step."""

    sizes_of_data = True

    def __init__(self, options: Options) -> None:
        self.settings = replace(graph_options(options), cuda_graphs=False, print_after=(), cache=False, repeats=False)
        self.store, self.generators = open_store(options), loaded_generators(options)
        self.steps: dict[tuple[int, int], _Seen] = {}
        self.plans: list[Plan] = []
        self.on = False

    def __call__(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        note_modules(gm)
        binder = functools.partial(bind_reference, watch=self._watch)
        return compile_graph(gm, inputs, options=self.settings, store=self.store, generators=self.generators, binder=binder)

    def begin(self) -> None:
        """Calls count from now on."""
        self.on = True

    def end_call(self) -> None:
        for seen in self.steps.values():
            seen.calls.append(seen.now)
            seen.now = 0.0

    def _watch(self, plan: Plan, step: Any, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int], run: Callable[[], None]) -> None:
        if not self.on or type(step) not in (Launch, Call):
            run()
            return
        seconds = _timed(run, plan.device)
        if not any(plan is each for each in self.plans):
            self.plans.append(plan)
        key = id(plan), id(step)
        seen = self.steps.get(key)
        if seen is None:
            seen = self.steps[key] = self._describe(plan, step, slots, sizes)
        seen.now += seconds
        seen.count += not seen.calls

    def _describe(self, plan: Plan, step: Launch | Call, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int]) -> _Seen:
        dtype = next((slots[s].dtype for s in (step.slots if isinstance(step, Launch) else ()) if s in slots), torch.float32)
        if isinstance(step, Launch):
            name, kind = _kernel_name(step), "kernel"
        else:
            name, kind = step.op.removeprefix("aten::"), "torch"
        seen = _Seen(name, kind, step.origin, plan.device, dtype)
        seen.bytes = bytes_of(step, slots)
        seen.flops = flops_of(step, slots, sizes) if isinstance(step, Call) else 0
        return seen

    def profiles(self) -> list[StepProfile]:
        """The longest first; equal kernels and operators of the same lines are one."""
        found: dict[tuple[str, str], StepProfile] = {}
        for _, row in self.rows():
            known = found.get((row.name, row.origin))
            found[row.name, row.origin] = row if known is None else _together(known, row)
        return sorted(found.values(), key=lambda row: -row.seconds)

    def rows(self) -> Iterator[tuple[tuple[str, ...], StepProfile]]:
        """Each kernel and operator by itself, behind the modules that it does something of."""
        for seen in self.steps.values():
            seconds, moved, flops = statistics.median(seen.calls), seen.bytes * seen.count, seen.flops * seen.count
            share = _share(seconds, moved, flops, limits_of(seen.device))
            origin, modules = without_modules(seen.origin)
            yield modules, StepProfile(seen.name, seen.kind, seen.count, seconds, moved, flops, share, origin)


def _together(a: StepProfile, b: StepProfile) -> StepProfile:
    seconds = a.seconds + b.seconds
    share = (a.share * a.seconds + b.share * b.seconds) / seconds if seconds else 0.0
    return StepProfile(a.name, a.kind, a.count + b.count, seconds, a.bytes + b.bytes, a.flops + b.flops, share, a.origin)


def _share(seconds: float, moved: int, flops: int, limits: Limits) -> float:
    return max(moved / limits.bandwidth, flops / limits.flops) / seconds if seconds else 0.0


def _kernel_name(step: Launch) -> str:
    """The operators that a kernel is made of, in the order they run."""
    return operators_in([step.origin]) or f"kernel {step.kernel}"


def _timed(run: Callable[[], None], device: str) -> float:
    if torch.device(device).type == "cpu":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    begin, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
