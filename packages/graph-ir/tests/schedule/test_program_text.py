"""Programs as text, read back."""

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.loop import program_of
from opmill_graph_ir.schedule.text import parse_lowered, parse_program, show_lowered, show_program

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


def _lowered(name):
    function, x = PROGRAMS[name]
    graph = torch.fx.Graph()
    node = graph.call_function(lambda x: (function(x),), (graph.placeholder("x"),))
    graph.output(node)
    with torch.no_grad():
        return lower(functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), [x.clone()]))


def _same(a, b):
    assert a.nodes == b.nodes
    assert a == b


@pytest.mark.parametrize("name", PROGRAMS)
def test_lowered_programs_are_read_back(name):
    lowered = _lowered(name)
    _same(parse_lowered(show_lowered(lowered)), lowered)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_read_back(name):
    program = program_of(_lowered(name))
    text = show_program(program)
    again = parse_program(text)
    assert again.statements == program.statements
    assert (again.buffers, again.outputs, again.extents) == (program.buffers, program.outputs, program.extents)
    assert show_program(again) == text


def test_what_cannot_be_read_is_said_with_its_line():
    with pytest.raises(GraphError, match="GI042: line 2 of a program cannot be read: loop a<"):
        parse_program("input x: float32[8]\nloop a<\n")
