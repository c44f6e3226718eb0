"""One capture: interpret, end the graph, build the function that runs it."""

from __future__ import annotations

import functools
import inspect
import types
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Sequence

import torch
from msgspec import Struct
from torch._C import _functorch

from opmill_guards import TailCall
from opmill_guards.guard import AllDistinct, GlobalState, ModuleTree, TypeIs
from opmill_guards.source import Local, Pinned

from . import breaks
from .apart import kept_apart
from .codegen.rebuild import Rebuilder
from .codegen.replay import replay
from .codegen.sources import Constants, parameter_name
from .continuation import define, indent
from .errors import Unsupported
from .failing import Failing, may_run_again
from .frame import Frame
from .machine import BreakHere, Interpreter
from .natives import is_users
from .options import CaptureOptions
from .recorded import Recorded
from .switches import autocast_nesting, in_dual_level, switched, switches
from .values.base import Lazy, Raised, Value
from .values.functions import function_value
from .values.tensor import TensorValue
from .values.varying import VaryingNumber
from .varying import Varying

#: Earlier places of each kind that are tried for a graph break.
MOST_EARLIER = 3


class Translation(Struct, eq=False):
    """``target``: the new function (same parameters); ``guards``: when it may be used; ``gm``: the graph (None when empty)."""

    target: Callable[..., Any]
    guards: list[Any]
    gm: torch.fx.GraphModule | None
    text: str
    fixed: Sequence[str] = ()
    """Sizes marked as dynamic that are assumed, and why."""


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


def parameters(code: types.CodeType) -> list[str]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return list(code.co_varnames[:count])


def interpret(vm: Interpreter, fn: types.FunctionType, bound: dict[str, Any]) -> tuple[Value, Frame]:
    """Run the function symbolically on the real arguments ``bound``; gives the tracked result, and the frame at its end."""
    if fn.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise Unsupported("FE060", f"generator or coroutine {fn.__qualname__}", "only plain functions are captured")
    value = vm.know(fn, function_value(fn, Pinned(fn, fn.__qualname__)))
    frame = vm.make_frame(value, {name: argument(vm, name, obj) for name, obj in bound.items()}, 0)
    frame.has_places = True
    return vm.run(frame).value, frame


def argument(vm: Interpreter, name: str, obj: Any) -> Any:
    """What stands for an argument until it is read."""
    if name in vm.varying.opaque and type(obj) in (int, float, str):
        vm.guard(TypeIs(Local(name), type(obj)))
        return VaryingNumber(obj, Local(name))
    return Lazy(obj, Local(name))


def state_guard() -> GlobalState:
    from opmill_guards.kinds import global_state

    return global_state.capture()


def collect_guards(vm: Interpreter, entry_state: GlobalState | None) -> list[Any]:
    """All that was assumed, one module tree guard for everything read in modules' own dictionaries."""
    vm.guard_hooks_apart()
    guards = list(vm.guards.values())
    if entry_state is not None:
        guards.insert(0, entry_state)
    if vm.modules or vm.tree_guards:
        tree: Any = tuple((m.source, m.obj) for m in vm.modules.values())
        guards.append(ModuleTree(tree, tuple(vm.tree_guards.values()), tuple(vm.tree_tensors), apart=vm.varying.apart))
    guards += vm.tensor_guards
    guards += vm.relations
    guards += kept_apart(vm)
    guards += vm.recorder.numbers.guards()
    sources: Any = tuple(v.source for v in vm.recorder.inputs if isinstance(v, TensorValue) and v.scalar is None)
    if len(sources) > 1:
        guards.append(AllDistinct(sources))
    return guards


def graph_module(vm: Interpreter, outputs: list[Any]) -> torch.fx.GraphModule:
    """The recorded graph as a module that returns a tuple; unused operations without effects are removed."""
    graph = vm.recorder.graph
    vm.recorder.complete_inputs()
    graph.output(tuple(vm.recorder.node_of(v) for v in outputs))
    remove_dead(graph)
    gm = Recorded(dict(vm.recorder.attributes), graph)
    gm.meta["sizes of data"] = bool(vm.recorder.numbers.late)
    return gm


PURE_TARGETS = {getattr}


def remove_dead(graph: torch.fx.Graph) -> None:
    """Only what reads: parameters never used, tuple items never used. Operations may write, and are left to the backend."""
    for node in reversed(list(graph.nodes)):
        if node.users or node.op not in ("get_attr", "call_function"):
            continue
        if node.op == "get_attr" or node.target in PURE_TARGETS or node.meta.get("number") or "late number" in node.meta or getattr(node.target, "__name__", "") == "getitem":
            graph.erase_node(node)


class Ended(Struct, eq=False):
    """An interpreted stretch of a function whose result or live state is ready to be rebuilt."""

    vm: Interpreter
    rebuilder: Rebuilder
    last: list[str]


def end(vm: Interpreter, ending: Callable[[Rebuilder], list[str]], root: Frame | None = None) -> Ended:
    """Rebuild what leaves the capture. ``ending`` gives the last statements; ``root``: the function's frame where it has ended. Runs while the thread's state is the capture's own."""
    if vm.recorder.inference is not None:
        raise Unsupported("FE074", "a graph break in inference mode", "the function runs eagerly")
    if _functorch.get_dynamic_layer_stack_depth() != vm.entry_levels:
        raise Unsupported("FE074", "a graph break inside of a function transform", "the function runs eagerly")
    if vm.recorder.devices:
        raise Unsupported("FE074", "a graph break inside of a block with a device", "torch's mode is not on in captured code", place=vm.recorder.devices[0][1])
    r = Rebuilder(vm)
    r.draw()
    last = ending(r)
    replay(r, vm.effects)
    keep_generators(vm, r, root)
    for function, *args in switched(vm.entry_switches, switches()):
        r.body.append(f"{r.constants.name(function)}({', '.join(map(r.constants.name, args))})")
    return Ended(vm, r, last)


def keep_generators(vm: Interpreter, r: Rebuilder, root: Frame | None) -> None:
    """Generators that are suspended in a try or with block when nobody has them any more run the end of it. Where that is when the function
    ends (``root``: its frame, at its end) they are made for it."""
    for generator, place in vm.generators:
        if not generator.is_guarded() or generator in r.unfinished:
            continue
        if root is None or not any(value is generator for value in root.locals.values()):
            why = "its finally and with blocks run when it is dropped, which a capture does not see"
            raise Unsupported("FE076", f"the generator {generator.origin[0].qualname} is dropped half-way", why, "run it to its end, or close it", place=place)
        r.expr(generator)


def finish(fn: types.FunctionType, ended: Ended, backend: Callable[..., Any], strict: bool) -> tuple[Any, Any, str]:
    """Compile the graph and the function around it. ``strict``: a graph that fails where the function does not is an error."""
    vm, r = ended.vm, ended.rebuilder
    recorder = vm.recorder
    gm = None
    lines: list[str] = []
    if recorder.operations or r.outputs or any(n.op == "call_function" for n in recorder.graph.nodes):
        gm = graph_module(vm, r.outputs)
        # Reading a source adds to the prologue: the names come before the text is put together.
        called = f"_g = _graph({', '.join(map(r.input, recorder.inputs))})"
        again = may_run_again(gm.graph, recorder.outside())
        handle = Failing(fn if again and not vm.effects.draws else None, strict, vm.entry_switches, vm.entry_levels)
        given = f"{r.constants.name(TailCall)}({r.constants.name(handle)}, _caught, {passed_on(fn.__code__)})"
        lines += ["try:", f"    {called}", "except Exception as _caught:", f"    return {given}"]
        r.constants.table["_graph"] = backend(gm, recorder.examples())
    target, text = assemble_text(fn, [*r.prologue, *lines, *r.body, *ended.last], r.constants)
    return target, gm, text


def assemble_text(fn: types.FunctionType, lines: list[str], constants: Constants) -> tuple[Any, str]:
    """A function with the parameters of ``fn`` and these statements; it prints as what it is."""
    code = fn.__code__
    for name, stub in constants.stubs.items():  # each refers to those before
        constants.table[name] = define(", ".join(stub.parameters), stub.lines, stub.code, stub.globals, constants.table)
    target = define(signature_text(code), lines, code, fn.__globals__, constants.table)
    target.__defaults__ = fn.__defaults__
    target.__kwdefaults__ = fn.__kwdefaults__
    target.__qualname__ = fn.__qualname__
    texts = [(name, ", ".join(stub.parameters), stub.lines) for name, stub in constants.stubs.items()]
    shown = [(f"{code.co_name}", signature_text(code), lines), *texts]
    return target, "\n".join("\n".join([f"def {name}({parameters}):", *indent(body), ""]) for name, parameters, body in shown)


def signature_text(code: types.CodeType) -> str:
    """The parameter list of a code object; defaults are set on the function afterwards."""
    names = [parameter_name(n) for n in code.co_varnames]
    n, k = code.co_argcount, code.co_kwonlyargcount
    parts = names[:n]
    if code.co_posonlyargcount:
        parts.insert(code.co_posonlyargcount, "/")
    position = n + k
    if code.co_flags & inspect.CO_VARARGS:
        parts.append("*" + names[position])
        position += 1
    elif k:
        parts.append("*")
    parts += names[n : n + k]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parts.append("**" + names[position])
    return ", ".join(parts)


def passed_on(code: types.CodeType) -> str:
    """The arguments of a call as a tuple and a dictionary: text for a function with this signature."""
    names = [parameter_name(n) for n in code.co_varnames]
    n, k = code.co_argcount, code.co_kwonlyargcount
    positional, named = names[:n], [f"{name!r}: {parameter_name(name)}" for name in code.co_varnames[n : n + k]]
    position = n + k
    if code.co_flags & inspect.CO_VARARGS:
        positional.append("*" + names[position])
        position += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        named.append("**" + names[position])
    return f"({''.join(each + ', ' for each in positional)}), {{{', '.join(named)}}}"


def bind_real(fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The real arguments by parameter name; raises TypeError as the call itself would."""
    code = fn.__code__
    plain = not code.co_kwonlyargcount and not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if plain and not kwargs and len(args) == code.co_argcount:
        return dict(zip(code.co_varnames, args))
    bound = inspect.Signature.from_callable(fn, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def translate(
    fn: types.FunctionType,
    bound: dict[str, Any],
    backend: Callable[..., Any],
    options: CaptureOptions,
    context: Any = None,
    varying: Varying | None = None,
) -> Translation:
    """The function as one graph, or its first graph when ``context`` (see capture.py) allows breaks. ``varying``: sizes and numbers that are
    not to be assumed. Where the function raises, the instruction that does so ends the graph. Raises Unsupported, or Raised where the function
    raises and cannot be left before."""
    entry_state = state_guard()
    attempts: list[Interpreter] = []
    try:
        vm, ended = attempt(fn, bound, options, context, varying, attempts)
        target, gm, text = finish(fn, ended, backend, context is None or not context.may_break)
        return Translation(target, collect_guards(vm, entry_state), gm, text, vm.recorder.numbers.fixed())
    finally:
        for vm in attempts:
            vm.let_go()


def attempt(
    fn: types.FunctionType, bound: dict[str, Any], options: CaptureOptions, context: Any, varying: Varying | None, attempts: list[Interpreter]
) -> tuple[Interpreter, Ended]:
    """The function to its end, or to where it cannot go on. ``attempts``: all interpreters that came to be."""
    vm = Interpreter(options, varying=varying)
    attempts.append(vm)
    try:
        with thread_state():
            result, root = interpret(vm, fn, bound)
            return vm, end(vm, lambda r: [f"return {r.expr(result)}"], root)
    except Unsupported as exc:
        if context is None or not context.may_break or exc.code == "FE065" or not vm.trace:
            raise
        context.broken(without_frames(exc))
        return prefix(fn, bound, options, context, attempts, exc.place if exc.place is not None else vm.trace[-1][0].place, exc)
    except Raised as raised:
        origin = vm.origins.get(id(raised.value))
        if context is None or origin is None:
            raise
        return prefix(fn, bound, options, context, attempts, origin[1], raised)


def without_frames(error: Any) -> Any:
    """The error for whoever wants to keep it: not with all that the capture knows."""
    link = error
    while link is not None and link.__traceback__ is not None:
        link.__traceback__ = None
        link = link.__context__
    return error


def prefix(
    fn: types.FunctionType, bound: dict[str, Any], options: CaptureOptions, context: Any, attempts: list[Interpreter], last: int, reason: Unsupported | Raised
) -> tuple[Interpreter, Ended]:
    """Everything before place ``last`` of the failed attempt, or before an earlier one where the state there cannot be handed over."""
    failed = attempts[-1]
    places = break_places(failed, last)
    for place in places:
        vm = Interpreter(options, place, failed.varying)
        attempts.append(vm)
        try:
            with thread_state():
                try:
                    interpret(vm, fn, bound)
                except BreakHere:
                    pass
                return vm, end(vm, functools.partial(breaks.statements, breaks.stack_of(vm), context))
        except (Unsupported, Raised) as exc:
            reason.__context__ = without_frames(exc)
            if isinstance(exc, Unsupported) and exc.place is not None and exc.place not in places:
                places.append(exc.place)
    raise reason


def break_places(failed: Interpreter, last: int) -> list[int]:
    """Places before which the graph may end: place ``last``, the calls that led to it, then where loops and with-blocks on the stack began,
    then calls. Inside of code of Python or torch itself nothing is gained by it."""
    frame: Any = failed.trace[last][0]
    stack = []
    while frame is not None:
        stack.append(frame)
        frame = frame.caller
    while len(stack) > 1 and not is_users(stack[0].globals.get("__name__") or ""):
        del stack[0]
    sites = places_of(stack, failed.trace, last)
    passed = [
        (number, frame.prepared.instructions[pc].opname) for number, (frame, pc) in enumerate(failed.trace[: sites[0]]) if frame in stack
    ]
    entries = [number for number, opname in passed if opname in ("GET_ITER", "BEFORE_WITH")]
    calls = [number for number, opname in passed if opname.startswith("CALL") and number not in sites]
    chosen = [*sites[:MOST_EARLIER], sites[-1], *entries[: -MOST_EARLIER - 1 : -1], *calls[: -MOST_EARLIER - 1 : -1]]
    return list(dict.fromkeys(chosen))


def places_of(stack: list[Any], trace: list[Any], last: int) -> list[int]:
    """At which place each frame on the stack was when place ``last`` was reached."""
    latest = {id(frame): number for number, (frame, _pc) in enumerate(trace[: last + 1])}
    return [latest[id(frame)] for frame in stack]


__all__ = ["Translation", "Unsupported", "translate"]
