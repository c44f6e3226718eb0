"""``capture``: a function becomes a compiled one, backed by any torch backend."""

from __future__ import annotations

import logging
import threading
import types
from typing import Any, Callable

import torch

from opmill_guards import CompiledFunction
from opmill_guards.tree import GuardSet

from .breaks import resume_function
from .errors import Unsupported
from .options import CaptureOptions
from .translate import bind_real, translate
from .values.base import Raised

log = logging.getLogger(__name__)
Backend = Callable[..., Any]


def eager_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
    """Runs the graph as it is."""
    return gm.forward


def find_backend(backend: str | Backend) -> Backend:
    """A callable is itself; ``"eager"`` runs graphs as they are."""
    if callable(backend):
        return backend
    if backend == "eager":
        return eager_backend
    raise ValueError(f"unknown backend {backend!r}; there are: 'eager', or a callable backend(gm, example_inputs)")


class Context:
    """What the captures of one function and of its resume functions and callees share."""

    def __init__(self, backend: Backend, fullgraph: bool, options: CaptureOptions, on_translation: Any, on_break: Any) -> None:
        self.backend = backend
        self.may_break = not fullgraph
        self.options = options
        self.on_translation = on_translation
        self.on_break = on_break
        self._compiled: dict[Any, Any] = {}
        self.lock = threading.RLock()

    def compiled(self, fn: types.FunctionType, owner: int | None = None) -> Any:
        """The captured form of a callee; one for each module that it is a method of."""
        key = (fn, owner)
        if key not in self._compiled:
            self._compiled[key] = CompiledFunction(fn, Capture(fn, self).on_miss)
        return self._compiled[key]

    def resumed(self, fn: types.FunctionType, resume: Any, place: int, raising: bool) -> Any:
        """The captured form of a resume function; the same one for the same place and state."""
        key = (fn.__code__, fn.__closure__, place, raising, resume.stack, resume.parameters)
        if key not in self._compiled:
            self._compiled[key] = CompiledFunction(resume_function(fn, resume), Capture(resume_function(fn, resume), self).on_miss)
        return self._compiled[key]

    def broken(self, reason: Unsupported) -> None:
        log.debug("graph break: %s", reason)
        if self.on_break is not None:
            self.on_break(reason)


class Capture:
    """What happens on a miss of one function."""

    def __init__(self, fn: types.FunctionType, context: Context) -> None:
        self.fn = fn
        self.context = context
        self.eager = False

    def on_miss(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        """The callable to run for these arguments; inserted as an entry when it was captured."""
        if self.eager:
            return self.fn
        context = self.context
        try:
            bound = bind_real(self.fn, args, kwargs)
        except TypeError:
            return self.fn
        with context.lock:
            if len(compiled.entries) >= context.options.recompile_limit:
                self._limit(compiled, args, kwargs)
                return self.fn
            try:
                translation = translate(self.fn, bound, context.backend, context.options, context)
            except Raised:
                return self.fn  # the function raises: let it do so itself
            except Unsupported as exc:
                if not context.may_break:
                    raise
                log.debug("%s runs eagerly: %s", self.fn.__qualname__, exc)
                self.eager = True
                return self.fn
            except Exception:
                if not context.may_break:
                    raise
                log.warning("internal error while capturing %s; it runs eagerly", self.fn.__qualname__, exc_info=True)
                self.eager = True
                return self.fn
            if context.on_translation is not None:
                context.on_translation(translation)
            compiled.insert(GuardSet(translation.guards), translation.target)
            return translation.target

    def _limit(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.eager = True
        failures = compiled.explain_miss(args, kwargs)
        reason = "; ".join(str(f) for f in failures[-1:])
        log.warning("%s was compiled %d times and runs eagerly from now on. Last reason: %s", self.fn.__qualname__, len(compiled.entries), reason)


def capture(
    fn: types.FunctionType,
    backend: str | Backend = "eager",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: CaptureOptions | None = None,
    on_translation: Any = None,
    on_break: Any = None,
) -> Any:
    """A function that runs ``fn`` by graphs compiled with ``backend(gm, example_inputs) -> callable``.

    ``fullgraph``: raise :class:`Unsupported` where the graph would break. ``dynamic`` is accepted; sizes are static so far.
    ``on_translation(translation)`` and ``on_break(unsupported)`` are told of each capture and of each graph break."""
    if not isinstance(fn, types.FunctionType):
        raise TypeError(f"capture() wants a Python function, got {type(fn).__name__}")
    context = Context(find_backend(backend), fullgraph, options or CaptureOptions(), on_translation, on_break)
    return CompiledFunction(fn, Capture(fn, context).on_miss)
