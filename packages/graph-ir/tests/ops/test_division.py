"""Division and remainder of integers and floats, compiled, against eager."""

import itertools

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower

OPERATORS = {
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor_divide": torch.floor_divide,
}


def lowered(function, *inputs):
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"x{k}") for k in range(len(inputs))]
    graph.output((graph.call_function(function, tuple(nodes)),))
    with torch.no_grad():
        return lower(functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), list(inputs)))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_all_signs_and_the_ends(name, dtype):
    if dtype.is_floating_point:
        numbers = [0.0, -0.0, 1.5, -1.5, 7.0, -7.0, float("inf"), float("-inf"), float("nan"), 3.0, -3.0]
    else:
        info = torch.iinfo(dtype)
        numbers = sorted({info.min, info.max, 7, 3, 1, 0, *([-1, -3, -7] if info.min else [])})
    pairs = [(a, b) for a, b in itertools.product(numbers, numbers) if dtype.is_floating_point or b != 0]
    if not dtype.is_floating_point:
        pairs = [(a, b) for a, b in pairs if (a, b) != (torch.iinfo(dtype).min, -1)]  # overflows, and is each processor's own
    a, b = (torch.tensor(column, dtype=dtype) for column in zip(*pairs, strict=True))
    [found] = run_lowered(lowered(OPERATORS[name], a, b), [a, b])
    want = OPERATORS[name](a, b)
    torch.testing.assert_close(found.as_subclass(torch.Tensor), want, rtol=0, atol=0, equal_nan=True)
    if dtype is torch.float32:
        kept = ~want.isnan()
        assert torch.equal(torch.signbit(found)[kept], torch.signbit(want)[kept])


@pytest.mark.parametrize("name", OPERATORS)
def test_by_zero_integers_are_checked_and_floats_are_not(name):
    x = torch.tensor([1, 2])
    program = lowered(OPERATORS[name], x, x)
    checks = [c for node in program.nodes for c in getattr(node, "checks", ())]
    assert [c.message for c in checks] == ["ZeroDivisionError"]
    assert not [c for node in lowered(OPERATORS[name], x.float(), x.float()).nodes for c in getattr(node, "checks", ())]
