"""Which operators do more than their results say: those that draw random numbers move the generator on, and views share memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from opmill_fake_tensors.operator import describe

from ..lowered import Extern
from .loop import Statement


def draws(statement: Statement) -> bool:
    """Whether the statement takes numbers from the random generator: it is then neither dropped nor moved across another."""
    return type(statement) is Extern and _draws(statement.op)


def gives_views(node: Extern) -> bool:
    """Whether the results may lie in the memory of an argument."""
    found = _operator(node.op)
    return found is not None and describe(found).gives_views


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
