"""Values in arguments of the aten graph."""

import torch

from opmill_graph_ir.capture.graph import AtenGraph, Meta, Node, OutputTensor, Value, replace_values, values_in

A, B = Value("a"), Value("b")
ARGUMENT = (A, [B, 3, (A, None)], {"k": [B]}, "a", torch.float32)


def test_values_are_found_in_order_wherever_they_are():
    assert values_in(ARGUMENT) == [A, B, A, B] and values_in("a") == [] and values_in((ARGUMENT, A))[-1] is A


def test_values_are_renamed_and_texts_are_not():
    assert replace_values(ARGUMENT, {"a": "c"}) == (Value("c"), [B, 3, (Value("c"), None)], {"k": [B]}, "a", torch.float32)
    assert replace_values(A, {}) is A and type(replace_values([A], {"a": "z"})) is list


def test_a_graph_shows_what_it_does():
    meta = Meta("float32", (2,), (1,), "cpu")
    node = Node(torch.ops.aten.add.Tensor, (A, B), {"alpha": 2}, ("c",), "m.py:3")
    graph = AtenGraph(["a", "b"], nodes=[node], metas=dict.fromkeys("abc", meta), mutations={"a": "c"}, outputs=[OutputTensor("c"), 3])
    graph.offsets = {"b": 5}
    assert str(graph).splitlines() == [
        "input a: float32[2]",
        "input b: float32[2]",
        "c: float32[2] = add.Tensor(a, b, alpha=2)   # m.py:3",
        "a <- c",
        "return c, 3",
    ]
    assert graph.beginnings() == ((1, 5),) and graph.symbols() == {}
