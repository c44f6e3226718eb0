"""A joint graph from text: its last inputs are tangents, its last outputs gradients of the inputs of the same place."""

import textwrap
from collections.abc import Mapping

from opmill_graph_ir.capture.graph import AtenGraph
from opmill_graph_ir.capture.joint import Joint, Part
from opmill_graph_ir.capture.replay import Replay
from opmill_graph_ir.capture.text import parse_graph, show_graph


def joint_of(text: str, outputs: int = 1, tangents: int = 1, counted: Mapping[str, int] | None = None) -> Joint:
    """One whose first outputs are differentiated, with one backward for all of them. ``counted``: writes to inputs that autograd counts."""
    graph = parse_graph(lines(text))
    inputs, gradients = len(graph.inputs) - tangents, len(graph.outputs) - outputs
    metas = tuple(graph.metas[name] for name in graph.inputs[inputs:])
    part = Part(tuple(range(tangents)), tuple(range(gradients)))
    targets = tuple(graph.inputs[:gradients])
    return Joint(graph, inputs, outputs, tuple(range(tangents)), (), metas, targets, Replay(), (part,), counted=counted or {})


def shown(graph: AtenGraph) -> str:
    return show_graph(graph).strip()


def lines(text: str) -> str:
    return textwrap.dedent(text).strip()
