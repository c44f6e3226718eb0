"""Steps of a plan are timed where they run, by the clock on processors; a profiler hears of each by a name that says which it is."""

import pytest
import torch
from runtime_kernels import kernel
from runtime_plans import spec
from torch.profiler import ProfilerActivity, profile

from opmill_runtime_cache.executor import TimedExecutable
from opmill_runtime_cache.plan.model import Alloc, Call, Expr, Launch, Plan, SizeInput, Slot, SlotOutput, TensorInput

SQUARE = spec(4, 4)


@pytest.fixture
def timed(store) -> TimedExecutable:
    steps = (
        Alloc(2, SQUARE, 0),
        Launch(0, (0, 1, 2), (16,), (2,)),
        Alloc(3, SQUARE),
        Call("aten::mm.out", (Slot(2), Slot(1)), {"out": Slot(3)}),
        Call("aten::cumsum", (Slot(3), Expr(0)), {}, (4,), specs=(SQUARE,)),
    )
    inputs = (*(TensorInput(k, SQUARE) for k in range(2)), SizeInput("s0"))
    plan = Plan("forward", 5, inputs, (SlotOutput(4),), steps, kernels=(kernel("add"),), arena=64)
    return TimedExecutable(plan, [], store)


def test_kernels_and_operators_are_timed_and_results_stay(timed):
    a, b = torch.rand(4, 4), torch.rand(4, 4)
    expected = ((a + b) @ b).cumsum(0)
    assert timed.seconds() == {}
    timed.begin()
    torch.testing.assert_close(timed(a, b, 3)[0], expected)
    torch.testing.assert_close(timed.take([a, b, 3])[0], expected)
    found = timed.seconds()
    assert list(found) == [1, 3, 4] and all(0 < seconds < 1 for seconds in found.values())


def test_calls_are_added_up_between_beginning_and_end_alone(timed):
    x = torch.rand(4, 4)
    timed.begin()
    timed(x, x, 3)
    first = timed.seconds()
    timed(x, x, 3)
    assert timed.seconds() == first
    timed.begin()
    assert set(timed.seconds().values()) == {0.0}


def test_a_profiler_hears_of_each_by_its_name(timed):
    x = torch.rand(4, 4)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        timed(x, x, 3)
    assert [timed.names[e.name] for e in seen.events() if e.name in timed.names] == [1, 3, 4]
