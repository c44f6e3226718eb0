"""Gradients of weights under autocast are written in float32 by their products: the values, and which products those are."""

from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.capture.wide_products import widen_products
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

aten = torch.ops.aten


def widened(graph, device: str = "cuda:0"):
    """The graph, rewritten as if it ran on that device."""
    kept = dict(graph.metas)
    graph.metas = {name: replace(meta, device=device) for name, meta in graph.metas.items()}
    widen_products(graph)
    graph.metas = kept
    return [node for node in graph.nodes if node.func is aten.mm.dtype]


def network(x, w, b, v):
    return torch.nn.functional.linear(torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b)), v)


def captured():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return capture_joint(torch.fx.symbolic_trace(network), inputs())


def traced(fn, inputs):
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        return functionalize(make_fx(fn)(*inputs), list(inputs))


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(s, requires_grad=True) for s in ((4, 5, 32), (48, 32), (48,), (24, 48))]


def test_gradients_of_weights() -> None:
    joint = captured()
    made = widened(joint.graph)
    assert [joint.graph.metas[n.results[0]].sizes for n in made] == [(24, 48), (48, 32)]
    assert all(joint.graph.metas[n.results[0]].dtype == "float32" for n in made)
    backward = partition(joint).backwards[0]
    assert backward is not None
    calls = [n for n in lower(backward.graph).nodes if type(n) is Extern and n.op == "aten::mm.dtype"]
    assert [n.out_variant for n in calls] == ["aten::mm.dtype_out"] * 2


@pytest.mark.parametrize("fn", [lambda x, w: (torch.mm(x, w).float(),), lambda x, w: (torch.mm(x, w).t().t().float(),)])
def test_the_product_gives_what_is_handed_out(fn) -> None:
    graph = traced(fn, (torch.randn(16, 24).bfloat16(), torch.randn(24, 8).bfloat16()))
    [node] = widened(graph)
    assert [n for n in graph.nodes if n.func is aten._to_copy.default] == [] and node.results == (graph.outputs[0].value,)
    assert node.args[-1] is torch.float32 and graph.metas[node.results[0]].dtype == "float32"


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: (torch.mm(x, w).t().float(),),
        lambda x, w: (torch.mm(x, w).float() + 1,),
        lambda x, w: (torch.mm(x, w).float().t() + 0,),
        lambda x, w: (torch.mm(x.float(), w.float()).float(),),
        lambda x, w: (torch.mm(x, w).half(),),
        lambda x, w: [p := torch.mm(x, w), p.float()][::-1],
    ],
)
def test_others_stay(fn) -> None:
    """Turned ones, those that loops read, those in float32, those that are read as they are."""
    given = [torch.randn(16, 24).bfloat16(), torch.randn(24, 8).bfloat16()]
    graph = traced(fn, given)
    assert not widened(graph)
    for got, want in zip(run_lowered(lower(graph), given), fn(*given), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_not_on_processors() -> None:
    joint = captured()
    assert len(joint.targets) == 4 and not widened(joint.graph, "cpu")
