"""Pictures of a trace as SVG: the timeline of a process, the plan of a graph, its memory."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..origins import lines_in
from . import events
from .layout import GAP_Y, HEIGHT, WIDTH, place
from .reading import ProcessTrace

_WIDE = 1000
_ROW = 22
_LONGEST = 26


def text(value: object) -> str:
    """Text for HTML."""
    return html.escape(str(value))


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def seconds(value: float) -> str:
    """Time for people."""
    return f"{value * 1e6:.0f} µs" if value < 1e-3 else f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def short(line: str) -> str:
    """``folder/file.py:12``."""
    return "/".join(Path(line).parts[-2:])


def _bar(x: float, y: float, width: float, kind: str, label: str, title: str, link: str = "") -> str:
    shown = f'<text x="{x + 3:.1f}" y="{y + 13:.1f}">{text(label)}</text>' if width > 7 * len(label) else ""
    drawn = f'<g class="{kind}"><title>{text(title)}</title><rect x="{x:.1f}" y="{y}" width="{max(width, 1):.1f}" height="18"/>{shown}</g>'
    return f'<a href="#{link}">{drawn}</a>' if link else drawn


def timeline(trace: ProcessTrace, name: str) -> str:
    """What the process did when: captures, the graphs inside of them, the steps of each. ``name``: begins the names of graphs' sections."""
    starts = [c.time - c.seconds for c in trace.captures] + [g.begin.time for g in trace.graphs.values()]
    ends = [c.time for c in trace.captures] + [g.end.time if g.end else g.begin.time for g in trace.graphs.values()]
    if not starts:
        return "<p>Nothing was compiled.</p>"
    first, last = min(starts), max(max(ends), min(starts) + 1e-6)
    scale = _WIDE / (last - first)

    def bar(start: float, end: float, row: int, kind: str, label: str, link: str = "") -> str:
        title = f"{label}: {seconds(end - start)}"
        return _bar((start - first) * scale, 4 + row * _ROW, (end - start) * scale, kind, label, title, link)

    drawn = [bar(c.time - c.seconds, c.time, 0, "failed" if c.failed else "capture", c.name) for c in trace.captures]
    for key, graph in trace.graphs.items():
        end = graph.end.time if graph.end else graph.begin.time
        drawn.append(bar(graph.begin.time, end, 1, "graph", f"graph {key[1:]}", f"{name}-{key}"))
        drawn += [bar(step.time - step.seconds, step.time, 2, "step", step.name) for step in graph.steps]
    axis = "".join(f'<text class="axis" x="{k * _WIDE / 5:.0f}" y="84">{seconds((last - first) * k / 5)}</text>' for k in range(6))
    return f'<svg class="timeline" viewBox="0 0 {_WIDE + 60} 90" role="img" aria-label="timeline">{"".join(drawn)}{axis}</svg>'


def heat(share: float) -> str:
    """A colour for a share of the whole cost: pale to red."""
    warm = min(1.0, math.sqrt(max(share, 0.0)) * 1.4)
    return f"hsl({48 - 44 * warm:.0f} 90% {93 - 36 * warm:.0f}%)"


def _edge(x1: float, y1: float, x2: float, y2: float) -> str:
    """A line from the foot of a node to the head of another; one that passes rows goes around what stands there."""
    aside = WIDTH * 0.62 if y2 - y1 > HEIGHT + GAP_Y and abs(x1 - x2) < WIDTH else 0
    middle = (y1 + y2) / 2
    ways = (middle, middle) if not aside else (y1 + GAP_Y, y2 - GAP_Y)
    return f'<path d="M{x1:.0f} {y1:.0f}C{x1 + aside:.0f} {ways[0]:.0f} {x2 + aside:.0f} {ways[1]:.0f} {x2:.0f} {y2:.0f}"/>'


def plan_picture(plan: events.Plan, measured: Mapping[str, float]) -> str:
    """The kernels and operators of a plan and what they read of each other, coloured by seconds where they were measured, else by bytes.
    ``measured``: seconds by origin."""
    costs = costs_of(plan, measured)
    whole = sum(costs) or 1.0
    placed = place([step.reads for step in plan.steps])
    edges, nodes = [], []
    for number, step in enumerate(plan.steps):
        x, y = placed.at[number]
        for source in step.reads:
            if source >= 0:
                a, b = placed.at[source]
                edges.append(_edge(a + WIDTH / 2, b + HEIGHT, x + WIDTH / 2, y))
        lines = lines_in([step.origin])
        label = step.name if len(step.name) <= _LONGEST else f"{step.name[: _LONGEST - 1]}…"
        title = "\n".join([step.name, cost_text(step, measured), *map(short, lines[:8])])
        nodes.append(
            f'<g class="node {step.kind}" data-lines="{text(" ".join(lines))}"><title>{text(title)}</title>'
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="4" style="fill:{heat(costs[number] / whole)}"/>'
            f'<text x="{x + 6:.0f}" y="{y + 19:.0f}">{text(label)}</text></g>'
        )
    wide, high = placed.width, placed.height + GAP_Y
    return (
        f'<div class="scroll"><svg class="plan" width="{wide:.0f}" height="{high:.0f}" role="img" aria-label="plan">'
        f'<g class="edges">{"".join(edges)}</g>{"".join(nodes)}</svg></div>'
    )


def costs_of(plan: events.Plan, measured: Mapping[str, float]) -> list[float]:
    """Of each step: seconds where all that may be was measured, else bytes."""
    known = [measured.get(step.origin, 0.0) for step in plan.steps]
    return known if any(known) else [float(max(step.bytes, 0)) for step in plan.steps]


def cost_text(step: events.PlanStep, measured: Mapping[str, float]) -> str:
    """What a step costs, for people."""
    took = f"{seconds(measured[step.origin])}, " if step.origin in measured else ""
    return f"{took}{size(step.bytes)} moved" if step.bytes >= 0 else f"{took}sizes vary"


def memory_picture(plan: events.Plan) -> str:
    """Who needs which part of the arena while which steps run."""
    if not plan.blocks or not isinstance(plan.arena, int):
        return ""
    high = 180
    x, y = _WIDE / max(plan.count, 1), high / max(plan.arena, 1)
    drawn = []
    for number, block in enumerate(plan.blocks):
        title = f"{size(block.bytes)} at {block.offset}, steps {block.begin} to {block.end - 1}: {block.origin}"
        lines = " ".join(lines_in([block.origin]))
        drawn.append(
            f'<rect data-lines="{text(lines)}" x="{block.begin * x:.1f}" y="{high - (block.offset + block.bytes) * y:.1f}" '
            f'width="{max((block.end - block.begin) * x, 1):.1f}" height="{max(block.bytes * y, 1):.1f}" '
            f'style="fill:hsl({number * 47 % 360} 55% 70%)"><title>{text(title)}</title></rect>'
        )
    return f'<svg class="memory" viewBox="0 0 {_WIDE} {high}" role="img" aria-label="memory">{"".join(drawn)}</svg>'


def phase_bars(phases: Mapping[str, float], whole: float) -> str:
    """Seconds of each step as bars."""
    found = sorted(phases.items(), key=lambda item: -item[1])
    rows = [(name, took) for name, took in found if took >= 0.005 * whole] or found[:3]
    return "".join(
        f'<div class="phase"><span>{text(name)}</span><i style="width:{100 * took / (whole or 1):.1f}%"></i>{seconds(took)}</div>'
        for name, took in rows
    )


def measured_of(times: Sequence[events.Times]) -> dict[str, float]:
    """Seconds by origin, as last measured."""
    return {origin: took for found in times for _, origin, took, _ in found.steps}


__all__ = ["cost_text", "measured_of", "memory_picture", "phase_bars", "plan_picture", "seconds", "short", "size", "text", "timeline"]
