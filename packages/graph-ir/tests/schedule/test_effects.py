"""Which operators do more than their results say."""

import pytest
import torch

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Check, Const
from opmill_graph_ir.lowered import BufferArg, Extern
from opmill_graph_ir.schedule.effects import gives_memory, gives_views, in_order, may_raise
from opmill_graph_ir.schedule.loop import Loop, Write


def call(op, *results, **more):
    return Extern(op, (BufferArg("x"),), {}, results, **more)


LOOP = Loop((Axis("i", index(3)),), (Write("y", (index("i"),), Const(1.0, "float32")),))


@pytest.mark.parametrize(
    ("statement", "ordered"),
    [
        (call("aten::native_dropout", "y", "m"), True),  # moves the generator on
        (call("aten::rand_like", "y"), True),
        (call("_c10d_functional::all_reduce", "y"), True),  # others must be there
        (call("opmill::cond", "y", draws=True), True),
        (call("opmill::cond", "y"), False),
        (call("mine::log"), True),  # says something to somebody
        (call("mine::log", mutates=("x",)), False),
        (call("mine::log", "y"), False),
        (call("aten::mm", "y"), False),
        (call("aten::_assert_async"), False),
        (LOOP, False),
    ],
    ids=lambda v: getattr(v, "op", str(v)),
)
def test_what_keeps_its_place_among_others(statement, ordered):
    assert in_order(statement) is ordered


def test_loops_raise_by_their_checks_and_operators_by_their_record():
    assert not may_raise(LOOP)
    assert may_raise(Loop(LOOP.axes, LOOP.writes, checks=(Check(Const(True, "bool"), "IndexError", "no"),)))
    assert may_raise(call("aten::linalg_inv_ex", "y", "i")) is False
    assert may_raise(call("aten::index.Tensor", "y")) and not may_raise(call("aten::mm", "y")) and not may_raise(call("mine::f", "y"))


def test_views_share_memory_and_products_do_not():
    assert gives_views(call("aten::view", "y")) and gives_views(call("aten::split.Tensor", "y", "z"))
    assert not gives_views(call("aten::mm", "y"))
    assert not gives_memory(call("aten::view", "y")) and not gives_memory(call("mine::f", "y"))


def test_what_is_said_of_operators_is_so():
    """Those of known results in memory of their own, run."""
    x = torch.randn(4, 4)
    for op in ("aten::mm", "aten::view"):
        packet = getattr(torch.ops.aten, op.removeprefix("aten::"))
        result = packet(x, x) if op == "aten::mm" else packet(x, [16])
        assert gives_views(call(op, "y")) == (result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr())
