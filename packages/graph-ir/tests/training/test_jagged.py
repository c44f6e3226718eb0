"""Graphs of jagged tensors: whose rows outputs and gradients have, and what the store keeps of such graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.wrapped import stored
from opmill_runtime_cache.store import Store

WEIGHT = torch.randn(8, 8, generator=torch.Generator().manual_seed(5))


def jagged(like: Any = None, seed: int = 0, grad: bool = True) -> Any:
    values = torch.randn(10, 8, generator=torch.Generator().manual_seed(seed))
    offsets = torch.tensor([0, 3, 8, 10]) if like is None else like.offsets()
    return torch.nested.nested_tensor_from_jagged(values, offsets).requires_grad_(grad)


def compiled(function: Any, inputs: Any, store: Any = None) -> Any:
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"x{k}") for k in range(len(inputs))]
    graph.output(tuple(function(*nodes)))
    options = GraphOptions(cache=store is not None)
    module = torch.fx.GraphModule({}, graph)
    module.meta["wrappers"] = True
    return compile_graph(module, list(inputs), options=options, store=store)


def call(function: Any, *nodes: Any, **named: Any) -> Any:
    return nodes[0].graph.call_function(function, nodes, named)


def program(x: Any, y: Any) -> Any:
    linear = call(F.linear, call(torch.add, x, y), x.graph.call_function(weight))
    return [call(F.gelu, linear), call(torch.mul, x, y)]


def weight() -> torch.Tensor:
    return WEIGHT


def eager(x: Any, y: Any) -> Any:
    return [F.gelu(F.linear(x + y, WEIGHT)), x * y]


def test_outputs_and_gradients_have_the_rows_of_inputs() -> None:
    found = []
    for run in (compiled, lambda function, inputs: eager):
        x = jagged()
        y = jagged(x, 1)
        out = run(program, (x, y))(x, y)
        assert all(o.offsets() is x.offsets() and o.requires_grad for o in out)
        (out[0] + out[1]).values().square().sum().backward()
        assert x.grad.offsets() is x.offsets() and x.grad.shape == x.shape and y.grad.shape == x.shape
        found.append([*(o.values() for o in out), x.grad.values(), y.grad.values(), x + x.grad])
    torch.testing.assert_close(found[0][:-1], found[1][:-1])


def test_a_gradient_of_other_rows_is_refused() -> None:
    x = jagged()
    [out] = compiled(lambda x: [call(torch.sin, x)], (x,))(x)
    with pytest.raises(RuntimeError):
        out.backward(jagged(grad=False))


def test_integers_come_back_as_they_were_given() -> None:
    x = jagged()
    out, offsets = compiled(lambda x: [call(torch.sin, x), x.graph.call_method("offsets", (x,))], (x,))(x)
    assert offsets is x.offsets() and out.offsets() is offsets


def test_made_of_the_offsets_of_a_graph() -> None:
    def made(v: Any, lengths: Any) -> Any:
        jagged = call(torch.nested.nested_tensor_from_jagged, v, lengths=lengths)
        return [call(torch.sin, jagged), call(torch.cos, jagged), jagged.graph.call_method("offsets", (jagged,))]

    values, lengths = torch.ones(10, 4).requires_grad_(), torch.tensor([3, 5, 2])
    for _ in range(2):
        sin, cos, offsets = compiled(made, (values, lengths))(values, lengths)
        assert offsets.tolist() == [0, 3, 8, 10] and sin.offsets() is cos.offsets()
        (sin + cos).values().sum().backward()


def test_what_is_kept_says_whose_rows_are_whose(tmp_path: Any, monkeypatch: Any) -> None:
    store = Store(tmp_path)
    x = jagged()
    same, other = jagged(x, 1), jagged(None, 1)

    def two(x: Any, y: Any) -> Any:
        return [call(torch.sin, y), call(torch.cos, x)]

    for y in (same, other, same, other):
        sin, cos = compiled(two, (x, y), store)(x, y)
        assert sin.offsets() is y.offsets() and cos.offsets() is x.offsets()
        (sin.values().sum() + cos.values().sum()).backward()
        assert y.grad.offsets() is y.offsets() and x.grad.offsets() is x.offsets()
        y.grad = x.grad = None
    kept = stored.Ends.decoded(stored.Ends({}, [stored.Out(kept=(-1, None, 2))], []).encoded(stored.Names(())), stored.Names(()))
    assert kept is not None and kept.outs[0].kept == (-1, None, 2)
