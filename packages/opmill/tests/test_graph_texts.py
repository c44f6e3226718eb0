"""Graphs as texts, with the lines of the program."""

import torch

from opmill.graph_texts import listed, readable


def graph():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.sin, (x,))
    y.meta["stack_trace"] = f'File "/somewhere/model.py", line 7, in forward\nFile "{__file__}", line 3, in graph'
    graph.output((y,))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def test_listed():
    assert listed(graph()).splitlines() == [
        "graph:",
        "    %x : [num_users=1] = placeholder[target=x]",
        "    %sin : [num_users=1] = call_function[target=torch.sin](args = (%x,), kwargs = {})  # model.py:7",
        "    return (sin,)",
    ]


def test_readable_leaves_the_graph_as_it_was():
    gm = graph()
    before = [dict(node.meta) for node in gm.graph.nodes]
    assert "torch.sin(x)" in readable(gm)
    assert [dict(node.meta) for node in gm.graph.nodes] == before
