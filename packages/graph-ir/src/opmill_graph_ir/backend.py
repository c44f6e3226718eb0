"""The driver: an FX graph to a callable that runs a plan, one named step after the other."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

import msgspec
import torch

from opmill_fake_tensors.symbols import Sizes
from opmill_runtime_cache.errors import PlanInputError, RuntimeCacheError
from opmill_runtime_cache.executor.graphs import bind_graphed
from opmill_runtime_cache.executor.native import bind
from opmill_runtime_cache.plan.codec import decode, encode
from opmill_runtime_cache.plan.model import Call, Launch, Plan
from opmill_runtime_cache.plan.text import render
from opmill_runtime_cache.store import Store, default_store

from .capture.foreign import ForeignSizes, has_foreign_sizes
from .capture.functionalize import functionalize
from .capture.graph import AtenGraph
from .capture.joint import capture_joint, needs_gradients
from .capture.partition import partition
from .capture.sizes import environment_of, example_values
from .errors import GraphError, GraphWarning
from .generator.protocol import GROUP, GeneratorOptions, KernelGenerator
from .loops.spec import verify_kernel
from .ops.lower import lower
from .options import GraphOptions as GraphOptions
from .planning.assumptions import Assumed, assume, assumptions_of, fits
from .planning.build import build_plan
from .planning.kernels import generate, origins_behind
from .planning.key import graph_key
from .planning.operators import lower_to_operators
from .schedule.memory import plan_memory
from .schedule.steps import ExternStep, Schedule, schedule
from .training import Layout, TrainingGraph, held_names, layout_of

_ARTIFACT = "graph-plan"
_DEVICES = ("cpu", "cuda")


@dataclass
class Report:
    """What compiling one graph did: ``phases`` in seconds, whether the plan came from the store, and how much there is to run.

    ``operators_only``: why the whole graph is made of torch's own operators; ``calls_instead``: why some of it is."""

    phases: dict[str, float] = field(default_factory=dict)
    cached: bool = False
    kernels: int = 0
    launches: int = 0
    calls: int = 0
    arena_bytes: int | str = 0
    operators_only: str = ""
    calls_instead: tuple[str, ...] = ()
    plan: Plan | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start


class CompiledGraph:
    """Calls the plan's executable; ``report`` says how it came about, ``plan`` is what runs."""

    __slots__ = ("executable", "module", "plan", "report")

    def __init__(self, executable: Callable[..., Sequence[Any]], plan: Plan, report: Report, module: torch.fx.GraphModule) -> None:
        self.executable, self.plan, self.report, self.module = executable, plan, report, module

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        try:
            return self.executable(*inputs)
        except PlanInputError as error:
            # An operator returned what its fake kernel did not promise, or a held tensor was given other metadata. Writes to
            # inputs come last in a plan, so nothing that the module reads has changed yet.
            _warn_mismatch(str(error))
            return self.module(*inputs)


class _Entry(msgspec.Struct, array_like=True):
    """What the store keeps of a compiled graph: the plan, where in the module its held tensors are, and what it assumes of symbolic sizes; of
    one with gradients also the
    plan of its backward, the tensors that autograd is told of, and how the two are joined."""

    plan: bytes
    held: tuple[str, ...]
    assumed: tuple[Assumed, ...] = ()
    backward: bytes = b""
    known: tuple[str, ...] = ()
    layout: Layout | None = None


def compile_graph(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: GraphOptions = GraphOptions(),  # noqa: B008 (frozen)
    store: Store | None = None,
    generators: Sequence[KernelGenerator] | None = None,
) -> CompiledGraph:
    """Compiles a torch-level FX graph for inputs like ``example_inputs``. Usable as a torch.compile backend.

    Inputs may be symbolic, fakes and sizes of an environment (or noted so as ``example_value`` of their placeholders): what is then
    assumed of their symbols is recorded in that environment, and the caller guards it.

    ``generators`` default to what is installed; with none that works, the plan calls torch's own operators. Raises ``GraphError`` where the
    graph cannot be compiled; the caller then runs ``gm`` itself."""
    values = example_values(gm, example_inputs)
    if has_foreign_sizes(values):
        foreign = ForeignSizes()
        compiled = _compile_for(gm, foreign.ours(values), options, store, generators)
        foreign.give_back()
        return compiled
    return _compile_for(gm, values, options, store, generators)


def _compile_for(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: GraphOptions,
    store: Store | None,
    generators: Sequence[KernelGenerator] | None,
) -> CompiledGraph:
    report = Report()
    store = store if store is not None else default_store()
    generators = tuple(generators) if generators is not None else installed_generators()
    with report.step("key"):
        key = graph_key(gm, example_inputs, options, generators) if options.cache else None
    if key is not None and (known := _from_store(gm, store, key, report, environment_of(example_inputs), options)) is not None:
        return known
    if needs_gradients(gm, example_inputs):
        return _compile_training(gm, example_inputs, key, options, store, generators, report)
    with report.step("functionalize"):
        graph = functionalize(gm, example_inputs)
        _show("functionalize", graph, options)
    plan = _compile(graph, options, store, generators, report)
    if key is not None:
        _to_store(gm, graph, plan, store, key)
    with report.step("bind"):
        executable = _binder(options)(plan, graph.held_tensors, store)
    return CompiledGraph(executable, plan, _counted(report, plan), gm)


def _compile_training(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    key: str | None,
    options: GraphOptions,
    store: Store,
    generators: Sequence[KernelGenerator],
    report: Report,
) -> CompiledGraph:
    with report.step("functionalize"):
        joint = capture_joint(gm, example_inputs)
        halves = partition(joint)
        for graph in (halves.forward, halves.backward):
            _show("functionalize", graph, options)
    forward, backward = (_compile(graph, options, store, generators, report) for graph in (halves.forward, halves.backward))
    names, tensors = held_names(joint, halves.forward, halves.backward)
    layout = layout_of(joint, halves, names)
    if key is not None:
        used, held = _held_paths(gm, halves.forward.held_tensors), _held_paths(gm, tensors)
        assumed = assumptions_of(joint.graph.sizes)
        if used is not None and held is not None and assumed is not None:
            entry = _Entry(encode(forward), used, assumed, encode(backward), held, layout)
            store.put(_ARTIFACT, key, msgspec.msgpack.encode(entry))
    with report.step("bind"):
        bound = _binder(options)
        run = TrainingGraph(layout, bound(forward, halves.forward.held_tensors, store), bound(backward, [], store), tensors, gm)
    return CompiledGraph(run, forward, _counted(report, forward, backward), gm)


def _compile(graph: AtenGraph, options: GraphOptions, store: Store, generators: Sequence[KernelGenerator], report: Report) -> Plan:
    if elsewhere := next((m.device for m in graph.metas.values() if m.device.partition(":")[0] not in _DEVICES), ""):
        raise GraphError("GI012", f"a tensor on {elsewhere}", why="plans run on processors and CUDA devices")
    problem, reason = "" if generators else "no kernel generator is available", ""
    calls: frozenset[str] = frozenset()
    settings = GeneratorOptions(precise=options.precise)
    while not problem:
        with report.step("lower"):
            lowered = lower(graph, calls)
            _show("lower", lowered, options)
        with report.step("schedule"):
            program = schedule(lowered, fusion=options.fusion)
            _show("schedule", program, options)
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
        plan = build_plan("graph", program, plan_memory(program), refs)
        _show("plan", render(plan), options)
    return plan


def _binder(options: GraphOptions) -> Callable[..., Callable[..., Any]]:
    return bind_graphed if options.cuda_graphs else bind


@lru_cache(1)
def installed_generators() -> tuple[KernelGenerator, ...]:
    """The generators of the entry-point group that can build on this machine."""
    found: list[KernelGenerator] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        try:
            generator = entry.load()()
            if generator.available() is None:
                found.append(generator)
        except Exception as e:  # a broken plug-in must not break compiling
            warnings.warn(f"GI031: kernel generator {entry.name!r} cannot be loaded: {e}", GraphWarning, stacklevel=2)
    return tuple(found)


@lru_cache(None)
def _warn_operators(problem: str) -> None:
    warnings.warn(f"GI030: torch's own operators run instead of generated kernels\n  why: {problem}", GraphWarning, stacklevel=4)


@lru_cache(None)
def _warn_mismatch(problem: str) -> None:
    warnings.warn(f"GI032: a graph runs as torch's own operators for a call\n  why: {problem}", stacklevel=4)


def _show(step: str, ir: object, options: GraphOptions) -> None:
    if step in options.print_after or "all" in options.print_after:
        print(f"# after {step}\n{ir}\n", file=sys.stderr)


def _counted(report: Report, *plans: Plan) -> Report:
    report.plan, report.arena_bytes = plans[0], plans[0].arena
    report.kernels = sum(len(plan.kernels) for plan in plans)
    report.launches = sum(type(s) is Launch for plan in plans for s in plan.steps)
    report.calls = sum(type(s) is Call for plan in plans for s in plan.steps)
    return report


# ---- whole plans in the store ----------------------------------------------------------------------------------------------


def _attribute(gm: torch.fx.GraphModule, path: str) -> torch.Tensor:
    value: Any = gm
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _held_paths(gm: torch.fx.GraphModule, tensors: Sequence[torch.Tensor]) -> tuple[str, ...] | None:
    paths = {id(_attribute(gm, str(n.target))): str(n.target) for n in gm.graph.nodes if n.op == "get_attr"}
    found = [paths.get(id(t)) for t in tensors]
    return None if None in found else tuple(found)  # type: ignore[arg-type]


def _to_store(gm: torch.fx.GraphModule, graph: AtenGraph, plan: Plan, store: Store, key: str) -> None:
    held, assumed = _held_paths(gm, graph.held_tensors), assumptions_of(graph.sizes)
    if held is not None and assumed is not None:
        store.put(_ARTIFACT, key, msgspec.msgpack.encode(_Entry(encode(plan), held, assumed)))


def _from_store(gm: torch.fx.GraphModule, store: Store, key: str, report: Report, sizes: Sizes | None, options: GraphOptions) -> CompiledGraph | None:
    """The graph's plan from the store, bound; None where it, or one of its kernels, is not there or does not fit."""
    with report.step("load"):
        data = store.get(_ARTIFACT, key)
        if data is None:
            return None
        try:
            entry = msgspec.msgpack.decode(data, type=_Entry)
            if not fits(sizes, entry.assumed):
                return None
            plan = decode(entry.plan)
            held = [_attribute(gm, path) for path in entry.held]
            bound = _binder(options)
            executable: Callable[..., Any] = bound(plan, held, store)
            plans = [plan]
            if entry.layout is not None:
                plans.append(decode(entry.backward))
                known = [_attribute(gm, path) for path in entry.known]
                executable = TrainingGraph(entry.layout, executable, bound(plans[1], [], store), known, gm)
        except (RuntimeCacheError, msgspec.MsgspecError, AttributeError):
            store.remove(_ARTIFACT, key)
            return None
    assume(sizes, entry.assumed)
    report.cached = True
    return CompiledGraph(executable, plan, _counted(report, *plans), gm)


__all__ = ["CompiledGraph", "GraphError", "GraphOptions", "Report", "compile_graph", "installed_generators"]
