"""Looks at the launches of a graph's kernels one by one: at which one a process dies, and which takes longest."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from msgspec import structs
from torch import fx

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.loops.text import show
from opmill_runtime_cache.executor.reference import bind_reference
from opmill_runtime_cache.plan.model import Launch, Plan

from ..native import graph_options, open_store
from ..options import Options
from .copies import Program
from .finding import KernelFault
from .routes import remembering
from .symptoms import alike, apart, many_threads, once, seconds

Seen = Callable[[KernelFault, Callable[[], None], Sequence[torch.Tensor]], None]
"""Is given each launch, as the fault it would be, and the tensors that it works on, and runs it."""


def _compiled(gm: fx.GraphModule, inputs: Sequence[Any], options: Options, seen: Seen) -> Callable[[], Any]:
    """A call of the graph, compiled, whose launches are handed to ``seen``."""
    generators = remembering(options)

    def watch(plan: Plan, step: Any, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int], run: Callable[[], None]) -> None:
        if type(step) is not Launch:
            return run()
        ref = plan.kernels[step.kernel]
        kernel = next((g.loops[ref.key, ref.entry] for g in generators if (ref.key, ref.entry) in g.loops), None)
        name, loops = ("a kernel", "") if kernel is None else (kernel.name, show(kernel))
        return seen(KernelFault(name, loops, "", step.origin), run, [slots[slot] for slot in step.slots])

    settings = replace(graph_options(options), cache=False, print_after=(), cuda_graphs=False)
    binder = functools.partial(bind_reference, watch=watch)
    fresh = Program(gm, tuple(inputs), {}).fresh()
    made = compile_graph(fresh.model, fresh.args, options=settings, store=open_store(options), generators=generators, binder=binder)
    return Program(made, fresh.args, {}).call


def kernel_that_dies(gm: fx.GraphModule, inputs: Sequence[Any], options: Options) -> tuple[KernelFault, ...]:
    """The kernel that was running when a child process died of a call; none where it died of something else."""

    def run(say: Callable[[str], None]) -> None:
        def seen(fault: KernelFault, launch: Callable[[], None], tensors: Sequence[torch.Tensor]) -> None:
            say(json.dumps([fault.name, fault.loops, fault.origin]))
            launch()
            say(_DONE)

        once(_compiled(gm, inputs, options, seen))

    ended = apart(run)
    if not ended.problem or not ended.said or ended.said[-1] == _DONE:
        return ()
    name, loops, origin = json.loads(ended.said[-1])
    return (KernelFault(name, loops, f"in it {ended.problem}", origin),)


_DONE = "-- launched --"


def slowest_kernel(gm: fx.GraphModule, inputs: Sequence[Any], options: Options) -> tuple[KernelFault, ...]:
    """The kernel that most of a call's time goes to."""
    times: dict[tuple[str, str], list[float]] = {}
    faults: dict[tuple[str, str], KernelFault] = {}

    def seen(fault: KernelFault, launch: Callable[[], None], tensors: Sequence[torch.Tensor]) -> None:
        faults[fault.name, fault.loops] = fault
        times.setdefault((fault.name, fault.loops), []).append(seconds(launch))

    call = _compiled(gm, inputs, options, seen)
    for _ in range(_CALLS):
        once(call)
    if not times:
        return ()
    name, found = max(times.items(), key=lambda item: min(item[1]))
    fault = faults[name]
    return (KernelFault(fault.name, fault.loops, f"it takes {min(found) * 1e6:.0f} us", fault.origin),)


_CALLS = 4


def kernels_that_race(gm: fx.GraphModule, inputs: Sequence[Any], options: Options) -> tuple[KernelFault, ...]:
    """Kernels whose results differ from launch to launch, all on the same memory."""
    faults: dict[tuple[str, str], KernelFault] = {}

    def seen(fault: KernelFault, launch: Callable[[], None], tensors: Sequence[torch.Tensor]) -> None:
        before = [t.clone() for t in tensors]
        launch()
        first, end = [t.clone() for t in tensors], time.monotonic() + _PATIENCE_S
        for count in range(_LAUNCHES):
            if time.monotonic() > end:
                break
            for tensor, then in zip(tensors, before, strict=True):
                tensor.copy_(then)
            launch()
            if not alike(first, tensors):
                problem = (
                    f"launch {count + 2} on the same memory gives another result than the first: threads write, or read, what others write"
                )
                faults.setdefault((fault.name, fault.loops), structs.replace(fault, problem=problem))
                break

    with many_threads():
        once(_compiled(gm, inputs, options, seen))
    return tuple(faults.values())


_LAUNCHES = 400
_PATIENCE_S = 4.0

__all__ = ["kernel_that_dies", "kernels_that_race", "slowest_kernel"]
