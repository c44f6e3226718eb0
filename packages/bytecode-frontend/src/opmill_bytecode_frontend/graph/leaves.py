"""Where the history of a tensor leads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor


def is_leaf(fake: torch.Tensor) -> bool:
    """Whether nothing computed a tensor; autograd refuses to say so of a view from ``no_grad`` whose base was written with gradients: that
    one is none."""
    try:
        return fake.is_leaf
    except RuntimeError:
        return False


def as_given(fake: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
    """What stands for an input: of one that requires grad since something was written into it, as it was before."""
    if not isinstance(fake, FakeTensor) or real is None or real.requires_grad or not fake.requires_grad:
        return fake
    return fake.context.from_meta(fake.meta, fake.device)


def reached(fake: torch.Tensor, made: set[int]) -> bool:
    """Whether the history of a tensor leads to others than those that captured code ``made``."""
    if id(fake) in made:
        return False
    for step in history([fake.grad_fn]):
        if not step.next_functions or any(after is None for after, _ in step.next_functions):
            leaf = getattr(step, "variable", None)
            if leaf is not None and id(leaf) not in made:
                return True
    return False


def history(steps: Sequence[Any]) -> Iterator[Any]:
    """What autograd has recorded behind these steps, and they themselves: each once, the first with all that is behind it before the
    next."""
    seen, todo = set(), [*reversed(steps)]
    while todo:
        step = todo.pop()
        if step is not None and step not in seen:
            seen.add(step)
            yield step
            todo += [after for after, _ in reversed(step.next_functions)]


__all__ = ["as_given", "history", "is_leaf", "reached"]
