"""``capture``: a function becomes a compiled one, backed by any torch backend."""

from __future__ import annotations

import logging
import types
from typing import Any, Callable

import torch
from opmill_guards import CompiledFunction
from opmill_guards.tree import GuardSet

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


class Capture:
    """What happens on a miss of one function. ``on_translation(translation)`` is called after each capture, for explaining."""

    def __init__(self, fn: types.FunctionType, backend: Backend, fullgraph: bool, options: CaptureOptions, on_translation: Any = None) -> None:
        self.fn = fn
        self.backend = backend
        self.fullgraph = fullgraph
        self.options = options
        self.on_translation = on_translation
        self.eager = False

    def on_miss(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        """The callable to run for these arguments; inserted as an entry when it was captured."""
        if self.eager:
            return self.fn
        if len(compiled.entries) >= self.options.recompile_limit:
            self._limit(compiled, args, kwargs)
            return self.fn
        try:
            bound = bind_real(self.fn, args, kwargs)
        except TypeError:
            return self.fn
        try:
            translation = translate(self.fn, bound, self.backend, self.options)
        except Raised:
            return self.fn  # the function raises: let it do so itself
        except Unsupported as exc:
            if self.fullgraph:
                raise
            log.debug("%s runs eagerly: %s", self.fn.__qualname__, exc)
            self.eager = True
            return self.fn
        except Exception:
            if self.fullgraph:
                raise
            log.warning("internal error while capturing %s; it runs eagerly", self.fn.__qualname__, exc_info=True)
            self.eager = True
            return self.fn
        if self.on_translation is not None:
            self.on_translation(translation)
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
) -> Any:
    """A function that runs ``fn`` by graphs compiled with ``backend(gm, example_inputs) -> callable``.

    ``fullgraph``: raise :class:`Unsupported` where the graph would break. ``dynamic`` is accepted; sizes are static so far."""
    if not isinstance(fn, types.FunctionType):
        raise TypeError(f"capture() wants a Python function, got {type(fn).__name__}")
    state = Capture(fn, find_backend(backend), fullgraph, options or CaptureOptions(), on_translation)
    return CompiledFunction(fn, state.on_miss)
