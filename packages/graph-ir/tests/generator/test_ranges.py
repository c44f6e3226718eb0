"""Between what values lie behind a kernel's checks, against all values."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_graph_ir.generator.ranges import range_of
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Check, Const, IndexValue, Load, Op, Ref

RAW = Load("i", index("a"), "int64")
N = IndexValue(index("n"), "int64")


def op(name, *args, dtype="int64"):
    return Op(name, args, dtype)


def compare(name, a, b):
    return Op(name, (a, b), "bool")


def number(value):
    return Const(value, "int64")


def ends(lets, checks, name="g"):
    found = range_of(name, lets, {"a": index(8)}, [Check(c, "IndexError", "no") for c in checks])
    return {str(e) for each in found.low for e in each if len(each) == 1}, {str(e) for each in found.high for e in each if len(each) == 1}


def test_a_wrapped_position_lies_inside():
    """``g = where(raw < 0, raw + n, raw)`` with ``-n <= raw < n``."""
    raw = Ref("raw", "int64")
    lets = {"raw": RAW, "g": op("where", compare("lt", raw, number(0)), op("add", raw, N), raw)}
    checks = [compare("ge", raw, op("sub", number(0), N)), compare("lt", raw, N)]
    low, high = ends(lets, checks)
    assert "0" in low and "-1 + n" in high
    assert ends(lets, checks[:1])[1] == set() or "-1 + n" not in ends(lets, checks[:1])[1]


@pytest.mark.parametrize(
    ("check", "low", "high"),
    [
        (compare("lt", Ref("raw", "int64"), number(5)), set(), {"4"}),
        (compare("gt", number(5), Ref("raw", "int64")), set(), {"4"}),
        (compare("eq", Ref("raw", "int64"), number(5)), {"5"}, {"5"}),
        (compare("ne", Ref("raw", "int64"), number(5)), set(), set()),
        (op("logical_not", compare("lt", Ref("raw", "int64"), number(5)), dtype="bool"), {"5"}, set()),
    ],
)
def test_checks_bound_what_they_compare(check, low, high):
    assert ends({"raw": RAW}, [check], "raw") == (low, high)


@st.composite
def values(draw, depth=3):
    if not depth or draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(st.integers(-4, 4).map(number), st.just(Ref("raw", "int64")), st.just(IndexValue(index("a"), "int64"))))
    kind = draw(st.sampled_from(["add", "sub", "min", "max", "where", "mod", "abs"]))
    first = draw(values(depth - 1))
    if kind == "abs":
        return op("abs", first)
    if kind == "mod":
        return op("mod", first, number(draw(st.integers(1, 4))))
    second = draw(values(depth - 1))
    if kind == "where":
        return op("where", compare(draw(st.sampled_from(["lt", "ge", "eq"])), first, number(draw(st.integers(-3, 3)))), first, second)
    return op(kind, first, second)


def compute(e, raw, a):
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Ref):
        return raw
    if isinstance(e, IndexValue):
        return e.index.evaluate({"a": a})
    args = [compute(x, raw, a) for x in e.args]
    return {
        "add": lambda p, q: p + q, "sub": lambda p, q: p - q, "min": min, "max": max, "mod": lambda p, q: p % q, "abs": abs,
        "where": lambda c, p, q: p if c else q, "lt": lambda p, q: p < q, "ge": lambda p, q: p >= q, "eq": lambda p, q: p == q,
    }[e.name](*args)  # fmt: skip


@settings(max_examples=200, derandomize=True, deadline=None)
@given(values(), st.integers(-4, 0), st.integers(1, 6))
def test_no_value_lies_outside(value, low, high):
    raw = Ref("raw", "int64")
    checks = [Check(compare("ge", raw, number(low)), "E", ""), Check(compare("lt", raw, number(high)), "E", "")]
    found = range_of("g", {"raw": RAW, "g": value}, {"a": index(8)}, checks)
    for r, a in itertools.product(range(low, high), range(8)):
        got = compute(value, r, a)
        assert all(got >= min(e.constant for e in each) for each in found.low)
        assert all(got <= max(e.constant for e in each) for each in found.high)
