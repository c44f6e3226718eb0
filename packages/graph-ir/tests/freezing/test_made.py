"""New nodes get names of their own, and lie as tensors without gaps do."""

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.record import meta_of
from opmill_graph_ir.freezing.made import Maker, rows

aten = torch.ops.aten


class Module(torch.nn.Module):
    def forward(self, x):
        return (x + 1,)


@pytest.mark.parametrize("sizes", [(), (3,), (2, 3, 4), (2, 1, 4), (1, 1)])
def test_rows_are_what_contiguous_is(sizes):
    assert rows(sizes) == torch.empty(sizes).stride()


def test_values_have_names_that_nothing_has():
    x = torch.ones(2, 3)
    graph = functionalize(torch.fx.symbolic_trace(Module()), [x])
    before = set(graph.metas)
    graph.metas[f"w{len(before)}"] = meta_of(x)  # the name that it would give
    make = Maker(graph, "model.py:1")
    first = make(aten.neg.default, (), meta_of(x))
    second = make(aten.neg.default, (first,), meta_of(x))
    named = make(aten.neg.default, (second,), meta_of(x), "instead")
    assert len({first.name, second.name, f"w{len(before)}"} | before) == len(before) + 3 and named.name == "instead"
    assert [node.results for node in make.nodes] == [(first.name,), (second.name,), ("instead",)]
    assert all(node.origin == "model.py:1" for node in make.nodes) and make.meta(second).sizes == (2, 3)
