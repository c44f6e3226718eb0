"""Sizes that follow from others are in the plan what they are at capture."""

from __future__ import annotations

import random

import pytest

from opmill_fake_tensors.symbols.definitions import value_of
from opmill_runtime_cache.plan.expr import evaluate

NAMES = ("s0", "u1", "u2")


def text(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*NAMES, str(rng.randrange(12))])
    a, b, c = (text(rng, depth - 1) for _ in range(3))
    return rng.choice(
        [
            f"({a} {rng.choice(['+', '-', '*', '//', '%'])} {b})",
            f"-({a})",
            f"{rng.choice(['min', 'max'])}({a}, {b}, {c})",
            f"min({a})",
            f"({a} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {b})",
            f"({a} < {b} <= {c} != {a})",
        ]
    )


@pytest.mark.parametrize("seed", range(100))
def test_a_definition_has_one_value(seed: int) -> None:
    rng = random.Random(seed)
    definition, values = text(rng, 4), {name: rng.randrange(-5, 20) for name in NAMES}
    try:
        want = evaluate(definition, values)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            value_of(definition, values)
    else:
        assert value_of(definition, values) == want
