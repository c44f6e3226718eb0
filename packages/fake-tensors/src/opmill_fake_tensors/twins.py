"""Operators that torch's kernels in C++ make of others, and for which these read all sizes as integers: the same in Python, which asks for
those sizes only that decide something. What these refuse, and what has no number here, is the kernel's to tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Twin = Callable[..., Any]


def resampled(name: str) -> Twin:
    """``upsample_nearest2d.vec`` and its kin: the operator that takes the sizes, and how many times they are the old ones where that is
    what was said."""
    packet = getattr(torch.ops.aten, name)

    def twin(x: torch.Tensor, output_size: Any, *given: Any) -> Any:
        *options, factors = given
        sizes = output_size
        if output_size is None and factors is not None and len(factors) == x.dim() - 2:
            sizes = [times(n, by) for n, by in zip(x.shape[2:], factors, strict=True)]
        if sizes is None or (output_size is not None and factors is not None) or len(sizes) != x.dim() - 2 or None in sizes:
            with torch._C._DisablePythonDispatcher():
                return packet.vec(x, output_size, *given)
        return packet.default(x, sizes, *options, *(factors or ()))

    return twin


def times(size: Any, factor: float) -> Any:
    """``int(size * factor)``, of a size that changes as long as that is as many times itself."""
    if type(size) is not int and float(factor).is_integer() and factor > 0:
        return size * int(factor)
    number = float(int(size)) * factor
    return int(number) if 0 <= number < 1 << 62 else None


def along(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> Any:
    """``take_along_dim``: the other dimensions of both are broadcast."""
    if dim is None:
        return x.reshape(-1).gather(0, indices.reshape(-1))
    rank = x.dim()
    if rank != indices.dim() or not -rank <= dim < rank or indices.dtype is not torch.int64:
        with torch._C._DisablePythonDispatcher():
            return torch.ops.aten.take_along_dim.default(x, indices, dim)
    dim %= rank
    mine, theirs = list(x.shape), list(indices.shape)
    for d in range(rank):
        if d != dim:
            mine[d] = theirs[d] = torch.broadcast_shapes((mine[d],), (theirs[d],))[0]
    return x.expand(mine).gather(dim, indices.expand(theirs))


def kron(a: torch.Tensor, b: torch.Tensor) -> Any:
    """Each number of the first times all of the second."""
    rank = max(a.dim(), b.dim())
    left, right = [1] * (rank - a.dim()) + list(a.shape), [1] * (rank - b.dim()) + list(b.shape)
    apart = torch.mul(a.reshape([n for size in left for n in (size, 1)]), b.reshape([n for size in right for n in (1, size)]))
    return torch.ops.aten._unsafe_view.default(apart, [m * n for m, n in zip(left, right, strict=True)])


def cov(x: torch.Tensor, *, correction: int = 1, fweights: torch.Tensor | None = None, aweights: torch.Tensor | None = None) -> Any:
    """Without weights: how rows vary together, over the columns. The kernel warns, and divides by zero, where these are too few."""
    rows = x.reshape(1, -1) if x.dim() < 2 else x
    count = rows.shape[-1]
    if fweights is not None or aweights is not None or x.dim() > 2 or x.dtype is torch.bool or count <= correction:
        with torch._C._DisablePythonDispatcher():
            return torch.ops.aten.cov.default(x, correction=correction, fweights=fweights, aweights=aweights)
    rows = rows - (rows.sum(1) / count).unsqueeze(1)
    return (torch.mm(rows, rows.t().conj()) / (count - correction)).squeeze()


def corrcoef(x: torch.Tensor) -> Any:
    """The same over the deviations of both rows."""
    if x.is_complex():
        with torch._C._DisablePythonDispatcher():
            return torch.ops.aten.corrcoef.default(x)
    together = cov(x)
    if not together.dim():
        return together / together
    deviations = together.diag().sqrt()
    return (together / deviations.unsqueeze(1) / deviations.unsqueeze(0)).clip(-1, 1)


def fill_diagonal(x: torch.Tensor, value: Any, wrap: bool = False) -> Any:
    """``fill_diagonal_`` of a matrix; where it wraps, the diagonal begins again behind a row that it leaves out."""
    if x.dim() != 2 or not x.is_floating_point():  # others take a value that does not fit
        with torch._C._DisablePythonDispatcher():
            return torch.ops.aten.fill_diagonal_.default(x, value, wrap)
    rows, columns = torch.arange(x.shape[0], device=x.device), torch.arange(x.shape[1], device=x.device)
    place = rows % (x.shape[1] + 1) if wrap else rows
    return x.masked_fill_(place.unsqueeze(1) == columns, value)


RESAMPLINGS = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa "
    "_upsample_bicubic2d_aa"
).split()


def twins() -> dict[Any, Twin]:
    """Each operator with what stands for it, of those that this torch has."""
    found: dict[Any, Twin] = {}
    for name in RESAMPLINGS:
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None and "vec" in packet.overloads():
            found[packet.vec] = resampled(name)
    found[torch.ops.aten.take_along_dim.default] = along
    found[torch.ops.aten.kron.default] = kron
    found[torch.ops.aten.fill_diagonal_.default] = fill_diagonal
    found[torch.ops.aten.cov.default] = cov
    found[torch.ops.aten.corrcoef.default] = corrcoef
    return found


__all__ = ["twins"]
