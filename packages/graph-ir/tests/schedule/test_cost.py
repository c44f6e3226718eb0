"""What expressions cost."""

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Const, Op
from opmill_graph_ir.loops.primitives import PRIMITIVES
from opmill_graph_ir.lowered import Read
from opmill_graph_ir.schedule.cost import EXPENSIVE, cost

X = Read("x", (index("i"),), "float32")
EXP = Op("exp", (X,), "float32")


def test_reads_and_constants_are_free_and_shared_parts_count_once():
    assert cost(X, Const(1.0, "float32")) == 0
    assert cost(EXP) == PRIMITIVES["exp"].cost
    assert cost(Op("mul", (EXP, EXP), "float32")) == cost(EXP) + PRIMITIVES["mul"].cost
    assert cost(EXP, Op("neg", (EXP,), "float32")) == cost(EXP) + PRIMITIVES["neg"].cost


def test_masks_of_reads_count():
    assert cost(Read("x", (index("i"),), "float32", Op("gt", (EXP, X), "bool"))) == cost(EXP) + PRIMITIVES["gt"].cost


def test_arithmetic_is_rather_computed_again_than_stored():
    one = Op("add", (X, X), "float32")
    assert cost(one) < EXPENSIVE <= cost(Op("pow", (X, X), "float32"), Op("lgamma", (one,), "float32"))
