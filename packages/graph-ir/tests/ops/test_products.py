"""Products of depth one are loops that what follows is fused with."""

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def lowered(function, *inputs, **how):
    graph = functionalize(torch.fx.symbolic_trace(function), list(inputs))
    return graph, lower(graph, **how)


def product(a, b):
    return a @ b


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [((5, 1), (1, 7)), ((3, 5, 1), (3, 1, 7)), ((1, 1), (1, 1)), ((2, 1, 1), (2, 1, 4))])
def test_values(sizes, dtype):
    torch.manual_seed(0)
    a, b = (torch.randn(s).to(dtype) for s in sizes)
    graph, program = lowered(product, a, b)
    assert not [n for n in program.nodes if type(n) is Extern]
    [ours] = run_lowered(program, [a, b])
    torch.testing.assert_close(ours, (a.double() @ b.double()).to(dtype), rtol=0, atol=0)


def test_transposed_and_special_values():
    a, b = torch.tensor([[float("nan"), float("inf"), 0.0]]).t(), torch.tensor([[2.0], [0.0], [-1.0]]).t()
    _, program = lowered(product, a, b)
    torch.testing.assert_close(run_lowered(program, [a, b])[0], a @ b, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64], ids=str)
def test_other_types_stay(dtype):
    a, b = torch.ones(5, 1, dtype=dtype), torch.ones(1, 7, dtype=dtype)
    _, program = lowered(product, a, b)
    assert [n.op for n in program.nodes if type(n) is Extern] == ["aten::mm"]
