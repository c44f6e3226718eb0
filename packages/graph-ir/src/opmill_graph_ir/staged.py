"""A backward in several plans, each behind an autograd node of its own: gradients of the first are handed out while the others still run,
which is when DistributedDataParallel sends them.

The node of the outputs runs the first plan. What the others need hangs on the gradient of a token, an otherwise meaningless tensor that
each node takes from the next: autograd accumulates what is ready before it goes on to the node behind the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

Executable = Any
"""What ``bind`` of runtime-cache gives: a callable with a method ``take``."""


class Stage(msgspec.Struct, frozen=True):
    """One stretch of the backward. ``takes`` and ``drops`` are positions in the pool: first what the whole backward takes (but sizes), then
    what the stages leave for later ones, in the order in which they do. ``gradients`` are positions among the backward's outputs: the
    stage's first outputs; the others are what it leaves. ``drops`` are not read again."""

    takes: tuple[int, ...]
    gradients: tuple[int, ...]
    drops: tuple[int, ...]


@dataclass
class _Rest:
    """What is left to run of a backward: ``pool`` as :class:`Stage` numbers it. ``present`` says of each gradient whether it has a
    tangent."""

    pool: list[Any]
    sizes: Sequence[int]
    present: Sequence[bool]


class StagedBackward:
    """The stages of a backward with the plan of each. ``owners``: for each stage but the first, what its gradients are for, as positions
    among the inputs and held tensors of the graph. ``device``: where the plans run."""

    __slots__ = ("device", "owners", "plans", "stages")

    def __init__(self, stages: Sequence[Stage], plans: Sequence[Executable], owners: Sequence[int], device: str) -> None:
        self.stages, self.plans, self.device = tuple(stages), tuple(plans), device
        self.owners = [[owners[k] for k in stage.gradients] for stage in self.stages]

    def token(self, tensors: Sequence[Any]) -> torch.Tensor | None:
        """The token of the first plan's node, in front of the nodes of the others. ``tensors``: inputs and held tensors."""
        token = None
        for number in range(len(self.stages) - 1, 0, -1):
            token = _Node.apply(self, number, token, *(tensors[k] for k in self.owners[number]))
        return token

    def begin(self, given: list[Any], sizes: Sequence[int], present: Sequence[bool]) -> tuple[list[Any], torch.Tensor]:
        """Runs the first plan. Its gradients in their places, None in those of others; and the gradient of its node's token. ``given`` is
        the pool from then on: what no later plan reads is dropped as it is used."""
        rest = _Rest(given, sizes, present)
        found = self.run(0, rest)
        gradients: list[Any] = [None] * len(present)
        for k, gradient in zip(self.stages[0].gradients, found, strict=True):
            gradients[k] = gradient
        return gradients, self.pass_on(0, rest)

    def run(self, number: int, rest: _Rest) -> Sequence[Any]:
        """Runs the plan of a stage: its gradients."""
        stage = self.stages[number]
        given = [*(rest.pool[k] for k in stage.takes), *rest.sizes]
        for k in stage.drops:
            rest.pool[k] = None
        found = self.plans[number].take(given)
        count = len(stage.gradients)
        rest.pool += found[count:]
        return found[:count]

    def pass_on(self, number: int, rest: _Rest) -> Any:
        """The gradient of the token that stage ``number`` took, None at the last. What is left hangs on the tensor itself, so it goes with
        it where autograd does not need it, and two backwards at once keep theirs apart."""
        if number + 1 == len(self.stages):
            return None
        gradient: Any = torch.empty(1, device=self.device)
        gradient.opmill_rest = rest
        return gradient


class _Node(torch.autograd.Function):
    """``apply(backward, number, token, *owners)`` gives the token for the node before."""

    @staticmethod
    def forward(ctx: Any, backward: StagedBackward, number: int, token: Any, *owners: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.whole, ctx.number = backward, number
        return torch.empty(1, device=backward.device)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        backward, number = ctx.whole, ctx.number
        if gradient is None:  # the first node gave all gradients itself, so that they can be differentiated
            return (None,) * (3 + len(backward.owners[number]))
        rest = gradient.opmill_rest
        found = backward.run(number, rest)
        gradients = [g if rest.present[k] else None for k, g in zip(backward.stages[number].gradients, found, strict=True)]
        return None, None, backward.pass_on(number, rest), *gradients
