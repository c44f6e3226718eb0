"""Lifetimes in the arena."""

import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import schedule


def test_what_a_view_of_an_operator_shows_lives_as_long_as_the_view():
    def f(a, w):
        shown = (a.exp() @ w).as_strided((2, 4), (1, 1), 0)  # its elements share memory: no kernel makes it
        other = ((a.sin() @ w).exp() @ w).cos() @ w
        return shown.sum() + other.sum()

    tensors = [torch.ones(4, 4), torch.ones(4, 4)]
    program = schedule(lower(functionalize(torch.fx.symbolic_trace(f), tensors)))
    memory = plan_memory(program)
    [view] = [s.node for s in program.steps if getattr(s, "node", None) is not None and s.node.op == "aten::as_strided"]
    [shown] = [a.buffer for a in view.args if hasattr(a, "buffer")]
    assert memory.last[shown] == memory.last[view.results[0]]
    start, size = memory.offsets[shown], 64
    for other, offset in memory.offsets.items():
        meet = memory.first[other] <= memory.last[shown] and memory.first[shown] <= memory.last[other]
        assert other == shown or not meet or offset + size <= start or start + size <= offset
