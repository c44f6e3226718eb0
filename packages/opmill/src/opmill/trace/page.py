"""``opmill report``: a trace as one page that needs nothing beside it, neither a network nor a server."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any

import msgspec

from ..origins import lines_in
from . import events
from .advice import advice_for
from .pictures import cost_text, measured_of, memory_picture, phase_bars, plan_picture, seconds, short, size, text, timeline
from .reading import GraphTrace, ProcessTrace

_SHOWN = 200
"""Rows of a table; guards of a capture."""


def page_of(traces: list[ProcessTrace]) -> str:
    """The page."""
    own = files(__package__)
    body = "".join(part for number, trace in enumerate(traces) for part in _process(trace, f"p{number}"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>opmill report</title>'
        f"<style>{own.joinpath('page.css').read_text()}</style></head><body><h1>opmill report</h1>{_overview(traces)}{body}"
        f"<script>{own.joinpath('page.js').read_text()}</script></body></html>\n"
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    made = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    if not made:
        return ""
    more = f"<tr><td>... and {len(made) - _SHOWN} more</td></tr>" if len(made) > _SHOWN else ""
    shown = "".join(f"<tr>{row}</tr>" for row in made[:_SHOWN])
    return f"<table><tr>{''.join(f'<th>{text(cell)}</th>' for cell in head)}</tr>{shown}{more}</table>"


def _unfold(title: str, inside: str) -> str:
    return f"<details><summary>{text(title)}</summary>{inside}</details>" if inside else ""


def _overview(traces: list[ProcessTrace]) -> str:
    rows = (
        (
            f'<a href="#p{number}">{text(trace.name)}</a>',
            text(" ".join(trace.process.program)),
            str(len(trace.graphs)),
            str(sum(bool(g.end and g.end.cached) for g in trace.graphs.values())),
            str(len(trace.breaks)),
            str(len(trace.recompiles)),
            seconds(sum(g.end.seconds for g in trace.graphs.values() if g.end)),
        )
        for number, trace in enumerate(traces)
    )
    return _table(("process", "program", "graphs", "from the cache", "breaks", "recompiles", "in the backend"), rows)


def _process(trace: ProcessTrace, name: str) -> Iterator[str]:
    versions = ", ".join(f"{package} {version}" for package, version in trace.process.versions.items())
    yield f'<h2 id="{name}">{text(trace.name)}</h2><p>{text(" ".join(trace.process.program))}<br><small>{text(versions)}</small></p>'
    yield timeline(trace, name)
    yield "".join(f'<p class="advice">{text(line)}</p>' for line in advice_for(trace))
    yield f"<h3>Captured code</h3>{_captured(trace, name)}"
    if trace.breaks:
        yield "<h3>Graph breaks</h3>" + _table(
            ("where", "what"), ((f"<code>{text(short(b.where))}</code>", f"<pre>{text(b.told)}</pre>") for b in trace.breaks)
        )
    if trace.recompiles:
        yield "<h3>Recompiles, and what did not hold</h3>" + _table(
            ("function", "assumption"), ((text(r.function), "<br>".join(map(text, r.reasons))) for r in trace.recompiles)
        )
    for key, graph in trace.graphs.items():
        yield from _graph(trace, graph, f"{name}-{key}")


def _captured(trace: ProcessTrace, name: str) -> str:
    """By callable, what was captured of it and the graphs that came of that, as they followed each other."""
    parts = []
    for of in dict.fromkeys([*(c.of for c in trace.captures), *(g.begin.of for g in trace.graphs.values())]):
        items: list[tuple[float, str]] = []
        for c in (c for c in trace.captures if c.of == of):
            if c.failed:
                items.append((c.time, f'<span class="warn">{text(c.name)} was not captured</span>, {seconds(c.seconds)}'))
                continue
            guards = "".join(f"<li><code>{text(guard)}</code></li>" for guard in c.assumes[:_SHOWN])
            unfolded = _unfold(f"assumes {len(c.assumes)} things", f"<ul>{guards}</ul>") if guards else ""
            code = _unfold("the code that runs instead", f"<pre>{text(trace.text(c.code))}</pre>") if c.code else ""
            items.append((c.time, f"<code>{text(c.name)}</code> {text(short(c.where))}, {seconds(c.seconds)}{unfolded}{code}"))
        for key, graph in trace.graphs.items():
            if graph.begin.of == of:
                items.append((graph.begin.time, f'<a href="#{name}-{key}">graph {key[1:]}</a> from {text(_place(graph.begin.where))}'))
        items += [
            (b.time, f'<span class="warn">break {text(b.code)} at {text(short(b.where))}: {text(b.what)}</span>')
            for b in trace.breaks
            if b.of == of
        ]
        told = "".join(f"<li>{item}</li>" for _, item in sorted(items))
        parts.append(f"<details open><summary><code>{text(of)}</code></summary><ol>{told}</ol></details>")
    return "".join(parts) or "<p>Nothing.</p>"


def _place(where: str) -> str:
    file, _, rest = where.removeprefix('File "').partition('", line ')
    return short(f"{file}:{rest.partition(',')[0]}") if rest else where


def _lines(origin: str) -> str:
    return " ".join(f'<span class="line" data-lines="{text(line)}">{text(short(line))}</span>' for line in lines_in([origin])[:4])


def _graph(trace: ProcessTrace, graph: GraphTrace, name: str) -> Iterator[str]:
    begin, end = graph.begin, graph.end
    measured = measured_of(trace.times)
    yield (
        f'<section id="{name}"><h2>Graph {name.rpartition("-g")[2]} from {text(_place(begin.where))}</h2>'
        f"<p>{begin.operators} operators, {begin.inputs} inputs"
    )
    if end is None:
        yield '<b class="warn">; the process ended before this graph was compiled</b></p>'
    else:
        yield f"; {end.kernels} kernels ({end.launches} launches), {end.calls} calls of torch's; {seconds(end.seconds)}"
        yield ", <b>from the cache</b>: the steps in between were not run" if end.cached else ""
        yield f'</p><p class="warn">runs as torch\'s own operators: {text(end.fallback)}' if end.fallback else ""
        yield f"</p>{phase_bars(end.phases, end.seconds)}"
    for plan in graph.plans:
        part = f" of the {text(plan.part)}" if plan.part else ""
        colours = "measured time" if any(step.origin in measured for step in plan.steps) else "bytes moved"
        yield f"<h3>Plan{part}</h3><p>{len(plan.steps)} steps, coloured by {colours}; dashed: torch's own. Click one: its lines.</p>"
        yield plan_picture(plan, measured)
        yield _unfold("steps, dearest first", _steps(plan, measured))
        if picture := memory_picture(plan):
            yield f"<h3>Memory{part}: {size(plan.arena) if isinstance(plan.arena, int) else text(plan.arena)}</h3>{picture}"
    yield (
        f'<h3>Every representation</h3><details class="viewer" data-blob="{name}-data">'
        '<summary>after each step, beside its source</summary><div class="panes">'
    )
    for kind in ("source", "left", "right"):
        yield f'<div class="pane"><select class="{kind}" aria-label="{kind}"></select><div class="code"></div></div>'
    yield '</div><div class="detail"><p>Click a line: its loops, its kernel, its cost.</p></div></details>'
    yield f'<script type="application/gzip" id="{name}-data">{_packed(_data(trace, graph, measured))}</script></section>'


def _steps(plan: events.Plan, measured: dict[str, float]) -> str:
    order = sorted(plan.steps, key=lambda step: (-measured.get(step.origin, 0.0), -step.bytes))
    return _table(("step", "kind", "cost", "lines"), ((text(s.name), s.kind, cost_text(s, measured), _lines(s.origin)) for s in order))


def _data(trace: ProcessTrace, graph: GraphTrace, measured: dict[str, float]) -> dict[str, Any]:
    """What the viewer of a graph needs. Texts by name, each once; steps that changed nothing are left out."""
    steps: list[dict[str, str]] = []
    last: dict[str, str] = {}
    for step in graph.steps:
        for part, name in step.texts:
            if last.get(part) != name:
                steps.append({"name": step.name, "part": part, "kind": step.kind, "text": name})
            last[part] = name
    if not steps:
        steps = [{"name": "capture", "part": "", "kind": "FX graph", "text": graph.begin.fx}]
    kernels = [
        {"name": k.name, "part": k.part, "generator": k.generator, "lines": lines_in(k.origins), "loops": k.loops, "text": k.text}
        for k in graph.kernels
    ]
    plan = [
        {"name": s.name, "part": p.part, "kind": s.kind, "cost": cost_text(s, measured), "lines": lines_in([s.origin])}
        for p in graph.plans
        for s in p.steps
    ]
    names = {step["text"] for step in steps}.union(*({k.loops, k.text} for k in graph.kernels))
    texts = {name: trace.text(name) for name in sorted(names)}
    shown = {line.rpartition(":")[0] for step in plan for line in step["lines"]}
    sources = {file: trace.text(name) for file, name in trace.files.items() if file in shown}
    return {"steps": steps, "kernels": kernels, "plan": plan, "texts": texts, "files": sources}


def _packed(data: Any) -> str:
    return base64.b64encode(gzip.compress(msgspec.json.encode(data), 9, mtime=0)).decode()


__all__ = ["page_of"]
