"""What ranges and relations imply, against all values."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_fake_tensors.symbols import floordiv, index, mod
from opmill_fake_tensors.symbols.facts import Facts, Relation, bounds, never_zero, reduced

NAMES = ("a", "b", "c")
RANGES = {"a": (0, 3), "b": (1, 4), "c": (2, 3)}


@st.composite
def expressions(draw, depth=2):
    if not depth or draw(st.booleans()):
        return draw(st.one_of(st.integers(-4, 4).map(index), st.sampled_from(NAMES).map(index)))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    kind = draw(st.sampled_from(["+", "-", "*", "//", "%"]))
    if kind in "//%":
        by = draw(st.sampled_from([index(2), index(3), index("b"), index("c")]))
        return floordiv(left, by) if kind == "//" else mod(left, by)
    return left + right if kind == "+" else left - right if kind == "-" else left * right


def assignments():
    for values in itertools.product(*(range(low, high + 1) for low, high in RANGES.values())):
        yield dict(zip(NAMES, values, strict=True))


@settings(max_examples=150, derandomize=True, deadline=None)
@given(expressions())
def test_no_value_lies_outside_of_the_bounds(expr):
    low, high = bounds(expr, RANGES)
    found = [expr.evaluate(values) for values in assignments()]
    assert (low is None or low <= min(found)) and (high is None or max(found) <= high)


def test_bounds_of_sums_and_products_are_exact():
    a, b = index("a"), index("b")
    for expr in (a + 2 * b - 1, a * b, 3 - a, floordiv(a, 2), a * b + a):
        found = [expr.evaluate(values) for values in assignments()]
        assert bounds(expr, RANGES) == (min(found), max(found)), expr
    assert bounds(a, {}) == (0, None) and bounds(a - b, {"a": (2, None), "b": (0, 5)}) == (-3, None)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(expressions())
def test_what_never_is_zero_is_not(expr):
    values = [expr.evaluate(v) for v in assignments()]
    if never_zero(expr):
        assert 0 not in values


@settings(max_examples=100, derandomize=True, deadline=None)
@given(expressions(), st.booleans())
def test_without_a_common_factor_the_truth_is_the_same(expr, inequality):
    short = reduced(expr, inequality=inequality)
    for values in assignments():
        before, after = expr.evaluate(values), short.evaluate(values)
        assert (before >= 0) == (after >= 0) if inequality else (before == 0) == (after == 0)


@settings(max_examples=80, derandomize=True, deadline=None)
@given(expressions(), st.sampled_from(["==", "!=", ">="]))
def test_a_relation_or_its_opposite_holds_and_its_text_says_so(expr, kind):
    relation = Relation(expr, kind)
    for values in assignments():
        assert relation.holds(values) != relation.negated().holds(values)
        assert eval(str(relation), {}, values) == relation.holds(values)


def test_relations_are_found_by_their_symbols_until_they_are_taken():
    a, b, c = map(index, NAMES)
    one, two, three = Relation(a - b, "=="), Relation(b - c, ">="), Relation(c - 2, "!=")
    facts = Facts([one, two, three])
    assert facts.of(a) == [one] and facts.of(a + c) == [one, two, three] and facts.of(b) == [one, two] and facts.of(index("z")) == []
    assert facts.take("b") == [one, two] and list(facts) == [three] and facts.of(a) == [] and facts.of(c) == [three]
