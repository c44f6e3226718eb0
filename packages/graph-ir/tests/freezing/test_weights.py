"""Which inputs of a graph are weights: what the frontend says is held, and parameters."""

import msgspec
import torch

from opmill_graph_ir.freezing.weights import HELD, Weights, held_inputs


class Module(torch.nn.Module):
    def forward(self, x, w, b):
        return x @ w + b


def test_held_ones_and_parameters():
    graph = torch.fx.symbolic_trace(Module())
    _, w, _ = [node for node in graph.graph.nodes if node.op == "placeholder"]
    x, bias = torch.ones(2, 2), torch.nn.Parameter(torch.ones(2))
    assert held_inputs(graph, [x, x, bias]) == (2,)
    w.meta[HELD] = True
    assert held_inputs(graph, [x, x, bias]) == (1, 2) and held_inputs(graph, [x]) == ()


def test_they_read_back():
    weights = Weights(b"plan", (1, 2), (0,), 4)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(weights), type=Weights) == weights
