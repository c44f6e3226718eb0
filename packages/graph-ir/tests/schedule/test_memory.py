"""Lifetimes in the arena."""

import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.memory import LARGE, guessed_bytes, plan_memory
from opmill_graph_ir.schedule.steps import ExternStep, schedule
from opmill_graph_ir.schedule.together import plan_together


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


def halves_of(net, x):
    """Schedules of a module's forward and backward, and the inputs that each is handed on."""
    halves = partition(capture_joint(torch.fx.symbolic_trace(net), [x]))
    made = {r for n in halves.forward.nodes for r in n.results}
    return [schedule(lower(g)) for g in halves.graphs], [made.intersection(g.inputs) for g in halves.graphs]


def peak(schedules, memories, given):
    """The most bytes that are held at once: the arena, what plans allocate besides, and what they were handed and have not used for the last time."""
    arena, most = max(m.size for m in memories), 0
    for program, memory, handed in zip(schedules, memories, given, strict=True):
        kept = {o.buffer for o in program.lowered.outputs if o is not None}
        held = dict.fromkeys(handed)
        for k, step in enumerate(program.steps):
            names = step.reads() | step.writes()
            held |= dict.fromkeys(b for b in names if program.buffers[b].role == "temporary" and b not in memory.offsets)
            most = max(most, arena + sum(guessed_bytes(program, b) for b in held))
            held = {b: None for b in held if b in kept or memory.last[b] > k}
    return most


class Wide(torch.nn.Module):
    """Much is saved at its end, and its largest temporaries are needed where little is."""

    def __init__(self):
        super().__init__()
        self.first, self.rest = torch.nn.Linear(16, 1024), torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(6))

    def forward(self, x):
        x = self.first(x).view(1024, 4, 256).sum(1)
        for layer in self.rest:
            x = torch.nn.functional.gelu(layer(x))
        return x


def test_what_a_view_shows_that_leaves_is_its_own():
    def function(x):
        pairs = [torch.stack([x * k, x + k], -1) for k in (2, 3)]
        return torch.view_as_complex(pairs[0]), torch.view_as_complex(pairs[1]).abs()

    program = schedule(lower(functionalize(torch.fx.symbolic_trace(function), [torch.randn(40, 30)]), exact=True))  # operators are called as they are
    [leaving, own] = [step for step in program.steps if isinstance(step, ExternStep) and step.node.op == "aten::view_as_complex"]
    placed = plan_memory(program).offsets
    assert not leaving.reads() & set(placed) and own.reads() <= set(placed)


def test_large_temporaries_lie_outside_of_an_arena_that_would_be_idle_at_the_peak():
    schedules, given = halves_of(Wide(), torch.ones(1024, 16))
    apart, together = [plan_memory(s) for s in schedules], plan_together(schedules, given)
    before, after = peak(schedules, apart, given), peak(schedules, together, given)
    assert after <= before - 2**20
    assert any(len(t.offsets) < len(a.offsets) for a, t in zip(apart, together, strict=True))
    for program, a, t in zip(schedules, apart, together, strict=True):
        assert all(guessed_bytes(program, b) >= LARGE for b in a.offsets.keys() - t.offsets.keys())


def test_arenas_that_the_peak_needs_stay_as_they_are():
    schedules, given = halves_of(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8)), torch.ones(4, 8))
    assert [m.offsets for m in plan_together(schedules, given)] == [plan_memory(s).offsets for s in schedules]


def test_views_that_torch_has_so_hold_one_value_in_many_places():
    def f(a):
        t = torch.complex(a, a)
        shown = (t - t).unsqueeze(0).expand(3, -1, -1)
        return shown, shown.index_fill(1, torch.tensor([0]), 1)

    with torch.no_grad():
        assert schedule(lower(functionalize(torch.fx.symbolic_trace(f), [torch.ones(1, 2)]))).kernels()
