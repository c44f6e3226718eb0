"""``opmill.explain(f)(*args)``: runs the call and tells what was compiled, where graphs broke and why, and what was assumed.

Printed, it is some ten lines; each of its parts (``.breaks``, ``.graphs``, ``.kernels``, ``.guards``, ``.plan``, ...) unfolds one of
them."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct, structs

from opmill_guards.guard import SizeRelation
from opmill_guards.tree import describe

from .advice import Seen, advice_on
from .compile import compile, record_of
from .kernels import kernels
from .module import optimizer_behind
from .origins import lines_in, operators_in
from .record import BreakRecord, GraphRecord, RecompileRecord
from .shown import Shown, shown

_FEW = 3
"""How many of each kind the summary shows."""


class Part(Struct, frozen=True):
    """One piece of code that was captured by itself: the callable, or what a graph break left of it or made it call. ``guards``: for each
    kept specialisation, what it assumes."""

    name: str
    guards: tuple[tuple[str, ...], ...]


class Kernel(Struct, frozen=True):
    """A generated kernel of a graph. ``name``: the operators it is made of; ``launches``: how often the graph starts it; ``lines``: where
    these operators, or what they are the gradients of, are in the program; ``artifact``: its key in the cache."""

    graph: int
    name: str
    launches: int
    lines: tuple[str, ...]
    artifact: str


class Explanation(Struct, frozen=True):
    """What happened in the compiled callable until now.

    ``graphs``: each graph the backend got. ``breaks``: where capture ended, in the user's source, why, and what to do. ``parts``: the
    callable first, then what was captured after graph breaks. ``result``: what the explained call returned. ``reasons``: why calls were
    compiled again. ``advice``: what costs time, with its number, and what to do. ``reading``: seconds that reading the code took.
    ``speed``: seconds of a call in eager and compiled, where that was asked for."""

    name: str
    graphs: tuple[GraphRecord, ...]
    breaks: tuple[BreakRecord, ...]
    parts: tuple[Part, ...]
    result: Any
    reasons: tuple[RecompileRecord, ...] = ()
    advice: tuple[str, ...] = ()
    reading: float = 0.0
    speed: tuple[float, float] | None = None
    _compiled: Any = None

    @property
    def guards(self) -> tuple[tuple[str, ...], ...]:
        """What each kept specialisation of the callable itself assumes; ``parts`` has those of the rest."""
        return self.parts[0].guards

    @property
    def recompiles(self) -> int:
        """Specialisations beyond the first of each part."""
        return sum(max(0, len(part.guards) - 1) for part in self.parts)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The generated kernels of forward graphs, in the order they are first started, as far as the backend tells."""
        return tuple(kernel for graph in self.graphs for kernel in _kernels(graph))

    @property
    def seconds(self) -> float:
        """Seconds the backend took over all graphs."""
        return sum(graph.seconds for graph in self.graphs)

    @property
    def plan(self) -> Shown:
        """The plan of each graph, as text: what runs, step by step."""
        return shown(f"graph {graph.number}:\n{_plan_text(graph)}" for graph in self.graphs if _plan_text(graph))

    @property
    def source(self) -> Shown:
        """The text that was generated for each kernel, forward and backward: C++ or Triton. ``opmill.kernels`` has them by name."""
        found = kernels(self._compiled).values() if any(graph.report is not None for graph in self.graphs) else ()
        return shown(f"{each!r}\n{each.source}" for each in found)

    @property
    def graph(self) -> Shown:
        """Each captured graph as a program of torch's operators."""
        return shown(f"graph {graph.number} {graph.where}:\n{graph.text}" for graph in self.graphs)

    @property
    def memory(self) -> Mapping[int, int | str]:
        """By graph the bytes of the block that its intermediate results share (an expression of its sizes, where these vary)."""
        return {graph.number: getattr(graph.report, "arena_bytes", 0) for graph in self.graphs if graph.report is not None}

    @property
    def left_to_torch(self) -> Mapping[str, int]:
        """Operators that are torch's own, and how often they are called, in the forward of all graphs."""
        return dict(sorted(_calls(self.graphs), key=lambda item: -item[1]))

    @property
    def everything(self) -> Shown:
        """All of it: graphs, breaks with their source, recompiles, and what each specialisation assumes."""
        return shown(self._everything())

    def _everything(self) -> Iterator[str]:
        yield str(self)
        yield from (f"break {each}" for each in self.breaks)
        yield from (f"recompile {each}" for each in self.reasons)
        for part in self.parts:
            for number, guards in enumerate(part.guards):
                yield "\n  ".join([f"specialisation {number} of {part.name} assumes:", *guards])

    def __str__(self) -> str:
        return "\n".join(self._summary())

    def __rich__(self) -> Any:
        from rich.text import Text

        head, *rest = self._summary()
        return Text.assemble((head, "bold"), *(f"\n{line}" for line in rest))

    def _repr_html_(self) -> str:
        """The summary, and below it each part, folded."""
        head, *rest = self._summary()
        return "".join([f"<b>{html.escape(head)}</b>", shown(rest[:-1])._repr_html_(), *starmap(_folded, self._parts())])

    def _parts(self) -> Iterator[tuple[str, list[str]]]:
        """What can be unfolded."""
        yield "advice", list(self.advice)
        yield "breaks", [str(each) for each in self.breaks]
        yield "recompiles", [str(each) for each in self.reasons]
        yield (
            "kernels",
            [f"graph {k.graph}: {k.name}, {_many(k.launches, 'launch', 'es')}, from {', '.join(k.lines)}" for k in self.kernels],
        )
        yield "graphs", [f"graph {graph.number} {graph.where}:\n{graph.text}" for graph in self.graphs]
        yield "plans", [f"graph {graph.number}:\n{text}" for graph in self.graphs if (text := _plan_text(graph))]
        for part in self.parts:
            for number, guards in enumerate(part.guards):
                yield f"what specialisation {number} of {part.name} assumes", list(guards)

    def _summary(self) -> list[str]:
        counts = ", ".join((_many(len(self.graphs), "graph"), _many(len(self.breaks), "break"), _many(self.recompiles, "recompile")))
        lines = [f"{self.name}: {counts}{self._times()}"]
        lines += _first(self.graphs, _graph_line, ".graphs")
        if calls := self.left_to_torch:
            names = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in list(calls.items())[: 2 * _FEW])
            lines.append(f"  torch's own: {names}{', ...' if len(calls) > 2 * _FEW else ''}")
        lines += _first(self.breaks, _break_line, ".breaks tells why and what to do")
        lines += _first(self.reasons, _recompile_line, ".reasons")
        lines += _first(self.advice, "advice: {}".format, ".advice")
        guards = sum(len(guards) for part in self.parts for guards in part.guards)
        unfold = [".guards", ".graph", *([".kernels", ".source", ".plan"] if self.kernels else []), ".everything"]
        lines.append(f"  assumes {_many(guards, 'thing')} of its arguments and surroundings; unfold: {', '.join(unfold)}")
        return lines

    def _times(self) -> str:
        """What compiling took, and what it brought."""
        took = f"; {self.reading:.1f} s to read, {self.seconds:.1f} s to compile" if self.reading else ""
        if self.speed is None:
            return took
        eager, compiled = self.speed
        return f"{took}; a call takes {compiled * 1e3:.3g} ms, {eager / compiled:.2f} times eager's speed"


def _folded(title: str, texts: list[str]) -> str:
    """A part of an explanation for a notebook."""
    if not texts:
        return ""
    return f"<details><summary>{html.escape(title)} ({len(texts)})</summary>{shown(texts)._repr_html_()}</details>"


def _first(items: Sequence[Any], line_of: Callable[[Any], str], unfold: str) -> Iterator[str]:
    yield from (f"  {line_of(each)}" for each in items[:_FEW])
    if len(items) > _FEW:
        yield f"  ... and {len(items) - _FEW} more: {unfold}"


def _many(count: int, what: str, ending: str = "s") -> str:
    return f"no {what}{ending}" if count == 0 else f"1 {what}" if count == 1 else f"{count} {what}{ending}"


def _graph_line(graph: GraphRecord) -> str:
    report, where = graph.report, _short_place(graph.where)
    told = f"graph {graph.number}{f' from {where}' if where else ''}: {_many(graph.operators, 'operator')}"
    if graph.fallback:
        return f"{told}, run as torch's own: {graph.fallback.splitlines()[0]}"
    if getattr(report, "launches", None) is not None:
        made, launches = _many(report.kernels, "kernel"), _many(report.launches, "launch", "es")
        told += f" became {made} ({launches}) and {_many(report.calls, 'call')} of torch's"
        if report.arena_bytes:
            told += f", {_size(report.arena_bytes)} of memory"
    cached = " from the cache" if getattr(report, "cached", False) else ""
    phases = sorted(_phases(report), key=lambda item: -item[1])[:_FEW]
    longest = ", ".join(f"{name} {seconds:.2f}" for name, seconds in phases if seconds >= 0.005)
    return f"{told}; {graph.seconds:.2f} s{cached}{f' ({longest})' if longest else ''}"


def _break_line(found: BreakRecord) -> str:
    often = f" ({found.times} times)" if found.times > 1 else ""
    return f"break {found.code} at {found.where or 'an unknown place'}{often}: {found.what}"


def _recompile_line(found: RecompileRecord) -> str:
    return f"recompile of {found.function}: {found.reasons[0] if found.reasons else 'unknown'}"


def _short_place(where: str) -> str:
    """``file.py:12`` of a line of a traceback."""
    file, _, rest = where.removeprefix('File "').partition('", line ')
    return f"{Path(file).name}:{rest.partition(',')[0]}" if rest else where


def _size(size: int | str) -> str:
    if isinstance(size, str):
        from .constraints import size_text  # the compilers are imported where something is compiled

        return f"{size_text(size)} bytes"
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _phases(report: Any) -> list[tuple[str, float]]:
    """Name and seconds of each step of the backend, if its report has them."""
    phases = getattr(report, "phases", None) or getattr(report, "timings", None) or {}
    return list(phases.items() if isinstance(phases, Mapping) else phases)


def _steps(graph: GraphRecord, kind: str) -> list[Any]:
    plan = getattr(graph.report, "plan", None)
    return [step for step in getattr(plan, "steps", ()) if type(step).__name__ == kind]


def _kernels(graph: GraphRecord) -> Iterator[Kernel]:
    launches: dict[int, list[Any]] = {}
    for step in _steps(graph, "Launch"):
        launches.setdefault(step.kernel, []).append(step)
    for number, steps in launches.items():
        origins = [step.origin for step in steps]
        yield Kernel(
            graph.number, operators_in(origins) or f"kernel {number}", len(steps), lines_in(origins), graph.report.plan.kernels[number].key
        )


def _calls(graphs: Sequence[GraphRecord]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for graph in graphs:
        for step in _steps(graph, "Call"):
            name = step.op.removeprefix("aten::").removesuffix(".out")
            counts[name] = counts.get(name, 0) + 1
    return list(counts.items())


def _plan_text(graph: GraphRecord) -> str:
    plan = getattr(graph.report, "plan", None)
    if plan is None:
        return ""
    from opmill_runtime_cache.plan.text import render

    return render(plan)


def explain(model: Any, *, speed: bool = False, **arguments: Any) -> Callable[..., Explanation]:
    """``explain(f, fullgraph=..., ...)(*args)`` calls ``f`` compiled and explains. What ``compile`` gave already is explained as it is.

    Args:
        model: a function, method or module, compiled or not.
        speed: whether some more calls are timed beside eager ones; what they write is written as often.
        arguments: of ``opmill.compile``.
    """
    compiled = model if record_of(model) or optimizer_behind(model) is not None else compile(model, **arguments)

    def call(*args: Any, **kwargs: Any) -> Explanation:
        result = compiled(*args, **kwargs)
        told = explanation_of(compiled, result)
        if not speed:
            return told
        from .diagnose.speed import compared  # not above: importing opmill imports nothing that only a question needs

        return structs.replace(told, speed=compared(compiled, args, kwargs))

    return call


def explanation_of(compiled: Any, result: Any = None) -> Explanation:
    """What happened in ``compiled`` until now, without calling it. Raises TypeError for what ``compile`` did not make."""
    if optimizer_behind(compiled) is not None:
        return _explanation_of_step(compiled, result)
    found = record_of(compiled)
    if found is None:
        raise TypeError(f"{compiled!r} was not compiled by opmill")
    from opmill_bytecode_frontend.entry.capture import parts

    dispatcher, record = found
    told = tuple(Part(_name_of(each), tuple(_guard_lines(entry) for entry in each.entries)) for each in parts(dispatcher))
    name = f"{type(compiled).__qualname__}.forward" if _is_module(compiled) else told[0].name
    advice = advice_on(Seen(record.graphs, record.breaks, record.recompiles, compiled, result, _cache_of(record.settings)))
    return Explanation(
        name, tuple(record.graphs), tuple(record.breaks), told, result, tuple(record.recompiles), advice, record.seconds, None, compiled
    )


def _cache_of(settings: Any) -> str:
    """The folder that plans are kept in; empty where none are."""
    if settings is None or not settings.native or not settings.options.cache:
        return ""
    from opmill_runtime_cache.store import default_root  # there by now: something was compiled

    return str(settings.options.cache_dir or default_root())


def _explanation_of_step(step: Any, result: Any) -> Explanation:
    """One graph for each parameter group; nothing is assumed that the step does not look after itself."""
    optimizer = step.optimizer()
    name = f"{type(optimizer).__qualname__}.step"
    graphs = tuple(
        GraphRecord(
            number,
            1,
            each.compiled + each.left,
            f"{each.rule} of parameter group {each.group}: kernels move {each.compiled} parameters, torch moves {each.left}",
            0.0,
        )
        for number, each in enumerate(step.updates())
    )
    return Explanation(name, graphs, (), (Part(name, ()),), result)


def _is_module(compiled: Any) -> bool:
    """Whether a module was compiled, which is known by its class and not by the function that torch calls it through."""
    return isinstance(compiled, torch.nn.Module)


def _name_of(compiled: Any) -> str:
    return getattr(compiled, "__qualname__", None) or repr(compiled)


def _guard_lines(entry: Any) -> tuple[str, ...]:
    from .constraints import constraints  # the compilers are imported where something is compiled

    guards = list(getattr(entry, "guards", None) or ())
    relations = [guard for guard in guards if isinstance(guard, SizeRelation)]
    return (*(describe(guard) for guard in guards if not isinstance(guard, SizeRelation)), *constraints(relations))
