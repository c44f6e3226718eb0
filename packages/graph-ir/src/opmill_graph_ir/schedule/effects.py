"""Which operators do more than their results say: those that draw random numbers move the generator on, those that exchange tensors with
other processes must find these ready, and views share memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from opmill_fake_tensors.operator import describe
from opmill_fake_tensors.raising import raises_for_content

from ..lowered import Extern
from ..ops.records import record_of
from .loop import Statement


def in_order(statement: Statement) -> bool:
    """Whether the statement takes numbers from the random generator, exchanges tensors, or is an operator of another library that gives
    nothing: it is then neither dropped nor moved across another."""
    return type(statement) is Extern and (statement.draws or _draws(statement.op) or exchanges(statement.op) or _says_nothing(statement))


def may_raise(statement: Statement) -> bool:
    """Whether the statement raises for some contents of what it reads."""
    if type(statement) is not Extern:
        return bool(statement.checks)  # type: ignore[union-attr]
    found = _operator(statement.op)
    return found is not None and raises_for_content(found._schema.name, "int64", True)


def gives_views(node: Extern) -> bool:
    """Whether the results may lie in the memory of an argument."""
    found = _operator(node.op)
    return record_of(node.op).shares or (found is not None and describe(found).gives_views)


def gives_memory(node: Extern) -> bool:
    """Whether it is known that nothing else shows the memory of a result. Schemas do not tell: oneDNN's backward of recurrent layers gives
    one tensor twice."""
    return record_of(node.op).own_memory


def exchanges(op: str) -> bool:
    """Whether other processes take part in an operator, by its name: arguments are read, and what a wait gives is written, while later
    steps run."""
    found = _operator(op)
    return found is not None and describe(found).exchanges


def _says_nothing(node: Extern) -> bool:
    return not node.results and not node.mutates and not node.op.startswith("aten::")


@lru_cache(None)
def _draws(op: str) -> bool:
    found = _operator(op)
    return found is not None and torch.Tag.nondeterministic_seeded in found.tags


@lru_cache(None)
def _operator(op: str) -> Any:
    name, _, overload = op.partition(".")
    space, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, space), base, None)
    return getattr(packet, overload or "default", None)
