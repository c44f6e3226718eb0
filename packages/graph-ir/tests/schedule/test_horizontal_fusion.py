"""Kernels that do the same to other buffers, one after the other, are one on devices with a grid; all others stay as they are."""

from dataclasses import replace

import pytest
import torch
from random_lowered import run_schedule

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.horizontal_fusion import join_alike
from opmill_graph_ir.schedule.laws import verify_schedule
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import schedule
from opmill_graph_ir.schedule.whole_text import parse_schedule

SIZE = 10_000


def apart(a, b, c, d):
    """Four that are alike, one of another size between them."""
    return a * 2 + 1, b * 2 + 1, c[:SIZE] * 2 + 1, d[:9001] * 2 + 1, d[:SIZE] * 2 + 1


def written(a, b, c, d):
    """What a kernel reads is written by the next."""
    x = a * b
    a.copy_(b * b)
    return x, c * d


def scheduled(function, device="cuda:0"):
    torch.manual_seed(0)
    inputs = [torch.randn(SIZE) for _ in range(4)]
    with torch.no_grad():
        graph = functionalize(torch.fx.symbolic_trace(function), [t.clone() for t in inputs])
    graph.metas = {name: replace(meta, device=device) for name, meta in graph.metas.items()}
    return inputs, schedule(lower(graph))


@pytest.mark.parametrize("function, device, nests", [(apart, "cuda:0", [4, 1]), (apart, "cpu", [1] * 5), (written, "cuda:0", [2, 1])])
def test_alike_are_one_and_give_the_same(function, device, nests) -> None:
    inputs, found = scheduled(function, device)
    joined = join_alike(found)
    verify_schedule(joined)
    assert all(len(s.kernel.nests) == 1 for s in found.steps) and [len(s.kernel.nests) for s in joined.steps] == nests
    results = [
        run_schedule(each, plan_memory(each), dict(zip(each.lowered.inputs, (t.clone() for t in inputs), strict=True)))
        for each in (found, joined)
    ]
    for before, after in zip(*results, strict=True):
        assert torch.equal(before, after)


def test_no_more_than_eight_are_one() -> None:
    def many(a, b, c, d):
        return tuple(x[k : k + 9000] + 1 for x in (a, b, c, d) for k in (0, 1, 2, 3, 4))

    joined = join_alike(scheduled(many)[1])
    assert max(len(s.kernel.nests) for s in joined.steps) <= 8


VIEWED = """\
kernel 0:
    kernel copy()
      in b0: float32[8]
      out b1: float32[8]
    nest i0<8
      phase
        set b1[i0] = b0[i0]
input x: float32[8] on cuda:0
input z: float32[8] on cuda:0
temporary v: float32[8] on cuda:0
temporary y: float32[8] on cuda:0
takes x, z
call v = aten::VIEW (x)
launch 0 copy(v, y) on cuda:0
launch 0 copy(z, x) on cuda:0
return y
"""


@pytest.mark.parametrize("call, steps", [("detach", 3), ("sin", 2)])
def test_what_is_seen_through_a_view_is_not_written_at_once(call, steps) -> None:
    assert len(join_alike(parse_schedule(VIEWED.replace("VIEW", call))).steps) == steps
