"""Index expressions as the size expressions of plans."""

from __future__ import annotations

from opmill_runtime_cache.plan.model import Size

from ..loops.index import Index, index


def size(value: Index | int) -> Size:
    """A size expression of the plan."""
    if type(value) is int:
        return value
    constant = index(value).constant
    return constant if constant is not None else str(value)
