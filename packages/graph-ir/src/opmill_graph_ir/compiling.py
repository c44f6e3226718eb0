"""The steps between an FX graph and its plan, as ``pipeline.py`` lists them. Imported only where something is compiled: a graph whose plan
is in the store needs none of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

from opmill_fake_tensors.telling import tell
from opmill_runtime_cache.devices.registry import find
from opmill_runtime_cache.plan.codec import encode
from opmill_runtime_cache.plan.model import Plan
from opmill_runtime_cache.store import Store

from .capture.broadcast_products import as_products
from .capture.causal import leave_to_kernels
from .capture.channels_last import lay_out
from .capture.control import bodies_of
from .capture.functionalize import functionalize
from .capture.graph import AtenGraph
from .capture.joint import capture_joint
from .capture.log_softmax import in_steps
from .capture.padding import pad_products
from .capture.partition import partition
from .capture.places import labels_of, place_of
from .capture.selections import lay_selected
from .capture.silent import silent_tangents, without
from .capture.wide_products import widen_products
from .compilation import Compilation, Draft, part_names
from .errors import GraphError, GraphWarning
from .exchanges.order import overlapped
from .freezing.rewrite import freeze
from .freezing.weights import Weights, held_inputs
from .generator.protocol import GeneratorOptions, KernelGenerator, TellingGenerator
from .gradient_buckets import split
from .loops.text import show
from .lowered import Extern, Lowered
from .ops.flex import with_attention_by_kernels
from .ops.lower import lower
from .options import GraphOptions
from .pipeline import PLANNING, SCHEDULING, run
from .planning.assumptions import assumptions_of
from .planning.build import build_plan
from .planning.dequantized import dequantized
from .planning.few_rows import few_rows
from .planning.kernels import KernelTexts, generate, sources_behind
from .planning.labels import label_spans
from .planning.operators import lower_to_operators
from .planning.products import choose, clock_of
from .repeated_regions.program import cuts, put_back
from .report import Report
from .schedule.early import read_early
from .schedule.horizontal_fusion import join_alike
from .schedule.joint_memory import plan_together
from .schedule.memory import Memory, plan_memory
from .schedule.steps import ExternStep, Schedule, Scheduling
from .training import held_names, layout_of

Steps = Iterable[tuple[str, object]]
"""What a step gives: parts, and what it made of them."""


def compile_plan(graph: AtenGraph, options: GraphOptions, store: Store, generators: Sequence[KernelGenerator], report: Report) -> Plan:
    """The plan of an aten graph. Raises ``GraphError`` (GI012) for tensors on a device that no plan runs on."""
    state = Compilation(options, store, generators, report, graphs=[graph])
    run(PLANNING, state)
    return state.plans[0]


def scheduled(
    graph: AtenGraph,
    calls: Set[str] = frozenset(),
    options: GraphOptions = GraphOptions(),  # noqa: B008 (frozen)
    products: Mapping[str, bool] = MappingProxyType({}),
) -> tuple[Lowered, Schedule]:
    """The program that was lowered (of the graph without the blocks that the schedule repeats), and the schedule of all. Nodes among
    ``calls`` (names of first results) are torch's; ``products``: results of matrix products that are loops, and whether they compute their
    operands."""
    draft = Draft(graph, calls=frozenset(calls), products=products)
    state = Compilation(replace(options, print_after=()), Store(""), (), Report(), graphs=[graph], drafts=[draft])
    run(SCHEDULING, state)
    assert draft.work is not None and draft.program is not None
    return draft.work.lowered, draft.program


# ---- capture ---------------------------------------------------------------------------------------------------------------


def functional(state: Compilation) -> Steps:
    """The step ``functionalize``: the aten graph of a module without gradients."""
    graph = functionalize(state.module, state.inputs)
    state.graphs, state.held, state.assumed = [graph], graph.held_tensors, assumptions_of(graph.sizes)
    state.offsets = graph.beginnings()
    return [("", graph)]


def frozen(state: Compilation) -> Steps:
    """What is made of weights is a plan of torch's operators: it runs once for each set of them."""
    graph = state.graphs[0]
    promised = held_inputs(state.module, state.inputs) if state.options.freeze and state.options.numerics != "eager" else ()
    made = freeze(graph, promised) if promised else None
    if made is None:
        return [("", graph)]
    program = _as_operators(lower_to_operators(made.weights))
    state.graphs = [made.graph]
    plan = build_plan("weights", program, plan_memory(program), {})
    state.weights = Weights(encode(plan), made.positions, made.kept, len(graph.inputs))
    return [("weights", made.weights), ("", made.graph)]


def joint(state: Compilation) -> Steps:
    """The step ``joint``: forward and backward in one aten graph."""
    state.joint = capture_joint(state.module, state.inputs, state.options.repeats)
    return [("joint", state.joint.graph)]


def laid_out(state: Compilation) -> Steps:
    """The step ``layouts``."""
    whole = _whole(state)
    for _, graph in whole:
        lay_out(graph)
    return whole


def multiplied(state: Compilation) -> Steps:
    """The step ``broadcast products``."""
    return _rewritten(state, as_products)


def without_masks(state: Compilation) -> Steps:
    """The step ``causal``."""
    return _rewritten(state, leave_to_kernels)


def padded(state: Compilation) -> Steps:
    """The step ``padding``."""
    return _rewritten(state, pad_products)


def _rewritten(state: Compilation, rewrite: Callable[[AtenGraph], None]) -> list[tuple[str, AtenGraph]]:
    """The graph of all, rewritten where values need not be eager's to the bit."""
    whole = _whole(state)
    if state.options.numerics != "eager":
        for _, graph in whole:
            rewrite(graph)
    if state.joint is None:
        state.held = state.graphs[0].held_tensors
    return whole


def _whole(state: Compilation) -> list[tuple[str, AtenGraph]]:
    return [("joint", state.joint.graph)] if state.joint is not None else [("", state.graphs[0])]


def in_parts(state: Compilation) -> Steps:
    """The step ``log softmax``."""
    assert state.joint is not None
    if state.options.numerics != "eager":
        in_steps(state.joint.graph)
    return [("joint", state.joint.graph)]


def selections(state: Compilation) -> Steps:
    """The step that lays gradients of what a mask selects in the mask's order."""
    assert state.joint is not None
    lay_selected(state.joint.graph)
    return [("joint", state.joint.graph)]


def widened(state: Compilation) -> Steps:
    """The step ``wide products``."""
    assert state.joint is not None
    if state.options.numerics != "eager":
        widen_products(state.joint.graph)
    return [("joint", state.joint.graph)]


def partitioned(state: Compilation) -> Steps:
    """The step ``partition``: the graphs of the forward and of the backward."""
    assert state.joint is not None
    state.halves = partition(state.joint, exact=state.options.numerics == "eager")
    state.graphs = state.halves.graphs
    state.parts, state.chained = part_names(len(state.graphs)), True
    return list(zip(state.parts, state.graphs, strict=True))


def staged(state: Compilation) -> Steps:
    """Also what joins the plans later: how they hand on tensors does not depend on how they compute."""
    assert state.joint is not None and state.halves is not None
    halves, single = state.halves, len(state.halves.backwards) == len(state.graphs) - 1 == 1
    if state.options.bucket_bytes and single:
        state.stages, graphs = split(halves, state.joint.targets, state.options.bucket_bytes)
        if state.stages:
            state.graphs = [halves.forward, *graphs]
    silent = () if state.stages else silent_tangents(state.joint, halves)
    if silent:
        state.graphs = [*state.graphs, without(state.joint, halves, silent)]
    state.parts = part_names(len(state.graphs))
    names, tensors = held_names(state.joint, *halves.graphs)
    state.layout, state.known = layout_of(state.joint, halves, names, state.stages, silent), tensors
    state.held, state.assumed = halves.forward.held_tensors, assumptions_of(state.joint.graph.sizes)
    inputs = state.layout.inputs  # behind them are tangents, which come as they are wanted
    state.offsets = tuple((k, offset) for k, offset in state.joint.graph.beginnings() if k < inputs)
    return list(zip(state.parts, state.graphs, strict=True))


# ---- schedules -------------------------------------------------------------------------------------------------------------


def planned_bodies(state: Compilation) -> Steps:
    """Plans of the graphs inside of control operators; and a draft for each of our own."""
    for graph in state.graphs:
        there = (graph.metas[name] for name in (*graph.inputs, *graph.held, *graph.constants, *graph.makers()) if name in graph.metas)
        if elsewhere := next((m.device for m in there if find(m.device) is None), ""):  # what nothing reads is in no plan
            raise GraphError("GI012", f"a tensor on {elsewhere}", why="no package that is installed knows such a device")
    inner = [body for graph in state.graphs for body in bodies_of(graph)]
    if inner:
        bodies = state.beside(inner, tuple(f"body {k}" for k in range(len(inner))))
        run(PLANNING, bodies)
        state.bodies = {id(body): plan for body, plan in zip(inner, bodies.plans, strict=True)}
    problem = "" if state.generators else "no kernel generator is available"
    state.drafts = [Draft(graph, part, problem) for graph, part in zip(state.graphs, state.parts, strict=True)]
    state.placing = _Placing(partial(plan_together, given=_handed_on(state.graphs)) if state.chained else _apart)
    return [(f"body {k}", plan) for k, plan in enumerate(state.bodies.values())]


def _settings(state: Compilation) -> GeneratorOptions:
    return GeneratorOptions(precise=state.options.numerics == "eager", measure=state.options.measure)


def chosen_products(state: Compilation) -> Steps:
    """The step ``products``: what the clock says of each product on a GPU."""
    undecided = [draft for draft in state.waiting() if draft.products is None]
    clock = clock_of(state.generators, _settings(state), state.store) if undecided else None
    for draft in undecided:
        draft.products = choose(draft.graph, partial(_as_loops, draft, state.options), clock) if clock else {}
        if state.options.numerics != "eager" and state.options.fusion and state.generators:
            draft.products = {**draft.products, **few_rows(draft.graph), **dequantized(draft.graph)}
    return [(draft.part, draft.graph) for draft in undecided]


def products_as_they_are(state: Compilation) -> Steps:
    """Instead of ``chosen_products``: all are calls of torch's."""
    for draft in state.waiting():
        draft.products = draft.products or {}
    return []


def _as_loops(draft: Draft, options: GraphOptions, products: Mapping[str, bool]) -> Schedule:
    return scheduled(draft.graph, draft.calls, options, products)[1]


def cut_repeats(state: Compilation) -> Steps:
    """The step ``repeats``: each graph without the blocks that are like others, as far as that has not failed before."""
    made = []
    for draft in state.waiting():
        if draft.cuts is None:
            draft.cuts = cuts(draft.graph) if state.options.fusion and state.options.repeats else []
            made.append((draft.part, _shortened(draft)))
    return made


def uncut(state: Compilation) -> Steps:
    """Instead of ``cut_repeats``."""
    for draft in state.waiting():
        draft.cuts = []
    return []


def _shortened(draft: Draft) -> AtenGraph:
    return draft.cuts[-1].graph if draft.cuts else draft.graph


def lowered(state: Compilation) -> Steps:
    """The step ``lower``: a program of loops of each graph that is not scheduled yet."""
    exact, made = state.options.numerics == "eager", []
    for draft in state.waiting():
        graph = with_attention_by_kernels(_shortened(draft), draft.calls, exact=exact)
        program = lower(graph, draft.calls, exact=exact, products=draft.products or {})
        draft.work = Scheduling(program, state.options.fusion)
        made.append((draft.part, program))
    return made


def extended(state: Compilation) -> Steps:
    """Where a repetition turns out to be none once it is scheduled, the graph is lowered again with fewer cuts."""
    made = []
    for draft in state.waiting():
        assert draft.work is not None and draft.work.schedule is not None and draft.cuts is not None
        draft.program, draft.cuts = put_back(draft.work.schedule, draft.cuts)
        if draft.program is not None:
            made.append((draft.part, draft.program))
    return made


def joined_alike(state: Compilation) -> Steps:
    """Schedules with fewer, larger kernels."""
    return _changed(state, join_alike)


def overlap(state: Compilation) -> Steps:
    """The step ``overlap``."""
    return _changed(state, overlapped)


def read_ahead(state: Compilation) -> Steps:
    """The step ``early``."""
    return _changed(state, read_early)


def _changed(state: Compilation, change: Callable[[Schedule], Schedule]) -> Steps:
    made = []
    for draft in state.drafts:
        if draft.open and draft.program is not None and state.options.fusion:
            draft.program = change(draft.program)
            made.append((draft.part, draft.program))
    return made


def is_scheduled(state: Compilation) -> bool:
    """Whether each draft has the schedule of its whole graph."""
    return not state.waiting()


# ---- kernels ---------------------------------------------------------------------------------------------------------------


def generated(state: Compilation) -> Steps:
    """Memory is planned beside the compilers. What is behind kernels that are refused is left to torch the next time."""
    drafts, settings = [draft for draft in state.drafts if draft.open], _settings(state)
    state.placing.start([draft.program for draft in state.drafts])
    wanted = list(dict.fromkeys(w for draft in drafts for w in _wanted(draft)))
    state.report.wanted = len(wanted)
    state.report.progress = tuple(g.progress for g in state.generators if isinstance(g, TellingGenerator))
    refs, refused = generate(wanted, settings, state.store, state.generators, state.options.override)
    texts = []
    for draft in drafts:
        own = {w: refused[w] for w in _wanted(draft) if w in refused}
        texts.append((draft.part, KernelTexts(_wanted(draft), settings, state.generators)))
        _take(draft, refs, own, state)
    return texts


def is_built(state: Compilation) -> bool:
    """Whether no draft waits for kernels."""
    return not any(draft.open for draft in state.drafts)


def _wanted(draft: Draft) -> Sequence[Any]:
    assert draft.program is not None
    return draft.program.wanted()


def _take(draft: Draft, refs: Mapping[Any, Any], refused: Mapping[Any, str], state: Compilation) -> None:
    """Goes on with the kernels that were built, ``refs``, or leaves to torch what is behind those of its own that were not."""
    if not refused:
        wanted = _wanted(draft)
        draft.refs = {w: refs[w] for w in wanted if w in refs}
        draft.done = len(draft.refs) == len(set(wanted))  # else another's kernel was refused before any was built
        draft.problem = draft.reason if draft.done and not draft.refs else ""
        return
    assert draft.program is not None and draft.work is not None
    behind = sources_behind(refused, draft.program, draft.work.lowered, _settings(state), state.store, state.generators)
    more = behind - draft.calls
    draft.reason = next(iter(refused.values()))
    state.report.calls_instead = (*state.report.calls_instead, draft.reason)
    draft.calls |= more
    draft.problem = "" if more else draft.reason
    draft.program, draft.cuts = None, None


def left_to_torch(state: Compilation) -> Steps:
    """The step ``operators``: drafts whose kernels cannot be had become calls of torch, which is told."""
    made = []
    for draft in state.drafts:
        if draft.problem:
            state.report.operators_only = draft.problem
            _warn_operators(draft.problem)
            draft.program, draft.refs = _as_operators(lower_to_operators(draft.graph)), {}
            made.append((draft.part, draft.program))
    return made


def _as_operators(program: Lowered) -> Schedule:
    return Schedule(program.outside(), [ExternStep(n) for n in program.nodes if type(n) is Extern], dict(program.buffers))


@lru_cache(None)
def _warn_operators(problem: str) -> None:
    tell(GraphWarning(f"GI030: torch's own operators run instead of generated kernels\n  why: {problem}"), 4)


# ---- plans -----------------------------------------------------------------------------------------------------------------


def planned(state: Compilation) -> Steps:
    """The step ``plan``: the plans, with memory that they share."""
    memories = state.placing.memories([draft.program for draft in state.drafts])
    for draft, memory in zip(state.drafts, memories, strict=True):
        assert draft.program is not None
        labels = label_spans(labels_of(state.module), draft.graph, draft.program) if draft.part in ("", "forward") else []
        state.plans.append(build_plan(_name_of(draft, state), draft.program, memory, draft.refs, state.bodies, labels))
    state.report.loops = tuple(_loops(draft, plan) for draft, plan in zip(state.drafts, state.plans, strict=True))
    return list(zip(state.parts, state.plans, strict=True))


def _loops(draft: Draft, plan: Plan) -> tuple[str, ...]:
    """The text of each kernel of a plan."""
    texts = {(ref.key, ref.entry): kernel for (kernel, _), ref in draft.refs.items()}
    return tuple(show(texts[ref.key, ref.entry]) for ref in plan.kernels)


def _name_of(draft: Draft, state: Compilation) -> str:
    """What people call the plan: its part of the graph, and where that begins in the program."""
    if state.module is None:
        return draft.part or "graph"
    return f"{draft.part or 'forward'} {place_of(state.module)}".strip()


class _Placing:
    """Plans memory in a thread of its own, while compilers run."""

    def __init__(self, place: Callable[[Sequence[Schedule]], list[Memory]]) -> None:
        self._place = place
        self._started: tuple[list[Any], Future[list[Memory]]] | None = None

    def start(self, programs: list[Any]) -> None:
        """``programs``: schedules, None where there is none yet."""
        if None not in programs:
            with contextlib.suppress(RuntimeError):  # no threads start when the interpreter ends
                threads = ThreadPoolExecutor(1)
                self._started = programs, threads.submit(self._place, programs)
                threads.shutdown(wait=False)

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
