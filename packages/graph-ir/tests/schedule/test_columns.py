"""Sums down the columns of what a nest goes over row by row share its kernel, on devices with a grid, and nothing else moves."""

from dataclasses import replace

import pytest
import torch
from random_lowered import run_schedule

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import KernelStep, Schedule, schedule

aten = torch.ops.aten
LENGTH = 512


def layer_norm(g, x, weight):
    mean, rstd = x.mean(-1, keepdim=True), (x.var(-1, keepdim=True, unbiased=False) + 1e-5).rsqrt()
    return aten.native_layer_norm_backward(g, x, [LENGTH], mean, rstd, weight, weight, [True, True, True])


def with_bias(g, x, weight):
    """What comes of the norm is summed for the bias of a product."""
    dx, dw, db = layer_norm(g, x, weight)
    return dx, dw, db, (dx / 2).sum(0)


def rms_norm(g, x, weight):
    rstd = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    h, scaled = x * rstd, g * weight
    return rstd * (scaled - h * (scaled * h).mean(-1, keepdim=True)), (g * h).sum(0)


def chain(g, x, weight):
    """The gradient of one norm is that of another, between them a product."""
    dx, dw, db = layer_norm(g, x, weight)
    inner = dx @ torch.outer(weight, weight)
    before, dw2, db2 = layer_norm(inner, x, weight)
    return before, dw2, db2, dw, db


def used_between(g, x, weight):
    """The sums of columns are part of what rows then are."""
    dw = (g * x).sum(0)
    scaled = g * dw
    return dw, scaled - (scaled * x).sum(-1, keepdim=True) * x


def stacked(g, x, weight):
    """What comes together in one buffer, of the shape that its parts have, is summed for the bias of a product."""
    both = torch.stack([(g * weight).view(32, 64, 8, 64), x.view(32, 64, 8, 64)], 2)
    flat = both.reshape(2048, 2 * LENGTH)
    return flat, flat.sum(0)


def turned(g, x, weight):
    """As neighbours in what is read are none in what is stored, rows go on being stored apart."""
    both = torch.stack([t.view(LENGTH, 32, 64).permute(1, 2, 0) for t in (g, x)], 2)
    flat = both.reshape(2048, 2 * LENGTH)
    return flat, flat.sum(0)


def scheduled(function, rows=2048, device="cuda:0") -> tuple[list[torch.Tensor], Schedule]:
    torch.manual_seed(0)
    inputs = [torch.randn(rows, LENGTH), torch.randn(rows, LENGTH), torch.rand(LENGTH) + 0.5]
    with torch.no_grad():
        graph = functionalize(torch.fx.symbolic_trace(function), [t.clone() for t in inputs])
    graph.metas = {name: replace(meta, device=device) for name, meta in graph.metas.items()}
    return inputs, schedule(lower(graph))


def beside(found: Schedule) -> list[int]:
    """For each kernel that goes over rows and columns, the nests that sum down columns."""
    kernels = [s.kernel for s in found.steps if isinstance(s, KernelStep) and s.kernel.nests[0].axes]
    rows = [k for k in kernels if any(p.reductions and p.axes for p in k.nests[0].phases) and k.nests[0].axes[0].extent.constant == 2048]
    return [len(k.nests) - 1 for k in rows if len(k.nests) > 1]


@pytest.mark.parametrize("function, count", [(layer_norm, [1]), (with_bias, [2]), (rms_norm, [1]), (used_between, [])])
def test_one_kernel_goes_over_rows_and_columns(function, count) -> None:
    inputs, found = scheduled(function)
    assert beside(found) == count
    with torch.no_grad():
        want = function(*(t.double() for t in inputs))
    got = run_schedule(found, plan_memory(found), dict(zip(found.lowered.inputs, inputs, strict=True)))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.double(), w, rtol=1e-4, atol=1e-4 * float(w.abs().max()))


@pytest.mark.parametrize("function, kernels", [(stacked, 1), (turned, 2)])
def test_columns_are_summed_where_they_are_stored(function, kernels) -> None:
    inputs, found = scheduled(function)
    assert len(found.steps) == kernels
    got = run_schedule(found, plan_memory(found), dict(zip(found.lowered.inputs, inputs, strict=True)))
    for g, w in zip(got, function(*(t.double() for t in inputs)), strict=True):
        torch.testing.assert_close(g.double().reshape(w.shape), w, rtol=1e-4, atol=1e-4)


def test_each_norm_of_several_has_its_own() -> None:
    assert beside(scheduled(chain)[1]) == [1, 1]


def test_only_on_devices_with_a_grid_and_where_there_is_much_to_read() -> None:
    assert beside(scheduled(layer_norm, device="cpu")[1]) == []
    assert not any(
        len(s.kernel.nests) > 1 and s.kernel.nests[0].axes[0].extent.constant == 1024 for s in scheduled(layer_norm, rows=1024)[1].steps
    )
