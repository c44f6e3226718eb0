"""Definitions of sizes are evaluated as Python evaluates them, and nothing else is."""

from __future__ import annotations

import random

import pytest

from opmill_fake_tensors.symbols import Sizes, index
from opmill_fake_tensors.symbols.definitions import value_of

NAMES = ("s0", "u1", "u2")


def text(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*NAMES, str(rng.randrange(12))])
    a, b, c = (text(rng, depth - 1) for _ in range(3))
    operator = rng.choice(["+", "-", "*", "//", "%"])
    compared = rng.choice(["<", "<=", ">", ">=", "==", "!="])
    return rng.choice(
        [
            f"({a} {operator} {b})",
            f"-({a})",
            f"min({a}, {b}, {c})",
            f"max({a}, {b})",
            f"({a} {compared} {b})",
            f"({a} < {b} <= {rng.choice(NAMES)})",
        ]
    )


@pytest.mark.parametrize("seed", range(200))
def test_as_python_evaluates_them(seed):
    rng = random.Random(seed)
    definition, values = text(rng, 4), {name: rng.randrange(-5, 20) for name in NAMES}
    try:
        want = eval(definition, {}, dict(values))
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            value_of(definition, values)
        return
    got = value_of(definition, values)
    assert got == want and type(got) is int


@pytest.mark.parametrize(
    "definition",
    ["__import__('os')", "s0.real", "[s0]", "s0 if u1 else u2", "s0 and u1", "not s0", "s0 ** 2", "s0 / 2", "min(s0, key=u1)", "abs(s0)",
     "min()", "1.5", "True", "'1'", "s0 in u1", "lambda: 1", "(s0 := 2)", "s0; u1", "min(*s0)"],
)  # fmt: skip
def test_what_is_no_definition(definition):
    with pytest.raises(ValueError, match="definition"):
        value_of(definition, dict.fromkeys(NAMES, 3))


def test_a_size_that_is_not_known():
    with pytest.raises(KeyError):
        value_of("s0 + 1", {})


def test_sizes_that_follow_from_others_that_do():
    sizes = Sizes()
    n, m = sizes.new(8), sizes.new(None, low=0)
    k = sizes.derived(f"min({n}, {m})")
    last = sizes.derived(f"({k})*2 + ({m} > 3)")
    given = {str(n): 6, str(m): 4}
    assert sizes.with_derived(given) == {**given, str(k): 4, str(last): 9}
    assert given == {str(n): 6, str(m): 4} and index(str(k)) == k
