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


MULTIPLES = {
    "divided by what it is a multiple of": lambda n, m: (mod(n, 8), "==", True),
    "and by what divides that": lambda n, m: (mod(n, 4), "==", True),
    "parts and back": lambda n, m: (floordiv(n, 8) * 8 - n, "==", True),
    "half of it": lambda n, m: (mod(floordiv(n, 2), 2), "==", True),
    "padding does nothing": lambda n, m: (floordiv(n + 7, 8) * 8 - n, "==", True),
    "it is eight at least": lambda n, m: (n - 8, ">=", True),
    "twelve is none": lambda n, m: (n - 12, "==", False),
    "a product": lambda n, m: (mod(n * m, 24), "==", True),
    "a sum of parts": lambda n, m: (floordiv(n + 8 * m, 8) - floordiv(n, 8) - m, "==", True),
    "nothing is known of sixteen": lambda n, m: (mod(n, 16), "==", None),
    "nor of one more": lambda n, m: (mod(n + 1, 3), "==", None),
}


@pytest.mark.parametrize("name", MULTIPLES)
def test_what_a_program_says_of_multiples_answers_questions(name):
    sizes = Sizes()
    n, m = sizes.new(48), sizes.new(9)
    for multiple in (mod(n, 4), mod(n, 8), mod(m, 3)):
        sizes.decide(Relation(multiple, "=="))
    expr, kind, truth = MULTIPLES[name](n, m)
    assert sizes.known(Relation(expr, kind)) is truth


def test_what_is_said_later_counts_from_then_on():
    sizes = Sizes()
    n = sizes.new(48)
    question = Relation(mod(n, 4), "==")
    assert sizes.known(question) is None
    sizes.decide(Relation(mod(n, 8), "=="))
    assert sizes.known(question) is True
    assert [str(d) for d in sizes.decisions] == ["((s0)%(8)) == 0"]


def test_sizes_that_come_later_or_are_tied_are_heeded():
    sizes = Sizes()
    n = sizes.new(48)
    sizes.decide(Relation(mod(n, 8), "=="))
    assert sizes.known(Relation(mod(n, 2), "==")) is True
    number = sizes.new(None, low=-5)
    assert sizes.known(Relation(n + number - 3, ">=")) is True
    assert sizes.known(Relation(n + number - 4, ">=")) is None
    m = sizes.new(48)
    sizes.decide(Relation(m - n, "=="))
    assert sizes.known(Relation(mod(m, 4), "==")) is True


WHOLE = {
    "halves add up": (floordiv(S, 2) + floordiv(S + 1, 2) - S, "=="),
    "halves are no less than thirds": (floordiv(S, 2) - floordiv(S, 3), ">="),
    "a remainder is no more than its number": (S - mod(S, 4), ">="),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_above_minus_one_are_not_negative(name):
    sizes = Sizes()
    size = sizes.new(12)
    expr, kind = WHOLE[name]
    assert sizes.known(Relation(expr.substitute({"s": size}), kind)) is True


def test_order_goes_through_divisions():
    sizes = Sizes()
    small, large = sizes.new(12), sizes.new(40)
    sizes.decide(Relation(large - small, ">="))
    assert sizes.known(Relation(floordiv(large, 2) - floordiv(small, 2), ">=")) is True
    assert sizes.known(Relation(floordiv(large, 2) - floordiv(small, 2) - 1, ">=")) is None
    assert sizes.known(Relation(floordiv(large, 3) - floordiv(small, 2), ">=")) is None


_PARTS = st.tuples(
    st.sampled_from(["n", "m", "n+m", "n*m", "2*n+3"]), st.sampled_from([2, 3, 4, 6, 8]), st.sampled_from(["//", "%"]), st.integers(-3, 3)
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(_PARTS, min_size=1, max_size=3), st.integers(-9, 9), st.integers(-2, 2), st.sampled_from(["==", "!=", ">="]),
    st.sampled_from([1, 2, 4, 6]), st.sampled_from([1, 3]), st.booleans(),
)  # fmt: skip
def test_answers_hold_at_all_sizes_that_a_program_admits(parts, constant, slope, kind, k, other, ordered):
    sizes = Sizes()
    n, m = sizes.new(12), sizes.new(24)
    texts = {"n": n, "m": m, "n+m": n + m, "n*m": n * m, "2*n+3": 2 * n + 3}
    expr = slope * n + constant
    for text, divisor, operator, factor in parts:
        expr = expr + factor * (floordiv if operator == "//" else mod)(texts[text], divisor)
    for name, multiple in ((n, k), (m, other)):
        if multiple > 1:
            sizes.decide(Relation(mod(name, multiple), "=="))
    if ordered:
        sizes.decide(Relation(m - n, ">="))
    relation = Relation(expr, kind)
    found = sizes.known(relation)
    if found is None:
        return
    for a, b in itertools.product(range(2, 40), repeat=2):
        if a % k == 0 and b % other == 0 and (b >= a or not ordered):
            assert relation.holds({"s0": a, "s1": b}) is found, (a, b)
