"""Functions of torch that write to ``out``: as eager does, whatever they are made of, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_fake_tensors import FakeTensorError
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower

X, SQUARE = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)), torch.rand(4, 4, generator=torch.Generator().manual_seed(1))


def graph_into(
    function: Callable[..., Any], args: tuple[Any, ...], outs: list[torch.Tensor]
) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """A graph that calls ``function(*args, out=...)`` and gives what that returns, and twice what was written."""
    graph = torch.fx.Graph()
    given = [graph.placeholder(f"a{k}") if isinstance(a, torch.Tensor) else a for k, a in enumerate(args)]
    written = [graph.placeholder(f"out{k}") for k in range(len(outs))]
    result = graph.call_function(function, tuple(given), {"out": written[0] if len(outs) == 1 else tuple(written)})
    returned = [result] if len(outs) == 1 else [graph.call_function(lambda pair, k=k: pair[k], (result,)) for k in range(len(outs))]
    graph.output((*returned, *(graph.call_method("mul", (w, 2)) for w in written)))
    return torch.fx.GraphModule(torch.nn.Module(), graph), [*(a for a in args if isinstance(a, torch.Tensor)), *outs]


def spread(t: torch.Tensor) -> torch.Tensor:
    """Sevens of the sizes and type of ``t``, dimensions the other way round and with gaps."""
    return torch.full((*reversed(t.shape), 2), 7, dtype=t.dtype)[..., 0].permute(tuple(reversed(range(t.dim()))))


@pytest.mark.parametrize("laid", [lambda t: torch.full_like(t, 7), spread], ids=["dense", "spread"])
@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.add, (X, 2)),
        (torch.kron, (X, SQUARE)),  # multiplies into what does not say that it is a view
        (torch.linalg.matrix_rank, (SQUARE,)),  # copies behind the dispatcher's back
        (torch.sort, (X,)),
        (torch.topk, (X, 2)),
        (torch.max, (X, 1)),
        (torch.max, (X,)),
        (torch.linalg.inv, (SQUARE,)),
        (torch.linalg.slogdet, (SQUARE,)),
        (torch.matmul, (X, SQUARE)),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_what_is_written_is_what_eager_writes(
    function: Callable[..., Any], args: tuple[Any, ...], laid: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    like = function(*args)
    outs, ours = ([laid(t) for t in ([like] if isinstance(like, torch.Tensor) else like)] for _ in range(2))
    gm, inputs = graph_into(function, args, outs)
    want = gm(*inputs)
    gm, inputs = graph_into(function, args, ours)
    with torch.no_grad():
        got = run_lowered(lower(functionalize(gm, [t.clone() if any(t is o for o in ours) else t for t in inputs])), inputs)
    for g, w in zip((*got, *ours), (*want, *outs), strict=True):
        torch.testing.assert_close(g, w)


@pytest.mark.parametrize(
    ("function", "args", "out"),
    [
        (torch.add, (X, 2), torch.zeros(2, 4)),
        (torch.nonzero, (X,), torch.zeros(3, 2, dtype=torch.int64)),
        (torch.sum, (X,), torch.zeros((), dtype=torch.float64)),  # adds up in 64 bits
    ],
)
def test_what_eager_would_resize_or_compute_in_another_type_is_refused(
    function: Callable[..., Any], args: tuple[Any, ...], out: torch.Tensor
) -> None:
    gm, inputs = graph_into(function, args, [out])
    with torch.no_grad(), pytest.raises((GraphError, FakeTensorError), match="GI002|FT001"):
        functionalize(gm, inputs)


def test_gradients_are_refused_as_eager_refuses_them() -> None:
    x, out = X.clone().requires_grad_(), torch.zeros(3, 4)
    gm, inputs = graph_into(torch.mul, (x, 2), [out])
    from opmill_graph_ir.capture.joint import capture_joint

    with pytest.raises(GraphError, match="automatic differentiation"):
        capture_joint(gm, inputs)
