"""Operators that run other plans: what a plan's ``Call`` of one means, in terms of the executables of its bodies.

A body is given the tensors and sizes of its inputs and gives tensors of its own: it returns neither its inputs nor views of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import BindError

Body = Callable[..., Sequence[Any]]
Outputs = tuple[torch.Tensor, ...]


def branch(then: Body, other: Body, predicate: torch.Tensor, operands: Sequence[Any]) -> Outputs:
    """The first body's outputs where ``predicate``, of one element, is true, else the second's."""
    return tuple((then if predicate.item() else other)(*operands))


def while_loop(test: Body, body: Body, carried: Sequence[torch.Tensor], operands: Sequence[Any], keep: bool = False) -> Outputs:
    """``carried`` after as many turns of ``body`` as ``test``, whose one output has one element, asks for. With ``keep``, what was carried
    into each turn follows, stacked."""
    values: Sequence[torch.Tensor] | None = None
    turns: list[Sequence[torch.Tensor]] = []
    while test(*(values or carried), *operands)[0].item():
        if keep:
            turns.append(values or carried)
        values = body(*(values or carried), *operands)
    last = tuple(v.clone() for v in carried) if values is None else tuple(values)
    if not keep:
        return last
    stacks = map(torch.stack, zip(*turns, strict=True)) if turns else (v.new_empty((0, *v.shape)) for v in carried)
    return (*last, *stacks)


def scan(body: Body, carried: Sequence[torch.Tensor], rows: Sequence[torch.Tensor], operands: Sequence[Any], backwards: bool) -> Outputs:
    """``body(*carried, *row, *operands)`` gives the next ``carried`` and a row of each other output, for the rows of ``rows`` along their
    first dimension, or from the last to the first. The result: the last ``carried``, then the rows of each other output, stacked."""
    count = rows[0].size(0)
    values = tuple(carried) if count else tuple(v.clone() for v in carried)
    stacks: list[torch.Tensor] = []
    for k in reversed(range(count)) if backwards else range(count):
        out = body(*values, *(r[k] for r in rows), *operands)
        values = tuple(out[: len(values)])
        if not stacks:
            stacks = [t.new_empty((count, *t.shape)) for t in out[len(values) :]]
        for stack, row in zip(stacks, out[len(values) :], strict=True):
            stack[k] = row
    return (*values, *stacks)


CONTROL: dict[str, tuple[int, Callable[..., Outputs]]] = {
    "opmill::branch": (2, branch),
    "opmill::while_loop": (2, while_loop),
    "opmill::scan": (1, scan),
}
"""Control operators: how many bodies they have, and what they do. Arguments are those after the bodies."""


def control_of(op: str, bodies: Sequence[Body]) -> Callable[..., Outputs]:
    """A control operator with its bodies given. Raises BindError (RC036)."""
    if op not in CONTROL:
        raise BindError("RC036", what=f"there is no control operator {op!r}")
    run = CONTROL[op][1]
    return lambda *args: run(*bodies, *args)
