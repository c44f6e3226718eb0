"""What profilers are told of a plan while it runs: a region for the whole, one for each label of the program, one for each kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..plan.model import Call, Launch, Plan

_LONGEST = 100
"""Characters of a kernel's name."""
Region = tuple[int, int, int, str]
"""The first step, the one behind the last, how many regions are around a label (-1: it is none, but a kernel or operator), and the name."""


def regions(plan: Plan, places: Sequence[int]) -> tuple[Callable[[str], Any], Callable[[Any], Any], tuple[Region, ...]]:
    """What opens a label (name -> record), what closes it, and the regions of a plan, by its native program's steps: those that begin
    first come first, and of these the outermost. ``places``: by step of the plan the number of native steps before it; one more for its
    end."""
    found: list[Region] = [(0, places[-1] + 1, 0, f"opmill::{plan.name}")]
    found += [(places[label.begin], places[label.end], label.depth + 1, label.name) for label in plan.labels]
    for step, begin, end in zip(plan.steps, places, places[1:], strict=False):
        if begin < end and type(step) is Launch:
            found.append((end - 1, end, -1, f"opmill::{kernel_name(step)}"))
        elif begin < end and type(step) is Call:
            found.append((end - 1, end, -1, step.op.partition(".")[0]))
    return enter, leave, tuple(sorted(found, key=lambda region: (region[0], region[2] < 0)))


def enter(name: str) -> Any:
    """Opens a label."""
    return torch.ops.profiler._record_function_enter_new(name)


def leave(record: Any) -> None:
    """Closes a label."""
    torch.ops.profiler._record_function_exit._RecordFunction(record)


def kernel_name(step: Launch) -> str:
    """The operators that a kernel is made of, with the first line of the program that they come from."""
    parts = [part for part in step.origin.split("; ") if part]
    operators = "+".join(dict.fromkeys(part.partition(" ")[0].partition(".")[0] for part in parts)) or f"kernel {step.kernel}"
    if len(operators) > _LONGEST:
        operators = f"{operators[: _LONGEST - 3]}..."
    line = next((part.rpartition(" ")[2] for part in parts), "")
    return f"{operators} {line.rpartition('/')[2]}".strip()


__all__ = ["kernel_name", "regions"]
