"""The whole pipeline by name: what the frontend does to bytecode, then graph-ir's steps."""

from __future__ import annotations

import sys
from typing import Any

from opmill_graph_ir import pipeline as graph

CAPTURE = graph.Step(
    "capture",
    "bytecode",
    "FX graph",
    "bytecode is interpreted over tracked values; what it does to tensors is recorded",
    "backend:compile_graph",
)
"""The frontend's step. It hands each graph that it records to ``compile_graph``, which runs the others."""
PIPELINE: tuple[graph.Step | graph.Until, ...] = (CAPTURE, *graph.PIPELINE)
NAMES = (CAPTURE.name, *graph.NAMES)
"""Names of all steps, in order: what ``print_after`` takes."""
OPTIONAL = tuple(graph.OPTIONAL)
"""Names of those that ``skip`` takes."""


def show_captured(module: Any) -> None:
    """Prints what the frontend recorded, to stderr."""
    print(f"# after {CAPTURE.name}\n{graph.found(graph.REPRESENTATIONS[CAPTURE.gives].show)(module)}\n", file=sys.stderr)


def described() -> str:
    """The list for people: a line for each step, those that are repeated further in."""
    return graph.described(PIPELINE)


__all__ = ["CAPTURE", "NAMES", "OPTIONAL", "PIPELINE", "described", "show_captured"]
