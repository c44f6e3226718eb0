"""Which operators change more than their results: those that draw random numbers move the generator on."""

from __future__ import annotations

from functools import lru_cache

import torch

from ..lowered import Extern
from .loop import Statement


def draws(statement: Statement) -> bool:
    """Whether the statement takes numbers from the random generator: it is then neither dropped nor moved across another."""
    return type(statement) is Extern and _draws(statement.op)


@lru_cache(None)
def _draws(op: str) -> bool:
    name, _, overload = op.partition(".")
    space, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, space), base, None)
    found = getattr(packet, overload or "default", None)
    return found is not None and torch.Tag.nondeterministic_seeded in found.tags
