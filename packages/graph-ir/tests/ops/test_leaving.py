"""What leaves a graph lies where it was computed, in any of its views; what is given out twice is copied, so that writing to one leaves the
other as it is."""

import pytest
import torch

from opmill_graph_ir.capture.text import parse_graph
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import TensorOutput
from opmill_graph_ir.ops.lower import lower

PRODUCT = """input a: float32[6, 4]
input b: float32[4, 8]
y: float32[6, 8] = aten::mm(a, b)
{}
return {}"""
VIEWS = {
    "view": "z: float32[2, 3, 8] = aten::view(y, [2, 3, 8])",
    "without a base": "z: float32[1, 48] = aten::_unsafe_view(y, [1, 48])",
    "turned": "z: float32[8, 6] strides [1, 8] = aten::t(y)",
    "of a view": "w: float32[2, 3, 8] = aten::view(y, [2, 3, 8])\nz: float32[3, 2, 8] strides [8, 24, 1] = aten::transpose.int(w, 0, 1)",
}
COPIES = {
    "part": ("z: float32[3, 8] = aten::slice.Tensor(y, 0, 0, 3)", "z"),
    "laid out anew": (
        "w: float32[8, 6] strides [1, 8] = aten::t(y)\nz: float32[8, 6] = aten::clone(w, memory_format=torch.contiguous_format)",
        "z",
    ),
    "twice": ("z: float32[48] = aten::view(y, [48])", "y, z"),
    "in two views": ("w: float32[8, 6] strides [1, 8] = aten::t(y)\nz: float32[48] = aten::view(y, [48])", "w, z"),
    "of an input": ("z: float32[24] = aten::view(a, [24])", "z"),
}


def lowered(views: str, results: str):
    return lower(parse_graph(PRODUCT.format(views, results)))


def run(program) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return run_lowered(program, [torch.randn(6, 4), torch.randn(4, 8)])


@pytest.mark.parametrize("name", VIEWS)
def test_all_of_a_temporary_is_given_out_as_it_lies(name: str) -> None:
    program = lowered(VIEWS[name], "z")
    assert [node.op for node in program.nodes] == ["aten::mm"]
    [output] = program.outputs
    assert isinstance(output, TensorOutput) and output.buffer == "y"
    [found] = run(program)
    eager = run(lowered("", "y"))[0]
    expected = {"view": eager.view(2, 3, 8), "without a base": eager.view(1, 48), "turned": eager.t()}
    expected["of a view"] = eager.view(2, 3, 8).transpose(0, 1)
    assert torch.equal(found, expected[name]) and found.stride() == expected[name].stride()


@pytest.mark.parametrize("name", COPIES)
def test_what_is_copied(name: str) -> None:
    program = lowered(*COPIES[name])
    assert len({o.buffer for o in program.outputs if isinstance(o, TensorOutput)}) == len(program.outputs)
    assert sum(type(node).__name__ == "Pointwise" for node in program.nodes) == 1
