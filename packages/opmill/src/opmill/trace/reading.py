"""Reads traces: those of all processes in a folder. A line that is cut short, as a crash leaves it, ends what its process says."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import UsageValueError
from . import events

_DECODER = msgspec.json.Decoder(events.AnyEvent)


class GraphTrace(Struct):
    """All that is known of one graph. ``steps`` in order; ``end`` is None where the process ended before."""

    begin: events.Begin
    steps: list[events.Step] = []
    kernels: list[events.Kernel] = []
    plans: list[events.Plan] = []
    end: events.End | None = None


class ProcessTrace(Struct):
    """All that one process wrote."""

    folder: Path
    process: events.Process
    graphs: dict[str, GraphTrace] = {}
    captures: list[events.Capture] = []
    breaks: list[events.Break] = []
    recompiles: list[events.Recompile] = []
    times: list[events.Times] = []
    files: dict[str, str] = {}

    @property
    def name(self) -> str:
        rank = f"rank {self.process.rank}, " if self.process.rank >= 0 else ""
        return f"{rank}process {self.process.pid} on {self.process.host}"

    def text(self, name: str) -> str:
        """A text by its name; what to say where it was not written any more."""
        try:
            return (self.folder / "texts" / f"{name}.txt").read_text()
        except OSError:
            return "(not written: the process ended)"


def read(folder: str | Path) -> list[ProcessTrace]:
    """The processes, ranks in order. Raises ValueError (OM023) where there is no trace."""
    files = sorted(Path(folder).glob("*/events.jsonl"))
    found = [trace for file in files if (trace := _read(file)) is not None]
    if not found:
        raise UsageValueError(
            "OM023", f"{folder} has no trace", hint=f"OPMILL_TRACE={folder} python program.py writes one while the program compiles"
        )
    return sorted(found, key=lambda trace: (trace.process.rank, trace.process.time))


def _read(file: Path) -> ProcessTrace | None:
    trace: ProcessTrace | None = None
    for line in file.read_bytes().split(b"\n"):
        try:
            event = _DECODER.decode(line)
        except msgspec.MsgspecError:
            continue  # the last line of a process that was killed, or one of a later version
        if isinstance(event, events.Process):
            trace = ProcessTrace(file.parent, event)
        elif trace is not None:
            _add(trace, event)
    return trace


def _add(trace: ProcessTrace, event: events.AnyEvent) -> None:
    match event:
        case events.Begin():
            trace.graphs[event.graph] = GraphTrace(event)
        case events.Step() if event.graph in trace.graphs:
            trace.graphs[event.graph].steps.append(event)
        case events.Kernel() if event.graph in trace.graphs:
            trace.graphs[event.graph].kernels.append(event)
        case events.Plan() if event.graph in trace.graphs:
            trace.graphs[event.graph].plans.append(event)
        case events.End() if event.graph in trace.graphs:
            trace.graphs[event.graph].end = event
        case events.Capture():
            trace.captures.append(event)
        case events.Break():
            trace.breaks.append(event)
        case events.Recompile():
            trace.recompiles.append(event)
        case events.Times():
            trace.times.append(event)
        case events.Sources():
            trace.files |= event.files


__all__ = ["GraphTrace", "ProcessTrace", "read"]
