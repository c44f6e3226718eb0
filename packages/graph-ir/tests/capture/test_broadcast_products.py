"""Sums over broadcast products are products of matrices: values against float64, and which are rewritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.capture.broadcast_products import as_products
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower

aten = torch.ops.aten


def tensor(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randn(sizes, generator=generator).to(dtype)


PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "matrices": (lambda a, b: (a[:, :, None] * b[None]).sum(1), ((40, 50), (50, 60))),
    "transposed": (lambda a, b: (a[:, None] * b[None]).sum(-1), ((40, 50), (60, 50))),
    "columns first": (lambda a, b: (b[:, :, None] * a.t()[:, None]).sum(0), ((40, 50), (50, 60))),
    "batches": (lambda a, b: (a[:, :, :, None] * b[:, None]).sum(2), ((3, 40, 50), (3, 50, 60))),
    "batch behind": (lambda a, b: (a[:, None] * b[None]).sum(2), ((40, 30, 6), (50, 30, 6))),
    "kept": (lambda a, b: (a[:, :, None] * b[None]).sum(1, keepdim=True), ((40, 50), (50, 60))),
    "of two": (lambda a, b: (a[:, :, :, None] * b[None]).sum((1, 2)), ((40, 5, 10), (5, 10, 60))),
    "several sides": (lambda a, b: (a[:, :, :, None, None] * b[None, None]).sum(2), ((4, 10, 50), (50, 6, 10))),
    "expanded": (lambda a, b: (a[:, :, None].expand(40, 50, 60) * b[None].expand(40, 50, 60)).sum(1), ((40, 50), (50, 60))),
    "strided": (lambda a, b: (a[::2, :, None] * b[None, :, ::3]).sum(1), ((80, 50), (50, 180))),
    "broadcast on the left": (lambda a, b: (a[:, :, None] * b).sum(1), ((40, 50), (50, 60))),
    "state space": (lambda a, b: (a[:, :, :, None] * b[:, :, None]).sum(-1), ((1, 2, 16, 8, 20), (1, 2, 16, 8, 20))),
    "of no size": (lambda a, b: (a[:, :, None, None] * b[None, :, None]).sum(1), ((40, 50), (50, 60))),
}
LEFT: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "alike": (lambda a, b: (a * b).sum(1), ((300, 300), (300, 300))),
    "one side": (lambda a, b: (a[:, :, None] * b[:, None]).sum((1, 2)), ((300, 30), (300, 30))),
    "small": (lambda a, b: (a[:, :, None] * b[None]).sum(1), ((8, 8), (8, 8))),
    "narrow": (lambda a, b: (a[:, :, None] * b[None]).sum(1), ((2, 900), (900, 60))),
    "whole numbers": (lambda a, b: (a.long()[:, :, None] * b.long()[None]).sum(1), ((40, 50), (50, 60))),
    "read elsewhere": (lambda a, b: (t := a[:, :, None] * b[None]).sum(1) + t[:, 0], ((40, 50), (50, 60))),
    "another type": (lambda a, b: (a[:, :, None] * b[None]).sum(1, dtype=torch.float64), ((40, 50), (50, 60))),
}


def traced(fn: Callable[..., Any], inputs: list[torch.Tensor]) -> Any:
    with torch.no_grad():
        return make_fx(fn)(*inputs)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_values_and_the_layout_are_those_of_the_sum(name: str, dtype: torch.dtype) -> None:
    fn, sizes = PROGRAMS[name]
    inputs = [tensor(*each, dtype=dtype) for each in sizes]
    graph = functionalize(traced(fn, inputs), inputs)
    as_products(graph)
    assert [node.func for node in graph.nodes].count(aten.bmm.default) == 1
    assert aten.mul.Tensor not in [node.func for node in graph.nodes]
    want, [got] = fn(*inputs), run_lowered(lower(graph), inputs)
    exact = fn(*(x.double() for x in inputs))
    error = (got.double() - exact).abs().max()
    assert error <= max((want.double() - exact).abs().max() * 2, 1e-5 * exact.abs().max())
    assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)


@pytest.mark.parametrize("name", LEFT)
def test_other_sums_are_left_as_they_are(name: str) -> None:
    fn, sizes = LEFT[name]
    inputs = [tensor(*each) for each in sizes]
    graph = functionalize(traced(fn, inputs), inputs)
    before = str(graph)
    as_products(graph)
    assert str(graph) == before


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_products_too(name: str) -> None:
    fn, sizes = PROGRAMS[name]
    inputs = [tensor(*each).requires_grad_() for each in sizes]
    module = torch.fx.symbolic_trace(lambda a, b: fn(a, b).sin())
    joint = capture_joint(module, inputs)
    as_products(joint.graph)
    assert [node.func for node in joint.graph.nodes].count(aten.bmm.default) == 3
    compiled = compile_graph(module, inputs)
    results = []
    for run in (lambda *x: compiled(*x)[0] if isinstance(compiled(*x), (list, tuple)) else compiled(*x), lambda *x: fn(*x).sin()):
        given = [x.detach().clone().requires_grad_() for x in inputs]
        run(*given).sum().backward()
        results.append([x.grad for x in given])
    torch.testing.assert_close(results[0], results[1], atol=2e-4, rtol=2e-4)
