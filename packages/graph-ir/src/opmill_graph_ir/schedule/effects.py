"""Which operators do more than their results say: those that draw random numbers move the generator on, those that exchange tensors with other
processes must find these ready, and views share memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from opmill_fake_tensors.operator import describe

from ..lowered import Extern
from .loop import Statement


def in_order(statement: Statement) -> bool:
    """Whether the statement takes numbers from the random generator, or exchanges tensors: it is then neither dropped nor moved across another."""
    return type(statement) is Extern and (statement.draws or _draws(statement.op) or exchanges(statement))


def gives_views(node: Extern) -> bool:
    """Whether the results may lie in the memory of an argument."""
    found = _operator(node.op)
    return node.op == "aten::_unsafe_view" or (found is not None and describe(found).gives_views)  # whose schema does not tell


_MAKING = frozenset(f"aten::{name}" for name in ("convolution", "convolution_backward"))


def gives_memory(node: Extern) -> bool:
    """Whether it is known that nothing else shows the memory of a result. Schemas do not tell: oneDNN's backward of recurrent layers gives one tensor twice."""
    return node.op in _MAKING


def exchanges(node: Extern) -> bool:
    """Whether other processes take part: arguments are read, and what a wait gives is written, while later steps run."""
    found = _operator(node.op)
    return found is not None and describe(found).exchanges


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
