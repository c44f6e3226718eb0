"""What compiling a graph did."""

import pytest

from opmill_graph_ir.generator.protocol import BuildProgress
from opmill_graph_ir.report import Report, keep_loops, loops_of
from opmill_runtime_cache.plan.model import Call, KernelRef, Launch, Plan
from opmill_runtime_cache.store import Store

PLAN = Plan(
    "p", 2, (), (), (Launch(0, ()), Launch(0, ()), Call("aten::f", (), {}, ())), kernels=(KernelRef("cpu", "a", "b", "c"),), arena=64
)


def test_steps_add_up_and_the_one_that_runs_is_told():
    report = Report()
    for _ in range(2):
        with report.step("lower"):
            assert report.running == "lower"
    with pytest.raises(ValueError, match="x"), report.step("fuse"):
        raise ValueError("x")
    assert list(report.phases) == ["lower", "fuse"] and report.running == ""


def test_what_there_is_to_run():
    found = Report().counted(PLAN, PLAN)
    assert (found.kernels, found.launches, found.calls, found.arena_bytes, found.plan) == (2, 4, 2, 64, PLAN)


def test_how_far_generators_are():
    report = Report(running="generate", progress=(BuildProgress(), BuildProgress()))
    for each in report.progress:
        each.begin(4)
    assert report.built() is None
    report.progress[0].done = 2
    part, seconds = report.built()
    assert part == 0.25 and seconds > 0
    report.running = "plan"
    assert report.built() is None


def test_loops_come_from_this_process_or_the_store(tmp_path):
    store, mine = Store(tmp_path), Report(key="k" * 8, loops=(("text",),)).counted(PLAN)
    keep_loops(mine, mine.key, store)
    other = Report(key=mine.key).counted(PLAN)
    assert loops_of(mine, store) == loops_of(other, store) == (("text",),)
    assert loops_of(Report(key="gone").counted(PLAN), store) == () and loops_of(Report(loops=(("a", "b"),)).counted(PLAN), store) == ()
