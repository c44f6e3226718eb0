"""Short ways to write expressions keep types and what they mean."""

import math

import pytest
import torch

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Const, IndexValue, Op, Ref
from opmill_graph_ir.ops.exprs import all_of, cast, const, index_value, known_order, op, wide

X = Ref("x", "float32")


@pytest.mark.parametrize(
    ("value", "dtype", "found"),
    [
        (1, "float32", 1.0),
        (2.0, "int64", 2),
        (0.5, "bool", True),
        (True, "int8", 1),
        (1000.0, "float8_e4m3fn", 448.0),
        (0.3, "float8_e5m2", 0.3125),
    ],
)
def test_constants_are_of_their_type(value, dtype, found):
    made = const(value, dtype)
    assert made == Const(found, dtype) and type(made.value) is type(found)


def test_positions():
    assert const(index("n"), "int32") == IndexValue(index("n"), "int32") and index_value(3) == Const(3, "int64")
    assert const(index("n"), "float32") == Op("cast", (IndexValue(index("n"), "int64"),), "float32")
    assert known_order(index("n"), index("n") + 1) is True and known_order(4, 3) is False and known_order(index("n"), 4) is None


def test_casts():
    assert (
        cast(X, "float32") is X and cast(X, "int8") == Op("cast", (X,), "int8") and wide("bfloat16") == "float32" and wide("int8") == "int8"
    )
    assert op("lt", X, X).dtype == "bool" and op("add", X, X).dtype == "float32" and op("cast", X, dtype="int64").dtype == "int64"


def test_conjunctions():
    a, b = Ref("a", "bool"), Ref("b", "bool")
    assert all_of([]) is None and all_of([a]) is a and all_of([a, b]) == op("logical_and", a, b)


def test_constants_of_a_byte_are_torchs():
    for value in (0.1, 3.3, -447.0, math.inf):
        made = const(value, "float8_e5m2").value
        assert made == torch.tensor(value).to(torch.float8_e5m2).item()
