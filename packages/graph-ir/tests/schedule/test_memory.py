"""Lifetimes in the arena."""

from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.backend import compile_graph, installed_generators
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.schedule.joint_memory import plan_together
from opmill_graph_ir.schedule.memory import LARGE, guessed_bytes, plan_memory
from opmill_graph_ir.schedule.steps import ExternStep, schedule


def test_what_a_view_of_an_operator_shows_lives_as_long_as_the_view():
    def f(a, w):
        shown = (a.exp() @ w).view(torch.int32)  # no kernel makes it
        other = ((a.sin() @ w).exp() @ w).cos() @ w
        return shown.sum() + other.sum()

    tensors = [torch.ones(4, 4), torch.ones(4, 4)]
    program = schedule(lower(functionalize(torch.fx.symbolic_trace(f), tensors)))
    memory = plan_memory(program)
    [view] = [s.node for s in program.steps if getattr(s, "node", None) is not None and s.node.op == "aten::view.dtype"]
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
    """The most bytes that are held at once: the arena, what plans allocate besides, and what they were handed and have not used for the
    last time."""
    arena, most = max(m.size for m in memories), 0
    for program, memory, handed in zip(schedules, memories, given, strict=True):
        kept = {o.buffer for o in program.lowered.outputs if o is not None}
        held = dict.fromkeys(handed)
        for k, step in enumerate(program.steps):
            names = {memory.homes.get(b, b) for b in step.reads() | step.writes()}
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

    program = schedule(
        lower(functionalize(torch.fx.symbolic_trace(function), [torch.randn(40, 30)]), exact=True)
    )  # operators are called as they are
    [leaving, own] = [step for step in program.steps if isinstance(step, ExternStep) and step.node.op == "aten::view_as_complex"]
    placed = plan_memory(program).offsets
    assert not leaving.reads() & set(placed) and own.reads() <= set(placed)


def test_views_whose_schema_does_not_tell_keep_what_they_show():
    """A product of batches is such a view of what multiplied them."""

    def function(x, y):
        return x @ x.mH, y @ y.transpose(-1, -2) + 1

    torch.manual_seed(0)
    inputs = torch.randn(2, 3, 5, dtype=torch.complex64), torch.randn(2, 3, 5)
    run = compile_graph(torch.fx.symbolic_trace(function), list(inputs), options=GraphOptions(cache=False, numerics="eager"))
    for got, wanted in zip(run(*inputs), function(*inputs), strict=True):
        assert torch.equal(got, wanted)


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


class Forked(torch.nn.Module):
    """Gradients of its inner tensors come from two convolutions each, and are added."""

    def __init__(self):
        super().__init__()
        self.pairs = torch.nn.ModuleList(torch.nn.ModuleList(torch.nn.Conv2d(8, 8, n, padding=n // 2) for n in (5, 3)) for _ in range(3))

    def forward(self, x):
        for one, other in self.pairs:
            x = (one(x) + other(x)).tanh()
        return x


def test_what_convolutions_allocate_is_written_again_by_kernels():
    net, x = Forked(), torch.randn(2, 8, 12, 12)
    schedules, given = halves_of(net, x.requires_grad_())
    forward, backward = plan_together(schedules, given)
    made = {r for s in schedules[1].steps if isinstance(s, ExternStep) for r in s.node.results}
    assert set(backward.homes.values()) & made, "a sum of gradients lies where a convolution put its own"
    for new, home in backward.homes.items():
        assert new not in backward.offsets and home not in backward.offsets and backward.last[new] <= backward.last[home]
    assert peak(schedules, [forward, backward], given) < peak(schedules, [forward, replace(backward, homes={})], given)


@pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed")
def test_gradients_where_memory_is_written_again():
    torch.manual_seed(0)
    net, x = Forked(), torch.randn(2, 8, 12, 12, requires_grad=True)
    run = compile_graph(torch.fx.symbolic_trace(net), [x], options=GraphOptions(cache=False, verify=True))
    leaves = [x, *net.parameters()]
    for _ in range(2):
        got, want = run(x)[0], net(x)
        ours, theirs = (torch.autograd.grad(out.square().sum(), leaves) for out in (got, want))
        torch.testing.assert_close((got, ours), (want, theirs), rtol=1e-4, atol=1e-4)


def test_views_that_torch_has_so_hold_one_value_in_many_places():
    def f(a):
        t = torch.complex(a, a)
        shown = (t - t).unsqueeze(0).expand(3, -1, -1)
        return shown, shown.index_fill(1, torch.tensor([0]), 1)

    with torch.no_grad():
        assert schedule(lower(functionalize(torch.fx.symbolic_trace(f), [torch.ones(1, 2)]))).kernels()


def scaled(x, w, v):
    """Results written over products, one that another result needs, one that is given out twice, one in a view."""
    a, b, c, d = x @ w, x @ v, x @ (w + v), w @ v
    kept = c + 1
    return a * a.sum(), kept, kept * c.sum(), (b * 2).t(), d * 3, (d * 4)[1:]


def test_results_lie_from_the_beginning_where_what_they_are_written_over_does():
    given = [torch.randn(300, 300) for _ in range(3)]
    with torch.no_grad():
        program = schedule(lower(functionalize(torch.fx.symbolic_trace(scaled), given)))
        memory = plan_memory(program)
        leaving = {o.buffer for o in program.lowered.outputs}
        homes = {b: r for b, r in memory.homes.items() if b in leaving}
        assert len(homes) >= 2 and len(set(homes.values())) == len(homes)
        assert all(r not in memory.offsets and memory.last[r] == len(program.steps) for r in homes.values())


@pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed")
def test_results_that_are_written_over_operands_stay_when_the_graph_runs_again():
    given = [torch.randn(300, 300) for _ in range(3)]
    with torch.no_grad():
        run = compile_graph(torch.fx.symbolic_trace(scaled), given, options=GraphOptions(cache=False, verify=True))
        results = []
        for _ in range(3):
            again = [torch.randn(300, 300) for _ in range(3)]
            found, wanted = run(*again), scaled(*again)
            results.append((found, wanted))
            assert [(t.shape, t.stride(), t.is_contiguous()) for t in found] == [(t.shape, t.stride(), t.is_contiguous()) for t in wanted]
            assert len({t.untyped_storage().data_ptr() for t in found}) == len(found)
        for found, wanted in results:
            torch.testing.assert_close(tuple(found), wanted, rtol=1e-4, atol=1e-4)


def cells(x, w, h, c):
    """Steps of a recurrent layer whose gates are given out: a gate and the cell's state are written by one kernel, over the state before."""
    gates = []
    for k in range(3):
        i, f, g, o = (x[k] + h @ w).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        gates += [i, f, g, o]
        c = f * c + i * g
        h = o * c.tanh()
    return *gates, torch.stack([c, h])


@pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed")
def test_two_results_of_one_kernel_have_memory_each():
    given = [torch.randn(3, 6, 32), torch.randn(8, 32), torch.randn(6, 8), torch.randn(6, 8)]
    with torch.no_grad():
        program = schedule(lower(functionalize(torch.fx.symbolic_trace(cells), given)))
        memory = plan_memory(program)
        for step in program.steps:
            places = [memory.homes.get(b, b) for b in step.writes()]
            assert len(places) == len(set(places))
        run = compile_graph(torch.fx.symbolic_trace(cells), given, options=GraphOptions(cache=False, verify=True))
        torch.testing.assert_close(tuple(run(*given)), cells(*given))
