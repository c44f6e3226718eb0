"""Sums that do not vary along an axis."""

import pytest
import torch
from pass_text import after, lines
from random_lowered import run_schedule

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.invariant import take_once
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import schedule

REPEATED = """
    input x: float32[64, 32]
    input w: float32[64, 32]
    temporary y: float32[64, 64, 8]
    temporary z: float32[64, 64, 8]
    loop i<64 j<64 h<8 over l<{terms}
      sum s: float32 = mul(x[i, l], w[j, l])
      set y[i, j, h] = s
    loop a<64 b<64 c<8
      set z[a, b, c] = mul(y[a, b, c], float32.at({scale}))
    return z"""


def test_what_repeats_a_sum_reads_it() -> None:
    found = after(take_once, REPEATED.format(terms=32, scale="c"))
    assert found.endswith(
        lines("""
        loop x8002<64 x8003<64 over x8004<32
          sum v8005: float32 = mul(x[x8002, x8004], w[x8003, x8004])
          set once8001[x8002, x8003] = v8005
        loop i<64 j<64 h<8
          set z[i, j, h] = mul(once8001[i, j], float32.at(h))
        return z""")
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("w[j, l]", "w[j, l + h]"),  # varies along all axes
        ("w[j, l]", "mul(w[j, l], float32.at(h))"),
        ("over l<32", "over l<3"),  # is summed as quickly as it is read
        ("<64", "<4"),  # is less work than another kernel
        ("sum s: float32 = mul(x[i, l], w[j, l])", "let q = x[i, l]\n      sum s: float32 = mul(q, w[j, l])"),
    ],
)
def test_other_sums_stay(old: str, new: str) -> None:
    program = lines(REPEATED.format(terms=32, scale="c").replace(old, new).replace("[64, 32]", "[64, 64]"))
    assert after(take_once, program).count("loop") == 2


def heads_share(x, w):
    keys = w[:, :, None].expand(-1, -1, 6, -1)
    terms = x[:, :, None, None] * keys[:, None]
    return terms.sum(-1) * w[:, None, :, :6], terms.amax(-1)


def keeps_a_dimension(x, w):
    return (x[:, :, None] * x[:, None]).sum(-1, keepdim=True).expand(-1, -1, -1, 50) * w.sum(-1)[:, None, None]


@pytest.mark.parametrize("fn", [heads_share, keeps_a_dimension], ids=lambda f: f.__name__)
def test_the_same_numbers_with_less_work(fn) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, 40, 32), torch.randn(2, 50, 32)]
    found = schedule(lower(functionalize(torch.fx.symbolic_trace(fn), inputs)))
    want = fn(*(x.double() for x in inputs))
    got = run_schedule(found, plan_memory(found), dict(zip(found.lowered.inputs, inputs, strict=True)))
    for value, right in zip(got, want if isinstance(want, tuple) else [want], strict=True):
        torch.testing.assert_close(value.double(), right, rtol=1e-4, atol=1e-4)
