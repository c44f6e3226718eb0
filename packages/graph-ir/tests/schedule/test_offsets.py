"""Kernels that begin elsewhere in their buffers are one, and it does what they did."""

import random
from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.spec import verify_kernel
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.offsets import moved, shared
from opmill_graph_ir.schedule.steps import KernelStep, schedule

ROOM = 12


@pytest.mark.parametrize("case", [c for c in cases() if not c.expect][::3], ids=lambda c: c.name)
def test_the_shared_kernel_does_what_each_did(case):
    r = random.Random(case.name)
    kernel = replace(case.kernel, buffers=tuple(replace(b, numel=b.numel + ROOM) for b in case.kernel.buffers))
    free = [b.name for b in kernel.buffers if b.role != "inout"]
    starts = [{name: r.choice((0, 1, 5, ROOM)) for name in free} for _ in range(4)]
    kernels = list(dict.fromkeys(moved(kernel, {name: index(n) for name, n in at.items()}) for at in starts))
    found = shared(kernels)
    assert len(kernels) < 3 or len({one for one, _ in found.values()}) == 1
    for each, (one, numbers) in found.items():
        verify_kernel(one)
        want, got = ({name: torch.cat([t, t.new_ones(ROOM)]) for name, t in case.buffers(3).items()} for _ in range(2))
        assert evaluate(each, want, case.sizes) == evaluate(one, got, (*case.sizes, *numbers)) == 0
        for name, tensor in want.items():
            torch.testing.assert_close(got[name], tensor, rtol=0, atol=0, equal_nan=True)


def test_as_many_kernels_for_any_number_of_steps():
    def kernels(steps):
        def f(x, w):
            h = x[:, 0] * 0
            for t in range(steps):
                h = torch.tanh(h @ w + x[:, t]) * torch.sigmoid(x[:, t])
            return (h,)

        with torch.no_grad():
            made = schedule(lower(functionalize(torch.fx.symbolic_trace(f), [torch.randn(16, steps, 32), torch.randn(32, 32)])))
        return {s.kernel for s in made.steps if isinstance(s, KernelStep)}, sum(isinstance(s, KernelStep) for s in made.steps)

    few, many = kernels(6), kernels(12)
    assert len(few[0]) == len(many[0]) <= 3 and many[1] >= 12
