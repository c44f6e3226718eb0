"""From which step on a second run would be seen."""

import pytest

from opmill_runtime_cache.executor.visible import first_visible
from opmill_runtime_cache.plan.model import Alloc, Call, Constant, Launch, Plan, Slot, TensorInput, TensorSpec, View

SPEC = TensorSpec("float32", (4,), (1,), "cpu")


def call(op, *args, results=(), **kwargs):
    return Call(f"aten::{op}" if "::" not in op else op, tuple(map(Slot, args)), {k: Slot(v) for k, v in kwargs.items()}, results)


@pytest.mark.parametrize(
    ("steps", "first"),
    [
        ((Alloc(2, SPEC), Launch(0, (0, 2), writes=(1,)), call("exp.out", 0, out=2)), 3),  # nothing
        ((Alloc(2, SPEC), Launch(0, (2, 0), writes=(1,))), 1),
        ((Alloc(2, SPEC), Launch(0, (2, 1), writes=(1,))), 1),  # a constant is the plan's for all calls
        ((View(2, 0, (2,), (1,)), Launch(0, (2,), writes=(0,))), 1),
        ((View(2, 0, (2,), (1,)), Alloc(2, SPEC), Launch(0, (2,), writes=(0,))), 3),  # the slot is used anew
        ((call("exp.out", 1, out=0),), 0),
        ((call("add_.Tensor", 0, 1),), 0),
        ((call("alias", 0, results=(2,)), call("add_.Tensor", 2, 1)), 1),  # a view of an input
        ((call("exp", 0, results=(2,)), call("add_.Tensor", 2, 1)), 2),
        ((call("_c10d_functional::all_reduce", 0, results=(2,)),), 0),  # others heard it
        ((call("rand_like", 0, results=(2,)),), 1),  # numbers may be drawn again
    ],
)
def test_first_visible(steps, first):
    pytest.importorskip("torch.distributed._functional_collectives")
    plan = Plan("p", 4, (TensorInput(0, SPEC),), (), steps, constants=(Constant(1, SPEC, bytes(16)),))
    assert first_visible(plan) == first
