"""An FX graph to a callable that runs a plan: ``pipeline.py`` lists the steps, here are the first and the last of them.

What captures and compiles is imported where that happens: for a graph whose plan is in the store it would be most of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import entry_points
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import msgspec
import torch

from opmill_fake_tensors.collector import collector_paused
from opmill_fake_tensors.optional import all_known
from opmill_fake_tensors.passing import may_pass
from opmill_fake_tensors.telling import tell
from opmill_runtime_cache.errors import KernelMissing, PlanInputError, RuntimeCacheError, SizeCheckFailed
from opmill_runtime_cache.executor.native import bind
from opmill_runtime_cache.plan.codec import decode, encode
from opmill_runtime_cache.plan.model import Plan
from opmill_runtime_cache.store import Store, default_store

from .capture.foreign import ForeignSizes, has_foreign_sizes
from .capture.sizes import environment_of, example_values
from .compilation import Compilation, part_names
from .enabling import turned_off_first, turns_gradients_on
from .errors import GraphError, GraphWarning
from .exchanges.waiting import watching
from .freezing.copies import FrozenCopies
from .freezing.weights import Weights
from .generator.protocol import GROUP, KernelGenerator
from .layout import Layout, positions
from .options import GraphOptions as GraphOptions
from .pipeline import NAMES, PIPELINE, UNCOMPILED, Observer, run
from .planning.assumptions import Assumed, assume, fits
from .planning.key import graph_key
from .planning.moved import Lines, lines_of, moved
from .recurrent import SPACE, define_for
from .report import Report as Report
from .report import keep_loops
from .staged import StagedBackward
from .training import TrainingGraph
from .wrapped import ANEW, INSIDE, has_wrappers

_ARTIFACT = "graph-plan"
Steps = Iterable[tuple[str, object]]
"""What a step gives: parts, and what it made of them."""
Binder = Callable[[Plan, Sequence[torch.Tensor], Store], Callable[..., Any]]
"""``binder(plan, held, store)`` makes a plan callable; what it gives has a method ``take``, too, as the native executor's has."""


class CompiledGraph:
    """Calls the plan's executable; ``report`` says how it came about, ``plan`` is what runs; ``frozen``: what it keeps of weights that
    stay, None where that is nothing."""

    __slots__ = ("__weakref__", "executable", "frozen", "module", "plan", "report")

    def __init__(
        self,
        executable: Callable[..., Sequence[Any]],
        plan: Plan,
        report: Report,
        module: torch.fx.GraphModule,
        frozen: FrozenCopies | None = None,
    ) -> None:
        self.executable, self.plan, self.report, self.module, self.frozen = executable, plan, report, module, frozen

    def thaw(self) -> int:
        """Forgets what was made of weights; how many sets of weights that was. The next call makes it anew, of what they hold then."""
        return 0 if self.frozen is None else self.frozen.clear()

    @property
    def direct(self) -> tuple[Callable[..., Sequence[Any]], Callable[[Exception, Sequence[Any]], Sequence[Any]]]:
        """For callers that make the call themselves: what runs the plan, and what gives the outputs where that raises."""
        executable = self.executable
        return (type(executable) is TrainingGraph and executable.native) or executable, self.recover

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        try:
            return self.executable(*inputs)
        except (PlanInputError, SizeCheckFailed) as error:
            return self.recover(error, inputs)

    def recover(self, error: Exception, inputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs for inputs with which the plan raised ``error``; raises it where that is not the plan's fault."""
        if getattr(error, "begun", False):
            _say_begun(error)
            raise error
        if isinstance(error, (PlanInputError, SizeCheckFailed)) and self.module.meta.get("stands for") and not _is_watched():
            error.mistaken = partial(_warn_mismatch, str(error))
            raise error  # who called the graph runs the program instead
        if isinstance(error, PlanInputError):
            # An operator returned what its fake kernel did not promise, or a held tensor was given other metadata. Nothing that the
            # module reads has changed yet.
            _warn_mismatch(str(error))
            return self.module.forward(*inputs)
        if isinstance(error, SizeCheckFailed):
            result = self.module.forward(*inputs)  # which most likely refuses as well, and says so as eager does
            _warn_mismatch(str(error))
            return result
        raise error


def _is_watched() -> bool:
    """Whether hooks of the program have seen what was saved: it cannot begin anew."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def _say_begun(error: Exception) -> None:
    if isinstance(error, PlanInputError) and not error.hint:
        error.why = error.why or "an operator gives something else than its fake kernel promises"
        error.hint = "mend that kernel; the graph has written to its inputs, and is not run again by torch's operators"


class _Beginning:
    """A plan for inputs that begin at certain offsets in their storages, by position: its views by strides count from there."""

    def __init__(self, executable: Callable[..., Sequence[Any]], offsets: Sequence[tuple[int, int]]) -> None:
        self._executable, self._offsets = executable, offsets

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        for position, offset in self._offsets:
            if (given := inputs[position].storage_offset()) != offset:
                raise PlanInputError(
                    "RC052", what=f"input {position} begins {given} elements behind the beginning of its storage, not {offset}"
                )
        return self._executable(*inputs)


def _from_there(executable: Callable[..., Sequence[Any]], offsets: Sequence[tuple[int, int]]) -> Callable[..., Sequence[Any]]:
    return _Beginning(executable, offsets) if offsets else executable


class _Entry(msgspec.Struct, array_like=True):
    """What the store keeps of a compiled graph: the plan, where in the module its held tensors are, and what it assumes of symbolic sizes;
    of one with gradients also the plans of its backward, the tensors that autograd is told of, and how the two are joined; ``lines``: where
    the program had its nodes."""

    plan: bytes
    held: tuple[str, ...]
    assumed: tuple[Assumed, ...] = ()
    backward: tuple[bytes, ...] = ()
    known: tuple[str, ...] = ()
    layout: Layout | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    lines: Lines | None = None
    weights: Weights | None = None


# Made at import: msgspec puts what it knows of a type into the type while it still asks Python for the annotations. Whoever decodes in
# between, another thread or a child forked then, crashes.
_ENTRY = msgspec.msgpack.Decoder(_Entry)


def compile_graph(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: GraphOptions = GraphOptions(),  # noqa: B008 (frozen)
    store: Store | None = None,
    generators: Sequence[KernelGenerator] | None = None,
    binder: Binder | None = None,
    observe: Observer | None = None,
    report: Report | None = None,
) -> CompiledGraph:
    """Compiles a torch-level FX graph for inputs like ``example_inputs``. Usable as a torch.compile backend.

    Inputs may be symbolic, fakes and sizes of an environment (or noted so as ``example_value`` of their placeholders): what is then
    assumed of their symbols is recorded in that environment, and the caller guards it.

    ``generators`` default to what is installed; with none that works, the plan calls torch's own operators. ``binder``: what makes plans
    callable; the native executor if None. ``observe``: is told of each step (``pipeline.Observer``). ``report``: what is filled in;
    a look at it meanwhile tells how far it is. Raises ``GraphError`` where the
    graph cannot be compiled; the caller then runs ``gm`` itself."""
    _refuse_transforms()
    if has_wrappers(gm, example_inputs):
        from .wrapped.compiling import compile_wrapped

        compile_plain = partial(
            compile_graph, options=options, store=store, generators=generators, binder=binder, observe=observe, report=report
        )
        values, kept = example_values(gm, example_inputs), None
        if options.cache and not options.override:
            kept_in = store if store is not None else default_store()
            makers = tuple(generators) if generators is not None else installed_generators()
            kept = kept_in, graph_key(gm, values, options, makers, kept_in.portable)
        return compile_wrapped(gm, values, compile_plain, kept)  # type: ignore[return-value]
    if turns_gradients_on(gm, example_inputs):
        with torch.enable_grad():
            compiled = compile_graph(
                turned_off_first(gm),
                example_inputs,
                options=options,
                store=store,
                generators=generators,
                binder=binder,
                observe=observe,
                report=report,
            )
        compiled.executable = torch.enable_grad()(compiled.executable)
        return compiled
    values = example_values(gm, example_inputs)
    binder = binder or _binder(options)
    with collector_paused():
        if not has_foreign_sizes(values):
            return _compile_for(gm, values, options, store, generators, binder, observe, report)
        foreign = ForeignSizes()
        compiled = _compile_for(gm, foreign.ours(values), options, store, generators, binder, observe, report)
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
    binder: Binder,
    observe: Observer | None = None,
    report: Report | None = None,
) -> CompiledGraph:
    def compiled() -> Compilation:
        state = Compilation(
            options,
            store if store is not None else default_store(),
            tuple(generators) if generators is not None else installed_generators(),
            report if report is not None else Report(),
            gm,
            example_inputs,
            binder,
            observe=observe,
        )
        with state.turn:
            run(PIPELINE, state)
        return state

    try:
        state = compiled()
    except KernelMissing:  # a file that could not be opened for a moment, or that somebody has removed meanwhile
        state = compiled()
    assert state.run is not None
    return CompiledGraph(_from_there(state.run, state.offsets), state.plans[0], state.report.counted(*state.plans), gm, state.frozen)


# ---- the first and the last steps of the pipeline ---------------------------------------------------------------------------


def given(state: Compilation) -> Steps:
    """The step ``graph``: what the compiler was called with."""
    return [("", state.module)]


def find_key(state: Compilation) -> Steps:
    """The step ``key``: the graph's name in the store, None where it is not kept there."""
    if state.options.cache and not state.options.override:
        state.key = graph_key(state.module, state.inputs, state.options, state.generators, state.store.portable)
    return [(f"key {state.key}", state.module)]


def load(state: Compilation) -> Steps:
    """The plan from the store; none where a step is to be shown that it spares. Whoever does not find it makes it, while others wait."""
    if state.key is None or state.module.meta.get(ANEW) or any(state.options.prints(name) for name in NAMES if name not in UNCOMPILED):
        return []
    if not _from_store(state, state.key):
        state.turn.enter_context(state.store.turn(_ARTIFACT, state.key))
        if not _from_store(state, state.key):  # another process may have kept it since, also where nobody had to be waited for
            return []
    state.finished = state.report.cached = True
    state.report.key = state.key
    return zip(state.parts, state.plans, strict=False)


def keep(state: Compilation) -> Steps:
    """The step ``store``: keeps the plans under the graph's name, and lets other processes go on."""
    if state.key is not None:
        _to_store(state, state.key)
        keep_loops(state.report, state.key, state.store)
    state.turn.close()
    return zip(state.parts, state.plans, strict=False)


def bound(state: Compilation) -> Steps:
    """What calls the plans: the forward alone, or joined with its backward."""
    if state.weights is not None:
        unfrozen = _unfrozen(state)
        state.frozen = FrozenCopies(state.weights, state.plans[0], state.held, state.binder, state.store, state.options.sample, unfrozen)
        state.run = state.frozen.run
    elif state.layout is None:
        state.run = state.binder(state.plans[0], state.held, state.store)
    else:
        state.run = _training_graph(state.module, state.layout, state.plans, state.held, state.known, state.store, state.binder)
    return zip(state.parts, state.plans, strict=False)


def _unfrozen(state: Compilation) -> Callable[[Sequence[Any]], Callable[..., Any] | None]:
    """What compiles the graph for weights that change. Where sizes are symbolic it gives None: nobody would guard what a second compile
    assumes of them."""
    module, options, store, generators, binder = state.module, state.options, state.store, state.generators, state.binder
    symbolic = environment_of(state.inputs) is not None

    def compiled(inputs: Sequence[Any]) -> Callable[..., Any] | None:
        if symbolic:
            return None
        with torch.no_grad():
            return _compile_for(module, inputs, replace(options, freeze=False), store, generators, binder)

    return compiled


def _training_graph(
    gm: torch.fx.GraphModule,
    layout: Layout,
    plans: Sequence[Plan],
    held: Sequence[torch.Tensor],
    known: Sequence[torch.Tensor],
    store: Store,
    binder: Binder,
) -> TrainingGraph:
    """The plans of a graph and its backward, bound and joined. ``held``: tensors of the forward, ``known``: those that autograd is told
    of."""
    define_for(plans)
    forward, *backwards = (binder(plan, held if plan is plans[0] else [], store) for plan in plans)
    staged = [StagedBackward(layout.stages, backwards, positions(layout, layout.targets), plans[-1].device)] if layout.stages else []
    return TrainingGraph(layout, forward, staged or backwards, known, gm)


def _binder(options: GraphOptions) -> Binder:
    if not options.cuda_graphs:
        return watching(bind, options.exchange_wait)
    from opmill_runtime_cache.executor.recording import bind_recorded

    return watching(bind_recorded, options.exchange_wait)


def installed_generators() -> tuple[KernelGenerator, ...]:
    """The generators of the entry-point group that can build on this machine."""
    return tuple(generator for generator in _loaded_generators() if generator.available() is None)


@lru_cache(1)
def _loaded_generators() -> tuple[KernelGenerator, ...]:
    found: list[KernelGenerator] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        try:
            found.append(entry.load()())
        except Exception as e:  # a broken plug-in must not break compiling
            if may_pass(e):
                raise
            tell(GraphWarning(f"GI031: kernel generator {entry.name!r} cannot be loaded: {e}"), 2)
    return tuple(found)


@lru_cache(None)
def _warn_mismatch(problem: str) -> None:
    tell(UserWarning(f"GI032: a graph runs as torch's own operators for a call\n  why: {problem}"), 4)


# ---- whole plans in the store ----------------------------------------------------------------------------------------------


OWN_OPERATORS = (f"{SPACE}::", "opmill_functional::")
"""Libraries of operators that captures define: of what keeps things for a backward, and of functional forms (``capture/forms.py``)."""


def operators_of(gm: torch.fx.GraphModule) -> frozenset[str]:
    """What a plan for ``gm`` from the store may call beside torch's operators that only compute: what ``gm`` itself calls, the libraries of
    operators that it uses, and ours."""
    nodes = [
        node for part in gm.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes if node.op.startswith("call_")
    ]
    names = {name for node in nodes for name in _names_of(node)}
    spaces = {name.partition("::")[0] for name in names} - {"aten", "prims", "prim", "mkldnn"}
    inside = gm.meta.get(INSIDE) or ()  # what classes of wrappers call
    return frozenset({*names, *OWN_OPERATORS, *(f"{space}::" for space in (*spaces, *inside))})


def _names_of(node: torch.fx.Node) -> frozenset[str]:
    """An operator's names as in plans. Functions and methods of torch are operators of the same name."""
    target = node.target
    if isinstance(target, str):
        return frozenset([f"aten::{target}"] if node.op == "call_method" else [])
    if isinstance(target, torch._ops.OpOverload):
        return frozenset({target.name(), target._schema.name})
    named = getattr(target, "_qualified_op_name", None) or getattr(target, "_qualname", None)  # of a packet, of a custom operator
    if named is None and isinstance(target, (BuiltinFunctionType, MethodDescriptorType)):
        named = f"aten::{target.__name__}"
    return frozenset([named] if isinstance(named, str) and "::" in named else [])


def _attribute(gm: torch.fx.GraphModule, path: str) -> torch.Tensor:
    value: Any = gm
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _held_paths(gm: torch.fx.GraphModule, tensors: Sequence[torch.Tensor]) -> tuple[str, ...] | None:
    paths = {id(_attribute(gm, str(n.target))): str(n.target) for n in gm.graph.nodes if n.op == "get_attr"}
    found = all_known(paths.get(id(t)) for t in tensors)
    return None if found is None else tuple(found)


def _to_store(state: Compilation, key: str) -> None:
    """Keeps what was compiled, and where its held tensors can be found in the module again."""
    held, known = (_held_paths(state.module, tensors) for tensors in (state.held, state.known))
    if held is None or known is None:
        return
    plan, *backwards = map(encode, state.plans)
    entry = _Entry(plan, held, state.assumed, tuple(backwards), known, state.layout, state.offsets, lines_of(state.module), state.weights)
    state.store.put(_ARTIFACT, key, msgspec.msgpack.encode(entry))


def _from_store(state: Compilation, key: str) -> bool:
    """Takes the graph's plan from the store, and binds it; False where it, or one of its kernels, is not there or does not fit."""
    sizes = environment_of(state.inputs)
    data = state.store.get(_ARTIFACT, key)
    if data is None:
        return False
    try:
        entry = _ENTRY.decode(data)
        if not fits(sizes, entry.assumed):
            return False
        operators = operators_of(state.module)
        state.plans = [decode(plan, operators) for plan in (entry.plan, *entry.backward)]
        if entry.lines is not None and entry.lines != (now := lines_of(state.module)):
            state.plans = [moved(plan, entry.lines, now) for plan in state.plans]
        state.parts = part_names(len(state.plans)) if entry.layout is not None else ("",)
        state.held, state.known = ([_attribute(state.module, path) for path in paths] for paths in (entry.held, entry.known))
        state.layout, state.offsets, state.weights = entry.layout, entry.offsets, entry.weights
        _fetch_kernels(state.plans, state.store)
        bound(state)
    except (RuntimeCacheError, msgspec.MsgspecError, AttributeError):
        state.store.remove(_ARTIFACT, key)
        state.plans, state.parts, state.held, state.known, state.layout, state.run, state.offsets = [], ("",), (), (), None, None, ()
        state.weights = None
        return False
    assume(sizes, entry.assumed)
    return True


def _fetch_kernels(plans: Sequence[Plan], store: Store) -> None:
    """What the plans run, from a store that machines share, all at once."""
    refs = [ref for plan in plans for each in (plan, *plan.bodies) for ref in each.kernels]
    for kind in {ref.artifact_kind for ref in refs}:
        store.fetch(kind, dict.fromkeys(ref.key for ref in refs if ref.artifact_kind == kind))


__all__ = ["CompiledGraph", "GraphError", "GraphOptions", "Report", "compile_graph", "installed_generators"]
