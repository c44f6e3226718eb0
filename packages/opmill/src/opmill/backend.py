"""Between the frontend and a backend: finds the backend at the first graph, records what it did, and survives its failure."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from .discover import OWN, Backend, find_backend
from .errors import warn_once
from .progress import progress
from .record import GraphRecord, Record
from .settings import Settings

log = logging.getLogger("opmill.backend")
Runner = Callable[..., Sequence[Any]]


class GraphBackend:
    """The callable that the frontend hands each graph to: ``(graph_module, example_inputs) -> runner``."""

    def __init__(self, settings: Settings, record: Record) -> None:
        self._settings, self._record = settings, record

    def __call__(self, graph_module: Any, example_inputs: Sequence[Any]) -> Runner:
        number = self._record.next_number()
        operators = sum(node.op.startswith("call_") for node in graph_module.graph.nodes)
        start = time.perf_counter()
        fallback = ""
        with progress(f"opmill compiles graph {number} ({operators} operators)", self._settings.options.progress):
            try:
                runner = self._compiler(graph_module, example_inputs)
            except Exception as error:
                if not (self._settings.native and self._settings.options.suppress_errors) or _may_try_again(graph_module, example_inputs):
                    raise  # with symbolic sizes: the frontend tries again with those of this call
                fallback = _describe(error)
                _warn_of_fallback(error, fallback)
                runner = graph_module.forward
        seconds = time.perf_counter() - start
        report = getattr(runner, "report", None)
        self._record.add(
            GraphRecord(number, operators, len(example_inputs), str(graph_module.graph), seconds, _first_line(graph_module), report, fallback)
        )
        log.info("graph %d: %d operators in %.3f s%s", number, operators, seconds, f", not compiled: {fallback}" if fallback else "")
        return runner

    @property
    def sizes_of_data(self) -> bool:
        """Whether graphs may have sizes that only data tell."""
        backend = self._settings.backend
        return self._settings.native or bool(getattr(OWN.get(backend) if isinstance(backend, str) else backend, "sizes_of_data", False))

    def stand_in(self, function: Any) -> Callable[..., Any] | None:
        """What runs instead of ``function`` where code between graphs calls it; None: the function itself."""
        if not self._settings.native or not getattr(function, "hooked", False):  # torch marks the ``step`` of optimizers so
            return None
        from .native import native_stand_in

        return native_stand_in(function, self._settings.options)  # type: ignore[no-any-return]

    @functools.cached_property
    def _compiler(self) -> Backend:
        settings = self._settings
        if settings.native:
            # Not above: graph-ir and the store are most of what there is to import, and a program may never compile anything.
            from .native import native_compiler

            return native_compiler(settings.options)
        backend = find_backend(settings.backend) if isinstance(settings.backend, str) else settings.backend
        return functools.partial(backend, **settings.foreign) if settings.foreign else backend


def _may_try_again(graph_module: Any, example_inputs: Sequence[Any]) -> bool:
    """Whether the frontend has another way: with the sizes of this call, or with graphs that end where only data tell a size."""
    return any(map(_is_symbolic, example_inputs)) or bool(graph_module.meta.get("sizes of data"))


def _is_symbolic(example: Any) -> bool:
    return not hasattr(example, "shape") or any(type(n) is not int for n in example.shape)


def _describe(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _warn_of_fallback(error: Exception, text: str) -> None:
    code = getattr(error, "code", "OM011")
    log.debug("a graph runs uncompiled", exc_info=error)
    if code == "OM011":
        text = f"internal error {type(error).__name__}: {text}"
    warn_once(code, f"a graph runs as torch's own operators: {text}")


def _first_line(graph_module: Any) -> str:
    """Where in the user's source the graph begins: file and line of its first operator, if the frontend noted it."""
    for node in graph_module.graph.nodes:
        lines = (node.stack_trace or "").strip().splitlines()
        if lines:
            return lines[0].strip()
    return ""
