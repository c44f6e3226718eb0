"""Plans of schedules: buffers that are given out in a view are made as the view shows them."""

from opmill_graph_ir.capture.text import parse_graph
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.planning.build import build_plan
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import schedule
from opmill_runtime_cache.plan.model import Alloc, Call, Slot, SlotOutput, View
from opmill_runtime_cache.plan.verify import verify

PROGRAM = """input a: float32[6, 4]
input b: float32[4, 8]
y: float32[6, 8] = aten::mm(a, b)
z: float32[1, 6, 8] = aten::_unsafe_view(y, [1, 6, 8])
return z"""


def test_an_operator_writes_into_what_is_given_out() -> None:
    program = schedule(lower(parse_graph(PROGRAM)))
    plan = build_plan("p", program, plan_memory(program), {})
    verify(plan)
    made, seen, call = (next(s for s in plan.steps if type(s) is kind) for kind in (Alloc, View, Call))
    assert made.spec.sizes == (1, 6, 8)
    assert (seen.base, seen.sizes) == (made.slot, (6, 8))
    assert call.kwargs["out"] == Slot(seen.slot)
    assert plan.outputs == (SlotOutput(made.slot),)
