"""What an environment decides is right wherever its decisions hold."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_fake_tensors import DataDependent
from opmill_fake_tensors.symbols import Index, Relation, Sizes, floordiv, index, mod

NAMES = ("s0", "s1", "s2")


def expression(draw: Any) -> Index:
    """A small polynomial, now and then of a quotient or a remainder."""
    total = index(draw(st.integers(-6, 6)))
    for _ in range(draw(st.integers(1, 3))):
        factor = index(draw(st.sampled_from(NAMES)))
        shape = draw(st.integers(0, 5))
        if shape == 0:
            factor = factor * index(draw(st.sampled_from(NAMES)))
        elif shape == 1:
            factor = (floordiv if draw(st.booleans()) else mod)(factor, draw(st.integers(2, 4)))
        total = total + factor * draw(st.sampled_from([-2, -1, 1, 1, 2, 3]))
    return total


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_every_answer_follows_from_ranges_and_decisions(data: Any) -> None:
    sizes = Sizes()
    for _ in NAMES:
        hint = data.draw(st.integers(2, 8))
        sizes.new(hint, high=data.draw(st.sampled_from([None, None, hint + 3])))
    answers = []
    for _ in range(data.draw(st.integers(1, 6))):
        relation = Relation(expression(data.draw), data.draw(st.sampled_from(["==", "==", ">=", "!="])))
        answers.append((relation, sizes.decide(relation)))
    hints = {name: symbol.hint for name, symbol in sizes.symbols.items()}
    assert sizes.holds(hints) and all(relation.holds(hints) == truth for relation, truth in answers)
    rng, found = random.Random(0), 0
    for _ in range(300):
        values = {name: rng.randint(2, 9) for name in NAMES}
        values |= {name: sizes.simplify(index(name)).evaluate(values) for name in NAMES}
        if sizes.holds(values):
            found += 1
            assert all(relation.holds(values) == truth for relation, truth in answers), values
            assert all(sizes.simplify(relation.expr).evaluate(values) == relation.expr.evaluate(values) for relation, _ in answers)


def test_nothing_is_recorded_that_ranges_or_earlier_decisions_imply() -> None:
    sizes = Sizes()
    a, b = sizes.new(6), sizes.new(6)
    for implied in (
        Relation(a - 2, ">="),
        Relation(a - 1, "!="),
        Relation(a * b - a, ">="),
        Relation(2 * a - 3, "!="),
        Relation(a * b - 1, "!="),
    ):
        assert sizes.decide(implied)
    assert not sizes.decisions
    assert sizes.decide(Relation(a - b, "==")) and sizes.decide(Relation(a * 3 - b * 3, "==")) and sizes.decide(Relation(b - a, ">="))
    assert not sizes.decide(Relation(a - 8, ">=")) and not sizes.decide(Relation(b - 9, ">=")) and not sizes.decide(Relation(b - 8, "=="))
    assert [str(d.relation) for d in sizes.decisions] == ["s0 == s1", "7 >= s0"]


def test_a_value_asked_for_is_assumed() -> None:
    sizes = Sizes(lambda: "model.py:3")
    a, b = sizes.new(6, origin="x.size(0)"), sizes.new(3)
    sizes.operator = "aten::view"
    assert sizes.value(floordiv(a, 2) * b) == 9
    assert sizes.decisions and str(sizes.decisions[0]).endswith("# aten::view at model.py:3")
    assert sizes.value(b) == 3 and sizes.simplify(b).constant == 3
    assert not sizes.holds({"s0": 6, "s1": 4}) and sizes.holds({"s0": 7, "s1": 3})


def test_sizes_that_depend_on_data_are_not_decided() -> None:
    sizes = Sizes()
    a, u = sizes.new(6), sizes.new(None, low=0)
    assert sizes.decide(Relation(u, ">="))
    for undecided in (Relation(u - 1, "=="), Relation(a - u, ">=")):
        with pytest.raises(DataDependent, match="FT001"):
            sizes.decide(undecided)
    assert sizes.expect(Relation(u - a, "==")) and len(sizes.asserted) == 1 and not sizes.decisions
    assert sizes.decide(Relation(u - a, "=="))


def test_ranges_are_kept() -> None:
    with pytest.raises(ValueError):
        Sizes().new(5, low=2, high=4)
    sizes = Sizes()
    a, b = sizes.new(5, low=3, high=10), sizes.new(5, low=4)
    assert sizes.decide(Relation(a - b, "==")) and sizes.decide(Relation(a - 4, ">=")) and sizes.decide(Relation(10 - b, ">="))
    assert len(sizes.decisions) == 1


@pytest.mark.parametrize("remainders", [False, True])
def test_sorting_many_numbers_takes_few_decisions_and_little_looking_back(monkeypatch: pytest.MonkeyPatch, remainders: bool) -> None:
    from opmill_fake_tensors.symbols import sizes as room

    looked: list[Index] = []
    bounds = room.bounds
    monkeypatch.setattr(room, "bounds", lambda expr, ranges: looked.append(expr) or bounds(expr, ranges))
    work = []
    for count in (100, 200) if remainders else (400, 800):
        rng, sizes = random.Random(0), Sizes()
        numbers = [sizes.new(rng.randrange(2, 2000)) for _ in range(count)]
        looked.clear()

        class Key:
            def __init__(self, number: Index) -> None:
                self.number = mod(number * 7, 2000) if remainders else number

            def __lt__(self, other: Any) -> bool:
                first, second = sizes.simplify(self.number), sizes.simplify(other.number)
                if sizes.decide(Relation(first - second, "==")):
                    return False
                return sizes.decide(Relation(second - first - 1, ">="))

        ordered = [sizes.hint(number) for number in sorted(numbers, key=Key)]
        hints = [symbol.hint or 0 for symbol in sizes.symbols.values()]
        assert ordered == sorted(hints, key=lambda hint: hint * 7 % 2000 if remainders else hint)
        assert sizes.holds({name: symbol.hint for name, symbol in sizes.symbols.items()})
        assert len(sizes.decisions) <= room.MOST_DECISIONS + count
        work.append(len(looked))
    assert work[1] < 3 * work[0], work


def test_facts_that_share_no_symbol_are_not_looked_at() -> None:
    sizes = Sizes()
    a, b, c = sizes.new(6), sizes.new(9), sizes.new(4)
    for relation in (Relation(b - a, ">="), Relation(c - 3, ">="), Relation(a - 5, ">=")):
        assert sizes.decide(relation)
    assert [str(fact) for fact in sizes._facts.of(c * 2)] == ["s2 >= 3"]
    assert [str(fact) for fact in sizes._facts.of(b + c)] == ["s1 >= s0", "s2 >= 3"]
    assert sizes.value(a) == 6 and [str(fact) for fact in sizes._facts] == ["s2 >= 3", "s1 >= 6"]
    assert sizes.known(Relation(b - 6, ">=")) is True
