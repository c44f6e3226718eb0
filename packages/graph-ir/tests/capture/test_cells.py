"""Cells of recurrent layers by their parts: torch's values and gradients, on devices where one kernel would stand between these."""

import pytest
import torch

from opmill_graph_ir.capture import cells
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_runtime_cache.devices.registry import traits_of


def given(gates, bias, dtype):
    made = torch.Generator().manual_seed(0)
    sizes = [(3, 4), (3, 5), (5 * gates, 4), (5 * gates, 5), *([(5 * gates,)] * 2 if bias else [])]
    return [torch.randn(size, generator=made, dtype=torch.float64).to(dtype).requires_grad_() for size in sizes]


def lstm(cell, x, h, *weights):
    return torch.cat(cell(x, (h, h * 2), *weights))


def gru(cell, x, h, *weights):
    return cell(x, h, *weights)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
@pytest.mark.parametrize("call, function, gates", [(gru, torch.gru_cell, 3), (lstm, torch.lstm_cell, 4)], ids=["gru", "lstm"])
def test_values_and_gradients(call, function, gates, bias, dtype):
    results = []
    for cell in (function, cells.CELLS[function]):
        inputs = given(gates, bias, dtype)
        out = call(cell, *inputs)
        results.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    for ours, want in zip(*results[::-1], strict=True):
        torch.testing.assert_close(ours, want)


@pytest.mark.parametrize("device, apart", [("cpu", False), ("cuda:0", True)])
def test_they_are_taken_apart_where_kernels_are_grids(monkeypatch, device, apart):
    seen = []

    def cell(x, h, *weights):
        seen.append(x)
        return torch.gru_cell(x, h, *weights)

    monkeypatch.setitem(cells.CELLS, torch.gru_cell, cell)
    monkeypatch.setattr(cells, "traits_of", lambda name: traits_of(device))
    graph = torch.fx.Graph()
    inputs = [each.detach() for each in given(3, True, torch.float32)]
    nodes = [graph.placeholder(f"a{k}") for k in range(len(inputs))]
    graph.output(graph.call_function(torch.gru_cell, tuple(nodes)))
    functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), inputs)
    assert bool(seen) is apart
