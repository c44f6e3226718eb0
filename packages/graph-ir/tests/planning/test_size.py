"""Index expressions as texts of plans: of the same value, and numbers where they are numbers."""

import random

import pytest

from opmill_fake_tensors.symbols.definitions import value_of
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.planning.size import size
from opmill_runtime_cache.plan.expr import evaluate


def made(rng: random.Random, depth: int):
    if depth == 0:
        return rng.choice([index("s0"), index("s1"), index(rng.randrange(-3, 9))])
    a, b = made(rng, depth - 1), made(rng, depth - 1)
    way = rng.randrange(5)
    return (
        a + b
        if way == 0
        else a - b
        if way == 1
        else a * b
        if way == 2
        else a // rng.randrange(1, 7)
        if way == 3
        else a % rng.randrange(1, 7)
    )


@pytest.mark.parametrize("seed", range(200))
def test_the_value_stays(seed):
    rng = random.Random(seed)
    expression, values = made(rng, 3), {"s0": rng.randrange(1, 50), "s1": rng.randrange(1, 50)}
    text = size(expression)
    assert evaluate(text, values) == expression.evaluate(values)
    assert (type(text) is int) == (expression.constant is not None)


def definition(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(["s0", "s1", str(rng.randrange(12))])
    a, b, c = (definition(rng, depth - 1) for _ in range(3))
    compared = rng.choice(["<", "<=", ">", ">=", "==", "!="])
    return rng.choice(
        [
            f"({a} {rng.choice(['+', '-', '*', '//', '%'])} {b})",
            f"-({a})",
            f"min({a}, {b}, {c})",
            f"max({a})",
            f"({a} {compared} {b} < {c})",
        ]
    )


@pytest.mark.parametrize("seed", range(200))
def test_plans_and_definitions_of_sizes_are_one_language(seed):
    """They are read in two packages of which neither imports the other: plans by runtime-cache, definitions by fake-tensors."""
    rng = random.Random(seed)
    text, values = definition(rng, 4), {"s0": rng.randrange(-5, 20), "s1": rng.randrange(-5, 20)}
    try:
        want = evaluate(text, values)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            value_of(text, values)
        return
    assert value_of(text, values) == want


@pytest.mark.parametrize(
    "text", ["s0 ** 2", "s0 / 2", "abs(s0)", "s0 if s1 else 1", "not s0", "s0 and s1", "min()", "1.5", "True", "s0 in s1", "s0 is s1"]
)
def test_neither_takes_more(text):
    with pytest.raises(Exception, match="."):
        evaluate(text, {"s0": 1, "s1": 2})
    with pytest.raises(ValueError, match="definition"):
        value_of(text, {"s0": 1, "s1": 2})
