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


def made_by(fake: torch.Tensor) -> object:
    """The step of autograd that made a tensor. None, too, of a view whose base was written such that autograd refuses to say so: one of
    several, or one from ``no_grad``."""
    try:
        return fake.grad_fn
    except RuntimeError:
        return None


def refused_flag(tensor: torch.Tensor) -> str | None:
    """What autograd says where ``tensor.requires_grad = True`` is assigned, where it refuses to."""
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        return "only Tensors of floating point and complex dtype can require gradients"
    return None if is_leaf(tensor) else "you can only change requires_grad flags of leaf variables."


def as_given(fake: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
    """What stands for an input: of one that requires grad since something was written into it, as it was before."""
    if not isinstance(fake, FakeTensor) or real is None or real.requires_grad or not fake.requires_grad:
        return fake
    return fake.context.from_meta(fake.meta, fake.device)


def reached(fake: torch.Tensor, made: set[int]) -> bool:
    """Whether the history of a tensor leads to others than those that captured code ``made``."""
    if id(fake) in made:
        return False
    if (made_last := made_by(fake)) is None and not is_leaf(fake):
        return True  # nobody differentiates it
    for step in history([made_last]):
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


__all__ = ["as_given", "history", "is_leaf", "made_by", "reached", "refused_flag"]
