"""Captured graphs as texts, each operator with the line of the program that it comes from."""

from __future__ import annotations

import linecache
import re

import torch

_LINE = re.compile(r'File "(.+)", line (\d+)')


def listed(gm: torch.fx.GraphModule) -> str:
    """Its nodes, one a line, in their order behind a first line."""
    return "\n".join(["graph:", *(f"    {node.format_node()}{_place(node)}" for node in gm.graph.nodes)])


def _place(node: torch.fx.Node) -> str:
    found = _LINE.search(node.meta.get("stack_trace") or "")
    return f"  # {found[1].rpartition('/')[2]}:{found[2]}" if found else ""


def readable(gm: torch.fx.GraphModule) -> str:
    """The program that it is, with the source lines beside."""
    traces = {node: trace for node in gm.graph.nodes if (trace := node.meta.get("stack_trace"))}
    try:
        for node, trace in traces.items():  # torch shows the line that stands below the place
            if found := _LINE.search(trace):
                node.meta["stack_trace"] = f"{trace}\n    {linecache.getline(found[1], int(found[2])).strip()}"
        return str(gm.print_readable(print_output=False)).strip()
    finally:
        for node, trace in traces.items():
            node.meta["stack_trace"] = trace


__all__ = ["listed", "readable"]
