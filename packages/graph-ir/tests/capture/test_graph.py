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


def test_a_value_has_the_operator_that_gives_it_and_its_origin():
    first = Node(torch.ops.aten.max.dim, (A, 0), {}, ("c", None), "m.py:3")
    second = Node(torch.ops.aten.neg.default, (Value("c"),), {}, ("d",))
    graph = AtenGraph(["a"], nodes=[first, second])
    assert graph.makers() == {"c": first, "d": second} and graph.origins() == {"c": "m.py:3", "d": ""}


def test_a_value_of_other_sizes_is_in_rows():
    meta = Meta("float32", (2, 3), (1, 2), "cpu", opaque=True)
    assert meta.contiguous() == Meta("float32", (2, 3), (3, 1), "cpu") and meta.contiguous([4]) == Meta("float32", (4,), (1,), "cpu")
