"""Between the frontend and a backend: finds the backend at the first graph, records what it did, and survives its failure."""

from __future__ import annotations

import functools
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .discover import OWN, Backend, find_backend
from .edits import EditedGraph
from .errors import warn_once
from .graph_texts import listed, readable
from .logs import topic
from .metrics import count
from .origins import lines_in, operators_in
from .progress import progress
from .record import GraphRecord, Record
from .settings import Settings

_bundled: list[bool] = []
"""Not empty once this process has written a bundle for an internal error."""
Runner = Callable[..., Sequence[Any]]


class GraphBackend:
    """The callable that the frontend hands each graph to: ``(graph_module, example_inputs) -> runner``."""

    def __init__(self, settings: Settings, record: Record) -> None:
        self._settings, self._record = settings, record
        self._found: tuple[str | None, Backend] | None = None

    def __call__(self, graph_module: Any, example_inputs: Sequence[Any]) -> Runner:
        edits = self._record.edits
        if edits is not None and edits.begun:
            edits.begun = False
            self._record.graphs.clear()  # all of them are compiled again
        compiled = functools.partial(self._compile, self._record.next_number(), graph_module)
        runner = compiled(example_inputs)
        return runner if edits is None else EditedGraph(runner, edits, compiled)

    def _compile(self, number: int, graph_module: Any, example_inputs: Sequence[Any]) -> Runner:
        operators = sum(node.op.startswith("call_") for node in graph_module.graph.nodes)
        start = time.perf_counter()
        fallback = ""
        self._say(f"compiles graph {number}", graph_module)
        tracing = self._tracing(number, operators, graph_module, example_inputs)
        seen: list[Any] = []
        with progress(functools.partial(_far, number, operators, seen), self._settings.options.progress):
            try:
                told, compiler = self._told(seen, tracing), self._compiler()
                _note_imports(time.perf_counter() - start, seen, tracing)
                runner = compiler(graph_module, example_inputs, **told)
            except Exception as error:
                if not self._settings.native and not self._settings.fullgraph and not _may_try_again(graph_module, example_inputs):
                    _warn_of_backend(self._settings.backend, error, _first_line(graph_module))
                if not (self._settings.native and self._settings.options.suppress_errors) or _may_try_again(graph_module, example_inputs):
                    raise  # with symbolic sizes: the frontend tries again with those of this call
                if _may_pass(error):
                    raise  # no memory, disk or process now: the call runs uncompiled, the next one compiles
                fallback = _describe(error)
                _warn_of_fallback(error, fallback, lambda: self._bundle(graph_module, example_inputs))
                runner = _as_it_is(graph_module) if graph_module.meta.get("may run again", True) else _by_the_program
        seconds = time.perf_counter() - start
        report = getattr(runner, "report", None)
        if tracing is not None:
            tracing.end(seconds, report, fallback)
        self._record.add(
            GraphRecord(number, operators, len(example_inputs), listed(graph_module), seconds, _first_line(graph_module), report, fallback)
        )
        if getattr(runner, "frozen", None) is not None:
            self._record.frozen.add(runner)
        self._tell(graph_module, self._record.graphs[-1])
        self._say(f"has compiled graph {number} in {seconds:.1f} s", graph_module)
        return runner

    def _say(self, what: str, graph_module: Any) -> None:
        """Tells other processes, for one that waits for this one, what it does, and why once more."""
        if not self._settings.native or "torch.distributed" not in sys.modules:
            return
        from opmill_graph_ir.exchanges.others import tell

        record = self._record
        news = [f"{what} of {record.name} ({_first_line(graph_module)})"]
        news += [" ".join(str(record.recompiles[-1]).split("\n")[:2])] if record.recompiles else []
        news += [f"its last graph break: {str(record.breaks[-1]).splitlines()[0]}"] if record.breaks else []
        tell("; ".join(news))

    def _told(self, seen: list[Any], tracing: Any) -> dict[str, Any]:
        """What opmill's own backend is given to say how far it is: a report, which is put into ``seen``, and what writes a trace."""
        if not self._settings.native:
            return {}
        from opmill_graph_ir.report import Report  # not above: a program may never compile anything

        seen.append(Report())
        return {"report": seen[0], **({"observe": tracing.observe} if tracing else {})}

    def _tracing(self, number: int, operators: int, graph_module: Any, example_inputs: Sequence[Any]) -> Any:
        """What writes a trace of the compile of a graph; None unless one is asked for."""
        if self._record.tracing is None or not self._settings.native:
            return None
        return self._record.tracing.graph(number, _first_line(graph_module), operators, len(example_inputs), graph_module)

    @staticmethod
    def _tell(graph_module: Any, graph: GraphRecord) -> None:
        """Counts and logs what became of a graph."""
        name, report = f"graph {graph.number} ({graph.where})" if graph.where else f"graph {graph.number}", graph.report
        cached = getattr(report, "cached", None)
        count("graphs")
        count("backend_seconds", graph.seconds)
        if graph.fallback:
            count("fallbacks")
        elif cached is not None:
            count("plans_from_cache" if cached else "plans_compiled")
            topic("cache").info("%s: %s", name, "the plan came from the cache" if cached else "compiled")
            if topic("kernels").isEnabledFor(logging.INFO):
                topic("kernels").info("%s: %s", name, _made(report))
            if topic("loops").isEnabledFor(logging.DEBUG) and report.loops:
                topic("loops").debug("%s:\n%s", name, "\n".join(text for texts in report.loops for text in texts).strip())
        phases = ", ".join(f"{step} {seconds:.3f}" for step, seconds in (getattr(report, "phases", None) or {}).items())
        topic("time").info("%s: %d operators in %.3f s%s", name, graph.operators, graph.seconds, f" ({phases})" if phases else "")
        if topic("graph").isEnabledFor(logging.DEBUG):
            topic("graph").debug("%s:\n%s", name, readable(graph_module))

    def _bundle(self, graph_module: Any, example_inputs: Sequence[Any]) -> str:
        """Writes what a report of an internal error needs, once a process; where it lies, as an addition to a message."""
        if _bundled:
            return ""
        _bundled.append(True)
        from .diagnose.writing import write  # not above: most programs never meet an internal error

        try:
            folder = write([(graph_module, example_inputs)], self._settings.options, error=traceback.format_exc())
        except Exception as error:  # what cannot be written down must not hide what is to be reported
            topic("internal").debug("no bundle could be written", exc_info=error)
            return ""
        return f"; please report it with {folder}, which has the graph and the versions, but no weights and no data"

    @property
    def sizes_of_data(self) -> bool:
        """Whether graphs may have sizes that only data tell."""
        backend = self._settings.backend
        return self._settings.native or bool(getattr(OWN.get(backend) if isinstance(backend, str) else backend, "sizes_of_data", False))

    @property
    def tells_begun(self) -> bool:
        """Whether what runs graphs says with an exception whether something was written before it."""
        return self._settings.native

    def stand_in(self, function: Any) -> Callable[..., Any] | None:
        """What runs instead of ``function`` where code between graphs calls it; None: the function itself."""
        if not self._settings.native or not getattr(function, "hooked", False):  # torch marks the ``step`` of optimizers so
            return None
        from .native import native_stand_in

        return native_stand_in(function, self._settings.options)

    def _compiler(self) -> Backend:
        """The backend, looked for at the first graph, and once more when kernels are edited."""
        edits = self._record.edits
        folder = self._settings.options.override if edits is None else str(edits.folder)
        if self._found is None or self._found[0] != folder:
            self._found = folder, self._find(folder)
        return self._found[1]

    def _find(self, folder: str | None) -> Backend:
        settings = self._settings
        if settings.native:
            # Not above: graph-ir and the store are most of what there is to import, and a program may never compile anything.
            from .native import native_compiler

            return native_compiler(replace(settings.options, override=folder))
        backend = find_backend(settings.backend) if isinstance(settings.backend, str) else settings.backend
        return functools.partial(backend, **settings.foreign) if settings.foreign else backend


def _note_imports(seconds: float, seen: list[Any], tracing: Any) -> None:
    """The first graph of a process has the compiler imported: that is a step of its own."""
    if seen and seen[0].imported(seconds) and tracing is not None:
        tracing.imported(seconds)


def _made(report: Any) -> str:
    """What became of a graph, each kernel in a line."""
    origins: dict[tuple[int, int], list[str]] = {}
    for number, plan in enumerate(report.plans):
        for step in plan.steps:
            if type(step).__name__ == "Launch":
                origins.setdefault((number, step.kernel), []).append(step.origin)
    counts = f"{report.kernels} kernels, {report.launches} launches, {report.calls} calls of torch's"
    return "".join([counts, *(f"\n  {operators_in(each)} from {', '.join(lines_in(each))}" for each in origins.values())])


def _far(number: int, operators: int, seen: list[Any]) -> str:
    """What the compile of a graph has come to."""
    report: Any = seen[0] if seen else None
    told = f"opmill compiles graph {number} ({operators} operators)"
    if not getattr(report, "running", ""):
        return told
    kernels = f", {report.wanted} kernels" if report.running == "generate" and report.wanted else ""
    if (built := report.built()) is not None:
        kernels += f", {built[0]:.0%} built, about {_round(built[1])} left"
    return f"{told}: {report.running}{kernels}, {len(report.phases)} steps done"


def _round(seconds: float) -> str:
    """A time that nobody knows exactly."""
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


def _as_it_is(graph_module: Any) -> Runner:
    from opmill_bytecode_frontend.effects.labels import labelled  # there by now

    return labelled(graph_module).forward


class _NotCompiled(RuntimeError):
    """A graph that writes to what it is given is not run as torch's operators: where one of these raises, the program would have done more
    by then than its tensors show. It runs itself, which takes no longer."""

    begun = False

    def mistaken(self) -> None:
        """It was told when the graph was not compiled."""


def _by_the_program(*inputs: Any) -> Any:
    raise _NotCompiled


def _may_pass(error: Exception) -> bool:
    from opmill_fake_tensors.passing import may_pass  # there by now: this is a compile

    return may_pass(error)


def _may_try_again(graph_module: Any, example_inputs: Sequence[Any]) -> bool:
    """Whether the frontend has another way: with the sizes of this call, or with graphs that end where only data tell a size."""
    return any(map(_is_symbolic, example_inputs)) or bool(graph_module.meta.get("sizes of data"))


def _is_symbolic(example: Any) -> bool:
    """Not of jagged tensors, whose lengths are never those of one call."""
    if getattr(example, "is_nested", False):
        return False
    return not hasattr(example, "shape") or any(type(n) is not int for n in example.shape)


def _describe(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _warn_of_fallback(error: Exception, text: str, bundle: Callable[[], str]) -> None:
    code = getattr(error, "code", "OM011")
    topic("internal").debug("a graph runs uncompiled", exc_info=error)
    if code == "OM011":
        text = f"internal error {type(error).__name__}: {text}{bundle()}"
    warn_once(code, f"a graph runs as torch's own operators: {text}")


def _warn_of_backend(backend: Any, error: Exception, where: str) -> None:
    name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
    at = f"\n  at: {where}, where its graph begins" if where else ""
    hint = 'the traceback is in the log opmill.internal; fullgraph=True raises the error; backend="eager" runs the same graphs without it'
    told = f"{type(error).__name__}: {_describe(error)}"
    warn_once("OM024", f"the backend {name} failed, and the function runs uncompiled: {told}{at}\n  hint: {hint}")


def _first_line(graph_module: Any) -> str:
    """Where in the user's source the graph begins: file and line, if the frontend noted it."""
    if where := graph_module.meta.get("where"):
        return str(where)
    for node in graph_module.graph.nodes:
        lines = (node.stack_trace or "").strip().splitlines()
        if lines:
            return lines[0].strip()
    return ""
