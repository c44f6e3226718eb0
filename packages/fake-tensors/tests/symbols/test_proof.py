"""What is proven with sympy is true at all sizes, and the rows here are found out: each was a guard."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_fake_tensors.symbols import Relation, Sizes, floordiv, index, mod
from opmill_fake_tensors.symbols.facts import bounds
from opmill_fake_tensors.symbols.proof import prove

S, T = index("s"), index("t")
RANGES = {"s": (2, None), "t": (2, None)}
HINTS = {"s": 12, "t": 5}
HALF, PADDED = floordiv(S, 2), floordiv(S + 3, 4) * 4

PROVEN = {
    "half of a size twice is not more": S - 2 * HALF,
    "and not less than one below": 2 * HALF - S + 1,
    "padding to a multiple does not shrink": PADDED - S,
    "and adds less than that": S + 3 - PADDED,
    "a strided convolution does not grow": S - (floordiv(S - 1, 2) + 1),
    "and leaves something": floordiv(S - 1, 2),
    "half of a size is less": S - HALF - 1,
    "the second chunk fits": S - floordiv(S + 1, 2),
    "half of a product": S * T - floordiv(S * T, 2),
    "half times the other": S * T - 2 * HALF * T,
    "a quarter of a half": S - 4 * floordiv(HALF, 2),
    "what is left of a division by a size": T - mod(S, T) - 1,
    "whole tiles of a size": S - floordiv(S, T) * T,
    "tiles and a rest": S - floordiv(S, 8) * 8,
    "windows": S - (floordiv(S - 2, 3) + 1),
    "pooling with a rest": S - (floordiv(S - 1, 2) + 1) * 1,
    "two thirds": S - 3 * floordiv(S, 3) + 1,
    "sum of halves": S + T - HALF * 2 - floordiv(T, 2) * 2,
    "squares": S * S - floordiv(S * S, 3) * 3,
    "upsampled by two, halved": 2 * S - floordiv(2 * S + 1, 2) * 2,
}


@pytest.mark.parametrize("name", PROVEN)
def test_relations_that_needed_guards(name: str) -> None:
    expr = PROVEN[name]
    assert prove(Relation(expr, ">="), RANGES, [], HINTS) or by_rules(Relation(expr, ">="))
    assert prove(Relation(-expr - 1, ">="), RANGES, [], HINTS) is False or by_rules(Relation(-expr - 1, ">=")) is False


def by_rules(relation: Relation) -> bool | None:
    """What the rules alone say."""
    low, high = bounds(relation.expr, RANGES)
    return True if low is not None and low >= 0 else False if high is not None and high < 0 else None


def test_how_many_guards_fewer() -> None:
    open_before = [name for name, expr in PROVEN.items() if by_rules(Relation(expr, ">=")) is None]
    assert len(open_before) >= 15
    sizes = Sizes()
    sizes.new(12, name="s")
    sizes.new(5, name="t")
    for name in open_before:
        assert sizes.decide(Relation(PROVEN[name], ">=")), name
    assert sizes.decisions == []


def test_facts_help() -> None:
    sizes = Sizes()
    s, t = sizes.new(12, name="s"), sizes.new(5, name="t")
    assert sizes.decide(Relation(s - t, ">="))
    assert sizes.known(Relation(s - 2 * floordiv(t, 2), ">="))
    assert sizes.known(Relation(t - 2 * floordiv(s, 2), ">=")) is None
    assert len(sizes.decisions) == 1


def test_limits_of_ranges_help() -> None:
    ranges = {"s": (2, 100)}
    assert prove(Relation(50 - floordiv(S, 2), ">="), ranges, [], {"s": 7})
    assert prove(Relation(200 - S - 2 * floordiv(S, 2), ">="), ranges, [], {"s": 7})
    assert prove(Relation(199 - S - 2 * floordiv(S, 2), ">="), ranges, [], {"s": 7}) is None


expressions = st.recursive(
    st.one_of(st.integers(-3, 6).map(index), st.sampled_from([S, T])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1]),
        st.tuples(inner, st.integers(2, 4)).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, st.integers(2, 5)).map(lambda pair: floordiv(*pair)),
        st.tuples(inner, st.integers(2, 5)).map(lambda pair: mod(*pair)),
        inner.map(lambda each: floordiv(each, T)),
    ),
    max_leaves=5,
)
GRID = [dict(zip("st", pair)) for pair in itertools.product((2, 3, 4, 5, 6, 7, 9, 11, 12, 16, 23, 40), repeat=2)]


@settings(max_examples=250, deadline=None, derandomize=True)
@given(expressions, st.sampled_from((">=", "==", "!=")))
def test_nothing_false_is_proven(expr: Any, kind: Any) -> None:
    relation = Relation(expr, kind)
    found = prove(relation, RANGES, [], HINTS)
    if found is not None:
        assert all(relation.holds(values) is found for values in GRID)


def test_what_both_answers_are_seen_of_is_not_asked() -> None:
    """Nor is what has no division: most compiles with symbolic sizes never import sympy."""
    code = """
import sys
from opmill_fake_tensors.symbols import Relation, Sizes, floordiv
assert "sympy" not in sys.modules
sizes = Sizes()
s, t = sizes.new(12), sizes.new(5)
for relation in (Relation(s - 8, "=="), Relation(floordiv(s, 2) - 6, "=="), Relation(floordiv(s, 2) - t, ">="), Relation(s * t - 60, "==")):
    sizes.known(relation)
assert "sympy" not in sys.modules
assert sizes.known(Relation(s - 2 * floordiv(s, 2), ">="))
assert "sympy" in sys.modules and "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
