"""Views of tensors with symbolic sizes that read the memory as elements of another type, or otherwise: real and imaginary parts,
conjugates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..symbols.asking import demanded
from ..table import Rules

RULES: dict[str, Callable[..., Any]] = {}
SYMBOLIC = Rules()
Tensor = torch.Tensor


def _over(x: Tensor, dtype: torch.dtype, sizes: Sequence[Any], strides: Sequence[Any], offset: Any) -> Tensor:
    """A tensor of ``x``'s memory; strides and offset are in elements of ``dtype``."""
    return torch.empty(0, dtype=dtype, device="meta").set_(x.untyped_storage(), offset, tuple(sizes), tuple(strides))


def _finer(x: Tensor, factor: int) -> tuple[list[Any], Any]:
    """Strides and offset of ``x`` in elements ``factor`` times smaller."""
    return [s * factor for s in x.stride()], x.storage_offset() * factor


def _coarser(x: Tensor, factor: int, name: str) -> tuple[list[Any], Any]:
    """Strides and offset of ``x``, but for its last dimension, in elements ``factor`` times larger. Raises RuntimeError as eager does where
    they do not fit."""
    if x.stride(-1) != 1:
        raise RuntimeError(f"{name}: the last dimension of the tensor must have a stride of 1")
    outer = x.stride()[:-1]
    if not all(demanded(s % factor == 0) for s in outer) or not demanded(x.storage_offset() % factor == 0):
        raise RuntimeError(f"{name}: strides and the offset in memory must be divisible by {factor}")
    return [s // factor for s in outer], x.storage_offset() // factor


@SYMBOLIC.row("view_as_real")
def _view_as_real(overload: str, x: Tensor) -> Any:
    if not x.is_complex() or x.is_conj():
        return NotImplemented
    strides, offset = _finer(x, 2)
    return _over(x, x.dtype.to_real(), [*x.size(), 2], [*strides, 1], offset)


@SYMBOLIC.row("view_as_complex")
def _view_as_complex(overload: str, x: Tensor) -> Any:
    if not x.is_floating_point() or x.dtype is torch.bfloat16 or not x.dim() or x.size(-1) != 2:
        return NotImplemented
    strides, offset = _coarser(x, 2, "view_as_complex")
    return _over(x, x.dtype.to_complex(), x.size()[:-1], strides, offset)


def view_as_type(x: Tensor, dtype: torch.dtype) -> Any:
    """``x.view(dtype)``."""
    if x.is_conj() or x.is_neg() or (not x.dim() and x.dtype.itemsize != dtype.itemsize):
        return NotImplemented
    mine, other = x.dtype.itemsize, dtype.itemsize
    if mine == other:
        return _over(x, dtype, x.size(), x.stride(), x.storage_offset())
    if x.stride(-1) != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 to view {x.dtype} as {dtype} (different element sizes), but got {x.stride(-1)}")
    if mine > other:
        strides, offset = _finer(x, mine // other)
        return _over(x, dtype, [*x.size()[:-1], x.size(-1) * (mine // other)], [*strides[:-1], 1], offset)
    if not demanded(x.size(-1) % (other // mine) == 0):
        raise RuntimeError(
            f"self.size(-1) must be divisible by {other // mine} to view {x.dtype} as {dtype} (different element sizes), but got "
            f"{x.size(-1)}"
        )
    strides, offset = _coarser(x, other // mine, "view")
    return _over(x, dtype, [*x.size()[:-1], x.size(-1) // (other // mine)], [*strides, 1], offset)


@SYMBOLIC.row("_conj")
def _conj(overload: str, x: Tensor) -> Any:
    out = _over(x, x.dtype, x.size(), x.stride(), x.storage_offset())
    torch._C._set_conj(out, not x.is_conj())
    return out


@SYMBOLIC.row("_neg_view")
def _neg_view(overload: str, x: Tensor) -> Any:
    out = _over(x, x.dtype, x.size(), x.stride(), x.storage_offset())
    torch._C._set_neg(out, not x.is_neg())
    return out
