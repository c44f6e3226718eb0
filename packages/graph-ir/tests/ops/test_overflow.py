"""Numbers that a type cannot hold are torch's to decide."""

import pytest
import torch

from opmill_graph_ir.capture.graph import Meta, Node, Value
from opmill_graph_ir.ops.overflow import overflows

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("dtype", "number", "beyond"),
    [
        ("int8", 127, False),
        ("int8", 128, True),
        ("int8", -129, True),
        ("uint8", 255, False),
        ("uint8", 256, True),
        ("int32", 1 << 31, True),
        ("int64", 1 << 62, False),
        ("float16", 65504.0, False),
        ("float16", 65536.0, True),
        ("float16", float("inf"), False),
        ("float8_e4m3fn", float("inf"), True),
        ("float32", 1e39, True),
        ("bool", 1000, False),
        ("complex64", 1e39, False),
    ],
)
def test_what_types_hold(dtype, number, beyond):
    node = Node(aten.add.Scalar, (Value("x"), number), {}, ("y",))
    assert overflows(node, Meta(dtype, (2,), (1,), "cpu")) is beyond


def test_sizes_and_dimensions_are_no_numbers_of_the_type():
    assert not overflows(Node(aten.narrow.default, (Value("x"), 0, 1000, 2000), {}, ("y",)), Meta("int8", (2,), (1,), "cpu"))
    assert overflows(Node(aten.add.Tensor, (Value("x"), Value("z")), {"alpha": 1000}, ("y",)), Meta("int8", (2,), (1,), "cpu"))
