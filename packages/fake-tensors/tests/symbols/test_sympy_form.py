"""The algebra against sympy: what an expression becomes there, what its rules make of it, and the way back."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_fake_tensors.symbols import Index, floordiv, index, mod
from opmill_fake_tensors.symbols.sympy_form import from_sympy, to_sympy

NAMES = ("s0", "s1")
RANGES = {name: (1, None) for name in NAMES}
SYMBOLS = {name: sympy.Symbol(name, integer=True, positive=True) for name in NAMES}

positive = st.one_of(st.integers(1, 6), st.sampled_from(NAMES))
leaves = st.one_of(st.integers(-4, 9), st.sampled_from(NAMES))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(st.tuples(st.sampled_from("+-*"), inner, inner), st.tuples(st.sampled_from(("//", "%")), inner, positive)),
    max_leaves=5,
)
assignments = st.fixed_dictionaries({name: st.integers(1, 12) for name in NAMES})


def build(tree: Any) -> Index:
    if not isinstance(tree, tuple):
        return index(tree)
    op, left, right = tree[0], build(tree[1]), build(tree[2])
    rules = {"+": left.__add__, "-": left.__sub__, "*": left.__mul__, "//": lambda by: floordiv(left, by), "%": lambda by: mod(left, by)}
    return rules[op](right)


def by_sympy(tree: Any) -> Any:
    """The same without any rule of the algebra."""
    if not isinstance(tree, tuple):
        return SYMBOLS[tree] if isinstance(tree, str) else sympy.Integer(tree)
    op, left, right = tree[0], by_sympy(tree[1]), by_sympy(tree[2])
    if op in "+-*":
        return {"+": left + right, "-": left - right, "*": left * right}[op]
    return sympy.floor(left / right) if op == "//" else sympy.Mod(left, right)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(trees, assignments)
def test_rules_keep_what_sympy_says_an_expression_is(tree: Any, values: dict[str, int]) -> None:
    ours = build(tree)
    at = {SYMBOLS[name]: value for name, value in values.items()}
    assert to_sympy(ours, RANGES).subs(at) == by_sympy(tree).subs(at) == ours.evaluate(values)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(trees, assignments)
def test_there_and_back(tree: Any, values: dict[str, int]) -> None:
    ours = build(tree)
    assert from_sympy(to_sympy(ours)).evaluate(values) == ours.evaluate(values)
    assert from_sympy(by_sympy(tree)).evaluate(values) == ours.evaluate(values)


def test_polynomials_come_back_as_they_were() -> None:
    s, t = index("s0"), index("s1")
    for expr in (s, s * t * 3 - t * t + 4, index(0), index(-7), floordiv(s * t + 1, 4) * 2, mod(s, 8) + t):
        assert from_sympy(to_sympy(expr)) == expr
    assert str(to_sympy(s * s - 2 * t)) == "s0**2 - 2*s1"


def test_ranges_are_assumptions() -> None:
    s = index("s0")
    assert to_sympy(s, {"s0": (2, None)}).is_positive and to_sympy(s, {"s0": (0, 9)}).is_positive is None
    assert to_sympy(s).is_nonnegative and to_sympy(s, {"s0": (-3, None)}).is_nonnegative is None


@pytest.mark.parametrize("expr", [sympy.Rational(1, 2), sympy.sin(sympy.Symbol("x")), sympy.Symbol("x") ** -1, sympy.sqrt(2)], ids=str)
def test_what_is_no_size_is_refused(expr: Any) -> None:
    with pytest.raises(ValueError, match="no expression of sizes"):
        from_sympy(expr)
