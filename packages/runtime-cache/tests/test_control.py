"""Steps that run other plans: both executors against the same loops and branches written in Python, text and bytes, laws."""

import pytest
import torch

from opmill_runtime_cache.errors import PlanError
from opmill_runtime_cache.executor.control import scan
from opmill_runtime_cache.executor.native import bind
from opmill_runtime_cache.executor.reference import bind_reference
from opmill_runtime_cache.plan.codec import decode, encode
from opmill_runtime_cache.plan.model import (
    Alloc,
    Call,
    Expr,
    ListArg,
    Literal,
    Plan,
    SizeInput,
    SizeOf,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
)
from opmill_runtime_cache.plan.text import parse, render
from opmill_runtime_cache.plan.verify import verify

ROW = TensorSpec("float32", ("n",), (1,))
TABLE = TensorSpec("float32", (5, "n"), ("n", 1))
FLAG, COUNT = TensorSpec("bool", (), ()), TensorSpec("int64", (), ())


def body(name, inputs, calls, outputs, slots):
    """A plan over rows of ``n`` elements, which it is given as a size."""
    places = tuple(TensorInput(k, spec) for k, spec in enumerate(inputs))
    return Plan(name, slots, (*places, SizeInput("n")), tuple(map(SlotOutput, outputs)), tuple(calls))


def elementwise(op, slot, *args):
    return Call(f"aten::{op}", args, {}, (slot,))


THEN = body("then", [ROW], [elementwise("sin", 1, Slot(0))], [1], 2)
OTHER = body("other", [ROW], [elementwise("mul.Scalar", 1, Slot(0), Literal(3.0))], [1], 2)
TEST = body("test", [COUNT, ROW], [elementwise("gt.Scalar", 2, Slot(0), Literal(0))], [2], 3)
STEP = body("step", [COUNT, ROW], [elementwise("sub.Scalar", 2, Slot(0), Literal(1)), elementwise("cos", 3, Slot(1))], [2, 3], 4)
SUM = body(
    "sum", [ROW, ROW, ROW], [elementwise("add.Tensor", 3, Slot(0), Slot(1)), elementwise("mul.Tensor", 4, Slot(3), Slot(2))], [3, 4], 5
)
SIZE = Expr("n")


def branched() -> Plan:
    call = Call("opmill::branch", (Slot(1), ListArg((Slot(2), SIZE))), {}, (3,), "where", (ROW,), (0, 1))
    # The operand lies in the arena, as what a plan computes does.
    steps = (Alloc(2, ROW, 0), Call("aten::neg.out", (Slot(0),), {"out": Slot(2)}), call)
    inputs = (TensorInput(0, ROW), TensorInput(1, FLAG))
    return Plan("branched", 4, inputs, (SlotOutput(3),), steps, (SizeOf("n", 0, 0),), arena="(n*4+63)//64*64", bodies=(THEN, OTHER))


def looped() -> Plan:
    call = Call("opmill::while_loop", (ListArg((Slot(0), Slot(1))), ListArg((SIZE,))), {}, (2, 3), "", (COUNT, ROW), (0, 1))
    inputs = (TensorInput(0, COUNT), TensorInput(1, ROW))
    return Plan("looped", 4, inputs, (SlotOutput(2), SlotOutput(3)), (call,), (SizeOf("n", 1, 0),), bodies=(TEST, STEP))


def scanned(backwards: bool) -> Plan:
    groups = (ListArg((Slot(0),)), ListArg((Slot(1),)), ListArg((Slot(2), SIZE)), Literal(backwards))
    call = Call("opmill::scan", groups, {}, (3, 4), "", (ROW, TABLE), (0,))
    inputs = (TensorInput(0, ROW), TensorInput(1, TABLE), TensorInput(2, ROW))
    return Plan("scanned", 5, inputs, (SlotOutput(3), SlotOutput(4)), (call,), (SizeOf("n", 0, 0),), bodies=(SUM,))


def expected_scan(carried, table, factor, backwards):
    rows = list(table)
    out = []
    for row in rows[::-1] if backwards else rows:
        carried = carried + row
        out.append(carried * factor)
    return carried, torch.stack(out[::-1] if backwards else out)


@pytest.fixture(params=[bind, bind_reference], ids=["native", "reference"])
def run(request, store):
    return lambda plan: request.param(plan, [], store)


@pytest.mark.parametrize("n", [1, 7])
def test_a_branch_is_the_one_that_the_predicate_chooses(run, n):
    executable, x = run(branched()), torch.randn(n, generator=torch.Generator().manual_seed(n))
    for flag in (True, False, True):
        [out] = executable(x, torch.tensor(flag))
        torch.testing.assert_close(out, (-x).sin() if flag else -x * 3)


@pytest.mark.parametrize("turns", [0, 1, 6])
def test_a_loop_runs_while_its_test_says_so(run, turns):
    x = torch.randn(4, generator=torch.Generator().manual_seed(turns))
    count, out = run(looped())(torch.tensor(turns), x)
    wanted = x
    for _ in range(turns):
        wanted = wanted.cos()
    assert count.item() == 0 and torch.equal(out, wanted)
    assert out.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("turns", [0, 1, 6])
def test_a_loop_keeps_what_it_carried_into_each_turn(run, turns):
    call = Call("opmill::while_loop", (ListArg((Slot(0), Slot(1))), ListArg((SIZE,)), Literal(True)), {}, (2, 3, 4, 5), bodies=(0, 1))
    outputs = tuple(map(SlotOutput, range(2, 6)))
    plan = Plan("kept", 6, (TensorInput(0, COUNT), TensorInput(1, ROW)), outputs, (call,), (SizeOf("n", 1, 0),), bodies=(TEST, STEP))
    x = torch.randn(4, generator=torch.Generator().manual_seed(turns))
    count, out, counts, rows = run(plan)(torch.tensor(turns), x)
    wanted = [x]
    for _ in range(turns):
        wanted.append(wanted[-1].cos())
    assert count.item() == 0 and torch.equal(out, wanted.pop()) and counts.tolist() == list(range(turns, 0, -1))
    assert rows.shape == (turns, 4) and all(map(torch.equal, rows, wanted))


def test_a_scan_of_no_rows_gives_tensors_of_its_own():
    carried = torch.ones(3)
    [last] = scan(lambda *_: pytest.fail("there is no row"), [carried], [torch.ones(0, 3)], [], False)
    assert torch.equal(last, carried) and last.data_ptr() != carried.data_ptr()


@pytest.mark.parametrize("backwards", [False, True])
def test_a_scan_carries_from_row_to_row(run, backwards):
    generator = torch.Generator().manual_seed(3)
    carried, table, factor = (
        torch.randn(3, generator=generator),
        torch.randn(5, 3, generator=generator),
        torch.randn(3, generator=generator),
    )
    for got, want in zip(run(scanned(backwards))(carried, table, factor), expected_scan(carried, table, factor, backwards), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("plan", [branched(), looped(), scanned(True)], ids=lambda p: p.name)
def test_text_and_bytes_keep_bodies(plan):
    verify(plan)
    assert parse(render(plan)) == plan
    assert decode(encode(plan)) == plan


def test_an_error_in_a_body_is_raised(run):
    raising = body("raising", [ROW], [elementwise("matmul", 1, Slot(0), Slot(2))], [1], 3)
    plan = branched()
    broken = Plan(plan.name, plan.slots, plan.inputs, plan.outputs, plan.steps, plan.bindings, arena=plan.arena, bodies=(THEN, raising))
    with pytest.raises(PlanError, match="RC014.*body 1|body 1.*RC014"):
        verify(broken)
    refused = body("refused", [ROW], [elementwise("index_select", 1, Slot(0), Literal(5), Slot(0))], [1], 2)
    executable = run(
        Plan(plan.name, plan.slots, plan.inputs, plan.outputs, plan.steps, plan.bindings, arena=plan.arena, bodies=(THEN, refused))
    )
    with pytest.raises((IndexError, RuntimeError)):
        executable(torch.ones(3), torch.tensor(False))


def test_laws_of_bodies():
    plan = branched()
    with pytest.raises(PlanError, match="RC054"):
        verify(Plan(plan.name, plan.slots, plan.inputs, plan.outputs, plan.steps, plan.bindings, arena=plan.arena, bodies=(THEN,)))
    holding = Plan("holding", 2, (TensorInput(0, ROW, True), SizeInput("n")), THEN.outputs, THEN.steps)
    with pytest.raises(PlanError, match="RC055"):
        verify(Plan(plan.name, plan.slots, plan.inputs, plan.outputs, plan.steps, plan.bindings, arena=plan.arena, bodies=(THEN, holding)))
