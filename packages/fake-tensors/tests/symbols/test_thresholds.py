"""Comparisons of floats that are computed from sizes: what is recorded says for every size what Python's comparison says."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest

from opmill_fake_tensors.symbols import Sizes, sym_int

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def expression(rng: random.Random, depth: int) -> Any:
    """A function of a size."""
    if depth == 0:
        factor, offset = rng.choice([1, 3, 32]), rng.choice([0, 0, 5])
        return rng.choice([lambda n: n * factor + offset, lambda n: n * factor / 7, lambda n: 2.5, lambda n: 0.0])
    one, other, number = expression(rng, depth - 1), expression(rng, depth - 1), rng.choice([0.0, 0.1, -0.75, 3.0, 1024.0, 1e-3])
    return rng.choice(
        [
            lambda n: one(n) * number,
            lambda n: one(n) + other(n),
            lambda n: one(n) - other(n),
            lambda n: one(n) / (number or 1.0),
            lambda n: -one(n) * 1.0,
            lambda n: one(n) + number,
        ]
    )


PRODUCTS: tuple[Callable[[Any], Any], ...] = (
    lambda n: n,
    lambda n: (n + 1) // 2,
    lambda n: n - (n + 1) // 2,
    lambda n: n * n,
    lambda n: (n % 7) * n,
)
"""What is taken for the size of an expression: sizes of first and last parts, products of one size and another, of one with itself."""


@pytest.mark.parametrize("seed", range(300))
def test_what_is_recorded_says_what_python_says(seed: int) -> None:
    part = PRODUCTS[seed % len(PRODUCTS)]
    rng = random.Random(seed)
    left, right = expression(rng, rng.randrange(1, 4)), rng.choice([expression(rng, 1), lambda n: rng_value])
    rng_value = rng.choice([0.0, 1.0, 17.5, 1e6, math.inf, -3.25])
    compare = getattr(operator, rng.choice(COMPARISONS))
    sizes = Sizes()
    hint = rng.randrange(2, 60)
    n = sym_int(sizes, sizes.new(hint))
    truth = bool(compare(left(part(n)), right(part(n))))
    assert truth == compare(left(part(hint)), right(part(hint)))
    for other in [*range(2, 200), 10_000, 1 << 30]:
        if sizes.holds({"s0": other}):
            assert compare(left(part(other)), right(part(other))) == truth, (other, [str(d.relation) for d in sizes.decisions])


def test_costs_of_products_of_sizes_are_not_assumed() -> None:
    sizes = Sizes()
    rows, columns = (sym_int(sizes, sizes.new(k)) for k in (6, 10))
    cost = 6.6 + rows * columns * 4 / 1024 / 87.7 * 1e6
    assert cost > 0 and cost != math.inf and not sizes.decisions
    assert bool(cost < 1e5) and [str(d.relation) for d in sizes.decisions] == ["2244 >= s0*s1"]


@pytest.mark.parametrize("name", COMPARISONS)
def test_costs_that_differ_by_the_same_for_all_sizes_are_not_assumed(name: str) -> None:
    """What it costs to send one part is in both, that of another is not."""
    sizes = Sizes()
    compare = getattr(operator, name)
    rows = sym_int(sizes, sizes.new(6))
    shared = 9.3 + rows * 64 / 2 / 1024 / 1024 / 1024 * 2.0 / 19.294 * 1e6
    assert bool(compare(shared + 10.3, shared + 9.3)) is compare(10.3, 9.3) and not sizes.decisions
    close = rows * 3e9 + 1e-3  # a size may be so large that the rest is rounded away
    bool(compare(close, rows * 3e9))
    assert sizes.decisions


@pytest.mark.parametrize("last", [False, True])
def test_costs_of_parts_are_not_assumed(last: bool) -> None:
    sizes = Sizes()
    rows, length = (sym_int(sizes, sizes.new(k)) for k in (6, 10))
    cost = 6.6 + rows * (length - (length + 1) // 2 if last else (length + 1) // 2) * 4 / 1024 / 87.7 * 1e6
    assert cost != 0 and cost != math.inf and not sizes.decisions
    assert bool(cost < 1e5)
    assert sizes.holds({"s0": 7, "s1": 300}) and not sizes.holds({"s0": 300, "s1": 300})
