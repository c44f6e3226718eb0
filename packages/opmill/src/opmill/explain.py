"""``opmill.explain(f)(*args)``: runs the call and tells what was compiled, where graphs broke and why, and what was assumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from .compile import compile, record_of
from .record import BreakRecord, GraphRecord, RecompileRecord


class Part(Struct, frozen=True):
    """One piece of code that was captured by itself: the callable, or what a graph break left of it or made it call. ``guards``: for each
    kept specialisation, what it assumes."""

    name: str
    guards: tuple[tuple[str, ...], ...]


class Explanation(Struct, frozen=True):
    """What happened in the compiled callable until now.

    ``graphs``: each graph the backend got. ``breaks``: where capture ended, in the user's source, why, and what to do. ``parts``: the callable
    first, then what was captured after graph breaks. ``result``: what the explained call returned. ``reasons``: why calls were compiled
    again."""

    name: str
    graphs: tuple[GraphRecord, ...]
    breaks: tuple[BreakRecord, ...]
    parts: tuple[Part, ...]
    result: Any
    reasons: tuple[RecompileRecord, ...] = ()

    @property
    def guards(self) -> tuple[tuple[str, ...], ...]:
        """What each kept specialisation of the callable itself assumes."""
        return self.parts[0].guards

    @property
    def recompiles(self) -> int:
        """Specialisations beyond the first of each part."""
        return sum(max(0, len(part.guards) - 1) for part in self.parts)

    @property
    def kernels(self) -> int:
        """How many distinct kernels the graphs launch, as far as the backend tells."""
        return sum(int(getattr(graph.report, "kernels", 0) or 0) for graph in self.graphs)

    @property
    def seconds(self) -> float:
        """Seconds the backend took over all graphs."""
        return sum(graph.seconds for graph in self.graphs)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=120, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return captured.get()

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table

        head = f"[bold]{escape(self.name)}[/]: {len(self.graphs)} graphs, {len(self.breaks)} breaks, {self.recompiles} recompiles"
        parts: list[Any] = [head]
        if self.graphs:
            table = Table(title="graphs", title_justify="left")
            for column in ("graph", "operators", "inputs", "seconds", "phases", "note"):
                table.add_column(column)
            for graph in self.graphs:
                columns = (str(graph.number), str(graph.operators), str(graph.inputs), f"{graph.seconds:.3f}")
                table.add_row(*columns, escape(_phases(graph.report)), escape(graph.fallback or graph.where))
            parts.append(table)
        parts += [f"[yellow]break[/] {escape(str(each))}" for each in self.breaks]
        parts += [f"[yellow]recompile[/] {escape(str(each))}" for each in self.reasons]
        for part in self.parts:
            for number, guards in enumerate(part.guards):
                parts.append(f"specialisation {number} of {escape(part.name)} assumes:")
                parts += [f"  {escape(guard)}" for guard in guards]
        return Group(*parts)


def _phases(report: Any) -> str:
    """``name seconds`` of each step of the backend, if its report has them."""
    phases = getattr(report, "phases", None) or getattr(report, "timings", None) or {}
    pairs = phases.items() if isinstance(phases, Mapping) else phases
    return ", ".join(f"{name} {seconds:.3f}" for name, seconds in pairs)


def explain(model: Any, **arguments: Any) -> Callable[..., Explanation]:
    """``explain(f, fullgraph=..., ...)(*args)`` calls ``f`` compiled and explains. What ``compile`` gave already is explained as it is."""
    compiled = model if record_of(model) else compile(model, **arguments)

    def call(*args: Any, **kwargs: Any) -> Explanation:
        result = compiled(*args, **kwargs)
        return explanation_of(compiled, result)

    return call


def explanation_of(compiled: Any, result: Any = None) -> Explanation:
    """What happened in ``compiled`` until now, without calling it. Raises TypeError for what ``compile`` did not make."""
    found = record_of(compiled)
    if found is None:
        raise TypeError(f"{compiled!r} was not compiled by opmill")
    from opmill_bytecode_frontend.capture import parts

    dispatcher, record = found
    told = tuple(Part(_name_of(each), tuple(_guard_lines(entry) for entry in each.entries)) for each in parts(dispatcher))
    return Explanation(told[0].name, tuple(record.graphs), tuple(record.breaks), told, result, tuple(record.recompiles))


def _name_of(compiled: Any) -> str:
    return getattr(compiled, "__qualname__", None) or repr(compiled)


def _guard_lines(entry: Any) -> tuple[str, ...]:
    guards = getattr(entry, "guards", None)
    return tuple(line for line in str(guards).splitlines() if line.strip()) if guards is not None else ()
