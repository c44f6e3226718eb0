"""``cond``: one of two graphs, as a tensor says while the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor

from ...errors import GraphError
from ..bodies import Traced, body, outputs_of, record
from ..graph import AtenGraph
from ..record import Recorder
from .operands import Differentiable, gradients_of, operands_of
from .registry import Run, row


@row("cond")
def cond(run: Run, predicate: Any, then: Any, other: Any, operands: Sequence[Any] = ()) -> tuple[Any, ...]:
    """A predicate that is a number is decided now."""
    if not isinstance(predicate, torch.Tensor):
        return run.inline(then if predicate else other, *operands)
    given = operands_of(run, operands, then, other)
    sides = given.traced(then), given.traced(other)
    if not given.differentiable:
        return tuple(_branch(run.recorder, predicate, sides, given.tensors))

    def forward(tensors: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        return _branch(run.recorder, predicate, sides, tensors), ()

    def backward(saved: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        tangents: list[Any] = [
            g if g is not None else torch.zeros_like(o)
            for g, o in zip(gradients, made, strict=True)
            if o.is_floating_point() or o.is_complex()
        ]
        backwards = [_backward(side, len(saved)) for side in sides]
        found = iter(_branch(run.recorder, predicate, backwards, [*saved, *tangents], differentiate=True))
        return [next(found) if t.requires_grad else None for t in saved]

    made = Differentiable.apply(forward, backward, *given.tensors)
    return tuple(made)


def _branch(
    recorder: Recorder, predicate: Any, sides: Sequence[Traced], tensors: Sequence[FakeTensor], *, differentiate: bool = False
) -> list[FakeTensor]:
    if predicate.numel() != 1:
        raise GraphError("GI014", "a predicate of more than one element", where=recorder.state.origin)
    graphs: list[AtenGraph] = []
    for side in sides:
        graphs.append(body(recorder, side, tensors, outputs_of(graphs[0]) if graphs else None, differentiate=differentiate))
    return record(recorder, "branch", graphs, [predicate, list(tensors)], outputs_of(graphs[0]))


def _backward(side: Traced, count: int) -> Traced:
    """The gradients of a side, which is computed again: what it would have kept depends on which side ran."""

    def run(inner: Recorder, fakes: Sequence[FakeTensor]) -> Sequence[Any]:
        return gradients_of(side(inner, fakes[:count]), fakes[count:], fakes[:count])

    return run
