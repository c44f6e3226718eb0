"""What tests of rows share: a function through capture and lowering, run by the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

ALLOCATES = ("aten::empty", "aten::empty_strided")


@pytest.fixture
def as_loops() -> Callable[..., list[Any]]:
    """``as_loops(fn, *tensors)``: what ``fn`` gives when every operator in it is a loop; fails where one is called instead."""

    def run(fn: Callable[..., Any], *tensors: torch.Tensor) -> list[Any]:
        graph = torch.fx.Graph()
        nodes = [graph.placeholder(f"a{k}") for k in range(len(tensors))]
        graph.output(graph.call_function(lambda *xs: _listed(fn(*xs)), tuple(nodes)))
        with torch.no_grad():
            captured = functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), [t.clone() for t in tensors])
            program = lower(captured)
            called = [n.op for n in program.nodes if isinstance(n, Extern) and n.op not in ALLOCATES]
            assert not called, called
            return run_lowered(program, [*(t.clone() for t in tensors), *captured.held_tensors])

    return run


def _listed(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (list, tuple)) else [result]
