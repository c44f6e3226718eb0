"""Times of a plan's steps: those of the executor's clock, and those that a profiler hears of, are of the same steps and calls."""

import pytest
import torch

import opmill
from opmill.diagnose.timing import clocked, heard
from opmill.diagnose.watching import Watching

pytest.importorskip("opmill_kernel_gen_cpp")


def layer(x, w):
    return torch.nn.functional.gelu(x @ w).softmax(-1)


@pytest.fixture
def watched():
    watching = Watching(opmill.Options())
    x, w = torch.randn(32, 16), torch.randn(16, 8, requires_grad=True)
    compiled = opmill.compile(layer, backend=watching)

    def run():
        compiled(x, w).sum().backward()
        compiled(x * 2, w)

    run()
    return watching, run


@pytest.mark.parametrize("way", [clocked, heard])
def test_each_step_has_its_time_in_each_call(watched, way):
    watching, run = watched
    found = way(run, watching.plans, 3)
    kinds = {(id(timed.plan), step): type(timed.plan.steps[step]).__name__ for timed in watching.plans for step in timed.names.values()}
    assert found.keys() == kinds.keys() and sorted(kinds.values()) == ["Call", "Call", "Launch", "Launch"]
    assert all(len(times) == 3 and min(times) > 0 for times in found.values())


def test_steps_are_looked_at_once_and_counted_by_call(watched):
    watching, run = watched
    watching.measure(run, 2)
    forward, backward = (len(timed.names) for timed in watching.plans)
    counts = [seen.count for seen in watching.steps.values()]
    assert counts == [2] * forward + [1] * backward and watching.steps.keys() == watching.times.keys()
