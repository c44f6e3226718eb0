"""Tensors whose history a backward in captured code has used up: autograd has let go of what it saved, and says so when it is asked
again."""

from __future__ import annotations

import torch

from .leaves import history

MESSAGE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved "
    "intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
    "backward through the graph a second time or if you need to access saved tensors after calling backward."
)


class Spent(torch.autograd.Function):
    """A tensor as it is, whose history raises."""

    @staticmethod
    def forward(ctx: object, anchor: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> object:
        raise RuntimeError(MESSAGE)


def spent(x: torch.Tensor) -> torch.Tensor:
    """``x``, which requires grad again, and whose backward raises what autograd raises."""
    with torch.enable_grad():
        return Spent.apply(torch.empty(0, requires_grad=True), x)


def is_spent(fake: torch.Tensor) -> bool:
    """Whether autograd refuses to go through the history of a tensor, which it has gone through before."""
    if not fake.requires_grad or fake.grad_fn is None:
        return False
    leaves = [step.variable for step in history([fake.grad_fn]) if getattr(step, "variable", None) is not None]
    try:
        torch.autograd.grad(fake, leaves, torch.empty_like(fake), retain_graph=True, allow_unused=True)
    except RuntimeError as exc:
        return "a second time" in str(exc)
    return False
