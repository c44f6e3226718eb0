"""Functions of torch that take a count as an integer of C++, for counts that are symbolic. With integers they are torch's own."""

from __future__ import annotations

from typing import Any

import torch


def linspace(start: float, end: float, steps: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """``torch.linspace``: from both ends to the middle, as torch computes it."""
    dtype = dtype or torch.get_default_dtype()
    if type(steps) is not torch.SymInt or not dtype.is_floating_point or steps < 2:
        return torch.linspace(start, end, int(steps), dtype=dtype, device=device)
    at = torch.arange(steps, device=device)  # type: ignore[call-overload]
    step = (end - start) / (steps - 1)
    rising = at.to(dtype) * step + start
    falling = end - (steps - 1 - at).to(dtype) * step
    return torch.where(at < steps // 2, rising, falling)


def one_hot(x: torch.Tensor, num_classes: Any) -> torch.Tensor:
    """``torch.nn.functional.one_hot``. With a symbolic count, numbers out of range give rows of zeros."""
    if type(num_classes) is not torch.SymInt:
        return torch.nn.functional.one_hot(x, num_classes)
    numbers = torch.arange(num_classes, device=x.device)  # type: ignore[call-overload]
    equal: torch.Tensor = x.unsqueeze(-1) == numbers
    return equal.to(torch.int64)


def tensor(numbers: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """``torch.tensor`` of a list of integers, some of which are symbolic."""
    if not any(type(n) is torch.SymInt for n in numbers):
        return torch.tensor(numbers, dtype=dtype, device=device)
    return torch.stack([torch.full((), n, dtype=dtype or torch.int64, device=device) for n in numbers])
