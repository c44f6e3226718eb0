"""What integer values can be, against all of them."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_graph_ir.loops.cases import cast, op
from opmill_graph_ir.loops.index import index, mod
from opmill_graph_ir.loops.ir import Const, IndexValue, Load, Op, Ref
from opmill_kernel_gen_cpp.passes.ranges import bounds, index_bounds, type_bounds

RANGES = {"i": (0, 63), "j": (3, 9)}
X = Load("x", index("i"), "float32")


def number(value: int) -> Const:
    return Const(value, "int64")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(-9, 9), st.sampled_from([1, 2, 5, 7]))
def test_bounds_hold(a: int, b: int, c: int, k: int) -> None:
    i = index("i") * a + index("j") * b + c + mod(index("j"), k)
    found = index_bounds(i, RANGES)
    values = [i.evaluate({"i": x, "j": y}) for x in range(64) for y in range(3, 10)]
    if found is not None:
        assert found[0] <= min(values)
        assert max(values) <= found[1]
    twice = bounds(op("abs", op("sub", IndexValue(i, "int64"), number(7))), RANGES, {})
    if twice is not None:
        assert all(twice[0] <= abs(v - 7) <= twice[1] for v in values)


def guarded(value: Load, low: float, high: float, other: float = 0.0) -> Op:
    """``low <= value < high ? value : other`` as a position."""
    inside = op("logical_and", op("ge", value, Const(low, value.dtype)), op("lt", value, Const(high, value.dtype)))
    return cast(op("where", inside, value, Const(other, value.dtype)), "int64")


@pytest.mark.parametrize(
    ("expr", "found"),
    [
        (guarded(X, 0.0, 16.0), (0, 16)),
        (guarded(X, 0.5, 16.5, -7.0), (-7, 17)),
        (guarded(X, 0.0, math.inf), None),
        (guarded(X, math.nan, 16.0), None),
        (
            cast(
                op(
                    "where",
                    op("logical_or", op("ge", X, Const(0.0, "float32")), op("lt", X, Const(9.0, "float32"))),
                    X,
                    Const(0.0, "float32"),
                ),
                "int64",
            ),
            None,
        ),
        (cast(op("where", op("lt", op("neg", X), Const(9.0, "float32")), X, Const(0.0, "float32")), "int64"), None),
        (cast(X, "int64"), None),
    ],
    ids=str,
)
def test_bounds_of_floats_that_were_compared(expr, found) -> None:
    assert bounds(expr, RANGES, {}) == found


@pytest.mark.parametrize("name", ["add", "sub", "mul", "min", "max"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.tuples(st.integers(-6, 6), st.integers(0, 5)), st.tuples(st.integers(-6, 6), st.integers(0, 5)))
def test_bounds_of_two_values_are_the_least_and_the_greatest(name, first, second):
    (a, more), (b, others) = first, second
    ranges = {"p": (a, a + more), "q": (b, b + others)}
    apply = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "min": min, "max": max}[name]
    values = [apply(x, y) for x, y in itertools.product(range(a, a + more + 1), range(b, b + others + 1))]
    found = bounds(op(name, IndexValue(index("p"), "int64"), IndexValue(index("q"), "int64")), ranges, {})
    assert found == (min(values), max(values))


def test_what_may_wrap_around_is_anything_of_its_type_or_unknown():
    byte = Load("n", index("i"), "int8")
    assert type_bounds("int8") == (-128, 127) and type_bounds("bool") == (0, 1) and type_bounds("uint16") == (0, 65535)
    assert type_bounds("float32") is None and bounds(op("add", byte, byte), RANGES, {}) == (-128, 127)
    large = Op("mul", (IndexValue(index("i"), "int32"), Const(1 << 30, "int32")), "int32")
    assert bounds(large, RANGES, {}) is None and bounds(Op("mul", (*large.args,), "int64"), RANGES, {}) == (0, 63 << 30)


def test_lets_are_looked_into():
    lets = {"v": op("sub", IndexValue(index("j"), "int64"), number(3))}
    assert bounds(op("neg", Ref("v", "int64")), RANGES, lets) == (-6, 0) and bounds(Ref("w", "int64"), RANGES, lets) is None
