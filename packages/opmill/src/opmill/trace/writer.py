"""Writes a trace: a folder for each process, with ``events.jsonl`` (a line is written whole, at once) and the texts that it speaks of."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opmill_guards.tree import describe

from . import events

_LINE = re.compile(r"(/[^\s:;]+\.py):\d+")
_MOST_GUARDS = 400
_MOST_SOURCE = 400_000
"""Bytes of a source file that is kept."""


class Writer:
    """The trace of this process. Nothing that goes wrong while it writes reaches the program: then the trace ends there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.graphs = 0
        self._texts: set[str] = set()
        self._sources: set[str] = set()
        self._lock = threading.Lock()
        self._failed = False
        with self._trying():
            (folder / "texts").mkdir(parents=True, exist_ok=True)
            self._file = os.open(folder / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self.write(events.Process(time.time(), os.getpid(), os.uname().nodename, _rank(), tuple(sys.argv), _versions()))

    @contextlib.contextmanager
    def _trying(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a full disk, a text that cannot be made
            if not self._failed:
                self._failed = True
                print(f"opmill: the trace in {self.folder} ends here: {error}", file=sys.stderr)

    def write(self, event: events.Event) -> None:
        if not self._failed:
            with self._trying():
                os.write(self._file, msgspec.json.encode(event) + b"\n")

    def text(self, text: str) -> str:
        """The name under which a text is kept: equal ones are kept once."""
        name = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
        with self._lock:
            new = name not in self._texts
            self._texts.add(name)
        if new and not self._failed:
            with self._trying():
                target = self.folder / "texts" / f"{name}.txt"
                target.with_suffix(".part").write_text(text, errors="replace")
                os.replace(target.with_suffix(".part"), target)
                self._keep_sources(text)
        return name

    def _keep_sources(self, text: str) -> None:
        files = {}
        for file in dict.fromkeys(_LINE.findall(text)):
            if file in self._sources:
                continue
            self._sources.add(file)
            with contextlib.suppress(OSError):
                if os.path.getsize(file) <= _MOST_SOURCE:
                    files[file] = self.text(Path(file).read_text(errors="replace"))
        if files:
            self.write(events.Sources(time.time(), files))


class Tracing:
    """Writes of one compiled callable."""

    def __init__(self, writer: Writer, name: str) -> None:
        self._writer, self._name = writer, name
        self._seconds = 0.0

    @contextlib.contextmanager
    def capture(self, function: str) -> Iterator[None]:
        """Around the reading of a function."""
        start = time.time()
        try:
            yield
        except BaseException:
            now = time.time()
            self._writer.write(events.Capture(now, self._name, self._known(function), "", now - start, failed=True))
            raise
        self._seconds = time.time() - start

    def captured(self, translation: Any, of: types.CodeType) -> None:
        """A piece of code was captured, with these guards, of the callable whose code is ``of``."""
        code = getattr(translation.target, "__code__", None)
        guards = tuple(describe(guard) for guard in translation.guards[:_MOST_GUARDS])
        text = self._writer.text(translation.text)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
        name = self._known(getattr(translation.target, "__qualname__", "code"))
        if name == self._name:
            where = f"{of.co_filename}:{of.co_firstlineno}"
        now = time.time()
        self._writer.write(events.Capture(now, self._name, name, where, self._seconds, guards, text))

    def _known(self, function: str) -> str:
        """What people call a function: that of all modules by the module's own."""
        return self._name if function.partition(":")[0] == "Module._call_impl" else function

    def broken(self, found: Any) -> None:
        told = str(found)
        self._writer.write(events.Break(time.time(), self._name, found.code, found.what, found.where, found.why, found.hint, told))

    def recompiled(self, found: Any) -> None:
        self._writer.write(events.Recompile(time.time(), self._name, self._known(found.function), found.reasons))

    def graph(self, number: int, where: str, operators: int, inputs: int, module: Any) -> GraphTracing:
        """A graph is given to the backend."""
        self._writer.graphs += 1
        name = f"g{self._writer.graphs}"
        text = self._writer.text(_readable(module))
        self._writer.write(events.Begin(time.time(), name, self._name, number, where, operators, inputs, text))
        return GraphTracing(self._writer, name)

    def measured(self, profile: Any) -> None:
        """What a profile found."""
        steps = tuple((step.name, step.origin, step.seconds, step.share) for step in profile.steps)
        self._writer.write(events.Times(time.time(), self._name, steps, profile.eager, profile.compiled))


class GraphTracing:
    """Writes of one graph while it is compiled."""

    def __init__(self, writer: Writer, name: str) -> None:
        self._writer, self._name = writer, name
        self._schedules: dict[str, Any] = {}

    def imported(self, seconds: float) -> None:
        """The compiler was imported for it."""
        self._writer.write(events.Step(time.time(), self._name, "import", "", seconds, ()))

    def observe(self, step: Any, made: Sequence[tuple[str, Any]], seconds: float, show: Callable[[Any], str]) -> None:
        """What a step of the compiler made."""
        with self._writer._trying():
            texts = tuple(
                (part.partition(" ")[0] if step.name == "key" else part, self._writer.text(show(program))) for part, program in made
            )
            self._writer.write(events.Step(time.time(), self._name, step.name, step.gives, seconds, texts))
            if step.gives == "schedule":
                self._schedules |= dict(made)
            if step.name == "generate":
                self._kernels(made)
            if step.name in ("plan", "load"):
                self._plans(made)

    def _kernels(self, made: Iterable[tuple[str, Any]]) -> None:
        from opmill_graph_ir.loops.text import show
        from opmill_graph_ir.planning.kernels import texts_of

        for part, texts in made:
            steps = getattr(self._schedules.get(part), "steps", ())
            for kernel, generator, text in texts_of(texts):
                origins = tuple(dict.fromkeys(s.origin for s in steps if getattr(s, "kernel", None) is kernel))
                loops, kept = self._writer.text(show(kernel)), self._writer.text(text)
                self._writer.write(events.Kernel(time.time(), self._name, part, kernel.name, generator, loops, kept, origins))

    def _plans(self, made: Iterable[tuple[str, Any]]) -> None:
        from .described import blocks_of, steps_of

        for part, plan in made:
            told = events.Plan(time.time(), self._name, part, steps_of(plan), blocks_of(plan), len(plan.steps), plan.arena)
            self._writer.write(told)

    def end(self, seconds: float, report: Any, fallback: str) -> None:
        counts: dict[str, Any] = {name: getattr(report, name, 0) for name in ("cached", "kernels", "launches", "calls")}
        phases = dict(getattr(report, "phases", None) or {})
        self._writer.write(events.End(time.time(), self._name, seconds, phases=phases, fallback=fallback, **counts))


def _readable(module: Any) -> str:
    return str(module.print_readable(print_output=False, include_stride=False)).strip()


def _rank() -> int:
    """Of this process among those that work together; -1 where it is alone."""
    groups = sys.modules.get("torch.distributed")
    if groups is not None and groups.is_available() and groups.is_initialized():
        return int(groups.get_rank())
    return int(os.environ.get("RANK", "-1"))


def _versions() -> dict[str, str]:
    found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
    return {name: version for name, version in sorted(found.items()) if name.startswith("opmill") or name in ("torch", "triton")}


@functools.cache
def _writer(folder: str, pid: int) -> Writer:
    """One for each process: a child that was forked writes its own."""
    return Writer(Path(folder) / f"{os.uname().nodename}-{pid}-{time.time_ns():x}")


def tracing_of(name: str) -> Tracing | None:
    """Where the trace of a callable is written; None unless ``OPMILL_TRACE`` names a folder."""
    folder = os.environ.get("OPMILL_TRACE", "")
    return Tracing(_writer(folder, os.getpid()), name) if folder else None


__all__ = ["GraphTracing", "Tracing", "Writer", "tracing_of"]
