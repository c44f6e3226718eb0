"""Behind ``opmill.profile``: the plans of a program run step by step, each step timed."""

from __future__ import annotations

import functools
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from opmill_graph_ir.backend import compile_graph
from opmill_runtime_cache.devices.registry import traits_of
from opmill_runtime_cache.executor import TimedExecutable, bind_reference
from opmill_runtime_cache.plan.model import Call, Launch, Plan

from ..compile import compile, running_uncompiled
from ..errors import UsageValueError
from ..native import graph_options, open_store
from ..options import Options
from ..origins import operators_in
from ..settings import resolve_arguments
from .copies import uncompiled
from .costs import bytes_of, flops_of, multiplies_in
from .limits import flops_of as most_flops_of
from .limits import limits_of
from .modules import EagerModules, note_modules, together, without_modules
from .profiled import Profile, StepProfile
from .routes import remembering
from .speed import device_of, in_turns, warm
from .symptoms import once
from .timing import Bound, Stepwise, Times, clocked, heard


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
    device = device_of((args, kwargs), function)
    as_it_is = functools.partial(function, *args, **kwargs)
    eager, compiled = in_turns(as_it_is, native, max(1, calls), device)
    with running_uncompiled(), EagerModules(function, (args, kwargs), device) as modules:
        for _ in range(calls):
            once(as_it_is)
            modules.end_call()
    warm(watched)
    watching.measure(lambda: once(watched), calls)
    note = "" if watching.steps else "nothing was compiled: opmill.explain says why"
    return Profile(tuple(watching.profiles()), eager, compiled, note, together(modules.seconds(), watching.rows()))


class _Seen:
    """A kernel or operator: what is known of it, and how often it runs in a call."""

    __slots__ = ("bytes", "count", "device", "flops", "key", "kind", "multiplies", "name", "origin")

    def __init__(self, key: tuple[int, int], name: str, kind: str, origin: str, device: str) -> None:
        self.key, self.name, self.kind, self.origin, self.device = key, name, kind, origin, device
        self.bytes = self.flops = self.count = 0
        self.multiplies = "float32"


class Watching:
    """A backend whose plans tell how long their steps take. ``steps``: by plan and step."""

    sizes_of_data = True

    def __init__(self, options: Options) -> None:
        self.settings = replace(graph_options(options), cuda_graphs=False, print_after=(), cache=False, repeats=False)
        self.store, self.generators = open_store(options), remembering(options)
        self.steps: dict[tuple[int, int], _Seen] = {}
        self.plans: list[TimedExecutable] = []
        self.times: Times = {}
        self._stepwise: Stepwise | None = None
        self._looks = False

    def __call__(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        note_modules(gm)
        return compile_graph(gm, inputs, options=self.settings, store=self.store, generators=self.generators, binder=self._bound)

    def _bound(self, plan: Plan, held: Sequence[torch.Tensor], store: Any) -> Bound:
        self.plans.append(TimedExecutable(plan, held, store))
        return Bound(self.plans[-1], bind_reference(plan, held, store, watch=self._watch), lambda: self._looks)

    def measure(self, run: Callable[[], object], calls: int) -> None:
        """Looks at each step in a call of ``run``, and then takes their times in some more."""
        self._looks = True
        run()
        self._looks = False
        on_host = all(traits_of(each.plan.device).host for each in self.plans)
        self.times = (clocked if on_host else heard)(run, self.plans, calls)
        if not self.times:
            self._looks, self._stepwise = True, Stepwise()
            for _ in range(calls):
                run()
                self._stepwise.end_call()
            self._looks, self.times = False, self._stepwise.found

    def _watch(self, plan: Plan, step: Any, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int], run: Callable[[], None]) -> None:
        if type(step) not in (Launch, Call):
            return run()
        key = id(plan), next(number for number, each in enumerate(plan.steps) if each is step)
        if self._stepwise is not None:
            return self._stepwise.watch(plan, key[1], run)
        run()
        if key not in self.steps:
            self.steps[key] = self._describe(key, plan, step, slots, sizes)
        self.steps[key].count += 1

    def _describe(
        self, key: tuple[int, int], plan: Plan, step: Launch | Call, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int]
    ) -> _Seen:
        if isinstance(step, Launch):
            name, kind = _kernel_name(step), "kernel"
        else:
            name, kind = step.op.removeprefix("aten::"), "torch"
        seen = _Seen(key, name, kind, step.origin, plan.device)
        kernel = None
        if isinstance(step, Launch):
            ref = plan.kernels[step.kernel]
            kernel = next((g.loops[ref.key, ref.entry] for g in self.generators if (ref.key, ref.entry) in g.loops), None)
        seen.bytes = bytes_of(step, slots, sizes, kernel)
        seen.flops = flops_of(step, slots, sizes, kernel)
        seen.multiplies = multiplies_in(step, slots)
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
            seconds = statistics.median(self.times.get(seen.key) or [0.0])
            moved, flops = seen.bytes * seen.count, seen.flops * seen.count
            share = _share(seconds, seen)
            origin, modules = without_modules(seen.origin)
            yield modules, StepProfile(seen.name, seen.kind, seen.count, seconds, moved, flops, share, origin)


def _together(a: StepProfile, b: StepProfile) -> StepProfile:
    seconds = a.seconds + b.seconds
    share = (a.share * a.seconds + b.share * b.seconds) / seconds if seconds else 0.0
    return StepProfile(a.name, a.kind, a.count + b.count, seconds, a.bytes + b.bytes, a.flops + b.flops, share, a.origin)


def _share(seconds: float, seen: _Seen) -> float:
    computing = seen.flops / most_flops_of(seen.device, seen.multiplies) if seen.flops else 0.0
    least = seen.count * max(seen.bytes / limits_of(seen.device).bandwidth_of(seen.bytes), computing)
    return least / seconds if seconds else 0.0


def _kernel_name(step: Launch) -> str:
    """The operators that a kernel is made of, in the order they run."""
    return operators_in([step.origin]) or f"kernel {step.kernel}"
