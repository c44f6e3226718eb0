"""Plans say which lines of a program their steps come from. One from the store was made for a program that does the same, maybe elsewhere:
its lines are put in terms of the program at hand."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import torch
from msgspec.structs import replace

from opmill_runtime_cache.plan.model import Alloc, Call, Launch, Plan

from ..capture.places import origin_of, place_of


class Lines(msgspec.Struct, frozen=True, array_like=True):
    """``distinct``: ``file:line`` of nodes, each once; ``of_nodes``: by node of the FX graph its position there. ``begin``: where the graph
    begins."""

    begin: str
    distinct: tuple[str, ...]
    of_nodes: tuple[int, ...]


def lines_of(module: torch.fx.GraphModule) -> Lines:
    """The lines of a graph's nodes."""
    known: dict[str, int] = {}
    of_nodes = tuple(known.setdefault(origin_of(node), len(known)) for node in module.graph.nodes if "stack_trace" in node.meta)
    return Lines(place_of(module), tuple(known), of_nodes)


def moved(plan: Plan, then: Lines, now: Lines) -> Plan:
    """The plan with the lines of the same nodes now. A line of then with nodes that are on several lines now is the first of these."""
    lines: dict[str, str] = {}
    for a, b in zip(then.of_nodes, now.of_nodes, strict=False):
        lines.setdefault(then.distinct[a], now.distinct[b])
    if not lines:
        return plan
    known = re.compile("|".join(f"{re.escape(line)}(?![0-9])" for line in sorted(lines, key=len, reverse=True)))

    def put(step: Any) -> Any:
        if type(step) in (Launch, Call, Alloc) and step.origin:
            return replace(step, origin=known.sub(lambda found: lines[found[0]], step.origin))
        return step

    name = plan.name.removesuffix(then.begin) + now.begin if then.begin and plan.name.endswith(then.begin) else plan.name
    return replace(plan, name=name, steps=tuple(map(put, plan.steps)))


__all__ = ["Lines", "lines_of", "moved"]
