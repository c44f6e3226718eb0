"""From an aten graph to a plan: lowered, scheduled, with kernels by whichever generators take them. Imported only where something is compiled:
a graph whose plan is in the store needs none of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from opmill_runtime_cache.plan.model import Plan
from opmill_runtime_cache.plan.text import render
from opmill_runtime_cache.store import Store

from .capture.channels_last import lay_out
from .capture.control import bodies_of
from .capture.functionalize import functionalize
from .capture.graph import AtenGraph
from .capture.joint import capture_joint
from .capture.joint import needs_gradients as needs_gradients
from .capture.partition import partition
from .errors import GraphError, GraphWarning
from .generator.protocol import GeneratorOptions, KernelGenerator
from .loops.spec import verify_kernel
from .options import GraphOptions
from .planning.assumptions import assumptions_of
from .planning.build import build_plan
from .planning.kernels import generate, origins_behind
from .planning.operators import lower_to_operators
from .repeats.program import scheduled
from .report import Report, show
from .schedule.memory import plan_memory
from .schedule.steps import ExternStep, Schedule
from .stages import split
from .training import Layout, held_names, layout_of

_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Trained:
    """``plans``: forward and the backward's, in order. ``held``: the tensors that the forward holds, ``known``: those that autograd is told of."""

    plans: tuple[Plan, ...]
    held: list[torch.Tensor]
    known: list[torch.Tensor]
    layout: Layout
    assumed: Any


def compile_inference(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], options: GraphOptions, store: Store, generators: Sequence[KernelGenerator], report: Report
) -> tuple[AtenGraph, Plan]:
    """The aten graph of ``gm`` and its plan."""
    with report.step("functionalize"):
        graph = functionalize(gm, inputs)
        show("functionalize", graph, options)
    return graph, compile_plan(graph, options, store, generators, report)


def compile_training(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], options: GraphOptions, store: Store, generators: Sequence[KernelGenerator], report: Report
) -> Trained:
    """Forward and backward of ``gm``, captured together and split."""
    with report.step("functionalize"):
        joint = capture_joint(gm, inputs)
        lay_out(joint.graph)
        halves = partition(joint)
        stages, graphs = split(halves, joint.targets, options.bucket_bytes) if options.bucket_bytes else ([], [])
        graphs = [halves.forward, *(graphs or [halves.backward])]
        for graph in graphs:
            show("functionalize", graph, options)
    plans = tuple(compile_plan(graph, options, store, generators, report) for graph in graphs)
    names, tensors = held_names(joint, halves.forward, halves.backward)
    layout = layout_of(joint, halves, names, stages)
    return Trained(plans, halves.forward.held_tensors, tensors, layout, assumptions_of(joint.graph.sizes))


def compile_plan(graph: AtenGraph, options: GraphOptions, store: Store, generators: Sequence[KernelGenerator], report: Report) -> Plan:
    """The plan of an aten graph. Raises ``GraphError`` (GI012) for tensors on a device that no plan runs on."""
    if elsewhere := next((m.device for m in graph.metas.values() if m.device.partition(":")[0] not in _DEVICES), ""):
        raise GraphError("GI012", f"a tensor on {elsewhere}", why="plans run on processors and CUDA devices")
    bodies = {id(body): compile_plan(body, options, store, generators, report) for body in bodies_of(graph)}
    problem, reason = "" if generators else "no kernel generator is available", ""
    calls: frozenset[str] = frozenset()
    settings = GeneratorOptions(precise=options.numerics == "eager")
    while not problem:
        lowered, program = scheduled(graph, calls, options, report)
        if options.verify:
            for kernel in program.kernels():
                verify_kernel(kernel)
        with report.step("generate"):
            refs, refused = generate(program.wanted(), settings, store, generators)
        if not refused:
            problem = reason if not refs else ""
            break
        more = origins_behind(refused, program, lowered, settings, store, generators) - calls
        reason = next(iter(refused.values()))
        report.calls_instead = (*report.calls_instead, reason)
        calls |= more
        problem = "" if more else reason
    if problem:
        report.operators_only = problem
        _warn_operators(problem)
        program, refs = Schedule(lowered := lower_to_operators(graph), [], dict(lowered.buffers)), {}
        program.steps = [ExternStep(n) for n in lowered.nodes]  # type: ignore[arg-type]
    with report.step("plan"):
        plan = build_plan("graph", program, plan_memory(program), refs, bodies)
        show("plan", render(plan), options)
    return plan


@lru_cache(None)
def _warn_operators(problem: str) -> None:
    warnings.warn(f"GI030: torch's own operators run instead of generated kernels\n  why: {problem}", GraphWarning, stacklevel=4)
