"""The algebra against Python's integers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_fake_tensors.symbols import Index, floordiv, index, mod
from opmill_fake_tensors.symbols.facts import Relation, bounds, reduced

NAMES = ("s0", "s1", "s2")


def build(tree: Any) -> Index:
    """The expression that a tree of operations describes."""
    if not isinstance(tree, tuple):
        return index(tree)
    op, a, b = tree
    left, right = build(a), build(b)
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return floordiv(left, right)
    return mod(left, right)


def run(tree: Any, values: dict[str, int]) -> int:
    """The same by Python."""
    if not isinstance(tree, tuple):
        return values[tree] if isinstance(tree, str) else tree
    op, a, b = tree
    left, right = run(a, values), run(b, values)
    return {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "//": lambda: left // right,
        "%": lambda: left % right,
    }[op]()


positive = st.one_of(st.integers(1, 6), st.sampled_from(NAMES))
leaves = st.one_of(st.integers(-4, 9), st.sampled_from(NAMES))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(st.tuples(st.sampled_from("+-*"), inner, inner), st.tuples(st.sampled_from(("//", "%")), inner, positive)),
    max_leaves=7,
)
assignments = st.fixed_dictionaries({name: st.integers(1, 12) for name in NAMES})


@settings(max_examples=400, deadline=None, derandomize=True)
@given(trees, assignments)
def test_values_are_those_of_python(tree: Any, values: dict[str, int]) -> None:
    assert build(tree).evaluate(values) == run(tree, values)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(trees, trees, assignments)
def test_substitution_is_evaluation_in_two_steps(tree: Any, inner: Any, values: dict[str, int]) -> None:
    value = run(inner, values)
    if value >= 1:  # symbols are sizes
        assert build(tree).substitute({"s0": build(inner)}).evaluate(values) == run(tree, {**values, "s0": value})


@settings(max_examples=300, deadline=None, derandomize=True)
@given(trees, assignments, st.integers(0, 3), st.integers(0, 4))
def test_bounds_hold(tree: Any, values: dict[str, int], slack: int, width: int) -> None:
    ranges = {name: (max(value - slack, 0), None if width == 4 else value + width) for name, value in values.items()}
    low, high = bounds(build(tree), ranges)
    value = run(tree, values)
    assert (low is None or low <= value) and (high is None or value <= high)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(trees, assignments, st.sampled_from(["==", "!=", ">="]))
def test_relations_mean_what_they_print(tree: Any, values: dict[str, int], kind: Any) -> None:
    relation = Relation(build(tree), kind)
    assert eval(str(relation), {}, values) == relation.holds(values) != relation.negated().holds(values)
    small = Relation(reduced(relation.expr, inequality=kind == ">="), kind)
    assert small.holds(values) == relation.holds(values)


def test_equal_expressions_are_equal() -> None:
    a, b = index("s0"), index("s1")
    assert (a + b) * (a - b) == a * a - b * b
    assert floordiv(8 * a + 4, 4) == 2 * a + 1 and floordiv(a * b, b) == a and mod(6 * a, 3).constant == 0
    assert 4 * floordiv(a, 4) + mod(a, 4) == a
    assert floordiv(5 * a, 500) == floordiv(a, 100) and mod(6 * a, 10) == 2 * mod(3 * a, 5)  # what all have in common goes
    assert floordiv(6 * a + 4, 10) == floordiv(3 * a + 2, 5) and 10 * floordiv(6 * a, 10) + mod(6 * a, 10) == 6 * a
