"""One capture: interpret, end the graph, build the function that runs it."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, Iterator, TypeVar

import torch
from msgspec import Struct
from torch._C import _functorch

from opmill_guards import TailCall
from opmill_guards.guard import AllDistinct, GlobalState, ModuleTree
from opmill_guards.kinds.module_tree import facts_of
from opmill_guards.release import release
from opmill_guards.source import Local, Pinned

from .assumptions import asked
from .assumptions.alias_guards import guard_shared, kept_apart
from .assumptions.called import CALLED, NAME, hollow, left_out
from .breaks import graph_break
from .breaks.continuation import bound_by, define, forgetting, indent, releasing
from .breaks.natives import is_users
from .codegen import (  # noqa: F401 (values that leave)
    arrays,
    context_variables,
    data_dependent,
    exceptions,
    generic_functions,
    hooks,
    iterators,
    locks,
    quantized,
    sets,
    tensors,
)
from .codegen.counting import Counting, counting, is_read
from .codegen.defaults import filling
from .codegen.direct import direct_call
from .codegen.rebuild import Rebuilder
from .codegen.replay import replay
from .codegen.signatures import as_it_is, parameters, passed_on, signature_text
from .codegen.sources import Constants, from_stack
from .effects.asked_gradients import keep_apart
from .effects.backwards import watch
from .effects.labels import mark
from .effects.lifetimes import refuse_dropping, refuse_forgetting
from .effects.locks import Held, blame, hold
from .entry.limits import FINAL
from .entry.varying import Varying
from .errors import Unsupported
from .graph.class_state import masks_of
from .graph.failing import Failing, may_run_again
from .graph.recorded import Recorded
from .graph.recorder import is_held
from .graph.said import Quiet
from .graph.thread_state import autocast_nesting, in_dual_level, switched, switches
from .graph.undoing import Undoing, copied, writes_in_parts
from .interpretation.frame import Frame, refuse_module_code
from .interpretation.machine import BreakHere, Interpreter
from .library.standard.caches import ReadAgain, read_apart
from .library.torch.function_modes import ended_in_block
from .options import CaptureOptions
from .values.base import Lazy, Raised, Value
from .values.functions import function_value
from .values.iterators import CoroutineValue
from .values.per_call import GivenFunction
from .values.tensor import TensorValue

if TYPE_CHECKING:
    from opmill_guards._native import DirectCall
    from opmill_guards.guard import Guard
    from opmill_guards.source import Source

    from .entry.capture import Context
    from .values.number import SymbolicNumber

#: Earlier places of each kind that are tried for a graph break.
MOST_EARLIER = 3
Error = TypeVar("Error", bound=BaseException)
OWN_FILES = __file__.removesuffix("translate.py")


class Translation(Struct, eq=False):
    """``target``: the new function (same parameters); ``guards``: when it may be used; ``gm``: the graph (None when empty)."""

    target: types.FunctionType
    guards: list[Guard]
    gm: torch.fx.GraphModule | None
    text: str
    loads: Sequence[Source] = ()
    """Sources of the tensors of modules that ``target`` is given, as one tuple in front of its arguments; nothing where there are none."""
    direct: DirectCall | None = None
    """The ``DirectCall`` that does the same without Python, where the function is nothing but its graph; ``loads`` are then all its
    inputs."""
    fixed: Sequence[tuple[str, list[str]]] = ()
    """Sizes marked as dynamic that are assumed, and why; lines of source that show where."""


@contextmanager
def thread_state() -> Iterator[None]:
    """Puts back what interpreted code may have switched: grad mode, autocast, levels of transforms, random state."""
    before = switches()
    nesting = autocast_nesting()
    rng = torch.random.get_rng_state()
    depth = _functorch.get_dynamic_layer_stack_depth()
    dual = in_dual_level()
    try:
        yield
    finally:
        if _functorch.get_dynamic_layer_stack_depth() > depth:
            _functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if in_dual_level() and not dual:
            torch._C._exit_dual_level(level=0)
        for function, *args in switched(switches(), before):
            function(*args)
        for _ in range(autocast_nesting() - nesting):
            torch.autocast_decrement_nesting()
        for _ in range(nesting - autocast_nesting()):
            torch.autocast_increment_nesting()
        torch.random.set_rng_state(rng)


def interpret(vm: Interpreter, fn: types.FunctionType, bound: Mapping[str, object]) -> tuple[Value, Frame]:
    """Run the function symbolically on the real arguments ``bound``; gives the tracked result, and the frame at its end."""
    if fn.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise Unsupported("FE060", f"generator or coroutine {fn.__qualname__}", "only plain functions are captured")
    refuse_module_code(fn.__code__, fn.__qualname__)
    value = GivenFunction(vm, fn, CALLED, called=True) if vm.varying.called else function_value(fn, Pinned(fn, fn.__qualname__))
    vm.know(fn, value)
    frame = vm.make_frame(value, {name: argument(vm, name, obj) for name, obj in bound.items()}, 0)
    frame.has_places = True
    return vm.run(frame).value, frame


def argument(vm: Interpreter, name: str, obj: object) -> object:
    """What stands for an argument until it is read."""
    opaque = Local(name) in vm.varying.opaque and type(obj) in (int, float, str, bytes)
    return vm.wrap(obj, Local(name)) if opaque else Lazy(obj, Local(name))


def state_guard() -> GlobalState:
    """A guard of torch's global state as it is now."""
    from opmill_guards.kinds import global_state

    return global_state.capture()


def collect_guards(vm: Interpreter, entry_state: GlobalState | None, names: list[str]) -> list[Guard]:
    """All that was assumed when the function is called, one module tree guard for everything read in modules' own dictionaries. What is
    assumed of results that are asked for before the graph is completed. ``names``: what the function is given."""
    vm.guard_hooks_apart()
    for guard in vm.recorder.wrappers.assumed(vm.entry_switches):
        vm.guard(guard)
    apart: list[Guard] = [*guard_shared(vm), *kept_apart(vm)]
    guards = list(vm.guards.values())
    if entry_state is not None:
        guards.insert(0, entry_state)
    inputs = [v for v in vm.recorder.inputs if isinstance(v, TensorValue) and v.scalar is None]
    for held in (True, False):
        sources = tuple(v.source for v in inputs if is_held(v) is held and not asked.is_asked(v.source))
        apart += [AllDistinct(sources)] if len(sources) > 1 else []
    late: list[Guard] = []
    if len(inputs) > 1 and any(asked.is_asked(v.source) for v in inputs):
        late = [AllDistinct(tuple(v.source for v in inputs))]
    of_tree = list(vm.tree_guards.values())
    if vm.effects.asked:
        (of_tree, more), (apart, most) = asked.apart(of_tree), asked.apart(apart)
        late += [*more, *most]
    if vm.modules or of_tree:
        tree = tuple(facts_of(m.source, m.obj, m.assumes_hooks) for m in vm.modules.values())
        guards.append(ModuleTree(tree, (*of_tree, *apart), tuple(vm.tree_tensors), apart=vm.varying.apart))
    else:
        guards += apart
    guards += vm.tensor_guards
    guards += vm.relations
    guards += vm.recorder.numbers.guards()
    if vm.effects.asked:
        guards, more = asked.apart(guards)
        late += more
        vm.expected.complete(
            release(late)[0],
            [
                *names,
                *(call.source.name for call in vm.effects.asked if call.source is not None),
            ],
        )
    return guards


def graph_module(vm: Interpreter, outputs: Sequence[TensorValue | SymbolicNumber]) -> torch.fx.GraphModule:
    """The recorded graph as a module that returns a tuple; unused operations without effects are removed."""
    graph = vm.recorder.graph
    vm.recorder.complete_inputs()
    graph.output(tuple(vm.recorder.node_of(v) for v in outputs))
    remove_dead(graph)
    vm.recorder.arrange_inputs()
    for value in filter(is_held, vm.recorder.inputs):
        value.node.meta["held"] = True  # for backends that are told that weights stay
    gm = Recorded(dict(vm.recorder.attributes), graph)
    gm.meta["sizes of data"] = bool(vm.recorder.numbers.late)
    if vm.recorder.wrappers:
        gm.meta["wrappers"] = True
    gm.meta["where"] = vm.recorder.began
    if vm.recorder.labels.found:
        gm.meta["labels"] = tuple(vm.recorder.labels.found)
    return gm


PURE_TARGETS = {getattr}


def remove_dead(graph: torch.fx.Graph) -> None:
    """Only what reads: parameters never used, tuple items never used, numbers that were known. Operations may write, and are left to the
    backend."""
    for node in reversed(list(graph.nodes)):
        if node.users or (node.op not in ("get_attr", "call_function") and "fixed" not in node.meta):
            continue
        if (
            node.op == "get_attr"
            or node.target in PURE_TARGETS
            or node.meta.get("number")
            or "fixed" in node.meta
            or "late number" in node.meta
            or (getattr(node.target, "__name__", "") == "getitem" and len(node.all_input_nodes) == 1 and not _holds_list(node.args[1]))
        ):
            graph.erase_node(node)


def _holds_list(at: object) -> bool:
    """Whether an index is a list of positions, which may lie outside, as one that is a tensor may."""
    return isinstance(at, list) or (isinstance(at, tuple) and any(map(_holds_list, at)))


class Ended(Struct, eq=False):
    """An interpreted stretch of a function whose result or live state is ready to be rebuilt. ``result``: what the function returns, where
    returning it is all that is left to do behind the graph. ``held``: the locks that are held meanwhile."""

    vm: Interpreter
    rebuilder: Rebuilder
    last: list[str]
    held: Held | None = None
    result: object = None


def end(
    fn: types.FunctionType, vm: Interpreter, ending: Callable[[Rebuilder], list[str]], root: Frame | None = None, result: object = None
) -> Ended:
    """Rebuild what leaves the capture of ``fn``. ``ending`` gives the last statements; ``root``: the function's frame where it has ended,
    and ``result``: what it returns. Runs while the thread's state is the capture's own."""
    if vm.recorder.inference.mode is not None:
        raise Unsupported("FE074", "a graph break in inference mode", "the function runs eagerly")
    if _functorch.get_dynamic_layer_stack_depth() != vm.entry_levels:
        raise Unsupported("FE074", "a graph break inside of a function transform", "the function runs eagerly")
    if vm.recorder.modes.began:
        raise ended_in_block(vm)
    if vm.recorder.devices:
        raise Unsupported(
            "FE074",
            "a graph break inside of a block with a device",
            "torch's mode is not on in captured code",
            place=vm.recorder.devices[0][1],
        )
    refuse_dropping(vm)
    r = Rebuilder(vm)
    names, otherwise = as_it_is(r, fn, vm.varying.called) if vm.effects.asked or vm.effects.locks else ([], "")
    if vm.effects.asked:
        r.prologue += asked.statements(r, vm.effects.asked, vm.expected, names, otherwise)
    r.draw()
    vm.effects.calls += vm.recorder.labels.opened()
    last = ending(r)
    of_result = len(r.body)
    replay(r, vm.effects)
    keep_generators(vm, r, root)
    if r.forgets:
        refuse_forgetting(root or vm.stopped)
    keep_apart(vm, r)
    watched = watch(vm, r)
    for function, *args in switched(vm.entry_switches, switches()):
        r.body.append(f"{r.constants.name(function)}({', '.join(map(r.constants.name, args))})")
    if any(mask.data is not None for value in r.outputs if isinstance(value, TensorValue) for mask in masks_of(value.fake)):
        raise Unsupported(
            "FE051", "a result of an embedding over a mesh that is not summed yet", "what the sum leaves out stands beside it"
        )
    vm.recorder.wrappers.forget_masks()
    read_apart(vm)
    only = r.only_reads() and len(r.body) == of_result and not (vm.effects.asked or vm.effects.locks or watched)
    held = hold(r, names, otherwise) if vm.effects.locks else None
    return Ended(vm, r, last, held, result if only else None)


def keep_generators(vm: Interpreter, r: Rebuilder, root: Frame | None) -> None:
    """Generators that are suspended in a try or with block when nobody has them any more run the end of it. Where that is when the function
    ends (``root``: its frame, at its end) they are made for it."""
    for generator, place in vm.generators:
        if isinstance(generator, CoroutineValue) and generator.is_never_awaited() and r.known(generator) is None:
            name, why = generator.origin[0].qualname, "Python warns where it is dropped"
            raise Unsupported("FE060", f"the coroutine {name} is never awaited", why, "await it, or close it", place=place, whole=True)
        if not generator.is_guarded() or generator in r.unfinished:
            continue
        if root is None or not any(value is generator for value in root.locals.values()):
            why = "its finally and with blocks run when it is dropped, which a capture does not see"
            raise Unsupported(
                "FE076",
                f"the generator {generator.origin[0].qualname} is dropped half-way",
                why,
                "run it to its end, or close it",
                place=place,
                whole=True,
            )
        r.expr(generator)


def finish(fn: types.FunctionType, ended: Ended, backend: Callable[..., Callable[..., object]], strict: bool) -> Translation:
    """Compile the graph and the function around it; guards are not there yet. ``strict``: a graph that fails where the function does not is
    an error."""
    vm, r = ended.vm, ended.rebuilder
    recorder, called_too = vm.recorder, [CALLED] if vm.varying.called else []
    gm = direct = None
    lines: list[str] = []
    loads: list[Source] = []
    if recorder.operations or r.outputs or any(n.op == "call_function" for n in recorder.graph.nodes):
        gm = graph_module(vm, r.outputs)
        # Reading a source adds to the prologue: the names come before the text is put together.
        given = [r.input(value) for value in recorder.inputs if not is_held(value)]
        loads = [value.source for value in recorder.inputs if is_held(value)]
        held = "*_held[:-1]" if called_too else "*_held"
        called = f"_g = _graph({', '.join([*given, *([held] if loads else [])])})"
        again = may_run_again(gm.graph, recorder.outside())
        gm.meta["stands for"] = "a function that runs where it fails"
        gm.meta["may run again"] = again
        plain = hollow(fn) if called_too else fn
        handle = Failing(plain if again else None, plain, strict, vm.entry_switches, vm.entry_levels)
        drawn = f".behind({r.states})" if r.states else ""
        passed = f"{passed_on(fn.__code__)}{f', {NAME}' if called_too else ''}"
        again_text = f"{r.constants.name(TailCall)}({r.constants.name(handle)}{drawn}, _caught, {passed})"
        quiet = Quiet(recorder.said.told)
        graph = backend(gm, recorder.examples()) if not quiet.told else Quiet(quiet.told, quiet.of(backend, gm, recorder.examples()))
        tells = again or getattr(backend, "tells_begun", False) or not (vm.effects or vm.handles)
        kept = [] if tells else copied(gm.graph, recorder.inputs, recorder.outside())
        if kept or recorder.context.drawn:
            caught = any(node.meta.get("caught") for node in gm.graph.nodes)
            graph = Undoing(graph, recorder.context.drawn, kept, handle, caught, writes_in_parts(gm.graph))
        r.constants.table["_graph"] = graph
        if ended.result is not None and handle.plain is not None and all(map(is_read, recorder.inputs)):
            sources = [value.source for value in recorder.inputs]
            direct = direct_call(r, ended.result, sources, graph, handle)
        if direct is not None:
            loads, called = sources, f"_g = _graph({held})"
        counted = counting(r, recorder, loads) if direct is None else Counting([], "{}", [])
        lines += [
            *counted.before,
            "try:",
            f"    {counted.around.format(called)}",
            "except Exception as _caught:",
            f"    return {again_text}",
        ]
        lines += counted.behind
    else:
        lines += [f"{r.constants.name(mark)}({name!r})" for name, _ in recorder.labels.found]
    behind = [*r.body, *releasing(ended.last, bound_by([*r.prologue, *lines, *r.body]))]
    forgotten = [*r.to_forget(), *(from_stack(parameters(fn.__code__)) if len(behind) > 1 else ())]
    loads += called_too
    defaults = (fn.__defaults__, fn.__kwdefaults__)
    first: list[str] = []
    if called_too:
        first, defaults = [f"{NAME} = _held[-1]", *filling(fn, r.constants)], left_out(fn)
    block = [*r.prologue, *lines, *forgetting(behind, forgotten)]
    target, text = assemble_text(fn, [*first, *(ended.held.around(block, bool(loads)) if ended.held else block)], r.constants, bool(loads))
    target.__defaults__, target.__kwdefaults__ = defaults
    return Translation(target, [], gm, text, loads, direct)


def assemble_text(fn: types.FunctionType, lines: list[str], constants: Constants, loads: bool = False) -> tuple[types.FunctionType, str]:
    """A function with the parameters of ``fn`` (``loads``: and one in front of them) and these statements; it prints as what it is."""
    code = fn.__code__
    signature = signature_text(code, loads)
    for name, stub in constants.stubs.items():  # each refers to those before
        constants.table[name] = define(", ".join(stub.parameters), stub.lines, stub.code, stub.globals, constants.table)
    target = define(signature, lines, code, fn.__globals__, constants.table)
    target.__qualname__ = fn.__qualname__
    texts = [(name, ", ".join(stub.parameters), stub.lines) for name, stub in constants.stubs.items()]
    shown = [(f"{code.co_name}", signature, lines), *texts]
    return target, "\n".join("\n".join([f"def {name}({parameters}):", *indent(body), ""]) for name, parameters, body in shown)


def translate(
    fn: types.FunctionType,
    bound: Mapping[str, object],
    backend: Callable[..., Callable[..., object]],
    options: CaptureOptions,
    context: Context | None = None,
    varying: Varying | None = None,
) -> Translation:
    """The function as one graph, or its first graph when ``context`` (see capture.py) allows breaks. ``varying``: sizes and numbers that
    are not to be assumed. Where the function raises, the instruction that does so ends the graph. Raises Unsupported, or Raised where the
    function raises and cannot be left before."""
    entry_state = state_guard()
    attempts: list[Interpreter] = []
    if context is not None:
        context.attempts = attempts
    try:
        vm, ended = attempt(fn, bound, options, context, varying, attempts)
        translation = finish(fn, ended, backend, context is None or not context.may_break)
        names = [*parameters(fn.__code__), *([CALLED.name] if vm.varying.called else [])]
        translation.guards, translation.loads = release(collect_guards(vm, entry_state, names), translation.loads)
        if ended.held is not None:
            ended.held.complete(translation.guards, translation.loads, names)
        translation.fixed = vm.recorder.numbers.fixed()
        return translation
    finally:
        for vm in attempts:
            vm.recorder.wrappers.forget_masks()
            vm.let_go()
        if context is not None:
            context.attempts = []


def attempt(
    fn: types.FunctionType,
    bound: Mapping[str, object],
    options: CaptureOptions,
    context: Context | None,
    varying: Varying | None,
    attempts: list[Interpreter],
) -> tuple[Interpreter, Ended]:
    """The function to its end, or to where it cannot go on. ``attempts``: all interpreters that came to be."""
    inlined: frozenset[object] = frozenset()
    while True:
        try:
            return once(fn, bound, options, context, varying, attempts, inlined)
        except ReadAgain as exc:
            inlined |= {exc.function}


def once(
    fn: types.FunctionType,
    bound: Mapping[str, object],
    options: CaptureOptions,
    context: Context | None,
    varying: Varying | None,
    attempts: list[Interpreter],
    inlined: frozenset[object],
) -> tuple[Interpreter, Ended]:
    """One interpretation: to the function's end, or to where the graph has to end. Raises Unsupported or Raised where that is nowhere."""
    vm = Interpreter(options, varying=varying)
    vm.inlined = inlined
    vm.may_break = context is not None and context.may_break
    if context is not None:
        vm.stand_in, vm.may_end, vm.effects.contended = context.stand_in, context.may_break, context.contended
    attempts.append(vm)
    try:
        with thread_state():
            result, root = interpret(vm, fn, bound)
            return vm, end(fn, vm, lambda r: [f"return {r.expr(result)}"], root, result)
    except Unsupported as exc:
        vm.recorder.wrappers.forget_masks()
        blame(vm, exc)
        if not exc.where and vm.trace:  # what leaves the captured code, when all of it has been read
            note_place(exc, *vm.trace[-1])
        if context is None or not context.may_break or not vm.trace or exc.asked:
            raise
        context.broken(without_frames(exc))
        if exc.code in FINAL or exc.whole:
            raise
        return prefix(fn, bound, options, context, attempts, exc.place if exc.place is not None else vm.trace[-1][0].place, exc)
    except Raised as raised:
        vm.recorder.wrappers.forget_masks()
        origin = vm.origins.get(id(raised.value))
        if context is None or origin is None:
            raise
        if vm.recorder.refused_write and context.may_break:
            # what a graph gives is not known to autograd as what stood there: the function says by itself that it may not be written
            context.broken(without_frames(Unsupported("FE032", "a write that autograd refuses", "it raises", whole=True)))
            raise
        return prefix(fn, bound, options, context, attempts, origin[1], raised)


def note_place(refusal: Unsupported, frame: Frame, pc: int) -> None:
    """Says at which instruction of which frame a capture was refused."""
    at = frame.prepared.instructions[pc].position
    span = (at.lineno, at.end_lineno, at.col_offset, at.end_col_offset)
    refusal.passes(frame.code.co_filename, at.lineno or 0, frame.code.co_name, span, turns=False, users=True)


def without_frames(error: Error) -> Error:
    """The error for whoever wants to keep it: not with all that the capture knows, nor with the exception that the program is handling."""
    link: BaseException = error
    while link.__traceback__ is not None:
        link.__traceback__ = None
        before = link.__context__
        if before is None or not is_own(before):
            link.__context__ = None
            break
        link = before
    return error


def is_own(error: BaseException) -> bool:
    """Whether an exception was caught in the capture: one of the program was caught by the program."""
    return error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_filename.startswith(OWN_FILES)


def prefix(
    fn: types.FunctionType,
    bound: Mapping[str, object],
    options: CaptureOptions,
    context: object,
    attempts: list[Interpreter],
    last: int,
    reason: Unsupported | Raised,
) -> tuple[Interpreter, Ended]:
    """Everything before place ``last`` of the failed attempt, or before an earlier one where the state there cannot be handed over."""
    failed = attempts[-1]
    places = break_places(failed, last)
    for place in places:
        vm = Interpreter(options, place, failed.varying)
        vm.inlined, vm.stand_in, vm.may_end = failed.inlined, failed.stand_in, failed.may_end
        vm.effects.contended = failed.effects.contended
        attempts.append(vm)
        try:
            with thread_state():
                try:
                    interpret(vm, fn, bound)
                except BreakHere:
                    pass
                return vm, end(fn, vm, functools.partial(graph_break.statements, graph_break.stack_of(vm), context))
        except (Unsupported, Raised) as exc:
            vm.recorder.wrappers.forget_masks()
            if isinstance(exc, Unsupported) and exc.whole:
                raise
            reason.__context__ = without_frames(exc)
            if exc.__context__ is reason:
                exc.__context__ = None  # they would hold each other
            if isinstance(exc, Unsupported) and exc.place is not None and exc.place not in places:
                places.append(exc.place)
    try:
        raise reason
    finally:
        del reason  # which knows this frame, and would keep it, and what the program gave, until the next collection


def break_places(failed: Interpreter, last: int) -> list[int]:
    """Places before which the graph may end: place ``last``, the calls that led to it, then where loops and with-blocks on the stack began,
    then calls. Inside of code of Python or torch itself nothing is gained by it."""
    frame: Frame | None = failed.trace[last][0]
    stack = []
    while frame is not None:
        stack.append(frame)
        frame = frame.caller
    while len(stack) > 1 and not is_users(str(stack[0].globals.get("__name__") or "")):
        del stack[0]
    sites = places_of(stack, failed.trace, last)
    passed = [
        (number, frame.prepared.instructions[pc].opname) for number, (frame, pc) in enumerate(failed.trace[: sites[0]]) if frame in stack
    ]
    entries = [number for number, opname in passed if opname in ("GET_ITER", "BEFORE_WITH")]
    calls = [number for number, opname in passed if opname.startswith("CALL") and number not in sites]
    chosen = [*sites[:MOST_EARLIER], sites[-1], *entries[: -MOST_EARLIER - 1 : -1], *calls[: -MOST_EARLIER - 1 : -1]]
    return list(dict.fromkeys(chosen))


def places_of(stack: Sequence[object], trace: Sequence[tuple[Frame, int]], last: int) -> list[int]:
    """At which place each frame on the stack was when place ``last`` was reached."""
    latest = {id(frame): number for number, (frame, _pc) in enumerate(trace[: last + 1])}
    return [latest[id(frame)] for frame in stack]


__all__ = ["Translation", "Unsupported", "translate"]
