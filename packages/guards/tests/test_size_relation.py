"""Relations between sizes: the native program against Python's own evaluation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_guards import GuardSet
from opmill_guards.guard import SizeRelation
from opmill_guards.kinds.size_relation import _program
from opmill_guards.source import Local
from opmill_guards.tree import TreeBuilder

NUMBERS = st.one_of(st.sampled_from(["s0", "s1", "s2"]), st.integers(-9, 9).map(str), st.just(str(2**61)))


def _bigger(inner: Any) -> Any:
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        pair.map(lambda t: f"Max({t[0]}, {t[1]}, s0)"),
        pair.map(lambda t: f"Min({t[0]}, {t[1]})"),
        inner.map(lambda t: f"-{t}"),
        inner.map(lambda t: f"abs({t})"),
        inner.map(lambda t: f"({t})**2"),
        inner.map(lambda t: f"floor({t}/2)"),
    )


INTEGERS = st.recursive(NUMBERS, _bigger, max_leaves=5)
COMPARISONS = st.tuples(INTEGERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), INTEGERS).map(lambda t: f"{t[0]} {t[1]} {t[2]}")
RELATIONS = st.recursive(
    st.one_of(COMPARISONS, COMPARISONS.map(lambda c: f"0 <= {c}"), INTEGERS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        inner.map(lambda t: f"not ({t})"),
    ),
    max_leaves=3,
)
VALUES = st.one_of(st.integers(-20, 20), st.sampled_from([2**62, 2**63 - 1, -(2**63), 2**70, True, 2.5]))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(RELATIONS, st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=4))
def test_agrees_with_python(expression: str, calls: list[list[Any]]) -> None:
    names = ("x", "y", "z")
    guards = GuardSet([SizeRelation(expression, tuple(map(Local, names)))])
    tree = guards.native(names)
    for values in calls:
        assert tree.check(*values) == guards.check(dict(zip(names, values)))


@pytest.mark.parametrize("expression", ["s0 <= 4", "s0*s1 % 8 == 0", "2 <= s0 < s1", "Max(1, s0) == s1 and not s0 > 3", "s0**2 != s1"])
def test_common_relations_need_no_python(expression: str) -> None:
    assert _program(expression) is not None


@pytest.mark.parametrize(
    "expression", ["s0/2 == s1", "s0 in (1, 2)", "s0**s1 == 2", "s0 and f(s1)", "s0.real == 1", "(s0 and s1) + 1 == 2"]
)
def test_others_are_left_to_python(expression: str) -> None:
    assert _program(expression) is None


PUSH, ADD, NEGATE, FLIP = 0, 2, 15, 17


@pytest.mark.parametrize("code", [(NEGATE, 0), (FLIP, 0), (ADD, 0), (PUSH, 1, ADD, 0), (PUSH, 1, PUSH, 1), (99, 0), ()])
def test_a_program_that_does_not_fit_decides_nothing(code: tuple[int, ...]) -> None:
    """Python is asked, and nothing is read that is not on the stack."""
    asked = []
    builder = TreeBuilder(("n",))
    builder.relation("sizes", lambda n: asked.append(n) or n == 3, (Local("n"),), code)
    tree = builder.build()
    assert tree.check(3) and not tree.check(4)
    assert asked == [3, 4]
