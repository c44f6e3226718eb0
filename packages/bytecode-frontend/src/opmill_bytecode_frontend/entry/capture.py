"""``capture``: a function becomes a compiled one, backed by any torch backend."""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import logging
import types
import weakref
from typing import TYPE_CHECKING, Any, Callable, Hashable, cast

import torch
from msgspec.structs import replace

from opmill_fake_tensors import no_hooks_on_saved_tensors
from opmill_fake_tensors.collector import collector_paused
from opmill_fake_tensors.imports import imports
from opmill_fake_tensors.passing import interrupting, may_pass, out_of_memory
from opmill_fake_tensors.telling import tell
from opmill_guards import CompiledFunction, TailCall
from opmill_guards.guard import DictKeys, Equals, Is, Length, Predicate, TensorMatch
from opmill_guards.probe import current_stance
from opmill_guards.tree import GuardSet
from opmill_guards.weak import kind_of_held

from ..assumptions.called import CALLED, hollow
from ..breaks.bodies import Body
from ..breaks.looked_at import is_looked_at
from ..breaks.natives import worth_capturing
from ..effects.labels import labelled
from ..effects.lifetimes import ends_inside
from ..errors import CaptureWarning, NotYet, Unsupported
from ..eval_frame import intercept, skip
from ..interpretation.binding import bind_real
from ..interpretation.owners import installed, is_disabled
from ..messages.excerpt import plainly
from ..messages.remedies import REMEDIES as REFUSALS
from ..options import CaptureOptions
from ..resume import Resume, taking
from ..translate import Translation, translate
from ..values.base import MISSING, Raised
from ..values.modules import in_checkpoint_of_itself, is_data_parallel, runs_between
from .kinds import kinds_among
from .limits import FINAL, growth
from .stance import LATER, NEVER, not_for_torch, refuse_to_recompile, watched
from .traced import called as called
from .turns import Turns
from .varying import NONE, Changing, Seen, Varying

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from opmill_guards._native import Entry

    from ..effects.locks import Lock
    from ..interpretation.machine import Interpreter

log = logging.getLogger("opmill.internal")
#: For how many kinds of modules among its arguments one function is compiled: that often the limit for one of them.
MOST_KINDS = 4
CALL_OF_MODULES = torch.nn.Module._call_impl
Backend = Callable[..., Callable[..., object]]


def eager_backend(gm: torch.fx.GraphModule, example_inputs: list[object]) -> Callable[..., object]:
    """Runs the graph as it is."""
    return labelled(gm).forward


vars(eager_backend)["sizes_of_data"] = True


def find_backend(backend: str | Backend) -> Backend:
    """A callable is itself; ``"eager"`` runs graphs as they are."""
    if callable(backend):
        return backend
    if backend == "eager":
        return eager_backend
    raise ValueError(f"unknown backend {backend!r}; there are: 'eager', or a callable backend(gm, example_inputs)")


class Context:
    """What the captures of one function and of its resume functions and callees share."""

    def __init__(
        self,
        backend: Backend,
        fullgraph: bool,
        options: CaptureOptions,
        on_translation: Callable[[Translation], object] | None,
        on_break: Callable[[Unsupported], object] | None,
        dynamic: bool | None = None,
        on_recapture: Callable[[types.FunctionType, list[Any]], object] | None = None,
        watched_by: Callable[[Callable[[], str]], AbstractContextManager[object]] | None = None,
    ) -> None:
        self.backend = backend
        self.dynamic = dynamic
        self.may_break = not fullgraph
        self.sizes_of_data: bool = getattr(backend, "sizes_of_data", False)
        """Whether the backend takes graphs whose sizes only data tell; others get what comes before and behind such operators."""
        self.options = options
        self.on_translation = on_translation
        self.on_break = on_break
        self.on_recapture = on_recapture
        self.watched_by = watched_by
        self.attempts: list[Interpreter] = []
        """Interpreters of the capture that is running."""
        self.stand_in: Callable[[object], Callable[..., object] | None] = getattr(backend, "stand_in", lambda function: None)
        """The backend may have something to run instead of a function that code between graphs calls."""
        self.given_up: set[types.CodeType] = set()
        self.between: dict[types.CodeType, bool] = {}
        self.own_forwards: set[types.CodeType] = set()
        """Of modules that are compiled, and run between their hooks."""
        self._compiled: dict[object, CompiledFunction] = {}
        self.turns = Turns()
        self.contended: weakref.WeakSet[Lock] = weakref.WeakSet()
        """Locks that others often held."""

    def compiled(self, fn: types.FunctionType) -> CompiledFunction:
        """The captured form of a callee."""
        if (known := self._compiled.get(fn)) is not None:
            return known
        return self._compiled.setdefault(fn, CompiledFunction(fn, Capture(fn, self).on_miss))  # another thread may have been first

    def resumed(self, body: Body, resume: Resume, place: object, changing: Changing) -> object:
        """The captured form of a resume function; the same one for the same place and state. ``changing``: what it is not to assume."""
        key = (body.key, place, resume.stack, resume.parameters)
        if (known := self._compiled.get(key)) is not None:
            return known
        function = body.resume(resume)
        return self._compiled.setdefault(key, CompiledFunction(function, Capture(function, self, resume, changing).on_miss, tail=True))

    def parts(self) -> list[Any]:
        """The captured forms of callees and resume functions, in the order they were met."""
        return list(self._compiled.values())

    def forget(self) -> None:
        with self.turns.mine():
            for compiled in self.parts():
                compiled.on_miss.__self__.forget(compiled)
            self._compiled.clear()
            self.given_up.clear()
            self.between.clear()
            self.contended.clear()

    def offer(self, code: types.CodeType, function: types.FunctionType) -> Callable[..., object] | None:
        """What is called instead of a function that code which runs as it is calls: its captured form, where capturing is of use."""
        if (instead := self.stand_in(function)) is not None:
            return instead
        if is_disabled(function):
            if getattr(function, "_torchdynamo_disable_recursive", True) is False:
                return None
            return function  # as a replacement: while it runs nothing that it calls is offered either
        if in_checkpoint_of_itself():
            return function
        named_tuple = str(function.__module__ or "namedtuple_").startswith("namedtuple_")  # its __new__ has a module of its own
        made = named_tuple or ("<locals>" in function.__qualname__ and code not in self.own_forwards)  # by a program that may make many
        if code in self.given_up or made or self.is_between(code, function) or not worth_capturing(function):
            return None
        if installed(code.co_filename) and "forward" not in (code.co_name, function.__name__):  # one that is wrapped has its name
            return None

        return self.compiled(function)

    def is_between(self, code: types.CodeType, function: types.FunctionType) -> bool:
        """Whether it looks at frames, or calls what does: there must be none of opmill's between."""
        if (known := self.between.get(code)) is None:
            known = self.between[code] = is_looked_at(code, function.__globals__)
        return known

    def broken(self, reason: Unsupported) -> None:
        log.debug("graph break: %s", reason)
        if self.on_break is not None:
            self.on_break(reason)


REMEDY = "keep what changes from call to call out of the arguments or in tensors"
REMEDIES: dict[type, str] = {
    Length: "append to a list that grows, and read it from its end only; or keep it out of the function",
    Is: "{source} is another object at each call, and which one it is matters (is, hash, a key): hand over what is read of it, or a number "
    "that stands for it",
    Predicate: "the contents of {source} are others at each call: ask for them outside of the function, and hand over what that gives",
    Equals: "{source} has another value at each call, and each decides what runs: keep it out of the function, or in a tensor",
    TensorMatch: "{source} has other sizes, another dtype or layout at each call: opmill.mark_dynamic(tensor, dimension) and dynamic=None "
    "keep a size "
    "open; else pad to a few sizes, and convert dtypes before the call",
    DictKeys: "{source} has other keys at each call: keep the names out of the function, or use the same ones",
}
"""By the guard that failed last, what is to be done about it."""


def remedy(guard: object) -> str:
    """What to do about a guard that fails again and again."""
    kind, held = type(guard), getattr(guard, "object", MISSING)
    if issubclass(kind_of_held(held), (set, frozenset)) or kind is Predicate:  # known by identity, and by contents
        kind = Predicate
    elif held is None or isinstance(held, bool):
        kind = Equals
    return REMEDIES.get(kind, REMEDY).format(source=plainly(str(getattr(guard, "source", ""))))


def taken_by(code: types.CodeType) -> tuple[object, ...]:
    """The parameters of a function with this code: they are others where the program gives it another code."""
    flags = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    return flags, counts, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + flags.bit_count()]


class Capture:
    """What happens on a miss of one function."""

    def __init__(
        self,
        fn: types.FunctionType,
        context: Context,
        resume: Resume | None = None,
        changing: Changing = NONE,
        shared: bool = False,
        anew: bool = False,
    ) -> None:
        self.fn = fn
        self.anew = anew
        """Whether what it is called with was made for it, functions included."""
        self.shared = shared
        """Whether it is for all functions of a piece of code: ``fn`` is then a hollow one."""
        self.taken = taken_by(fn.__code__)
        self.context = context
        self.resume = resume
        """What a function that goes on after a graph was made as."""
        self.strict = not context.may_break and resume is None
        """Whether a refusal is the user's to know. Where graphs may not break, what comes after a graph is the way out of an exception:
        the program has failed, and has only to clean up behind itself."""
        self.eager = False
        self.changing = changing
        """What it is not to assume from the start."""
        self.called = False
        """Whether it was called before, and fitted no entry."""
        self.instead: Callable[..., object] = fn
        """What runs where the function is not captured."""
        self.seen = self.nothing_seen()
        self.raised = 0
        self.compiled_for: collections.Counter[tuple[Hashable, ...]] = collections.Counter()
        """How many entries there are for the same kinds of modules among the arguments."""
        self.warned: set[tuple[Hashable, ...]] = set()

    def nothing_seen(self) -> Seen:
        """Before a second call. The last capture that the limit allows does not depend on a text that was another at each."""
        patience = max(self.context.options.recompile_limit - 2, 1)
        return Seen(self.context.dynamic, self.context.may_break, patience, self.changing, self.shared, self.shared or self.anew)

    def uncaptured(self, compiled: CompiledFunction) -> Callable[..., object]:
        """What runs in place of a capture, for the function that is called."""
        if not self.shared:
            return self.instead
        function = compiled.__wrapped__
        return function if self.instead is self.fn else functools.partial(self.instead, function)

    def is_full(self, compiled: CompiledFunction, kinds: tuple[Hashable, ...]) -> bool:
        """Whether as many entries were made as the limit allows. Some kinds of modules have it each for its own, as if there were a
        function for each: the layers of a network that differ in size."""
        limit = self.context.options.recompile_limit
        return self.compiled_for[kinds] >= limit or len(compiled.entries) >= MOST_KINDS * limit

    def on_miss(self, compiled: CompiledFunction, args: tuple[object, ...], kwargs: dict[str, object]) -> Callable[..., object] | Entry:
        """The callable to run for these arguments; inserted as an entry when it was captured. The capture itself is not offered to
        others."""
        if self.eager:
            return self.uncaptured(compiled)
        with intercept(None), collector_paused():
            return self._target(compiled, args, kwargs)

    def _target(self, compiled: CompiledFunction, args: tuple[object, ...], kwargs: dict[str, object]) -> Callable[..., object] | Entry:
        context, function = self.context, cast(types.FunctionType, compiled.__wrapped__)
        try:
            bound = bind_real(function, args, kwargs)
        except TypeError:
            return function
        if watched() or self.is_to_wait(compiled, args, kwargs) or taken_by(function.__code__) != self.taken:
            return function
        if self.resume is not None and ends_inside(self.resume, args):
            return self._give_up(compiled)
        with context.turns.mine() as mine:
            if not mine or self.eager:
                return self.uncaptured(compiled)
            if (entry := compiled.find(args, kwargs)) is not None:
                return entry  # another thread made it meanwhile
            if self.fn is CALL_OF_MODULES and not self.strict and (runs_between(module := bound["self"]) or is_data_parallel(module)):
                return self._between(bound["self"])
            kinds = kinds_among(bound.values())
            if self.is_full(compiled, kinds):
                self._limit(compiled, kinds, args, kwargs)
                return function
            if compiled.entries:
                for learnt in self._noted(compiled, compiled.bind(args, kwargs)):
                    self._learns(compiled, learnt)
                if context.on_recapture is not None:
                    context.on_recapture(function, compiled.explain_miss(args, kwargs))
                self._drop(compiled)
            imports.mend()
            try:
                with no_hooks_on_saved_tensors(), self._watched():
                    translation = self._translate(function, bound)
            except NotYet:
                return self._waits(compiled)
            except (Raised, RecursionError) as exc:
                return self._raises(compiled, exc)
            except Unsupported as exc:
                if self.strict or exc.asked:
                    raise exc.with_traceback(None) from None  # the frames in between are opmill's, and the text tells the program's
                log.debug("%s runs eagerly: %s", self.fn.__qualname__, exc)
                if exc.code == "FE093":
                    tell(CaptureWarning(str(exc)), 3)
                return self._give_up(compiled)
            except Exception as exc:
                imports.suspect = True
                if self.strict or interrupting(exc) is not None:
                    raise
                if may_pass(exc):
                    return self._passes(compiled, exc)
                if not (context.options.suppress_errors or hasattr(exc, "code")):
                    raise  # what has a number is a refusal
                log.warning("internal error while capturing %s; it runs eagerly", self.fn.__qualname__, exc_info=True)
                return self._give_up(compiled)
            for fixed, shown in translation.fixed:
                more = "\n".join([f"  hint: {REFUSALS['FE091']}", *shown])
                tell(CaptureWarning(f"FE091: a size marked as dynamic is not: {fixed}\n{more}"), 3)
            if context.on_translation is not None:
                context.on_translation(translation)
            not_for_torch(translation.target.__code__)
            entry = compiled.insert(GuardSet(translation.guards, translation.loads), translation.target, translation.direct)
            self.compiled_for[kinds] += 1
            return entry

    def _drop(self, compiled: CompiledFunction) -> None:
        """Entries that never fit a call again go, and what they hold."""
        for entry in compiled.entries:
            if entry.guards.is_over():
                compiled.remove(entry)
                self.seen.dropped(entry)

    def _noted(self, compiled: CompiledFunction, values: Mapping[str, object]) -> list[object]:
        """``Seen.note``; an error in it costs what would have been learnt."""
        try:
            return self.seen.note(compiled.entries, values)
        except Exception as exc:
            if self.strict or not self.context.options.suppress_errors or interrupting(exc) is not None:
                raise
            log.warning("internal error while comparing the arguments of %s", self.fn.__qualname__, exc_info=True)
            return []

    def _watched(self) -> AbstractContextManager[object]:
        """Who wants to is told meanwhile what the capture has come to."""
        context = self.context
        if context.watched_by is None:
            return contextlib.nullcontext()
        name = self.fn.__qualname__

        def come_to() -> str:
            return f"{name}: {growth(context.attempts[-1])}" if context.attempts else name

        return context.watched_by(come_to)

    def is_to_wait(self, compiled: CompiledFunction, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
        """Whether the program's stance is that this call runs as it is. Raises RuntimeError where it is that none may have to be
        captured."""
        stance = current_stance()
        if stance == "fail_on_recompile":
            code = self.fn.__code__
            refuse_to_recompile(self.fn.__qualname__, f"{code.co_filename}:{code.co_firstlineno}", compiled.explain_miss(args, kwargs))
        first, self.called = not self.called, True
        return stance in NEVER or (stance in LATER and first)

    def forget(self, compiled: CompiledFunction) -> None:
        compiled.clear()
        self.eager, self.instead, self.called = False, self.fn, False
        self.seen = self.nothing_seen()
        self.compiled_for.clear()
        self.warned.clear()

    def _raises(self, compiled: CompiledFunction, reason: Raised | RecursionError) -> Callable[..., object] | Entry:
        """The function raises for these arguments, and no graph can end before, or the stack has no room left for a capture: it runs as it
        is, in the end without being captured first."""
        self.raised += 1
        log.debug(
            "%s runs eagerly: %s", self.fn.__qualname__, reason.value.describe() if isinstance(reason, Raised) else "the stack is full"
        )
        return self._later(compiled)

    def _later(self, compiled: CompiledFunction) -> Callable[..., object]:
        """This call runs as it is; after too many of them all do."""
        return self._give_up(compiled) if self.raised > self.context.options.recompile_limit else compiled.__wrapped__

    def _waits(self, compiled: CompiledFunction) -> Callable[..., object]:
        """This call runs as it is, and nothing that it calls is captured; where calls stay so, the function is given up in the end."""
        self.raised += 1
        return self._later(compiled)

    def _passes(self, compiled: CompiledFunction, reason: Exception) -> Callable[..., object]:
        """The machine has no memory, disk or process to spare: the call runs as it is, and the next one is captured. What is lacking but
        memory may be lacking for ever, so the function is given up in the end."""
        self.raised += not out_of_memory(reason)
        log.debug("%s runs eagerly this time: %s", self.fn.__qualname__, reason)
        return self._later(compiled)

    def _give_up(self, compiled: CompiledFunction) -> Callable[..., object]:
        """From now on the function runs as it is, and what it calls is captured. One that goes on after a graph owns its arguments: nobody
        else would have them in the plain function."""
        fn, offer = self.fn, self.context.offer
        self.context.given_up.add(fn.__code__)
        if self.resume is not None:
            fn = types.FunctionType(taking(fn.__code__), fn.__globals__, fn.__name__, None, fn.__closure__)
            self.context.given_up.add(fn.__code__)

        def run(*args: object, **kwargs: object) -> object:
            with intercept(offer):
                return fn(*args, **kwargs)

        def run_given(function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
            with intercept(offer):
                return function(*args, **kwargs)

        def hand_over(*args: object) -> TailCall:
            return TailCall(run, list(args))

        self.eager = True
        self.instead = run_given if self.shared else run if self.resume is None or not self.resume.parameters else hand_over
        return self.uncaptured(compiled)

    def _between(self, module: object) -> Callable[..., object]:
        """What calls a module whose hooks or preparations no graph holds: what is between them is captured."""
        forwards = (vars(cls).get("forward") for cls in type(module).__mro__)
        self.context.own_forwards.update(forward.__code__ for forward in forwards if type(forward) is types.FunctionType)

        def call(*args: Any, **kwargs: Any) -> object:
            with intercept(self.context.offer):
                return CALL_OF_MODULES(*args, **kwargs)

        return call

    def _translate(self, function: types.FunctionType, bound: dict[str, object]) -> Translation:
        """The function for these arguments; with fixed sizes where symbolic ones lead nowhere."""
        context, varying = self.context, self.seen.varying()
        if context.sizes_of_data:
            try:
                return self._attempt(function, bound, replace(varying, data=True))
            except (Raised, NotYet):
                raise
            except Exception as exc:
                if may_pass(exc) or (isinstance(exc, Unsupported) and exc.code in FINAL):
                    raise
                if not context.may_break and isinstance(exc, Unsupported) and not self.seen.has_symbols():
                    raise
                log.debug("%s is captured without sizes that only data tell", self.fn.__qualname__, exc_info=True)
        try:
            return self._attempt(function, bound, varying)
        except (Raised, NotYet):
            raise
        except Exception as exc:
            final = isinstance(exc, Unsupported) and (exc.code in FINAL or not self.seen.has_symbols())
            if varying.nothing or final or may_pass(exc):
                raise
            log.debug("%s is captured with fixed sizes", self.fn.__qualname__, exc_info=True)
            fixed = self._attempt(function, bound, replace(varying, nothing=True))
            self.seen.failed = self.seen.symbolic()
            return fixed

    def _attempt(self, function: types.FunctionType, bound: dict[str, object], varying: Varying) -> Translation:
        """A capture; what interrupts it leaves it as it is, whatever it was taken for inside, and leaves no mode behind."""
        modes, overrides = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
        try:
            return translate(function, bound, self.context.backend, self.context.options, self.context, varying)
        except Exception as exc:
            interruption = interrupting(exc)
            try:
                if interruption is not None and interruption is not exc:
                    raise interruption
                raise
            finally:
                del interruption  # it knows this frame, and would live until the next collection
        finally:
            while torch._C._len_torch_dispatch_stack() > modes:
                torch._C._pop_torch_dispatch_stack(None)
            while torch._C._len_torch_function_stack() > overrides:
                torch._C._pop_torch_function_stack()

    def _learns(self, compiled: CompiledFunction, guard: Any) -> None:
        """Says once that graphs do not depend from now on on what was another text, set or object at each call."""
        source, code = plainly(str(guard.source)), self.fn.__code__
        hint = remedy(guard)
        warning = CaptureWarning(
            f"FE067: {self.fn.__qualname__} was compiled {self.compiled_for.total()} times, as {source} was another at each call; from now "
            f"on what depends on it runs between graphs\n  at: {code.co_filename}:{code.co_firstlineno}\n  hint: {hint}"
        )
        tell(warning, 5)

    def _limit(self, compiled: CompiledFunction, kinds: tuple[Hashable, ...], args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        everything = len(compiled.entries) >= MOST_KINDS * self.context.options.recompile_limit
        self.eager = not kinds or everything
        if kinds in self.warned or (everything and self.warned):
            return
        self.warned.add(kinds)
        code = self.fn.__code__
        reasons = compiled.explain_miss(args, kwargs)[-1:]
        hint = next((remedy(reason.guard) for reason in reasons), REMEDY) + ", or raise the option recompile_limit"
        times = self.compiled_for.total()
        lines = [
            f"FE090: {self.fn.__qualname__} was compiled {times} times and runs uncompiled for other arguments from now on",
            f"  at: {code.co_filename}:{code.co_firstlineno}",
            *(f"  last reason: {plainly(str(reason))}" for reason in reasons),
            f"  hint: {hint}",
        ]
        tell(CaptureWarning("\n".join(lines)), 4)


skip(Capture.on_miss.__code__)
not_for_torch(Capture.on_miss.__code__)


def capture(
    fn: types.FunctionType,
    backend: str | Backend = "eager",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: CaptureOptions | None = None,
    on_translation: Callable[[Translation], object] | None = None,
    on_break: Callable[[Unsupported], object] | None = None,
    on_recapture: Callable[[types.FunctionType, list[Any]], object] | None = None,
    watched_by: Callable[[Callable[[], str]], AbstractContextManager[object]] | None = None,
    shared: bool = False,
    anew: bool = False,
) -> CompiledFunction:
    """A function that runs ``fn`` by graphs compiled with ``backend(gm, example_inputs) -> callable``.

    ``fullgraph``: raise :class:`Unsupported` where the graph would break. ``dynamic``: True: sizes and ints of the
    arguments are symbolic from the start; False: never; None: those that were different at another call.
    ``on_translation(translation)`` and ``on_break(unsupported)`` are told of each capture and of each graph break;
    ``on_recapture(function, failures)`` when a call fits no entry: why, of each entry the first guard that does not hold.
    ``watched_by(come_to)`` gives a context manager that is entered while a function is read; ``come_to()`` tells, in any thread, what has
    been recorded so far and which loop makes it grow. ``shared``: what it gives is not called itself, but serves all functions of the code
    (``sharing``). ``anew``: what it is called with was made for it: functions and classes that a function of the program made are known
    by what they are made of from the start."""
    if not isinstance(fn, types.FunctionType):
        raise TypeError(f"capture() wants a Python function, got {type(fn).__name__}")
    context = Context(
        find_backend(backend), fullgraph, options or CaptureOptions(), on_translation, on_break, dynamic, on_recapture, watched_by
    )
    if shared:
        fn = hollow(fn)
        return CompiledFunction(fn, Capture(fn, context, shared=True).on_miss, given=CALLED.name)
    return CompiledFunction(fn, Capture(fn, context, anew=anew).on_miss)


def sharing(fn: types.FunctionType, captured: CompiledFunction) -> CompiledFunction:
    """``fn``, run by what was captured of functions of its code."""
    return CompiledFunction(fn, shared=captured)


def parts(compiled: Any) -> list[CompiledFunction]:
    """What ``capture`` gave, and the captured forms of the callees and resume functions it came to need: all ``CompiledFunction``."""
    return [compiled, *compiled.on_miss.__self__.context.parts()]


def forget(compiled: Any) -> None:
    """Makes what ``capture`` gave as it was before its first call; resume functions, callees and having given up are forgotten too."""
    start = compiled.on_miss.__self__
    with start.context.turns.mine():
        start.forget(compiled)
        start.context.forget()
