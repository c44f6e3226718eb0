"""Size expressions: what they mean, and what none is."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opmill_runtime_cache.errors import PlanFormatError
from opmill_runtime_cache.plan.expr import compile_size, evaluate, is_name, symbols_of

_EXPRESSIONS = st.recursive(
    st.one_of(st.integers(0, 40).map(str), st.sampled_from(["a", "b"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "<", "<=", "==", "!=", ">"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        inner.map(lambda text: f"-{text}"),
    ),
    max_leaves=8,
)


@given(_EXPRESSIONS, st.integers(-20, 20), st.integers(-20, 20))
@example("a < b < 3", 1, 2)
@example("5 > a > b", 1, 2)
def test_expressions_mean_what_python_means(text, a, b):
    def outcome(action):
        try:
            return int(action())
        except ZeroDivisionError:
            return "zero"

    assert outcome(lambda: evaluate(text, {"a": a, "b": b})) == outcome(lambda: eval(text, {"a": a, "b": b, "min": min, "max": max}))


@pytest.mark.parametrize(
    "text",
    ["", "a b", "a/b", "a**2", "1.5", "f(a)", "a if b else 1", "min()", "__import__('os')", "True", "a.b", "min(a, key=b)", "9" * 30],
)
def test_what_is_not_a_size_expression(text):
    with pytest.raises(PlanFormatError, match="RC005"):
        compile_size(text)


def test_symbols_and_overflow():
    assert symbols_of("a*2 + min(b, 3)") == {"a", "b"}
    with pytest.raises(OverflowError):
        evaluate("a*a", {"a": 2**40})
    assert math.isclose(evaluate("a//3", {"a": -7}), -3)


@pytest.mark.parametrize(
    ("text", "name"),
    [("s0", True), ("_x", True), ("", False), ("0s", False), ("if", False), ("s 0", False), ("größe", False), ("a.b", False)],
)
def test_names(text, name):
    assert is_name(text) is name


def test_numbers_are_of_64_bits():
    for value in (2**63 - 1, -(2**63)):
        assert evaluate(value, {}) == value == evaluate(str(value), {})
    for wrong in (2**63, -(2**63) - 1, "9223372036854775808", "a" * (1 << 15)):
        with pytest.raises(PlanFormatError, match="RC005"):
            compile_size(wrong)
    with pytest.raises(OverflowError):
        evaluate("-a", {"a": -(2**63)})
    with pytest.raises(OverflowError):
        evaluate("a//-1", {"a": -(2**63)})
