"""Operators of tensors that are marked as conjugated or negated: results lie as eager's, which copies where an operator knows no marks."""

from collections.abc import Callable

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower

MARKED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "negated": lambda x: x.conj().imag,
    "negated, turned": lambda x: x.conj().imag.permute(2, 0, 1),
    "conjugated": lambda x: x.conj(),
    "conjugated, turned": lambda x: x.conj().permute(2, 0, 1),
    "of a part": lambda x: x[:, 1:].conj().imag,
}
OPERATORS: dict[str, Callable[[torch.Tensor], object]] = {
    "unsafe_chunk": lambda t: torch.unsafe_chunk(t, 2, 1),
    "unsafe_split": lambda t: torch.unsafe_split(t, 1, 1),
    "unsafe_split_with_sizes": lambda t: torch.unsafe_split_with_sizes(t, [1, t.shape[0] - 1], 0),
    "flip": lambda t: t.flip(0),
    "contiguous": lambda t: t.contiguous() * 1,
    "clone": lambda t: t.clone(),
    "zeros_like": lambda t: torch.zeros_like(t),
    "where": lambda t: torch.where(t.abs() > 1, t, 1),
    "repeat_interleave": lambda t: torch.repeat_interleave(t, 2, 0),
    "abs": lambda t: t.abs(),
    "product": lambda t: t * 2,
    "cumsum": lambda t: t.cumsum(0),
    "split_copy": lambda t: torch.split_copy(t, 1, 1),
    "reshape": lambda t: t.reshape(-1) + 1,
    "stack": lambda t: torch.stack([t, t]),
    "roll": lambda t: t.roll(1, 0),
}


@pytest.mark.parametrize("how", MARKED.values(), ids=MARKED)
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_results_lie_as_eagers(operator: Callable[[torch.Tensor], object], how: Callable[[torch.Tensor], torch.Tensor]) -> None:
    graph = torch.fx.Graph()
    graph.output(graph.call_function(lambda x: operator(how(x)), (graph.placeholder("x"),)))
    x = torch.complex(torch.arange(24.0).reshape(2, 3, 4), torch.arange(24.0).flip(0).reshape(2, 3, 4))
    with torch.no_grad():
        captured = functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), [x])
        got, want = run_lowered(lower(captured), [x, *captured.held_tensors]), operator(how(x))
    for ours, theirs in zip(got, want if isinstance(want, (tuple, list)) else [want], strict=True):
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()
