"""Systems of equations of symbolic sizes, whose kernels of torch resize what they made. Of others, and what fits nowhere, torch tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..strides import broadcast, contiguous
from ..symbols.asking import demanded
from ..table import Rules, dense, strided

RULES = Rules()
SYMBOLIC = Rules()


@SYMBOLIC.row("linalg_solve_triangular")
def _solve_triangular(
    overload: str, a: torch.Tensor, b: torch.Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """The solutions lie column by column in each matrix."""
    if overload or a.dim() < 2 or b.dim() < 2 or a.dtype != b.dtype or a.is_conj():
        return NotImplemented
    m, n = a.size(), b.size()
    if not demanded(m[-2] == m[-1]) or not demanded(m[-1] == n[-2 if left else -1]):
        return NotImplemented
    batch = broadcast([m[:-2], n[:-2]])
    *outer, column, row = contiguous((*batch, n[-1], n[-2]))
    return strided((*batch, n[-2], n[-1]), (*outer, row, column), b.dtype)


@SYMBOLIC.row("_linalg_check_errors")
def _check_errors(*_: Any, **__: Any) -> None:
    """Nothing, or an error when the program runs."""


@RULES.row("geqrf")
def _geqrf(overload: str, a: torch.Tensor) -> Any:
    """Both factors in one, column by column in each matrix, and the scales of the reflections."""
    if overload or a.dim() < 2:
        return NotImplemented
    *batch, rows, columns = a.size()
    *outer, column, row = contiguous((*batch, columns, rows))
    shorter = rows if demanded(rows <= columns) else columns
    return strided((*batch, rows, columns), (*outer, row, column), a.dtype), strided(
        (*batch, shorter), contiguous((*batch, shorter)), a.dtype
    )


@SYMBOLIC.row("linalg_pinv")
def _pinv(overload: str, a: torch.Tensor, *_: Any, **__: Any) -> Any:
    """A product of matrices, in rows."""
    if overload != "atol_rtol_tensor" or a.dim() < 2 or a.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        return NotImplemented
    *batch, rows, columns = a.size()
    return dense((*batch, columns, rows), a.dtype)


@SYMBOLIC.row("_trilinear")
def _trilinear(overload: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *given: Sequence[int], unroll_dim: int = 1) -> Any:
    """The sum over some dimensions of the product of three tensors, which are given dimensions of one first."""
    *new, summed = given[:4]
    rank = a.dim() + len(new[0])
    shapes = []
    for tensor, dims in zip((a, b, c), new, strict=True):
        own = iter(tensor.size())
        if tensor.dim() + len(dims) != rank or tensor.dtype != a.dtype:
            return NotImplemented
        shapes.append([1 if d in dims else next(own) for d in range(rank)])
    return dense([n for d, n in enumerate(broadcast(shapes)) if d not in summed], a.dtype)
