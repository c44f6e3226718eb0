"""Biases of products on GPUs: added by the loops that read them, where products without are quicker."""

import pytest
import torch
from gpu_graphs import GPU, calls, on_gpu, planned

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower
from opmill_runtime_cache.plan.model import Launch

F = torch.nn.functional
FLOAT, HALF = torch.float32, torch.bfloat16


def operands(rows: int, depth: int, columns: int, dtype: torch.dtype, device: str = GPU) -> tuple[torch.Tensor, ...]:
    return tuple(on_gpu(*sizes, dtype=dtype, device=device) for sizes in ((rows, depth), (columns, depth), (columns,)))


def activated(x, w, b):
    return torch.addmm(b, x, w.t()).relu()


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "dtype", "apart"),
    [
        (64, 32, 128, HALF, True),
        (64, 128, 32, HALF, False),
        (64, 128, 32, FLOAT, True),
        (64, 32, 128, FLOAT, False),
        (1 << 15, 128, 32, FLOAT, False),  # more tiles than multiprocessors
        (64, 32, 128, torch.float64, False),
    ],
)
def test_where_products_without_are_quicker(rows: int, depth: int, columns: int, dtype: torch.dtype, apart: bool) -> None:
    plan = planned(activated, *operands(rows, depth, columns, dtype))
    assert [len(calls(plan, f"aten::{op}.out")) for op in ("mm", "addmm")] == [apart, not apart]
    assert len([s for s in plan.steps if type(s) is Launch]) == 1  # the bias costs no kernel of its own


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: torch.addmm(b, x, w.t()),  # leaves
        lambda x, w, b: torch.mm(torch.addmm(b, x, w.t()), w),  # an operator reads it
        lambda x, w, b: (lambda y: (y.relu(), torch.mm(y, w)))(torch.addmm(b, x, w.t())),  # so does one, beside a loop
        lambda x, w, b: torch.addmm(b, x, w.t(), alpha=0.5).relu(),
        lambda x, w, b: torch.addmm(torch.mm(x, w.t()), x, w.t()).relu(),  # no row
    ],
)
def test_other_products_stay(function) -> None:
    plan = planned(function, *operands(64, 32, 128, HALF))
    assert len(calls(plan, "aten::addmm.out")) == 1


def _products(inputs, **how) -> list[str]:
    with torch.no_grad():
        lowered = lower(functionalize(torch.fx.symbolic_trace(activated), list(inputs)), **how)
    return [f"{n.op} {n.source}" for n in lowered.nodes if type(n) is Extern]


def test_rounding_as_eager_and_refused_kernels_keep_them() -> None:
    inputs = operands(64, 32, 128, HALF)
    [product] = _products(inputs)
    op, _, source = product.partition(" ")
    assert op == "aten::mm"
    assert [_products(inputs, exact=True), _products(inputs, calls=frozenset({source}))] == [[f"aten::addmm {source}"]] * 2
    [product] = _products(operands(64, 128, 32, FLOAT, "cpu"))
    assert product.startswith("aten::addmm")
