"""Programs of numbers that are others at each call, beside Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from alike import outcome, same

from opmill_bytecode_frontend.entry.capture import capture


def differing(fn: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The numbers for which the captured function, called with a tensor and them, gives something else than the plain one."""
    compiled = capture(fn, "eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [n for n in calls if not same(outcome(compiled, torch.ones(2), *n), outcome(fn, torch.ones(2), *n))]


def captures(fn: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> int:
    """How many captures serve these calls, each without a break."""
    made: list[Any] = []
    compiled = capture(fn, "eager", fullgraph=True, on_translation=made.append)
    for numbers in calls:
        compiled(torch.ones(2), *numbers)
    return len(made)
