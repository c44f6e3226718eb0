"""What a program says about the sizes of its tensors: these may change, those never do.

The marks are the attributes that ``torch._dynamo.mark_dynamic`` and ``mark_static`` leave on a tensor, so that either compiler honours
both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from msgspec import Struct

from .errors import UsageTypeError, UsageValueError


class Range(Struct, frozen=True):
    """Sizes that a marked dimension takes, ends included; None: no limit."""

    dim: int
    min: int | None
    max: int | None


def mark_dynamic(tensor: torch.Tensor, dim: int | Iterable[int], *, min: int | None = None, max: int | None = None) -> None:
    """The size of this dimension is not assumed by code compiled for ``tensor``, not even at its first call. Sizes 0 and 1 always are.

    Args:
        tensor: an argument of the compiled callable; the mark belongs to this tensor object.
        dim: one dimension or several; negative ones count from the last.
        min: the least size that compiled code is made for (2 at least). Knowing more of the sizes, it may be faster.
        max: the largest size; None: any.

    Raises:
        TypeError: ``tensor`` is no tensor, or ``dim`` no int.
        ValueError: there is no such dimension, or no size from ``min`` to ``max``.
    """
    if min is not None and max is not None and min > max:
        raise UsageValueError("OM013", f"no size is at least {min} and at most {max}")
    dims = dimensions(tensor, dim)
    marks = _marks(tensor, "_dynamo_dynamic_indices")
    ranges = _marks(tensor, "_dynamo_dynamic_range")
    ranges -= {each for each in ranges if each.dim in dims}
    for d in dims:
        marks.add(d)
        ranges.add(Range(d, min, max))


def mark_static(tensor: torch.Tensor, dim: int | Iterable[int] | None = None) -> None:
    """The size of this dimension (None: of all) is always assumed: another size is compiled anew, also under ``dynamic=True``.

    Raises TypeError and ValueError as :func:`mark_dynamic`, whose marks it takes away."""
    dims = dimensions(tensor, range(tensor.dim()) if dim is None and isinstance(tensor, torch.Tensor) else dim)
    _marks(tensor, "_dynamo_static_indices").update(dims)
    _marks(tensor, "_dynamo_dynamic_indices").difference_update(dims)


def dimensions(tensor: Any, dim: Any) -> list[int]:
    """The dimensions meant, counted from the first."""
    if not isinstance(tensor, torch.Tensor):
        raise UsageTypeError("OM013", f"sizes of tensors can be marked, not of {type(tensor).__name__}")
    wanted = [dim] if isinstance(dim, int) else list(dim) if isinstance(dim, Iterable) else [dim]
    if not all(type(d) is int for d in wanted):
        raise UsageTypeError("OM013", f"a dimension is an int, not {dim!r}")
    for d in wanted:
        if not -tensor.dim() <= d < tensor.dim():
            raise UsageValueError("OM013", f"no dimension {d} in a tensor of {tensor.dim()}")
    return [d % tensor.dim() for d in wanted]


def _marks(tensor: torch.Tensor, name: str) -> set[Any]:
    found: set[Any] = tensor.__dict__.setdefault(name, set())
    return found
