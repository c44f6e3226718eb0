"""From an aten graph to a plan: lowered, scheduled, with kernels by whichever generators take them. Imported only where something is compiled:
a graph whose plan is in the store needs none of it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
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
from .planning.products import Clock, choose, clock_of
from .repeats.program import scheduled
from .report import Report, show
from .schedule.memory import Memory, plan_memory
from .schedule.steps import ExternStep, Schedule
from .schedule.together import plan_together
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
        halves = partition(joint, exact=options.numerics == "eager")
        staged = options.bucket_bytes and len(halves.backwards) == len(halves.graphs) - 1 == 1
        stages, graphs = split(halves, joint.targets, options.bucket_bytes) if staged else ([], [])
        graphs = [halves.forward, *graphs] if stages else halves.graphs
        for graph in graphs:
            show("functionalize", graph, options)
    plans = tuple(compile_plans(graphs, options, store, generators, report, chained=True))
    names, tensors = held_names(joint, *halves.graphs)
    layout = layout_of(joint, halves, names, stages)
    return Trained(plans, halves.forward.held_tensors, tensors, layout, assumptions_of(joint.graph.sizes))


def compile_plan(graph: AtenGraph, options: GraphOptions, store: Store, generators: Sequence[KernelGenerator], report: Report) -> Plan:
    """The plan of an aten graph. Raises ``GraphError`` (GI012) for tensors on a device that no plan runs on."""
    [plan] = compile_plans([graph], options, store, generators, report)
    return plan


def compile_plans(
    graphs: Sequence[AtenGraph], options: GraphOptions, store: Store, generators: Sequence[KernelGenerator], report: Report, *, chained: bool = False
) -> list[Plan]:
    """The plans of several graphs, whose kernels are built together: compilers start once, and share the work out evenly. ``chained``: they run in this
    order, and values have one name in all."""
    for graph in graphs:
        if elsewhere := next((m.device for m in graph.metas.values() if m.device.partition(":")[0] not in _DEVICES), ""):
            raise GraphError("GI012", f"a tensor on {elsewhere}", why="plans run on processors and CUDA devices")
    inner = [body for graph in graphs for body in bodies_of(graph)]
    bodies = {id(body): plan for body, plan in zip(inner, compile_plans(inner, options, store, generators, report) if inner else (), strict=True)}
    settings = GeneratorOptions(precise=options.numerics == "eager", measure=options.measure)
    clock = clock_of(generators, settings, store)
    drafts = [_Draft(graph, problem="" if generators else "no kernel generator is available") for graph in graphs]
    with _Placing(partial(plan_together, given=_handed_on(graphs)) if chained else _apart) as placing:
        while open_ones := [draft for draft in drafts if not draft.done and not draft.problem]:
            for draft in open_ones:
                draft.schedule(options, report, clock)
            placing.start([draft.program for draft in drafts])
            with report.step("generate"):
                refs, refused = generate(list(dict.fromkeys(w for d in open_ones for w in d.wanted())), settings, store, generators)
            for draft in open_ones:
                own = {w: refused[w] for w in draft.wanted() if w in refused}
                behind = origins_behind(own, draft.program, draft.lowered, settings, store, generators) if own else frozenset()
                draft.take(refs, own, behind, report)
    for draft in drafts:
        if draft.problem:
            draft.leave_to_torch(report)
    with report.step("plan"):
        memories = placing.memories([draft.program for draft in drafts])
        plans = [build_plan("graph", draft.program, memory, draft.refs, bodies) for draft, memory in zip(drafts, memories, strict=True)]
        for plan in plans:
            show("plan", partial(render, plan), options)
    return plans


class _Placing:
    """Plans memory in a thread of its own, while compilers run."""

    def __init__(self, place: Callable[[Sequence[Schedule]], list[Memory]]) -> None:
        self._place, self._threads = place, ThreadPoolExecutor(1)
        self._started: tuple[list[Any], Future[list[Memory]]] | None = None

    def __enter__(self) -> _Placing:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()

    def start(self, programs: list[Any]) -> None:
        """``programs``: schedules, None where there is none yet."""
        if None not in programs:
            with contextlib.suppress(RuntimeError):  # no threads start when the interpreter ends
                self._started = programs, self._threads.submit(self._place, programs)

    def memories(self, programs: list[Any]) -> list[Memory]:
        """Those of the programs, which may be others than those it was started with. Raises what planning raised."""
        if self._started is not None and all(now is then for now, then in zip(programs, self._started[0], strict=True)):
            return self._started[1].result()
        return self._place(programs)


def _apart(programs: Sequence[Schedule]) -> list[Memory]:
    return list(map(plan_memory, programs))


def _handed_on(graphs: Sequence[AtenGraph]) -> list[Set[str]]:
    """For each graph its inputs that one before it made."""
    made: set[str] = set()
    found: list[Set[str]] = []
    for graph in graphs:
        found.append(made.intersection(graph.inputs))
        made.update(r for node in graph.nodes for r in node.results if r)
    return found


@dataclass
class _Draft:
    """A graph on its way to a plan. ``calls``: origins of operators that are left to torch, for ``reason``; ``problem``: why all are.
    ``products``: results of matrix products that are loops, and whether they compute their operands, once that is decided."""

    graph: AtenGraph
    problem: str
    lowered: Any = None
    program: Any = None
    refs: dict[Any, Any] = field(default_factory=dict)
    calls: frozenset[str] = frozenset()
    products: Mapping[str, bool] | None = None
    reason: str = ""
    done: bool = False

    def schedule(self, options: GraphOptions, report: Report, clock: Clock | None) -> None:
        if self.program is not None:
            return
        if self.products is None:
            with report.step("products"):
                quiet = replace(options, print_after=())
                self.products = choose(self.graph, lambda p: scheduled(self.graph, self.calls, quiet, Report(), p)[1], clock) if clock else {}
        self.lowered, self.program = scheduled(self.graph, self.calls, options, report, self.products)
        if options.verify:
            for kernel in self.program.kernels():
                verify_kernel(kernel)

    def wanted(self) -> Sequence[Any]:
        return self.program.wanted()  # type: ignore[no-any-return]

    def take(self, refs: Mapping[Any, Any], refused: Mapping[Any, str], behind: frozenset[str], report: Report) -> None:
        """Goes on with the kernels that were built, ``refs``, or leaves to torch what is behind those of its own that were not."""
        if not refused:
            self.refs = {w: refs[w] for w in self.wanted() if w in refs}
            self.done = len(self.refs) == len(set(self.wanted()))  # else another's kernel was refused before any was built
            self.problem = self.reason if self.done and not self.refs else ""
            return
        more = behind - self.calls
        self.reason = next(iter(refused.values()))
        report.calls_instead = (*report.calls_instead, self.reason)
        self.calls |= more
        self.problem = "" if more else self.reason
        self.program = None

    def leave_to_torch(self, report: Report) -> None:
        report.operators_only = self.problem
        _warn_operators(self.problem)
        self.program, self.refs = Schedule(lowered := lower_to_operators(self.graph), [], dict(lowered.buffers)), {}
        self.program.steps = [ExternStep(n) for n in lowered.nodes]  # type: ignore[arg-type]


@lru_cache(None)
def _warn_operators(problem: str) -> None:
    warnings.warn(f"GI030: torch's own operators run instead of generated kernels\n  why: {problem}", GraphWarning, stacklevel=4)
