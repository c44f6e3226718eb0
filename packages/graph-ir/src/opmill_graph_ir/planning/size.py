"""Index expressions as the size expressions of plans."""

from __future__ import annotations

from opmill_runtime_cache.plan.model import Size

from ..loops.index import Index, index


def size(value: Index | int) -> Size:
    """A size expression of the plan."""
    i = index(value)
    return i.constant if i.constant is not None else str(i)
