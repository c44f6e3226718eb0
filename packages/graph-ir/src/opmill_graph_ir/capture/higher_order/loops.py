"""Loops whose turns are known only while the program runs, and loops over the rows of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor

from ...errors import GraphError
from ..bodies import Traced, body, outputs_of, record
from ..graph import Meta
from ..record import Recorder, meta_of
from ..sizes import size_of
from .operands import Differentiable, Forward, Operands, gradients_of, operands_of
from .registry import Run, row


@row("while_loop")
def while_loop(run: Run, test: Any, step: Any, carried: Sequence[Any], additional: Sequence[Any] = ()) -> tuple[Any, ...]:
    """``carried`` after as many turns of ``step`` as ``test`` is true before; both get ``additional`` besides. What is carried keeps its
    sizes and is contiguous. Raises GraphError GI014 where a number is carried."""
    if not all(isinstance(c, torch.Tensor) for c in carried):
        raise GraphError("GI014", "a loop that carries a number", where=run.recorder.state.origin, hint="carry a tensor of one element")
    given = operands_of(run, [*(c.contiguous() for c in carried), *additional], test, step)
    turn = _Turn(given, given.traced(step), len(carried), 0)
    if not given.differentiable:
        return tuple(_record_loop(run.recorder, given.traced(test), turn, given.tensors, keep=False))

    def forward(tensors: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        found = _record_loop(run.recorder, given.traced(test), turn, tensors, keep=True)
        return found[: len(carried)], found[len(carried) :]

    return turn.differentiated(run.recorder, forward)


def _record_loop(recorder: Recorder, test: Traced, turn: _Turn, tensors: Sequence[FakeTensor], *, keep: bool) -> list[FakeTensor]:
    """What is carried out of the loop; with ``keep``, then what was carried into each turn: as many rows as there were turns."""
    carried, whole = list(tensors[: turn.carried]), list(tensors[turn.carried :])
    layout = [meta_of(t).contiguous() for t in carried]
    test_graph = body(recorder, test, tensors)
    if [(m.dtype, m.sizes) for m in outputs_of(test_graph)] != [("bool", ())]:
        raise GraphError("GI014", "the test of a loop gives no truth value", where=recorder.state.origin)
    graphs = [test_graph, body(recorder, turn.step, tensors, layout)]
    kept = [_stacked(m, turns) for turns in [recorder.counted("the number of turns of a loop")] for m in layout] if keep else []
    return record(recorder, "while_loop", graphs, [carried, whole], [*layout, *kept], keep)


@row("scan")
def scan(run: Run, combine: Any, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any] = ()) -> tuple[Any, ...]:
    """What ``combine`` carries out of the last row of ``xs``, then what it gives for each row, stacked along a first dimension."""
    return _scan(run, combine, [t.contiguous() for t in init], xs, additional)


@row("map_impl")
def map_rows(run: Run, function: Any, xs: Sequence[Any], operands: Sequence[Any] = ()) -> tuple[Any, ...]:
    """``function`` of each row of ``xs`` and the whole ``operands``: a scan that carries nothing."""
    return _scan(run, function, [], xs, operands)


def _scan(run: Run, combine: Any, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any]) -> tuple[Any, ...]:
    given = operands_of(run, [*init, *xs, *additional], combine)
    turn = _Turn(given, given.traced(combine), len(init), len(xs))
    if not given.differentiable:
        return tuple(turn.record(run.recorder, turn.step, given.tensors))

    def forward(tensors: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        found = turn.record(run.recorder, turn.keeping, tensors)
        return found[: len(found) - len(init)], found[len(found) - len(init) :]

    return turn.differentiated(run.recorder, forward)


class _Turn:
    """A turn of a scan or loop over ``tensors``: ``carried`` of them, then ``rows`` of which it takes a row, then those it takes whole."""

    def __init__(self, given: Operands, step: Traced, carried: int, rows: int) -> None:
        self.given, self.step, self.carried, self.rows = given, step, carried, rows

    def keeping(self, inner: Recorder, fakes: Sequence[FakeTensor]) -> Sequence[Any]:
        """The turn, which also gives what was carried into it."""
        return [*self.step(inner, fakes), *fakes[: self.carried]]

    def record(self, recorder: Recorder, step: Traced, tensors: Sequence[FakeTensor]) -> list[FakeTensor]:
        return _record(recorder, step, tensors, self.carried, self.rows)

    def differentiated(self, recorder: Recorder, forward: Forward) -> tuple[Any, ...]:
        """What ``forward`` gives, known to autograd; besides, it gives what was carried into each turn."""

        def backward(saved: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
            tangents = [g if g is not None else torch.zeros_like(o) for g, o in zip(gradients, made, strict=True)]
            return self.backward(recorder, saved, tangents)

        made = Differentiable.apply(forward, backward, *self.given.tensors)
        return tuple(made)

    def backward(self, recorder: Recorder, saved: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """Rows backwards: each turn is computed again from what was carried into it. Gradients of what is taken whole add up."""
        count = len(self.given.tensors)
        tensors, into = saved[:count], saved[count:]
        first, rows, whole = tensors[: self.carried], tensors[self.carried : self.carried + self.rows], tensors[self.carried + self.rows :]
        flowing = [k for k, t in enumerate(first) if _differentiable(t)]
        summed = [k for k, t in enumerate(whole) if t.requires_grad]
        tangent_rows = [t for t in tangents[self.carried :] if _differentiable(t)]
        carried = [tangents[k].contiguous() for k in flowing] + [
            torch.zeros_like(whole[k], memory_format=torch.contiguous_format) for k in summed
        ]

        def step(inner: Recorder, fakes: Sequence[FakeTensor]) -> Sequence[Any]:
            given = iter(fakes)
            take = lambda n: [next(given) for _ in range(n)]
            gradients, sums, carry, row, tangent, rest = map(
                take, (len(flowing), len(summed), len(first), len(rows), len(tangent_rows), len(whole))
            )
            for k in flowing:
                carry[k].requires_grad_()
            for given_row, original in zip(row, rows, strict=True):
                given_row.requires_grad_(original.requires_grad)
            outputs = self.step(inner, [*carry, *row, *rest])
            found = gradients_of(outputs, [*gradients, *tangent], [*carry, *row, *rest])
            moved = [s + g for s, g in zip(sums, found[len(found) - len(summed) :], strict=True)]
            return [*found[: len(flowing)], *moved, *found[len(flowing) : len(found) - len(summed)]]

        inputs = [*carried, *into, *rows, *tangent_rows, *whole]
        found = _record(recorder, step, inputs, len(carried), len(into) + len(rows) + len(tangent_rows), backwards=True, differentiate=True)
        sums = dict(zip(summed, found[len(flowing) :], strict=False))
        by_carried, by_row = dict(zip(flowing, found, strict=False)), iter(found[len(carried) :])
        return [
            *(by_carried.get(k) if t.requires_grad else None for k, t in enumerate(first)),
            *(next(by_row) if t.requires_grad else None for t in rows),
            *(sums.get(k) for k in range(len(whole))),
        ]


def _differentiable(t: Any) -> bool:
    return bool(t.is_floating_point() or t.is_complex())


def _record(
    recorder: Recorder,
    step: Traced,
    tensors: Sequence[FakeTensor],
    carried: int,
    rows: int,
    *,
    backwards: bool = False,
    differentiate: bool = False,
) -> list[FakeTensor]:
    first, stacked, whole = list(tensors[:carried]), list(tensors[carried : carried + rows]), list(tensors[carried + rows :])
    count = stacked[0].size(0)
    inputs = [*first, *map(recorder.row_of, stacked), *whole]
    layout = [meta_of(t).contiguous() for t in first]
    probe = outputs_of(body(recorder, step, inputs, differentiate=differentiate))
    graph = body(recorder, step, inputs, [*layout, *(m.contiguous() for m in probe[carried:])], differentiate=differentiate)
    results = [*layout, *(_stacked(m, size_of(count)) for m in outputs_of(graph)[carried:])]
    return record(recorder, "scan", [graph], [first, stacked, whole], results, backwards)


def _stacked(row: Meta, count: Any) -> Meta:
    return row.contiguous((count, *row.sizes))
