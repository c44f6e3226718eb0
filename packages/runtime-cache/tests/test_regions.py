"""What profilers are told of a plan."""

import pytest
import torch

from opmill_runtime_cache.executor.regions import enter, kernel_name, leave, regions
from opmill_runtime_cache.plan.model import Alloc, Call, Label, Launch, Plan, TensorSpec


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ("", "kernel 3"),
        ("add.Tensor /a/b/model.py:7", "add model.py:7"),
        ("add.Tensor m.py:7; exp m.py:8; add.Scalar m.py:9", "add+exp m.py:7"),
        ("; ".join(f"operator{k} m.py:{k}" for k in range(30)), None),
    ],
)
def test_a_kernel_is_named_by_its_operators_and_first_line(origin, name):
    found = kernel_name(Launch(3, (), origin=origin))
    assert found == name if name else len(found) < 120 and "..." in found and found.endswith("m.py:0")


def test_the_whole_comes_first_then_labels_and_what_they_hold():
    spec = TensorSpec("float32", (1,), (1,), "cpu")
    steps = (Alloc(0, spec), Launch(0, (0,), origin="exp m.py:1"), Call("aten::mm.out", (), {}, (1,)))
    plan = Plan("f", 2, (), (), steps, labels=(Label("outer", 0, 3, 0), Label("inner", 1, 2, 1)))
    _, _, found = regions(plan, (0, 1, 3, 5))
    assert found == (
        (0, 6, 0, "opmill::f"),
        (0, 5, 1, "outer"),
        (1, 3, 2, "inner"),
        (2, 3, -1, "opmill::exp m.py:1"),
        (4, 5, -1, "aten::mm"),
    )


def test_steps_without_native_ones_have_no_region():
    plan = Plan("f", 2, (), (), (Launch(0, ()),))
    assert regions(plan, (2, 2))[2] == ((0, 3, 0, "opmill::f"),)


def test_labels_are_seen_by_the_profiler():
    with torch.profiler.profile() as seen:
        leave(enter("a label"))
    assert "a label" in {event.name for event in seen.events()}
