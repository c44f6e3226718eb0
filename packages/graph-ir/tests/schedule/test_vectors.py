"""Sums of a vector are taken by the kernels that multiply matrices by what is made of it, where these run on a grid."""

import re
from dataclasses import replace

import pytest
import torch
from pass_text import after, lines
from random_lowered import run_schedule

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import KernelStep, schedule
from opmill_graph_ir.schedule.vectors import sum_where_multiplied

F = torch.nn.functional
LENGTH = 512


def rms(x, weight):
    return F.rms_norm(x, (LENGTH,), eps=1e-6) * weight


def layer(x, weight):
    return F.layer_norm(x, (LENGTH,), weight, weight + 1)


def unit(x, weight):
    return F.normalize(x, dim=-1) * weight


def shares(x, weight):
    return x.softmax(-1) * weight


NORMS = {f.__name__: f for f in (rms, layer, unit, shares)}


def gated(x, weight, first, second, norm):
    y = norm(x, weight)
    return F.silu(F.linear(y, first)) * F.linear(y, second)


def read_elsewhere(x, weight, first, second, norm):
    y = norm(x, weight)
    return F.linear(y, first), y


def two_in_a_row(x, weight, first, second, norm):
    y = F.linear(norm(x, weight), first[:LENGTH]) + x
    return F.linear(norm(y, weight), second)


def of_three_sizes(x, weight, first, second, norm):
    y = norm(x, weight)
    return F.linear(y, first), F.linear(y, second[:700]), F.linear(y, second[:, :LENGTH])


def overwritten(x, weight, first, second, norm):
    y = norm(x, weight)
    x.mul_(2)
    return F.linear(y, first)


def steps_of(function, norm, device="cuda:0", count=1024, rows=1):
    torch.manual_seed(0)
    inputs = [torch.randn(rows, LENGTH), torch.rand(LENGTH) + 0.5, torch.randn(count, LENGTH) / 16, torch.randn(count, LENGTH) / 16]
    traced = torch.fx.symbolic_trace(lambda x, w, first, second: function(x, w, first, second, NORMS[norm]))
    with torch.no_grad():
        graph = functionalize(traced, [t.clone() for t in inputs])
    graph.metas = {name: replace(meta, device=device) for name, meta in graph.metas.items()}
    products = {node.results[0]: False for node in graph.nodes if node.func.name() == "aten::mm"}
    return inputs, schedule(lower(graph, products=products)), traced


def summed(found):
    """How many nests of all kernels sum more than one thing in a row at each of many points."""
    nests = [n for step in found.steps if isinstance(step, KernelStep) for n in step.kernel.nests]
    return sum(n.axes != () and sum(bool(p.reductions) for p in n.phases) > 1 for n in nests)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("function", [gated, read_elsewhere, two_in_a_row, of_three_sizes, overwritten])
def test_values_are_those_of_torch(function, norm) -> None:
    inputs, found, traced = steps_of(function, norm)
    with torch.no_grad():
        want = traced(*(t.double() for t in inputs))
    got = run_schedule(found, plan_memory(found), dict(zip(found.lowered.inputs, inputs, strict=True)))
    for g, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        torch.testing.assert_close(g.double(), w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", ["rms", "layer", "unit"])
def test_a_norm_is_part_of_the_products_that_follow(norm) -> None:
    assert len(steps_of(gated, norm)[1].steps) == 1
    assert len(steps_of(two_in_a_row, norm)[1].steps) == 2
    assert summed(steps_of(of_three_sizes, norm)[1]) == 2, "as many rows, one nest"


def test_where_that_does_not_pay_the_norm_is_computed_once() -> None:
    apart = {
        "read elsewhere": steps_of(read_elsewhere, "rms"),
        "small matrices": steps_of(gated, "rms", count=256),
        "no grid": steps_of(gated, "rms", device="cpu"),
        "several rows": steps_of(gated, "rms", rows=2),
        "dear values": steps_of(gated, "shares"),
    }
    assert {name: summed(found) for name, (_, found, _) in apart.items()} == dict.fromkeys(apart, 0)


PROGRAM = """
    input x: float32[512] on cuda:0
    input w: float32[512, 512] on cuda:0
    temporary s: float32[1] on cuda:0 free
    temporary v: float32[512] on cuda:0 free
    temporary y: float32[512] on cuda:0
    loop over i<512
      sum a: float32 = mul(x[i], x[i])
      set s[0] = a
    loop j<512
      set v[j] = div(x[j], s[0])
    loop m<512 over n<512
      sum b: float32 = mul(v[n], w[m, n])
      set y[m] = b
    return y"""


def test_the_sum_stands_before_the_product_at_each_of_its_points() -> None:
    found = re.sub(r"\b([txv])500(\d)", r"\1\2", after(sum_where_multiplied, PROGRAM))
    assert found.partition("temporary y: float32[512] on cuda:0\n")[2] == lines("""
        temporary t4: float32[512] on cuda:0 free
        loop over i<512
          sum a: float32 = mul(x[i], x[i])
          set s[0] = a
        loop x1<512 over x2<512
          sum v3: float32 = mul(x[x2], x[x2])
          set t4[x1] = v3
        loop m<512 over n<512
          sum b: float32 = mul(div(x[n], t4[m]), w[m, n])
          set y[m] = b
        return y""")


def test_what_is_written_between_stays_apart() -> None:
    written = PROGRAM.replace("    loop m", "    loop k<512\n      set x[k] = float32(1.0)\n    loop m")
    assert after(sum_where_multiplied, written) == lines(written)
