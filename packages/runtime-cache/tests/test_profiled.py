"""What torch.profiler is told of a plan that runs; nothing is asked where none looks."""

import pytest
import torch
from runtime_kernels import kernel
from runtime_plans import spec
from torch.profiler import ProfilerActivity, profile

from opmill_runtime_cache import _native
from opmill_runtime_cache.errors import PlanError
from opmill_runtime_cache.executor import bind
from opmill_runtime_cache.executor import program as lowering
from opmill_runtime_cache.plan import decode, encode, parse, render, verify
from opmill_runtime_cache.plan.model import Alloc, Call, Check, Expr, Label, Launch, Plan, SizeInput, Slot, SlotOutput, TensorInput

LABELS = (Label("whole", 0, 4), Label("sum", 0, 2, 1), Label("nothing", 2, 2, 1), Label("in it", 2, 2, 2), Label("product", 2, 4, 1))
SQUARE = spec(4, 4)


def plan(*, fails: bool = False, labels=LABELS) -> Plan:
    steps = (
        Alloc(2, SQUARE, 0),
        Launch(0, (0, 1, 2), (16,), (2,), origin="add.Tensor /home/me/model.py:7; mul.Tensor /home/me/model.py:8"),
        Alloc(3, SQUARE),
        Call("aten::mm.out", (Slot(2), Slot(1)), {"out": Slot(3)}, origin="mm /home/me/model.py:9"),
        *((Check(0, "that fails"),) if fails else ()),
    )
    inputs = tuple(TensorInput(k, SQUARE) for k in range(2))
    return Plan("forward model.py:7", 4, inputs, (SlotOutput(3),), steps, kernels=(kernel("add"),), arena=64, labels=labels)


def events(run) -> list[str]:
    """Names of events, inner ones behind dots, with the sizes of what they were given."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        run()
    told = []
    for event in seen.events():
        depth, parent = 0, event.cpu_parent
        while parent is not None:
            depth, parent = depth + 1, parent.cpu_parent
        if event.name not in ("aten::zeros", "aten::empty", "aten::zero_"):
            told.append(". " * depth + event.name + "".join(f" {sizes}" for sizes in event.input_shapes if sizes))
    return told


def test_kernels_and_labels_are_events(store):
    executable, inputs = bind(plan(), [], store), [torch.rand(4, 4), torch.rand(4, 4)]
    assert events(lambda: executable(*inputs)) == [
        "opmill::forward model.py:7",
        ". whole",
        ". . sum",
        ". . . opmill::add+mul model.py:7 [4, 4] [4, 4] [4, 4]",
        ". . nothing",
        ". . . in it",
        ". . product",
        ". . . aten::mm [4, 4] [4, 4] [4, 4]",
    ]
    torch.testing.assert_close(executable(*inputs)[0], (inputs[0] + inputs[1]) @ inputs[1])


def test_nothing_is_made_where_no_profiler_looks(store, monkeypatch):
    asked = []
    monkeypatch.setattr(lowering, "regions", lambda *args: asked.append(args))
    executable = bind(plan(), [], store)
    for _ in range(3):
        executable(torch.rand(4, 4), torch.rand(4, 4))
    assert not asked


def test_labels_close_when_a_step_fails(store):
    executable = bind(plan(fails=True, labels=(Label("whole", 0, 5),)), [], store)

    x = torch.rand(4, 4)

    def run() -> None:
        with pytest.raises(RuntimeError, match="that fails"):
            executable(x, x)
        torch.ones(2).add_(1)

    assert events(run)[:2] == ["opmill::forward model.py:7", ". whole"]
    assert any(e.startswith("aten::add_ [2]") for e in events(run))  # in nothing


def test_what_cannot_be_told_does_not_fail_the_call(store, monkeypatch):
    def broken(*args):
        raise ValueError("told nobody")

    monkeypatch.setattr(lowering, "regions", broken)
    executable = bind(plan(), [], store)
    seen = []
    monkeypatch.setattr("sys.unraisablehook", seen.append)
    x = torch.rand(4, 4)
    assert events(lambda: executable(x, x)) == []
    assert "told nobody" in str(seen[0].exc_value)


def test_an_operator_of_the_dispatcher_tells_of_itself_once(store):
    steps = (Call("aten::cumsum", (Slot(0), Expr(0)), {}, (1,), specs=(SQUARE,)),)
    made = Plan("forward", 2, (TensorInput(0, SQUARE), SizeInput("s0")), (SlotOutput(1),), steps)
    executable = bind(made, [], store)
    assert isinstance(executable, _native.Executable)
    assert [e for e in events(lambda: executable(torch.rand(4, 4), 3)) if "cumsum" in e] == [". aten::cumsum [4, 4]"]


def test_labels_are_part_of_texts_and_bytes():
    made = plan()
    verify(made)
    assert parse(render(made)) == made and decode(encode(made)) == made
    assert "label('in it', 2, 2, depth=2)" in render(made)


@pytest.mark.parametrize(
    "labels",
    [
        [Label("a", -1, 2)],
        [Label("a", 0, 5)],
        [Label("a", 3, 2)],
        [Label("a", 0, 2), Label("b", 1, 3, 1)],
        [Label("a", 0, 2), Label("b", 1, 2, 2)],
        [Label("a", 2, 4), Label("b", 1, 2)],
        [Label("a", 0, 1, 1)],
        [Label("a", 0, 1, -1)],
    ],
)
def test_labels_that_do_not_nest_are_refused(labels):
    with pytest.raises(PlanError, match="RC080"):
        verify(plan(labels=tuple(labels)))
