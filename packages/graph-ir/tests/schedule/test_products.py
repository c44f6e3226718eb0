"""Which matrix products are loops: what is asked of the clock, and what is made of its answers."""

from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.planning.products import alike, choose
from opmill_graph_ir.schedule.steps import ExternStep, schedule

F = torch.nn.functional


def layers(count, given):
    """``gelu(x w) + x`` for each weight, and a product whose operand is computed where these are."""
    graph = torch.fx.Graph()
    x, *weights = (graph.placeholder(f"a{k}") for k in range(given + 1))
    for w in weights[:count]:
        x = graph.call_function(torch.add, (graph.call_function(F.gelu, (graph.call_function(F.linear, (x, w)),)), x))
    gated = graph.call_function(torch.mul, (graph.call_function(F.silu, (x,)), x))
    graph.output(graph.call_function(torch.softmax, (graph.call_function(F.linear, (gated, weights[0])), -1)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def graph_of(*inputs, device="cuda:0", count=3):
    with torch.no_grad():
        graph = functionalize(layers(count, len(inputs) - 1), list(inputs))
    graph.metas = {name: replace(meta, device=device) for name, meta in graph.metas.items()}
    return graph


def half(*sizes):
    return torch.ones(sizes, dtype=torch.bfloat16)


INPUTS = (half(32, 64), *(half(64, 64) for _ in range(3)))


def chosen(graph, seconds):
    return choose(graph, lambda products: schedule(lower(graph, products=products)), seconds)


def called(graph, products):
    return sum(isinstance(step, ExternStep) for step in schedule(lower(graph, products=products)).steps)


def test_layers_that_look_alike_are_decided_together() -> None:
    graph = graph_of(*INPUTS)
    assert sorted(map(len, alike(graph))) == [1, 3]
    found = chosen(graph, lambda steps, program: float(len(steps)))
    assert called(graph, {}) == 4 and called(graph, found) == 1
    assert list(found.values()) == [False] * 3, "the last saves no step"


def test_a_product_may_compute_what_it_reads() -> None:
    graph = graph_of(*INPUTS[:1], half(64, 64), count=0)
    found = chosen(graph, lambda steps, program: float(len(steps)))
    assert list(found.values()) == [True] and called(graph, found) == 0


def test_the_clock_is_asked_for_what_differs_alone() -> None:
    asked = []
    chosen(graph_of(*INPUTS), lambda steps, program: asked.append(steps) or 1.0)
    assert asked and max(map(len, asked)) <= 6


@pytest.mark.parametrize("gain", [0.98, 1.0, float("inf")])
def test_noise_chooses_nothing(gain: float) -> None:
    graph = graph_of(*INPUTS)
    assert not chosen(graph, lambda steps, program: 1.0 if any(isinstance(s, ExternStep) for s in steps) else gain)


def test_only_half_precision_of_known_sizes_on_a_gpu_is_asked_for() -> None:
    assert not alike(graph_of(*(x.float() for x in INPUTS)))
    assert not alike(graph_of(*INPUTS, device="cpu"))
    assert not alike(graph_of(INPUTS[0][:0], *INPUTS[1:]))


def row_times(columns, depth, rows=1, dtype=torch.bfloat16, device="cuda:0", turned=True):
    class Row(torch.nn.Module):
        def forward(self, x, w, b):
            y = F.linear(F.silu(x), w, b) if turned else torch.mm(F.silu(x), w) + b
            return y.relu()

    inputs = [torch.randn(rows, depth).to(dtype), torch.randn(*((columns, depth) if turned else (depth, columns))).to(dtype)]
    inputs.append(torch.randn(columns).to(dtype))
    with torch.no_grad():
        graph = functionalize(torch.fx.symbolic_trace(Row()), inputs)
    graph.metas = {name: replace(meta, device=device) for name, meta in graph.metas.items()}
    return graph, inputs, Row()


@pytest.mark.parametrize("turned", [True, False], ids=["along the sums", "across them"])
@pytest.mark.parametrize(("columns", "depth"), [(300, 256), (16, 96), (128, 900)])
def test_one_row_and_a_matrix_are_a_loop(columns: int, depth: int, turned: bool) -> None:
    """With what follows in it; the row itself is computed before, once, by the same launch or by one of its own."""
    graph, inputs, eager = row_times(columns, depth, turned=turned)
    lowered = lower(graph)
    assert called(graph, {}) == 0 and len(schedule(lowered).steps) <= 2
    [found] = run_lowered(lowered, inputs)
    exact = eager(*(x.double() for x in inputs))
    assert (found.double() - exact).norm() <= 1.5 * (eager(*inputs).double() - exact).norm() + 1e-6 * exact.norm()


@pytest.mark.parametrize(
    "how",
    [{"rows": 2}, {"dtype": torch.float32}, {"device": "cpu"}, {"columns": 15}, {"depth": 63}],
    ids=["two rows", "float32", "a processor", "few columns", "short sums"],
)
def test_other_products_are_torchs(how) -> None:
    graph, *_ = row_times(**{"columns": 300, "depth": 256, **how})
    assert called(graph, {}) == 1
