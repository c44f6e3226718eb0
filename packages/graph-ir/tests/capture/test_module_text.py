"""FX graphs as text, and back."""

import operator

import pytest
import torch

from opmill_graph_ir.capture.laws import verify_module
from opmill_graph_ir.capture.module_text import function_of, name_of_function, parse_module, show_module
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.planning.key import graph_key

F = torch.nn.functional
TEXT = """
labels [('step', -1)]
input x   # float32[4, 8]  model.py:1
input weight = p_Weight; held=True   # float32[8, 8] strides [1, 8]
input scale or None
attribute w = inner.w: float32[8] parameter requires grad
attribute b = inner.b: int64[2, 2]
pool = torch.nn.functional.max_pool2d(x, 2)   # float32[2, 4]  model.py:3
add = aten::add.Tensor(pool, w, alpha=2)
relu = aten::relu.default(add)
size = .size(relu, -1); label=0
getitem = _operator.getitem(relu, (..., slice(None, size, 2), None))
full = torch.full((2,), number('-inf'), dtype=torch.float16, device=device('cpu'))
mul = _operator.mul(complex('0.0', '-0.0'), x)
say = torch._assert(True, 'a   # b; c')
linear = self.inner.linear(getitem)
return (linear, [full, mul], {'n': size})
"""


def test_everything_that_a_graph_may_hold_is_read_back():
    module = parse_module(TEXT)
    verify_module(module)
    assert show_module(module).strip() == TEXT.strip()
    nodes = {node.name: node for node in module.graph.nodes}
    assert nodes["pool"].target is F.max_pool2d and nodes["add"].target is torch.ops.aten.add.Tensor
    assert nodes["getitem"].args[1] == (Ellipsis, slice(None, nodes["size"], 2), None)
    assert nodes["scale"].args == (None,) and nodes["weight"].target == "p_Weight" and nodes["weight"].meta["held"]
    assert module.get_parameter("inner.w").requires_grad and module.get_buffer("inner.b").dtype == torch.int64
    assert module.meta["labels"] == (("step", -1),)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(8))

    def forward(self, x):
        y = F.layer_norm(x * self.scale, (8,), eps=1e-6)
        return F.gelu(y, approximate="tanh").to(torch.float64)[:, 1:].split([3, 4], 1), y.T.size(0), torch.special.erf(x), -x, abs(x)


def test_what_is_read_computes_the_same_and_has_the_same_key():
    layer, x = Layer(), torch.randn(4, 8)
    module = torch.fx.symbolic_trace(layer)
    again = parse_module(show_module(module), {"scale": layer.scale})
    assert show_module(again) == show_module(module)
    torch.testing.assert_close(again(x), layer(x), rtol=0, atol=0)
    keys = {graph_key(each, [x], GraphOptions(), ()) for each in (module, again, parse_module(show_module(module)))}
    assert len(keys) == 1 and None not in keys


def test_a_graph_inside_is_one_object_wherever_it_is_named():
    body = torch.fx.symbolic_trace(lambda a: (a.sin(),))
    root, graph = torch.nn.Module(), torch.fx.Graph()
    root.then = root.other = body
    x = graph.placeholder("x")
    bodies = [graph.get_attr("then"), graph.get_attr("other")]
    graph.output(graph.call_function(torch.ops.higher_order.cond, (x, *bodies, (x,))))
    module = torch.fx.GraphModule(root, graph)
    text = show_module(module)
    assert text.count("body 0:") == 1 and "attribute other: body 0" in text and "higher_order::cond(x, then, other, (x,))" in text
    again = parse_module(text)
    assert again.then is again.other and show_module(again) == text


@pytest.mark.parametrize(
    "function",
    [torch.tanh, F.linear, F.max_pool2d, F.gelu, operator.add, torch.Tensor.add_, torch.ops.aten.relu, torch.ops.aten.relu.default]
    + [torch.special.erf, torch.fft.fft, torch.linalg.svd, getattr, torch.ops.higher_order.cond, torch.sym_max],
    ids=lambda function: getattr(function, "__name__", ""),
)
def test_functions_are_found_by_their_name(function):
    assert function_of(name_of_function(function)) is function


def test_what_has_no_name_is_shown_and_refused():
    graph = torch.fx.Graph()
    graph.output(graph.call_function(lambda x: x, (graph.placeholder("x"),)))
    text = show_module(torch.fx.GraphModule(torch.nn.Module(), graph))
    assert "object('function')(x)" in text
    with pytest.raises(GraphError, match="GI042: line 2 of an FX graph cannot be read"):
        parse_module(text)


def test_nothing_is_imported_to_read_a_text():
    with pytest.raises(GraphError, match="GI042: line 1 of an FX graph"):
        parse_module("y = antigravity.fly()\nreturn y")
