"""Between the frontend and a backend: finds the backend at the first graph, records what it did, and survives its failure."""

from __future__ import annotations

import atexit
import functools
import logging
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from opmill_runtime_cache.store import Store, default_store

from .discover import Backend, find_backend, find_generators
from .errors import OpmillWarning
from .options import Options
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
                if not (self._settings.native and self._settings.options.suppress_errors):
                    raise
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

    @functools.cached_property
    def _compiler(self) -> Backend:
        settings = self._settings
        if settings.native:
            return _native_compiler(settings.options)
        backend = find_backend(settings.backend) if isinstance(settings.backend, str) else settings.backend
        return functools.partial(backend, **settings.foreign) if settings.foreign else backend


def _native_compiler(options: Options) -> Backend:
    # Below the first graph on purpose: graph-ir is the heaviest import there is, and programs that only import opmill do not need it.
    from opmill_graph_ir.backend import GraphOptions, compile_graph

    graph_options = GraphOptions(precise=options.precise, verify=options.verify, print_after=options.print_after)
    return functools.partial(compile_graph, options=graph_options, store=open_store(options), generators=usable_generators(options))


def open_store(options: Options) -> Store:
    """The artifact store that the options ask for."""
    if not options.cache:
        return _private_store()
    return default_store() if options.cache_dir is None else Store(options.cache_dir)


@functools.cache
def _private_store() -> Store:
    """A store that nobody else reads and that goes with the process."""
    folder = tempfile.mkdtemp(prefix="opmill-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Store(folder)


def usable_generators(options: Options) -> list[Any]:
    """The kernel generators that can build here. One warning where there is none: torch's own operators are used then."""
    found = find_generators(options.generators)
    usable = [each.generator for each in found if each.reason is None]
    if not usable:
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in found) or "none is installed (pip install 'opmill[cpp]')"
        warn_once("OM010", f"no kernel generator can be used, so torch's own operators run instead ({reasons})")
    return usable


def _describe(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _warn_of_fallback(error: Exception, text: str) -> None:
    code = getattr(error, "code", "OM011")
    log.debug("a graph runs uncompiled", exc_info=error)
    if code == "OM011":
        text = f"internal error {type(error).__name__}: {text}"
    warn_once(code, f"a graph runs as torch's own operators: {text}")


@functools.cache
def warn_once(code: str, message: str) -> None:
    """Shows a numbered ``OpmillWarning`` the first time in this process."""
    warnings.warn(message if message.startswith(code) else f"{code}: {message}", OpmillWarning, stacklevel=3)


def _first_line(graph_module: Any) -> str:
    """Where in the user's source the graph begins: file and line of its first operator, if the frontend noted it."""
    for node in graph_module.graph.nodes:
        lines = (node.stack_trace or "").strip().splitlines()
        if lines:
            return lines[0].strip()
    return ""
