"""Softmax as loops: what a row is divided by, as text."""

from __future__ import annotations

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.loops.text import show
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.steps import schedule


@pytest.mark.parametrize(
    ("dtype", "found"),
    [
        (torch.bfloat16, "mul(exp(sub(cast.float32(b0[6*i0 + j0]), v0)), reciprocal(v1))"),
        (torch.float16, "mul(exp(sub(cast.float32(b0[6*i0 + j0]), v0)), reciprocal(v1))"),
        (torch.float32, "div("),
    ],
    ids=str,
)
def test_rows_in_half_precision_are_divided_once(dtype: torch.dtype, found: str) -> None:
    gm = torch.fx.symbolic_trace(lambda x: [torch.softmax(x, 1)])
    with torch.no_grad():
        made = schedule(lower(functionalize(gm, [torch.zeros(4, 6, dtype=dtype)])))
    [kernel] = made.kernels()
    text = show(kernel)
    assert found in text and ("reciprocal" in text) == found.startswith("mul"), text
