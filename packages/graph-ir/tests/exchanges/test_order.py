"""Exchanges start early and are waited for late: against eager, on programs that are drawn at random, and one rule at a time."""

import random
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives  # what these operators give is said there

from opmill_graph_ir.backend import compile_graph, installed_generators
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.compiling import scheduled
from opmill_graph_ir.exchanges import order
from opmill_graph_ir.exchanges.costs import Machine, group_of
from opmill_graph_ir.exchanges.dependences import dependences, is_exchange, is_wait
from opmill_graph_ir.exchanges.order import overlapped
from opmill_graph_ir.exchanges.simulate import simulate
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.schedule.laws import verify_schedule
from opmill_graph_ir.schedule.memory import guessed_bytes
from opmill_runtime_cache.plan.text import render

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")
needs_kernels = pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed")
C = torch.ops._c10d_functional if dist.is_available() else None


OTHER = []
"""A second group of processes."""


@pytest.fixture(scope="module", autouse=True)
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    OTHER.append(dist.new_group([0]))
    yield
    OTHER.clear()
    dist.destroy_process_group()


class Drawn(torch.nn.Module):
    """A program of products, points, writes to its arguments, and exchanges, of which some are waited for later than others."""

    def __init__(self, seed, length=24):
        super().__init__()
        self.seed, self.length, self.groups = seed, length, ("0", OTHER[0].group_name)

    def forward(self, x, y):
        draw = random.Random(self.seed)
        values, pending = [x, y, x * 0.5], []
        for _ in range(self.length):
            a, b = draw.choice(values), draw.choice(values)
            kind, group = draw.randrange(8), draw.choice(self.groups)
            if kind < 2:
                pending.append(C.all_reduce(a * 1.5 if kind else a, "sum", group))
            elif kind == 2:
                pending.append(C.all_gather_into_tensor(a.sin(), 1, group))
            elif kind == 3:
                pending.append(C.reduce_scatter_tensor(a @ b, "sum", 1, group))
            elif kind == 4 and pending:
                values.append(C.wait_tensor(pending.pop(draw.randrange(len(pending)))))
            elif kind == 5:
                draw.choice((x, y)).mul_(draw.choice((0.5, -1.0)))
            elif kind == 6:
                values.append((a @ b).tanh())
            else:
                values.append((a - b.t()).sigmoid())
        values += [C.wait_tensor(p) for p in pending]
        return (*values[-3:], torch.stack(values).sum(0))


def schedule_of(module, *inputs):
    with torch.no_grad():
        return scheduled(functionalize(torch.fx.symbolic_trace(module), list(inputs)))[1]


def starts(schedule, group):
    return [step.node.source for step in schedule.steps if is_exchange(step) and group_of(step) == group]


@needs_kernels
@pytest.mark.parametrize("seed", range(12))
def test_programs_give_what_eager_gives(seed):
    module = Drawn(seed)
    inputs = [torch.randn(6, 6), torch.randn(6, 6)]
    given, wanted_given = [t.clone() for t in inputs], [t.clone() for t in inputs]
    with torch.no_grad():
        run = compile_graph(torch.fx.symbolic_trace(module), given, options=GraphOptions(cache=False, verify=True))
        found, wanted = run(*given), module(*wanted_given)
    for a, b in zip([*found, *given], [*wanted, *wanted_given], strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("seed", range(80))
def test_what_a_step_needs_comes_before_it(seed, monkeypatch):
    """Also where memory is scarce; exchanges of a group start as in the program, and nobody waits for one before all that precede it there have
    started."""
    monkeypatch.setattr(order, "AHEAD", random.Random(seed).choice((0, 200, 64 << 20)))
    before = schedule_of(Drawn(seed, 60), torch.randn(8, 8), torch.randn(8, 8))
    found = order._begun(before)
    if seed % 4 == 0:
        found.limit = 0  # everything is waited for at once
    places = {k: place for place, k in enumerate(found.run())}
    assert sorted(places) == list(range(len(before.steps)))
    for k, earlier in enumerate(dependences(replace(before, steps=found.steps)).before):
        assert all(places[n] < places[k] for n in earlier)
    after = replace(before, steps=[found.steps[k] for k in found.out])
    verify_schedule(after)
    told = {step.node.source: k for k, step in enumerate(before.steps) if is_exchange(step)}
    for group in Drawn(seed).groups:
        assert starts(after, group) == starts(before, group)
    made, begun = {}, set()
    for step in after.steps:
        if is_exchange(step):
            begun.add(told[step.node.source])
            made |= dict.fromkeys(step.writes(), told[step.node.source])
        elif is_wait(step):
            assert begun.issuperset(k for k in told.values() if k < max(made.get(b, 0) for b in step.reads()))
    written = {}  # what is sent stays as it was until it is waited for
    for place, step in enumerate(after.steps):
        for buffer in step.writes():
            written.setdefault(buffer, []).append(place)
    for start, waits in dependences(after).waits.items():
        if waits:
            assert not [p for b in after.steps[start].reads() for p in written.get(b, ()) if start < p < waits[0]]


class Sharded(torch.nn.Module):
    """Layers whose weights are gathered where they are used."""

    def __init__(self, layers=4, width=64):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.randn(width, width) for _ in range(layers))

    def forward(self, x):
        for weight in self.weights:
            gathered = torch.ops._c10d_functional_autograd.all_gather_into_tensor(weight * 1.5, 1, "0")
            x = torch.relu(x @ C.wait_tensor(gathered))
        return (x,)


def test_weights_are_gathered_ahead_of_their_layers():
    with torch.no_grad():
        before = scheduled(functionalize(torch.fx.symbolic_trace(Sharded()), [torch.randn(16, 64)]))[1]
    after = overlapped(before)
    kinds = ["start" if is_exchange(s) else "wait" if is_wait(s) else "" for s in after.steps]
    first_wait = kinds.index("wait")
    assert kinds[:first_wait].count("start") == 4
    machine = Machine(launch=1e-3, latency=1e-3)
    assert simulate(after, machine).exposed < 0.7 * simulate(before, machine, blocking=True).exposed


class Backward(torch.nn.Module):
    """Gradients of a layer of which rows are divided by one group of processes, and weights by another."""

    def forward(self, gradient, x, weight):
        of_weight = C.reduce_scatter_tensor(x.t() @ gradient, "sum", 1, OTHER[0].group_name)
        of_rows = C.wait_tensor(C.reduce_scatter_tensor(gradient @ weight.t(), "sum", 1, "0"))
        return of_rows.sigmoid(), C.wait_tensor(of_weight)


def test_gradients_of_weights_are_computed_beside_the_exchange_of_those_of_activations():
    before = schedule_of(Backward(), torch.randn(16, 64), torch.randn(16, 64), torch.randn(64, 64))
    after = overlapped(before)
    assert [s.node.op.partition("::")[2].partition(".")[0] if hasattr(s, "node") else "kernel" for s in after.steps if "out" not in s.writes()][:5] == [
        "mm", "reduce_scatter_tensor", "mm", "reduce_scatter_tensor", "wait_tensor"
    ]  # fmt: skip
    machine = Machine(launch=1e-3, latency=1e-3)
    assert simulate(after, machine).exposed < simulate(before, machine).exposed


def test_exchanges_of_one_group_do_not_pass_one_another():
    class Same(torch.nn.Module):
        def forward(self, gradient, x, weight):
            of_weight = C.reduce_scatter_tensor(x.t() @ gradient, "sum", 1, "0")
            of_rows = C.wait_tensor(C.reduce_scatter_tensor(gradient @ weight.t(), "sum", 1, "0"))
            return of_rows.sigmoid(), C.wait_tensor(of_weight)

    before = schedule_of(Same(), torch.randn(16, 64), torch.randn(16, 64), torch.randn(64, 64))
    assert starts(overlapped(before), "0") == starts(before, "0")


@pytest.mark.parametrize("ahead", [0, 1 << 20])
def test_early_starts_stay_below_the_highest_point(ahead, monkeypatch):
    monkeypatch.setattr(order, "AHEAD", ahead)
    with torch.no_grad():
        before = scheduled(functionalize(torch.fx.symbolic_trace(Sharded(12)), [torch.randn(16, 64)]))[1]
    top = max(order.held(before, dependences(before)).level)
    after = overlapped(before)
    assert max(order.held(after, dependences(after)).level) <= top + max(ahead, top // 16)
    weight = 64 * 64 * 4
    in_flight, most = 0, 0
    for step in after.steps:
        in_flight += is_exchange(step) - is_wait(step)
        most = max(most, in_flight)
    assert most * weight <= max(ahead, top // 16) + top and (most > 2) == (ahead > 0)


def test_the_plan_says_what_runs_beside():
    pytest.importorskip("opmill_kernel_gen_cpp")  # what no generator takes is torch's, in the order of the program
    with torch.no_grad():
        run = compile_graph(torch.fx.symbolic_trace(Sharded()), [torch.randn(16, 64)], options=GraphOptions(cache=False))
    lines = [line for line in render(run.report.plan).splitlines() if "all_gather_into_tensor" in line and "call(" in line]
    assert len(lines) == 4 and all("; beside " in line for line in lines)
    assert not any("beside 0 steps" in line for line in lines[1:])


def test_what_checkpointed_blocks_gathered_comes_again():
    joint = capture_joint(torch.fx.symbolic_trace(Sharded()), [torch.randn(16, 64, requires_grad=True)])
    for node in joint.graph.nodes:
        node.again = node.origin != "backward" and "backward" not in node.origin
    found = partition(joint)
    gathers = [[n for n in g.nodes if "all_gather" in n.func.name()] for g in found.graphs]
    assert list(map(len, gathers)) == [4, 4]
    made = {r for n in gathers[0] for r in n.results} | {n.results[0] for n in found.forward.nodes if "wait" in n.func.name()}
    assert not made.intersection(found.saved)


def test_costs_count_what_is_sent_and_multiplied():
    class Module(torch.nn.Module):
        def forward(self, x):
            return C.wait_tensor(C.all_reduce(x @ x, "sum", "0"))

    schedule = schedule_of(Module(), torch.randn(100, 100))
    machine = Machine(flops=1e6, memory=1e12, launch=0.0, inside=1e3, between=1e2, latency=0.0, groups=lambda name: (4, True))
    line = simulate(schedule, machine)
    assert line.computing == pytest.approx(2 * 100**3 / 1e6)
    sent = guessed_bytes(schedule, next(iter(next(s for s in schedule.steps if is_exchange(s)).writes())))
    assert line.exchanging == pytest.approx(2 * sent * 3 / 4 / 1e3)
    assert line.exposed == pytest.approx(line.exchanging)
    alone = Machine(flops=1e6, memory=1e12, launch=0.0, groups=lambda name: (1, True))
    assert simulate(schedule, alone).exchanging == 0
