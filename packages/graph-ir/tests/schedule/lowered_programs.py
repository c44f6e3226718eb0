"""Programs as they are after lowering, by name."""

from __future__ import annotations

import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.lowered import Lowered
from opmill_graph_ir.ops.lower import lower

F = torch.nn.functional
PROGRAMS = {
    "norm": (lambda x: F.layer_norm(x, (16,)), torch.randn(8, 16)),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), torch.randn(1, 2, 4, 8)),
    "product": (lambda x: F.gelu(x @ x.T).T, torch.randn(8, 8)),
    "scan": (lambda x: x.flip(0).cumsum(0), torch.randn(8, 3)),
    "scatter": (lambda x: torch.zeros(4).index_add(0, torch.tensor([1, 3, 1]), x), torch.randn(3)),
    "checks": (lambda x: x[torch.tensor([0, 2])] // 2, torch.arange(5)),
    "complex": (lambda x: (x * 1j).abs(), torch.randn(5)),
    "draws": (lambda x: F.dropout(x, 0.5), torch.randn(5)),
    "infinite": (lambda x: x.masked_fill(x > 0, float("-inf")).sort(descending=True)[1], torch.randn(5)),
    "numbers": (lambda x: torch.special.zeta(x.clamp(2, 3), 2.0) + x.to(torch.float16).sum(), torch.randn(5)),
    "padded": (lambda x: F.pad(x, (1, 2)), torch.randn(5)),
    "view returned": (lambda x: x.exp().view(2, 4).T, torch.randn(8)),
    "written": (lambda x: x.mul_(2), torch.randn(8)),
}


def lowered_program(name: str) -> Lowered:
    function, x = PROGRAMS[name]
    graph = torch.fx.Graph()
    node = graph.call_function(lambda x: (function(x),), (graph.placeholder("x"),))
    graph.output(node)
    with torch.no_grad():
        return lower(functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), [x.clone()]))
