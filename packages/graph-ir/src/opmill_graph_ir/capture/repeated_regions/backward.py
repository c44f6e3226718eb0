"""The backward of blocks that were written down without being run.

The blocks in front of them ran, and so do the last two. Autograd knows of the others nothing but a node from what the last of them leaves
to what the first of them takes. When that node's turn comes, the two last blocks have shown what the backward of one does: if the earlier's
is the later's with all names moved on, it is written down once more for each block between, as its forward was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor

from ..places import gradient_of
from ..record import Recorder
from .compare import Counterparts, Moment

LAST = 2
"""Blocks at the end of a stretch that run, to show what their backward is."""


class NotRepeated(Exception):
    """Blocks whose forward was alike have backwards that are not: the graph is to be captured with all its blocks."""


class Backward:
    """``blocks`` are not run, behind which two are. ``steps``: how many numbers the names of values and constants move on from block to
    block; ``leaves``: see ``_Turns.leaves``; ``ends``: what each of the two leaves; ``first``: the number of the first of the two;
    ``origins``: where the nodes of the block of a number come from, row by row."""

    def __init__(
        self,
        recorder: Recorder,
        blocks: int,
        steps: tuple[int, int],
        leaves: Callable[[int, int], Mapping[str, str] | None],
        ends: Sequence[torch.fx.Node],
        env: Mapping[torch.fx.Node, Any],
        first: int,
        origins: Callable[[int], Sequence[str]],
    ) -> None:
        self.origins = origins
        self.recorder, self.blocks, self.leaves, self.ends, self.env, self.first = recorder, blocks, leaves, ends, env, first
        self.graph = recorder.state.graph
        self.steps = steps
        self.starts = [recorder.state.counter]
        self.moments: list[Moment] = []
        self.given: list[FakeTensor] = []
        """The gradients of what the last block leaves, of what the one before leaves, and of what the last block written down leaves."""
        self.parts: Counterparts | None = None
        self.hooks: list[Any] = []
        recorder.late.append(self)

    def join(self, before: FakeTensor, after: FakeTensor) -> FakeTensor:
        """``after``, such that its gradient is asked of this, and goes on to ``before``."""
        joined: FakeTensor = _Between.apply(self, [after], before)
        if joined is not after:
            raise NotRepeated
        return joined

    def leave(self, block: int) -> None:
        """One of the two blocks has run."""
        self.starts.append(self.recorder.state.counter)
        end = self.env[self.ends[block - self.first]]
        if not isinstance(end, FakeTensor) or not end.requires_grad:
            raise NotRepeated
        self.hooks.append(end.register_hook(self._arrive))

    def _arrive(self, gradient: Any) -> None:
        self.given.append(gradient)
        self.moments.append(Moment.of(self.recorder))

    # ---- when the gradient comes -----------------------------------------------------------------------------------------

    def write(self, gradient: FakeTensor) -> FakeTensor:
        """Writes down the backward of all blocks that did not run; the gradient of what the block before them leaves."""
        self._arrive(gradient)
        if len(self.moments) != LAST + 1:
            raise NotRepeated
        first, between, last = self.moments
        _, values, constants = first.until(between)
        (step, further), begin = self.steps, first.counter
        if (
            constants
            or first.until(between) != between.until(last)
            or first.held != last.held
            or any(b - a != step for a, b in pairwise(self.starts))
        ):
            raise NotRepeated
        parts = self.parts = Counterparts(
            self.recorder, lambda name: -further if name[0] == "c" else values if int(name[1:]) >= begin else -step
        )
        leaves = self.leaves(self.first + 1, self.first)
        written = self.graph.nodes
        agree = (
            leaves is not None
            and first.undisturbed(between)
            and between.undisturbed(last)
            and all(parts.pair(a, b, given=True) for a, b in leaves.items())
            and self._arrived_agree()
            and parts.nodes_agree(written[first.nodes : between.nodes], written[between.nodes : last.nodes])
            and parts.values_agree(self.given[1], self.given[2])
        )
        if not agree:
            raise NotRepeated
        pattern = written[between.nodes : last.nodes]
        for turns in range(1, self.blocks + 1):
            names = parts.moved_names(turns) | self._leaf_names(turns)
            rows = zip(self.origins(self.first), self.origins(self.first - turns), strict=True)
            origins = {gradient_of(shown): gradient_of(own) for shown, own in rows}
            for node in pattern:
                parts.write(node, names, origins.get(node.origin, node.origin))
            self.recorder.state.counter += values
        return parts.moved(gradient, self.blocks)

    def _arrived_agree(self) -> bool:
        """The first gradient comes from something else; what reads it shall read it as the others are read."""
        assert self.parts is not None
        first, second = self.given[:2]
        one, other = (self.recorder.track(t) for t in (first, second))
        fresh = one.version == one.base.version and other.version == other.base.version
        return (
            fresh
            and first.shape == second.shape
            and first.stride() == second.stride()
            and self.parts.pair(one.value, other.value, given=True)
        )

    def _leaf_names(self, turns: int) -> dict[str, str]:
        found = self.leaves(self.first, self.first - turns)
        if found is None:
            raise NotRepeated
        return dict(found)

    def gradients(self, found: Mapping[str, Any]) -> dict[str, FakeTensor]:
        """The gradients of tensors of the blocks that did not run, by name; ``found`` has those of all others, None where there is none."""
        if self.parts is None:  # no gradient came as far as to them
            return {}
        gradients: dict[str, FakeTensor] = {}
        for later, earlier in (self.leaves(self.first + 1, self.first) or {}).items():
            if later != earlier and earlier in found and not self.parts.values_agree(found.get(later), found[earlier]):
                raise NotRepeated
        for turns in range(1, self.blocks + 1):
            for name, other in self._leaf_names(turns).items():
                if name != other and found.get(name) is not None:
                    gradients[other] = self.parts.moved(found[name], turns)
        return gradients

    def close(self) -> None:
        """Lets go of the fakes: autograd's graph, where the collector does not see what holds what, holds this."""
        for hook in self.hooks:
            hook.remove()
        self.__dict__.clear()


class _Between(torch.autograd.Function):
    """``apply(backward, [after], before)``: ``after``, with a gradient that ``backward`` gives on to ``before``."""

    @staticmethod
    def forward(ctx: Any, backward: Backward, held: list[torch.Tensor], before: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.backward_of = backward
        return held[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        [gradient] = gradients
        return None, None, None if gradient is None else ctx.backward_of.write(gradient)


__all__ = ["LAST", "Backward", "NotRepeated"]
