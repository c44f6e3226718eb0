"""Which values are rounded as the program says on devices whose kernels keep more digits than memory does."""

from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.ops.compared import compared
from opmill_graph_ir.ops.lower import lower

X, S = torch.randn(4, 8, dtype=torch.bfloat16), torch.rand(8, dtype=torch.bfloat16)


def graph_of(function, inputs=(X, S), device="cuda:0"):
    graph = functionalize(torch.fx.symbolic_trace(function), list(inputs))
    graph.metas = {name: replace(meta, device=device) for name, meta in graph.metas.items()}
    return graph


def operators(graph, names):
    """What makes these values; inputs are "input"."""
    makers = graph.makers()
    return sorted(makers[name].func.name().removeprefix("aten::") if name in makers else "input" for name in names)


TABLE = {
    "nothing is compared": (lambda x, s: (x * s).exp(), []),
    "with a number": (lambda x, s: x * s > 0.5, []),
    "two tensors": (lambda x, s: (x * s) <= s.exp(), ["exp", "input", "input", "mul.Tensor"]),
    "the largest": (lambda x, s: (x * s).amax(-1), ["amax", "input", "input", "mul.Tensor"]),
    "its place": (lambda x, s: (x + s).argmax(-1), ["add.Tensor", "input", "input"]),
    "through views": (lambda x, s: (x * s).t().reshape(-1).max(), ["_unsafe_view", "input", "input", "max", "mul.Tensor", "t"]),
    "a sum is computed once": (lambda x, s: (x * s).sum(-1).amax(), ["amax", "sum.dim_IntList"]),
    "a product is computed once": (lambda x, s: ((x * 2) @ s.exp()).amax(), ["amax", "mv"]),
    "what is made of it": (lambda x, s: (x * s).amax(-1).exp(), ["amax", "input", "input", "mul.Tensor"]),
    "numbers": (lambda x, s: x.argmax(-1) == s.argmax(), ["input", "input"]),
}


@pytest.mark.parametrize("function, found", TABLE.values(), ids=TABLE)
def test_what_is_compared(function, found):
    graph = graph_of(function)
    names = operators(graph, compared(graph))
    assert [n for n in names if n not in ("t", "_unsafe_view", "clone")] == [n for n in found if n not in ("t", "_unsafe_view", "clone")]


def values_of(graph, **how):
    return [repr(node) for node in lower(graph, **how).nodes]


def test_it_stands_in_the_loops():
    graph = graph_of(lambda x, s: (x * s).amax(-1))
    assert all("rounded" in value for value in values_of(graph))
    assert not any("rounded" in value for value in values_of(graph, exact=True))


def test_processors_round_as_it_is():
    graph = graph_of(lambda x, s: (x * s).amax(-1), device="cpu")
    assert not compared(graph)
