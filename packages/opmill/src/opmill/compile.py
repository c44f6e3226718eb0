"""``opmill.compile``: what may be compiled, and how each kind of it is wrapped."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import os
import time
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, overload

import torch
from msgspec import structs

from .backend import GraphBackend
from .discover import Backend
from .ending import wait_for_threads
from .errors import OpmillError, OpmillWarning, UsageTypeError, warn_once
from .module import behind, is_wrapped, original_of, wrap_module
from .options import Options
from .progress import progress_of
from .record import BreakRecord, Record
from .settings import Settings, resolve, resolve_arguments
from .shared_captures import drop_all, keep_with, share

_F = TypeVar("_F")

# What opmill.compile made and is still alive -> what happened to it. For reset() and explain(); weak, so it keeps nothing alive.
_live: weakref.WeakKeyDictionary[Any, Record] = weakref.WeakKeyDictionary()


# What several functions share (not called itself) -> the record of them all.
_shared: weakref.WeakKeyDictionary[Any, Record] = weakref.WeakKeyDictionary()


# Compiled steps of optimizers, which no capture made.
_steps: weakref.WeakSet[Any] = weakref.WeakSet()


@overload
def compile(
    model: _F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Backend = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | Options | None = ...,
    disable: bool = ...,
) -> _F: ...
@overload
def compile(
    model: None = ...,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Backend = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | Options | None = ...,
    disable: bool = ...,
) -> Callable[[_F], _F]: ...


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend = "opmill",
    mode: str | None = None,
    options: Mapping[str, Any] | Options | None = None,
    disable: bool = False,
) -> Any:
    """Makes a function, method or ``torch.nn.Module`` fast; compiles at its first call. Same arguments as ``torch.compile``.

    Without ``model`` it gives a decorator. A module comes back as a module of the same class that shares its state.

    Args:
        model: what to compile.
        fullgraph: raise a numbered error where code cannot be captured, instead of running that part uncompiled.
        dynamic: True: sizes may change without compiling again; False: never; None: found out when a size changes.
        backend: ``"opmill"``, ``"eager"``, another name of ``list_backends()``, or
            ``backend(graph_module, example_inputs) -> callable``.
        mode: one of ``list_modes()``.
        options: values for ``list_options()``; a foreign backend gets them as they are.
        disable: give ``model`` back as it is; so does ``OPMILL_DISABLE=1`` in the environment, for all.

    Raises:
        TypeError: ``model`` cannot be called.
        ValueError: unknown mode, option or backend; the message names those there are.
    """
    try:
        settings = resolve(fullgraph, dynamic, backend, mode, options)
    except OpmillError as wrong:
        raise wrong.with_traceback(None) from None  # the mistake is in the call, not in what looked at it
    disable = disable or _disabled()
    if model is None:
        return functools.partial(_compile, settings=settings, disable=disable)
    return _compile(model, settings=settings, disable=disable)


def _disabled() -> bool:
    return os.environ.get("OPMILL_DISABLE", "0") not in ("", "0")


def _compile(model: Any, *, settings: Settings, disable: bool) -> Any:
    model = model if disable else _uncompiled(model)
    for kind in type(model).__mro__:
        wrap = _WRAPPERS.get(kind)
        if wrap is not None:
            return model if disable else wrap(model, settings)
    if not callable(model):
        raise UsageTypeError(
            "OM001",
            f"opmill.compile takes a function, a method or a torch.nn.Module, not {type(model).__name__}",
            hint="to give options to the decorator, name them: @opmill.compile(fullgraph=True)",
        )
    return model if disable else _wrap_callable(model, settings)


def _uncompiled(model: Any) -> Any:
    """The function behind a compiled one, torch's too, so that compiling twice is compiling once; anything else as it is."""
    if isinstance(model, types.FunctionType) and hasattr(model, "_torchdynamo_inline"):
        return model._torchdynamo_orig_callable  # type: ignore[attr-defined]
    return model.__wrapped__ if _is_live(model) else model


def _is_live(value: Any) -> bool:
    return getattr(type(value), "__hash__", None) is not None and value in _live


def _capture(function: Any, settings: Settings, name: str = "", code: types.CodeType | None = None, **kind: bool) -> Any:
    """``name`` and ``code``: of what the program knows it as, where ``function`` is torch's, that calls it. ``kind``: ``shared`` or
    ``anew``, as ``capture`` has them."""
    # Not above: the frontend is the second heaviest import, and a program may have everything disabled.
    from opmill_fake_tensors.collector import collector_paused

    with collector_paused():  # a collection, of all that torch has imported, takes as long as the import
        from opmill_bytecode_frontend.entry.capture import capture
        from opmill_bytecode_frontend.errors import CaptureWarning
        from opmill_bytecode_frontend.options import CaptureOptions

    OpmillWarning.register(CaptureWarning)
    tracing = _tracing(name or function.__qualname__)
    record = Record(name or function.__qualname__, code or function.__code__, tracing=tracing, settings=settings)
    compiled = capture(
        function,
        GraphBackend(settings, record),
        fullgraph=settings.fullgraph,
        dynamic=settings.dynamic,
        options=CaptureOptions(
            recompile_limit=settings.options.recompile_limit,
            graph_limit=settings.options.graph_limit,
            nested_breaks=settings.options.nested_breaks,
            suppress_errors=settings.options.suppress_errors,
        ),
        on_break=lambda found: record.add_break(
            BreakRecord(found.code, found.what, found.where, found.why, found.hint, found.stack, found.spans, turns=found.turns)
        ),
        on_recapture=record.add_recompile,
        on_translation=record.captured,
        watched_by=functools.partial(_watched, settings.options.progress, record),
        **kind,
    )
    (_shared if kind.get("shared") else _live)[compiled] = record
    return compiled


def _tracing(name: str) -> Any:
    """What writes a trace of a callable; None unless ``OPMILL_TRACE`` asks for one."""
    if not os.environ.get("OPMILL_TRACE"):
        return None
    from .trace.writer import tracing_of  # not above: hardly anybody asks

    return tracing_of(name)


_CALL_OF_MODULES = torch.nn.Module._call_impl.__qualname__


@contextlib.contextmanager
def _watched(progress: bool | None, record: Record, come_to: Callable[[], str]) -> Iterator[None]:
    """While a function is read: shows how far that is, notes how long it takes, and writes a trace where one is asked for."""
    tracing, start, compiled = record.tracing, time.perf_counter(), sum(graph.seconds for graph in record.graphs)
    with (
        progress_of(lambda: come_to().replace(_CALL_OF_MODULES, record.name), progress),
        tracing.capture(come_to()) if tracing else contextlib.nullcontext(),
    ):
        try:
            yield
        finally:
            behind = sum(graph.seconds for graph in record.graphs) - compiled
            record.seconds += max(0.0, time.perf_counter() - start - behind)


def _share(
    function: Any, settings: Settings, kind: Any, owner: Any, name: str = "", code: types.CodeType | None = None, anew: bool = False
) -> Any:
    """A call of ``function`` with ``owner`` as its first argument, by the capture that all of one kind have with equal settings."""
    compiled = share((function, kind, settings.key), lambda: _capture(function, settings, name, code, anew=anew))
    if settings.apart is None:
        keep_with(owner, compiled)
    return types.MethodType(compiled, owner)


def _wrap_function(function: Any, settings: Settings) -> Any:
    step = _optimizer_step(function, settings)
    if step is not None:
        return step
    shares = _is_made_by_calls(function) and not settings.options.override  # a folder whose files may have been edited since
    return _share_code(function, settings) if shares else _capture(function, settings)


def _is_made_by_calls(function: Any) -> bool:
    """Whether a function of the program makes the function, and may make more of its code. One that asks for its class by ``super()`` finds
    that in its closure only; of one that is marked as not to be captured nothing is."""
    code = function.__code__
    return "<locals>" in code.co_qualname and "__class__" not in code.co_freevars and "_torchdynamo_disable" not in function.__dict__


def _share_code(function: Any, settings: Settings, kind: Any = None) -> Any:
    """A function that is run by the capture of all functions of its code, but for those that no capture could serve as well; of methods,
    with ``kind``, those of one kind of objects."""
    from opmill_bytecode_frontend.entry.capture import sharing
    from opmill_bytecode_frontend.entry.kinds import kind_of_function

    captured = share((kind_of_function(function), kind, settings.key), lambda: _capture(function, settings, shared=True))
    if settings.apart is None:
        keep_with(function.__code__, captured)
    compiled = sharing(function, captured)
    _live[compiled] = _shared[captured]
    return compiled


def _optimizer_step(step: Any, settings: Settings) -> Any:
    """The compiled ``step`` of an optimizer; None for anything else."""
    function = getattr(step, "__func__", step)
    if not settings.native or not (getattr(function, "hooked", False) or getattr(function, "_wrapped_by_lr_sched", False)):
        return None
    from .native import native_step

    made = native_step(step, settings.options)
    if made is not None:
        _steps.add(made)
    return made


def _wrap_method(method: types.MethodType, settings: Settings) -> Any:
    if (step := _optimizer_step(method, settings)) is not None:
        return step
    function = _uncompiled(method.__func__)
    if not isinstance(function, types.FunctionType):
        return _wrap_callable(method, settings)
    if _is_made_by_calls(function):
        return types.MethodType(_share_code(function, settings, _kind_of(method.__self__)), method.__self__)
    return _share(function, settings, _kind_of(method.__self__), method.__self__)


def _kind_of(owner: Any) -> Any:
    """What a module, or whatever else has a method, has in common with those that one capture may serve."""
    if not isinstance(owner, torch.nn.Module):
        kind = type(owner)
        return (kind.__module__, kind.__qualname__) if "<locals>" in kind.__qualname__ else kind
    from opmill_bytecode_frontend.entry.kinds import kind_of

    return kind_of(owner)


def _wrap_descriptor(descriptor: Any, settings: Settings) -> Any:
    return type(descriptor)(_compile(descriptor.__func__, settings=settings, disable=False))


def _wrap_module(module: torch.nn.Module, settings: Settings) -> Any:
    original = original_of(module)
    name, code = f"{type(original).__qualname__}.forward", getattr(type(original).forward, "__code__", None)
    call = _share(_call_of(type(original)), settings, _kind_of(original), original, name, code)
    again, forward = functools.partial(_wrap_module, settings=settings), functools.partial(_wrap_method, settings=settings)
    return wrap_module(original, call, again, forward, module)


def _call_of(kind: type[torch.nn.Module]) -> Any:
    """The function behind ``module(...)``. torch's own ``__call__`` only chooses between an in-place compiled call and ``_call_impl``."""
    call = kind.__call__
    return kind._call_impl if call is torch.nn.Module.__call__ else call


def _call_method(kind: type) -> Any:
    """``__call__`` as the class or a base of it defines it; None where instances cannot be called. (Asking the class itself by attribute
    would find its metaclass's.)"""
    return next((each.__dict__["__call__"] for each in kind.__mro__ if "__call__" in each.__dict__), None)


def _wrap_class(kind: type, settings: Settings) -> Any:
    """Compiles the calls of every instance, in place, as torch.compile does for a class."""
    call = _call_of(kind) if issubclass(kind, torch.nn.Module) else _call_method(kind)
    if not isinstance(call, types.FunctionType):
        raise UsageTypeError("OM001", f"class {kind.__qualname__} has no __call__ that could be compiled", hint="compile a method of it")
    kind.__call__ = _capture(call, settings)  # type: ignore[method-assign]
    return kind


def _wrap_scripted(scripted: Any, settings: Settings) -> Any:
    warn_once("OM012", f"{type(scripted).__name__} was already compiled by torch.jit and is left as it is")
    return scripted


def _call_partial(partial: Any, /, *args: Any, **kwargs: Any) -> Any:
    return partial(*args, **kwargs)


def _share_partial(partial: Any, settings: Settings) -> Any:
    function = partial.func
    name, code = getattr(function, "__qualname__", ""), getattr(function, "__code__", None)
    kind: Any = function
    if isinstance(function, types.FunctionType) and _is_made_by_calls(function):
        from opmill_bytecode_frontend.entry.kinds import kind_of_function

        kind = kind_of_function(function)
    compiled = _share(_call_partial, settings, (functools.partial, kind), partial, name, code, anew=True)
    if code is not None and settings.apart is None:
        keep_with(code, compiled.__func__)
    return compiled


def _wrap_callable(call: Any, settings: Settings) -> Any:
    """A partial, an instance with ``__call__``; a builtin is captured through a function that calls it."""
    method = _call_method(type(call))
    if isinstance(method, types.FunctionType):
        return _share(method, settings, type(call), call)
    if type(call) is functools.partial:
        return _share_partial(call, settings)

    def function(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(call, name):
            setattr(function, name, getattr(call, name))
    return _capture(function, settings)


_WRAPPERS: dict[type, Callable[[Any, Settings], Any]] = {
    types.FunctionType: _wrap_function,
    types.MethodType: _wrap_method,
    staticmethod: _wrap_descriptor,
    classmethod: _wrap_descriptor,
    torch.jit.ScriptModule: _wrap_scripted,
    torch.jit.ScriptFunction: _wrap_scripted,
    torch.nn.Module: _wrap_module,
    type: _wrap_class,
}


def reset() -> None:
    """Forgets everything compiled in this process: the next call of each compiled callable compiles again. Files of the cache stay."""
    drop_all()
    if not _live:
        return
    from opmill_bytecode_frontend.entry.capture import forget

    for reference in _live.keyrefs():  # a copy: other threads may compile meanwhile
        compiled = reference()
        if compiled is not None and (record := _live.get(compiled)) is not None:
            forget(compiled)
            record.clear()


@contextlib.contextmanager
def running_uncompiled() -> Iterator[None]:
    """Until it is left, what was compiled runs as it is, in all threads: what is measured or compared as eager may call it."""
    made = [each for reference in _live.keyrefs() if (each := reference()) is not None]
    changed = [each for each in (*made, *_steps) if not each.disabled]
    for each in changed:
        each.disabled = True
    try:
        yield
    finally:
        for each in changed:
            each.disabled = False


@atexit.register
def _let_go() -> None:
    """When the interpreter is about to end: guards let go of what they hold of the program. A process group of ``torch.distributed`` that
    outlives the interpreter has threads that abort the process when they drop a tensor; one that is gone has ended them. What others hold
    is waited for."""
    reset()
    wait_for_threads()


def record_of(compiled: Any) -> tuple[Any, Record] | None:
    """The dispatching callable inside what ``compile`` gave, and its record; None for anything else."""
    if is_wrapped(compiled):
        compiled = object.__getattribute__(compiled, "__call__")
    compiled = behind(getattr(compiled, "__func__", compiled))
    return (compiled, _live[compiled]) if _is_live(compiled) else None


def compiling_anew(arguments: Mapping[str, Any]) -> Callable[[Any], Any]:
    """``compile`` with these arguments, whose captures nothing else shares: what was assumed for other modules of a kind is not."""
    return functools.partial(_compile, settings=structs.replace(resolve_arguments(arguments), apart=object()), disable=False)


def arguments_of(compiled: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``compile`` that compile the program behind ``compiled`` as that was, edited kernels included, but for those ``given``.
    Of what ``compile`` did not make, ``given``."""
    found = record_of(compiled)
    if found is None:
        return dict(given)
    settings, edits = found[1].settings, found[1].edits
    own: dict[str, Any] = {"fullgraph": settings.fullgraph, "dynamic": settings.dynamic}
    if given.keys().isdisjoint(("backend", "mode", "options")):
        folder = settings.options.override if edits is None else str(edits.folder)
        own |= {"backend": settings.backend, **settings.foreign}
        own |= {"options": dataclasses.replace(settings.options, override=folder)} if settings.native else {}
    return {**own, **given}


_entry: Any
for _entry in (compile, reset):  # torch's own compiler ends its graph before a call of them
    _entry._torchdynamo_disable = True
_entry = compile
_entry._opmill_compiles = True  # captured code that calls it goes on with what it is given
