"""Functions that leave out what is not a number."""

from __future__ import annotations

import torch

from .functions import Axes, axes_of, cumprod, cumsum, prod, rule, sum_


@rule("nanmax")
def nanmax(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    """The greatest of what is a number."""
    return extreme(a, axis, keepdims, -torch.inf)


@rule("nanmin")
def nanmin(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    """The smallest of what is a number."""
    return extreme(a, axis, keepdims, torch.inf)


def extreme(a: torch.Tensor, axis: Axes, keepdims: bool, beyond: float) -> torch.Tensor:
    """The greatest number, or the smallest where ``beyond`` is above all; where there is none, no number."""
    axes, function = axes_of(a, axis), torch.amax if beyond < 0 else torch.amin
    if not a.is_floating_point():
        return function(a, dim=axes, keepdim=keepdims)
    missing = torch.isnan(a)
    found = function(torch.where(missing, torch.full((), beyond, dtype=a.dtype), a), dim=axes, keepdim=keepdims)
    return torch.where(torch.all(missing, dim=axes, keepdim=keepdims), torch.full((), torch.nan, dtype=a.dtype), found)


@rule("nanprod")
def nanprod(a: torch.Tensor, axis: Axes = None, dtype: object = None, keepdims: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The product, with ones for what is no number."""
    return prod(torch.where(torch.isnan(a), torch.ones_like(a), a), axis, dtype, keepdims, as_dtype=as_dtype)


@rule("nancumsum")
def nancumsum(a: torch.Tensor, axis: int | None = None, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """Sums so far, with zeros for what is no number."""
    return cumsum(torch.where(torch.isnan(a), torch.zeros_like(a), a), axis, dtype, as_dtype=as_dtype)


@rule("nancumprod")
def nancumprod(a: torch.Tensor, axis: int | None = None, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """Products so far, with ones for what is no number."""
    return cumprod(torch.where(torch.isnan(a), torch.ones_like(a), a), axis, dtype, as_dtype=as_dtype)


@rule("nanvar")
def nanvar(
    a: torch.Tensor, axis: Axes = None, dtype: object = None, ddof: int = 0, keepdims: bool = False, *, as_dtype: torch.dtype
) -> torch.Tensor:
    """The variance of what is a number."""
    axes, a = axes_of(a, axis), a.to(as_dtype)
    missing = torch.isnan(a)
    count = torch.sum(torch.logical_not(missing), dim=axes, keepdim=True)
    middle = sum_(torch.where(missing, torch.zeros_like(a), a), axis, None, True, as_dtype=as_dtype) / count
    parts = torch.where(missing, torch.zeros_like(a), torch.square(a - middle))
    free = (count if keepdims else count.squeeze(tuple(axes))) - ddof
    found = torch.sum(parts, dim=axes, keepdim=keepdims) / free
    return torch.where(free <= 0, torch.full((), torch.nan, dtype=as_dtype), found)


@rule("nanstd")
def nanstd(
    a: torch.Tensor, axis: Axes = None, dtype: object = None, ddof: int = 0, keepdims: bool = False, *, as_dtype: torch.dtype
) -> torch.Tensor:
    """The deviation of what is a number."""
    return torch.sqrt(nanvar(a, axis, dtype, ddof, keepdims, as_dtype=as_dtype))


@rule("nanmedian")
def nanmedian(a: torch.Tensor, axis: int | None = None, *, keepdims: bool = False, as_dtype: torch.dtype) -> torch.Tensor:
    """The middle of what is a number."""
    if isinstance(axis, tuple) or keepdims:
        raise NotImplementedError
    flat, dim = (a.reshape(-1), 0) if axis is None else (a, axis)
    ordered = torch.sort(flat.to(as_dtype), dim=dim).values  # what is no number comes last
    count = torch.sum(torch.logical_not(torch.isnan(ordered)), dim=dim, keepdim=True)
    low = torch.take_along_dim(ordered, torch.clamp((count - 1) // 2, min=0), dim)
    high = torch.take_along_dim(ordered, torch.clamp(count // 2, max=flat.shape[dim] - 1), dim)
    found = torch.where(count % 2 == 1, low, (low + high) / 2)
    return torch.where(count == 0, torch.full((), torch.nan, dtype=as_dtype), found).squeeze(dim)


__all__ = ["nanmax"]
