"""The driver: an FX graph to a callable that runs a plan, one named step after the other.

What captures and compiles is imported where that happens: for a graph whose plan is in the store it would be most of the time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

import msgspec
import torch

from opmill_fake_tensors.collector import collector_paused
from opmill_fake_tensors.symbols import Sizes
from opmill_runtime_cache.errors import PlanInputError, RuntimeCacheError, SizeCheckFailed
from opmill_runtime_cache.executor.native import bind
from opmill_runtime_cache.plan.codec import decode, encode
from opmill_runtime_cache.plan.model import Plan
from opmill_runtime_cache.store import Store, default_store

from .capture.foreign import ForeignSizes, has_foreign_sizes
from .capture.sizes import environment_of, example_values
from .enabling import turned_off_first, turns_gradients_on
from .errors import GraphError, GraphWarning
from .generator.protocol import GROUP, KernelGenerator
from .layout import Layout, target_positions
from .options import GraphOptions as GraphOptions
from .planning.assumptions import Assumed, assume, assumptions_of, fits
from .planning.key import graph_key
from .recurrent import define_for
from .report import Report as Report
from .staged import StagedBackward
from .training import TrainingGraph

_ARTIFACT = "graph-plan"


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
        except SizeCheckFailed as error:
            result = self.module.forward(*inputs)  # which most likely refuses as well, and says so as eager does
            _warn_mismatch(str(error))
            return result  # type: ignore[no-any-return]


class _Entry(msgspec.Struct, array_like=True):
    """What the store keeps of a compiled graph: the plan, where in the module its held tensors are, and what it assumes of symbolic sizes; of
    one with gradients also the plans of its backward, the tensors that autograd is told of, and how the two are joined."""

    plan: bytes
    held: tuple[str, ...]
    assumed: tuple[Assumed, ...] = ()
    backward: tuple[bytes, ...] = ()
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
    _refuse_transforms()
    if turns_gradients_on(gm, example_inputs):
        with torch.enable_grad():
            compiled = compile_graph(turned_off_first(gm), example_inputs, options=options, store=store, generators=generators)
        compiled.executable = torch.enable_grad()(compiled.executable)
        return compiled
    values = example_values(gm, example_inputs)
    with collector_paused():
        if not has_foreign_sizes(values):
            return _compile_for(gm, values, options, store, generators)
        foreign = ForeignSizes()
        compiled = _compile_for(gm, foreign.ours(values), options, store, generators)
        foreign.give_back()
        return compiled


def _refuse_transforms() -> None:
    """Plans know neither tangents nor levels of ``torch.func`` that their inputs carry."""
    if torch.autograd.forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None:
        what = "a graph inside forward-mode differentiation or a transform of torch.func"
        raise GraphError("GI011", what, hint="compile the function that calls the transform")


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
    from .compiling import compile_inference, compile_training, needs_gradients

    if needs_gradients(gm, example_inputs):
        trained = compile_training(gm, example_inputs, options, store, generators, report)
        forward, *backwards = trained.plans
        if key is not None:
            _to_store(gm, trained.held, forward, trained.assumed, store, key, (backwards, trained.known, trained.layout))
        with report.step("bind"):
            run = _training_graph(gm, trained.layout, trained.plans, trained.held, trained.known, store, options)
        return CompiledGraph(run, forward, report.counted(*trained.plans), gm)
    graph, plan = compile_inference(gm, example_inputs, options, store, generators, report)
    if key is not None:
        _to_store(gm, graph.held_tensors, plan, assumptions_of(graph.sizes), store, key)
    with report.step("bind"):
        executable = _binder(options)(plan, graph.held_tensors, store)
    return CompiledGraph(executable, plan, report.counted(plan), gm)


def _training_graph(
    gm: torch.fx.GraphModule,
    layout: Layout,
    plans: Sequence[Plan],
    held: Sequence[torch.Tensor],
    known: Sequence[torch.Tensor],
    store: Store,
    options: GraphOptions,
) -> TrainingGraph:
    """The plans of a graph and its backward, bound and joined. ``held``: tensors of the forward, ``known``: those that autograd is told of."""
    define_for(plans)
    bind_plan = _binder(options)
    forward, *backwards = (bind_plan(plan, held if plan is plans[0] else [], store) for plan in plans)
    staged = [StagedBackward(layout.stages, backwards, target_positions(layout), plans[-1].device)] if layout.stages else []
    return TrainingGraph(layout, forward, staged or backwards, known, gm)


def _binder(options: GraphOptions) -> Callable[..., Callable[..., Any]]:
    if not options.cuda_graphs:
        return bind
    from opmill_runtime_cache.executor.graphs import bind_graphed

    return bind_graphed


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
def _warn_mismatch(problem: str) -> None:
    warnings.warn(f"GI032: a graph runs as torch's own operators for a call\n  why: {problem}", stacklevel=4)


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


def _to_store(
    gm: torch.fx.GraphModule,
    tensors: Sequence[torch.Tensor],
    plan: Plan,
    assumed: Any,
    store: Store,
    key: str,
    training: tuple[Sequence[Plan], Sequence[torch.Tensor], Layout] | None = None,
) -> None:
    """Keeps what was compiled, where its held tensors can be found in ``gm`` again. ``training``: the backward, what autograd is told of, layout."""
    held = _held_paths(gm, tensors)
    if held is None:
        return
    entry = _Entry(encode(plan), held, assumed)
    if training is not None:
        backwards, known, layout = training
        if (paths := _held_paths(gm, known)) is None:
            return
        entry = _Entry(encode(plan), held, assumed, tuple(map(encode, backwards)), paths, layout)
    store.put(_ARTIFACT, key, msgspec.msgpack.encode(entry))


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
            plans = [plan, *map(decode, entry.backward)]
            if entry.layout is not None:
                known = [_attribute(gm, path) for path in entry.known]
                executable: Callable[..., Any] = _training_graph(gm, entry.layout, plans, held, known, store, options)
            else:
                executable = _binder(options)(plan, held, store)
        except (RuntimeCacheError, msgspec.MsgspecError, AttributeError):
            store.remove(_ARTIFACT, key)
            return None
    assume(sizes, entry.assumed)
    report.cached = True
    return CompiledGraph(executable, plan, report.counted(*plans), gm)


__all__ = ["CompiledGraph", "GraphError", "GraphOptions", "Report", "compile_graph", "installed_generators"]
