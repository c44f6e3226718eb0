"""Which inputs a kernel may read while the one before it still runs."""

import torch
import torch.nn.functional as F
from gpu_graphs import on_gpu

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.early import read_early
from opmill_graph_ir.schedule.steps import KernelStep, schedule


def early(function, *inputs) -> list[set[str]]:
    """For each step the inputs that it reads early, by their number; None for operators of torch's."""
    names = ", ".join(f"x{k}" for k in range(len(inputs)))
    traced = torch.fx.symbolic_trace(eval(f"lambda {names}: function({names})", {"function": function}))
    with torch.no_grad():
        program = read_early(schedule(lower(functionalize(traced, list(inputs)))))
    found = []
    for step in program.steps:
        if isinstance(step, KernelStep):
            marked = {name for name, b in zip(step.arguments, step.kernel.buffers, strict=True) if b.early}
            found.append({f"x{program.lowered.inputs.index(name)}" for name in marked})
        else:
            found.append(None)
    return found


X, W, V = on_gpu(1, 512), on_gpu(512, 512), on_gpu(512, 512)


def test_a_chain_of_products_reads_all_matrices_but_the_first_early() -> None:
    assert early(lambda x, w, v: F.linear(F.linear(x, w).relu(), v), X, W, V) == [set(), {"x2"}]


def test_what_the_kernel_before_wrote_is_waited_for() -> None:
    def updated(x, w, v):
        y = F.linear(x, w)
        v.add_(y)
        return F.linear(y, v)

    [*_, before, last] = early(updated, X, W, V)
    assert before is not None and last == set()


def test_operators_of_torch_and_processors_say_nothing() -> None:
    assert {"x1"} not in early(lambda x, w, v: F.linear(x.sort(-1)[0], w), on_gpu(1, 65536), on_gpu(8, 65536), V)
    cpu = [torch.randn(1, 512), torch.randn(512, 512), torch.randn(512, 512)]
    assert not any(early(lambda x, w, v: ((x * w).sum(1) * v).sum(1), *cpu))


def test_products_whose_results_meet_are_one_kernel() -> None:
    def gated(x, w, v):
        return F.silu(F.linear(x, w)) * F.linear(x, v)

    assert len(early(gated, X, on_gpu(2048, 512), on_gpu(2048, 512))) == 1
