"""Expressions rebuilt: the same value in terms of other axes, names and buffers."""

import pytest

from opmill_graph_ir.loops.index import floordiv, index, mod
from opmill_graph_ir.loops.ir import Const, IndexValue, Op, Ref
from opmill_graph_ir.lowered import Read
from opmill_graph_ir.schedule.rewrite import Rewriter, reads, under_mask, walk

X = Read("x", (index("i"), index("j") * 2), "float32")
ZERO = Const(0.0, "float32")


def test_axes_are_replaced_in_indices_masks_and_values():
    mask = Op("lt", (IndexValue(index("i"), "int64"), Const(3, "int64")), "bool")
    new = Rewriter({"i": index("k") + 1, "j": index(0)})(Read("x", (index("i"), index("j")), "float32", mask, ZERO))
    wanted = Op("lt", (IndexValue(index("k") + 1, "int64"), Const(3, "int64")), "bool")
    assert new == Read("x", (index("k") + 1, index(0)), "float32", wanted, ZERO)


@pytest.mark.parametrize(
    ("dtype", "value"), [("int64", 2), ("float32", 2.0), ("bfloat16", 2.0), ("bool", True)], ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_position_that_is_known_is_a_constant_of_its_type(dtype, value):
    found = Rewriter({"i": index(2)})(IndexValue(index("i"), dtype))
    assert found == Const(value, dtype) and type(found.value) is type(value)


def test_extents_make_divisions_go():
    row = index("i") * 4 + index("j")
    at = (floordiv(index("k"), 4), mod(index("k"), 4))
    assert tuple(map(Rewriter({"k": row}, extents={"i": 3, "j": 4}).index, at)) == (index("i"), index("j"))
    assert tuple(map(Rewriter({"k": row}, extents={"i": 3, "j": 5}).index, at)) != (index("i"), index("j"))


def test_names_stand_for_values_and_rules_for_reads():
    value = Op("add", (Ref("v", "float32"), X), "float32")
    assert Rewriter(names={"v": ZERO}, rule=lambda r: Ref("w", "float32"))(value) == Op("add", (ZERO, Ref("w", "float32")), "float32")
    assert Rewriter(rule=lambda r: None)(value) is value
    assert Rewriter.replacing({X: ZERO})(value) == Op("add", (Ref("v", "float32"), ZERO), "float32")


def test_shared_parts_are_rewritten_once():
    seen = []
    deep = X
    for _ in range(40):
        deep = Op("add", (deep, deep), "float32")
    Rewriter(rule=lambda r: seen.append(r))(deep)
    assert len(seen) == 1 and len(list(walk(deep))) == 41 and reads(deep) == [X]


@pytest.mark.parametrize(("dtype", "zero"), [("float16", 0.0), ("int8", 0), ("bool", False)])
def test_masks_guard_every_read(dtype, zero):
    m, n = Ref("m", "bool"), Ref("n", "bool")
    bare, masked = Read("x", (index("i"),), dtype), Read("y", (index("i"),), dtype, n, Const(zero, dtype))
    found = reads(under_mask(Op("max", (bare, masked), dtype), m))
    assert {r.buffer: r.mask for r in found} == {"x": m, "y": Op("logical_and", (m, n), "bool")}
    [value] = [r.other for r in found if r.buffer == "x"]
    assert value == Const(zero, dtype) and type(value.value) is type(zero)
    assert under_mask(bare, m, anywhere=lambda read: True) == bare
