"""Views of a wrapper that requires grad, among the outputs of its graph, against eager: history, memory, gradients."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.wrapped.input_views import views_taken_out

VIEWS: dict[str, Callable[[Any], Any]] = {
    "t": lambda x: x.t(),
    "transposed by a function": lambda x: torch.transpose(x, 0, 1),
    "an attribute": lambda x: x.T,
    "an item": lambda x: x[1],
    "a slice": lambda x: x[1:, ::2],
    "expanded": lambda x: x[None].expand(3, -1, -1),
    "of other sizes": lambda x: x.unflatten(-1, (2, -1)).transpose(0, 1),
    "by its size": lambda x: x.view(torch.ops.aten.sym_size.int(x, 0) * 2, -1),
    "as another": lambda x: x.t().reshape(-1).view_as(x),
    "one of several": lambda x: x.chunk(2)[1],
    "parts": lambda x: torch.split(x, [1, 3]),
    "of a view": lambda x: x[0].unsqueeze(0).squeeze(),
}
LEFT: dict[str, Callable[[Any], Any]] = {
    "computed": lambda x: x * 2,
    "an item by values": lambda x: x[x > 0],
    "of what is computed": lambda x: (x + 1).t(),
    "written": lambda x: x.mul_(2).t(),
}


def pair(*sizes: int) -> Any:
    source = torch.Generator().manual_seed(0)
    return TwoTensor(torch.randn(sizes, generator=source), torch.randn(sizes, generator=source))  # type: ignore[no-untyped-call]


def written_elsewhere(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph once it puts a number into something that it computes."""
    [x] = [node for node in gm.graph.nodes if node.op == "placeholder"]
    with gm.graph.inserting_after(x):
        y = gm.graph.call_method("clone", (x,))
    with gm.graph.inserting_after(y):
        gm.graph.call_function(operator.setitem, (y, 0, 3))
    gm.recompile()
    return gm


def traced(function: Callable[..., Any]) -> torch.fx.GraphModule:
    def program(x: Any) -> Any:
        found = function(x)
        return (*found, x * 2) if isinstance(found, tuple) else (found, x * 2)

    if function is VIEWS["parts"]:
        return torch.fx.symbolic_trace(lambda x: (torch.split(x, [1, 3])[0], torch.split(x, [1, 3])[1], x * 2))
    return torch.fx.symbolic_trace(program)


def outcome(call: Callable[..., Any], x: Any) -> tuple[Any, ...]:
    """Results and the gradient of all; what autograd knows of views; whether they share memory."""
    results = call(x)
    torch.autograd.backward([r.sum() for r in results])
    known = [(type(r.grad_fn).__name__, r._base is x, r._is_view(), r.shape, r.stride()) for r in results[:-1]]
    return [(r.a.detach(), r.b.detach()) for r in results], (x.grad.a, x.grad.b), known


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_a_wrapper_are_views_of_it(name: str) -> None:
    gm = traced(VIEWS[name])
    inputs = [pair(4, 4).requires_grad_() for _ in range(2)]
    with torch.enable_grad():
        compiled = compile_graph(gm, [pair(4, 4).requires_grad_()], options=GraphOptions(cache=False))
    got, wanted = outcome(compiled, inputs[0]), outcome(gm, inputs[1])
    torch.testing.assert_close(got[:2], wanted[:2])
    assert got[2] == wanted[2]
    leaving, _ = views_taken_out(gm, [0])
    assert len([*leaving.graph.nodes]) == 3, "what leads to views alone is in no graph"


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_view_stays_in_the_graph(name: str) -> None:
    gm = torch.fx.symbolic_trace(lambda x: (LEFT[name](x),))
    assert views_taken_out(gm, [0]) == (gm, None)


def test_a_graph_that_writes_or_changes_a_mode_is_left_as_it_is() -> None:
    gm = written_elsewhere(torch.fx.symbolic_trace(lambda x: (x.t(),)))
    assert views_taken_out(gm, [0]) == (gm, None)
    gm = torch.fx.symbolic_trace(lambda x: (x.t(),))
    [view] = [node for node in gm.graph.nodes if node.op == "call_method"]
    with gm.graph.inserting_before(view):
        gm.graph.call_function(torch._C._set_grad_enabled, (False,))
    assert views_taken_out(gm, [0]) == (gm, None)


def test_views_of_inputs_whose_gradient_nobody_wants_stay() -> None:
    gm = torch.fx.symbolic_trace(lambda x, y: (x.t(), y.t(), x))
    left, views = views_taken_out(gm, [1])
    assert views is not None and [position for position, _ in views.positions] == [1]
    assert views_taken_out(gm, []) == (gm, None)
    x, y = torch.ones(2, 3), torch.ones(3, 2)
    first, last = left(x, y)
    assert views.among([first, last], [x, y])[1]._base is y


def test_a_graph_of_nothing_but_views() -> None:
    x = pair(2, 3).requires_grad_()
    with torch.enable_grad():
        compiled: Any = compile_graph(torch.fx.symbolic_trace(lambda x: (x.t(), x.t())), [x], options=GraphOptions(cache=False))
    one, other = compiled(x)
    assert type(one) is TwoTensor and one._base is other._base is x and one is not other
