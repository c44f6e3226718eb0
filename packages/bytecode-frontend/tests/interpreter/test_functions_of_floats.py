"""Python's operators and functions of numbers that are others at each call: three captures serve them, and give what Python gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from alike import outcome, same
from changing_numbers import captures, differing

from opmill_bytecode_frontend.entry.capture import capture

POWERS = """h ** 0.5, h ** 2, h ** 3, h ** -1.5, 2 ** h, 0.9 ** h, h ** h, h ** n, 0.99 ** n, n ** 0.5, n ** h, h * 2 ** -n, 10 ** -h,
1 - 0.9 ** n, h * 0.1 ** (n // 3), h * (1 - n / 100) ** 0.9, pow(h, 2.5), pow(0.9, n), math.pow(h, 0.3), math.pow(0.9, n), math.pow(n, 2),
math.sqrt(1 - 0.9 ** n) / (1 - 0.99 ** n), (0.01 / (h + 1e-12)) ** 0.5, -2.0 ** h, (-h) ** 2, h ** 0"""
FUNCTIONS = """math.log(h), math.log(h, 2), math.log(n, 10), math.log(2, h), math.hypot(h, 2), math.hypot(3, n), math.atan2(h, 2),
math.atan2(-1, h), math.fmod(h, 0.3), math.fmod(7, h), math.copysign(h, -1), math.copysign(2, h), math.degrees(h), math.atan2(h, n)"""
TEXTS = [each.strip() for each in f"{POWERS}, {FUNCTIONS}".replace("\n", " ").replace(", ", ",\0").split(",\0")]


def joined(parts: list[str]) -> list[str]:
    """Texts in which each bracket that opens closes."""
    found: list[str] = []
    for part in parts:
        if found and found[-1].count("(") > found[-1].count(")"):
            found[-1] += f", {part}"
        else:
            found.append(part)
    return found


PROGRAMS = joined(TEXTS)
NUMBERS = [(2.1 + 0.137 * i, i + 4) for i in range(7)]
CORNERS = [(h, n) for h in (0.0, -0.0, -1.5, 1e200, 1e-200, math.nan, math.inf, -math.inf) for n in (5, -3)] + [
    (2.5, 0),
    (2.5, 1000),
    (0.5, -5),
]


def program(text: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"math": math}
    exec(f"def fn(x, h, n):\n    made = {text}\n    return x * made, made", space)
    return space["fn"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("text", PROGRAMS)
def test_each_value_gives_what_python_gives(text: str) -> None:
    assert not differing(program(text), (*NUMBERS[:3], *CORNERS, *NUMBERS))


@pytest.mark.parametrize("text", PROGRAMS)
def test_three_captures_serve_them(text: str) -> None:
    assert captures(program(text), NUMBERS) <= 3


def test_a_loop_over_data_with_a_step_that_data_tell_is_captured_once_for_each_way() -> None:
    def solve(x: torch.Tensor, end: float) -> Any:
        t, h, steps = 0.0, 0.1, 0
        while t < end:
            first = torch.sin(x)
            second = torch.sin(x + h * first)
            error = (h * (second - first) / 2).abs().max().item()
            if error < 1e-2 or h < 1e-3:
                x, t = x + h * (first + second) / 2, t + h
            h = min(max(0.9 * h * (1e-2 / (error + 1e-12)) ** 0.5, 1e-3), 0.5)
            steps += 1
        return x, t, steps

    made: list[Any] = []
    compiled = capture(solve, "eager", on_translation=made.append)
    for k in range(6):
        x, end = torch.ones(3) * (k + 1) * 0.3, 1.0 + 0.1 * k
        assert same(outcome(compiled, x, end), outcome(solve, x, end))
    assert len(made) <= 16  # there are eight ways through a turn; what was 43
