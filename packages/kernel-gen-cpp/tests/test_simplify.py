"""Folding by what ranges decide."""

import pytest

from opmill_graph_ir.loops.cases import cast, op
from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Const, IndexValue, Let, Load, Op, Phase, Ref, Store
from opmill_kernel_gen_cpp.passes.simplify import Simplifier, simplified

RANGES = {"i": (0, 63), "j": (3, 9)}
X, B = Load("x", index("i"), "float32"), Load("b", index("i"), "bool")
BYTE = Load("n", index("i"), "int8")


def at(value: Index | str, dtype: str = "int64") -> IndexValue:
    return IndexValue(index(value), dtype)


def number(value: int) -> Const:
    return Const(value, "int64")


TRUE, FALSE = Const(True, "bool"), Const(False, "bool")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (op("lt", at("i"), number(64)), TRUE),
        (op("ge", at("i"), number(64)), FALSE),
        (op("ge", op("add", at("i"), number(0)), number(0)), TRUE),
        (op("lt", at("i"), number(32)), op("lt", at("i", "int32"), Const(32, "int32"))),
        (op("lt", op("mul", at("i"), number(1 << 26)), number(32)), op("lt", op("mul", at("i"), number(1 << 26)), number(32))),
        (op("where", op("ge", at("i"), number(0)), X, op("neg", X)), X),
        (op("where", B, op("where", B, X, op("neg", X)), op("exp", X)), op("where", B, X, op("exp", X))),
        (op("mul", X, Const(1.0, "float32")), X),
        (op("add", X, Const(0.0, "float32")), op("add", X, Const(0.0, "float32"))),  # not for -0.0
        (op("mul", X, Const(0.0, "float32")), op("mul", X, Const(0.0, "float32"))),  # not for NaN
        (cast(at("i"), "float32"), cast(at("i", "int32"), "float32")),
        (Load("x", index("i"), "float32", op("lt", at("i"), number(99))), X),
        (Load("x", index("i"), "float32", op("gt", at("i"), number(99)), Const(2.0, "float32")), Const(2.0, "float32")),
        (op("logical_and", TRUE, B), B),
        (op("logical_or", TRUE, B), TRUE),
        (cast(cast(BYTE, "bfloat16"), "float32"), cast(BYTE, "float32")),
        (cast(cast(cast(BYTE, "int16"), "bfloat16"), "float32"), cast(cast(cast(BYTE, "int16"), "bfloat16"), "float32")),  # rounded
    ],
    ids=str,
)
def test_rules(before, after) -> None:
    assert Simplifier(RANGES)(before) == after


@pytest.mark.parametrize(
    ("name", "least", "most"), [("lt", 64, 0), ("le", 63, -1), ("gt", -1, 63), ("ge", 0, 64), ("ne", -1, None), ("eq", None, 64)]
)
def test_comparisons_are_decided_at_the_ends_and_not_before(name, least, most):
    """``i`` lies in 0..63. ``least``: the nearest number for which it always holds, ``most``: for which it never does."""
    for value in range(-2, 67):
        found = Simplifier(RANGES)(op(name, at("i"), number(value)))
        truths = {getattr(int, f"__{name}__")(i, value) for i in range(64)}
        assert (found == Const(truths.pop(), "bool")) if len(truths) == 1 else (type(found) is Op), value
    for value, truth in ((least, TRUE), (most, FALSE)):
        if value is not None:
            assert Simplifier(RANGES)(op(name, at("i"), number(value))) == truth


def test_lets_that_fit_are_computed_in_32_bits_and_cast_where_they_are_asked_for():
    value = op("add", op("mul", at("i"), number(4)), number(1))
    phase = Phase(lets=(Let("v", value),), stores=(Store("o", index("i"), Ref("v", "int64")),))
    [made] = simplified((phase,), RANGES)
    assert made.lets[0].value.dtype == "int32" and made.stores[0].value == Op("cast", (Ref("v", "int32"),), "int64")
    large = Phase(lets=(Let("v", op("mul", value, number(1 << 30))),), stores=phase.stores)
    [made] = simplified((large,), RANGES)
    assert made.lets[0].value.dtype == "int64" and made.stores == phase.stores
