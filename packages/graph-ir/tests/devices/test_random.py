"""Random numbers on GPUs: drawn in the kernels that use them, from seeds that one call draws."""

import pytest
import torch
from gpu_graphs import calls, on_gpu, planned

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.ir import LoopKernel, Op
from opmill_graph_ir.loops.walk import expressions
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.steps import KernelStep, schedule

F = torch.nn.functional
aten = torch.ops.aten


def kernels_of(function, *inputs) -> list[LoopKernel]:
    module = torch.fx.symbolic_trace(
        eval(
            f"lambda {', '.join(f'x{k}' for k in range(len(inputs)))}: function({', '.join(f'x{k}' for k in range(len(inputs)))})",
            {"function": function},
        )
    )
    with torch.no_grad():
        program = schedule(lower(functionalize(module, list(inputs))))
    return [s.kernel for s in program.steps if isinstance(s, KernelStep)]


def draws(kernel: LoopKernel) -> list[Op]:
    return [e for n in kernel.nests for p in n.phases for e in expressions(p) if type(e) is Op and e.name in ("philox", "coin")]


def test_dropout_is_part_of_its_kernel_and_draws_its_seed_once():
    def function(x, b):
        y = F.dropout(F.gelu(x + b), 0.25)
        return F.dropout(y.relu(), 0.5)

    plan = planned(function, on_gpu(64, 32), on_gpu(32))
    assert not calls(plan, "aten::native_dropout") and len(calls(plan, "aten::randint.low")) == 1
    [kernel] = kernels_of(function, on_gpu(64, 32), on_gpu(32))
    assert len({e.args[0] for e in draws(kernel)}) == 2, "each draws a sequence of its own"


def test_many_sequences_take_more_seeds():
    def function(x):
        for _ in range(70):
            x = F.dropout(x, 0.1)
        return x

    assert len(calls(planned(function, on_gpu(8, 8)), "aten::randint.low")) == 2


@pytest.mark.parametrize("p", [0.1, 0.5, 0.93])
def test_what_is_kept_is_scaled(p: float):
    def function(x):
        return aten.native_dropout(x, p, True)

    [kernel] = kernels_of(function, on_gpu(500, 40, dtype=torch.float32))
    found = {b.name: torch.zeros(b.numel.constant, dtype=getattr(torch, b.dtype)) for b in kernel.buffers}
    [seeds] = [b.name for b in kernel.buffers if b.dtype == "int64"]
    [x] = [b.name for b in kernel.buffers if b.role == "in" and b.dtype == "float32"]
    [y] = [b.name for b in kernel.buffers if b.role == "out" and b.dtype == "float32"]
    [mask] = [b.name for b in kernel.buffers if b.dtype == "bool"]
    found[seeds] += torch.arange(64) * 7919 + 3
    found[x] += torch.randn(20000, generator=torch.Generator().manual_seed(0))
    evaluate(kernel, found, ())
    kept = found[mask]
    assert abs(kept.float().mean() - (1 - p)) < 0.015
    torch.testing.assert_close(found[y], torch.where(kept, found[x] / (1 - p), 0.0))


def test_uniform_numbers():
    [kernel] = kernels_of(lambda x: aten.rand_like(x), on_gpu(500, 40, dtype=torch.float32))
    found = {b.name: torch.zeros(b.numel.constant, dtype=getattr(torch, b.dtype)) for b in kernel.buffers}
    evaluate(kernel, found, ())
    [u] = [t for t in found.values() if t.dtype == torch.float32]
    assert 0 <= u.min() < 0.001 and 0.999 < u.max() < 1 and abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.002


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_what_draws_nothing_is_torch_s(p: float):
    assert calls(planned(lambda x: aten.native_dropout(x, p, True)[0], on_gpu(8, 8)), "aten::native_dropout")


def test_processors_draw_torch_s_numbers():
    assert calls(planned(lambda x: aten.native_dropout(x, 0.5, True)[0], torch.randn(8, 8)), "aten::native_dropout")


def test_eagers_numbers_are_drawn_by_eagers_operators():
    with torch.no_grad():
        graph = functionalize(torch.fx.symbolic_trace(lambda x: F.dropout(x, 0.5)), [on_gpu(8, 8, dtype=torch.float32)])
    assert all("coin" not in str(n) for n in lower(graph, exact=True).nodes)
    assert any("coin" in str(n) for n in lower(graph).nodes)
