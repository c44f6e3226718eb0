"""What kernels that take positions check of shapes, and torch's meta kernels do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .checks import NAMES, equal, shown

Tensor = torch.Tensor
CHECKS: dict[str, Callable[..., None]] = {}
_MASKS = (torch.bool, torch.uint8)


def _refuse_dim(x: Tensor, dim: int) -> None:
    most = max(x.dim(), 1)
    if not -most <= dim < most:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {dim})")


def _put_along(name: str) -> Callable[..., None]:
    def refuse(x: Tensor, dim: int, ids: Tensor, src: Tensor, *_: Any, **__: Any) -> None:
        """A tensor without dimensions takes a source without dimensions, and no other tensor does."""
        if ids.dim() > 1:
            raise IndexError(
                f"{name}_(): Index is supposed to be a vector, but got dim: {ids.dim()} with type: {NAMES.get(ids.dtype, str(ids.dtype))} "
                f"and size: {shown(ids.size())}"
            )
        _refuse_dim(x, dim)
        if dim not in (-1, 0) and dim % max(x.dim(), 1) >= src.dim():
            raise RuntimeError(
                f"{name}_(): Indexing dim {dim % max(x.dim(), 1)} is out of bounds of the source tensor with dim {src.dim()}"
            )
        at = dim % max(x.dim(), 1)
        given = src.size(at) if at < src.dim() else 1
        if not src.dim() and not equal([ids.numel()], [1]):
            raise IndexError(f"Dimension specified as {at} but tensor has no dimensions")
        if at < src.dim() and not equal([ids.numel()], [given]):
            raise RuntimeError(
                f"{name}_(): Number of indices ({ids.numel()}) should be equal to source.size(dim): ({given}), for dim: {at}"
            )
        rest = [[n for d, n in enumerate(t.size()) if d != at or not x.dim()] for t in (x, src)]
        if not equal(*rest) or (x.dim() and not src.dim()):
            raise RuntimeError(
                "source tensor shape must match self tensor shape, excluding the specified dimension. "
                f"Got self.shape = {shown(x.size())} source.shape = {shown(src.size())}"
            )

    return refuse


for _name in ("index_add", "index_reduce"):
    CHECKS |= dict.fromkeys((f"aten::{_name}", f"aten::{_name}_"), _put_along(_name))


def _index_select(x: Tensor, dim: int, ids: Tensor) -> None:
    if ids.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    _refuse_dim(x, dim)
    if not x.dim() and not equal([ids.numel()], [1]):
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {ids.numel()} value(s)")


CHECKS["aten::index_select"] = _index_select


def _index_put(x: Tensor, ids: Sequence[Tensor | None], values: Tensor, *_: Any, **__: Any) -> None:
    """There are no more positions than dimensions, and the values broadcast to what these select (where no sizes are symbolic)."""
    masks = [i for i in ids if i is not None and i.dtype in _MASKS]
    count = len(ids) - len(masks) + sum(m.dim() for m in masks)
    if count > x.dim():
        raise IndexError(f"too many indices for tensor of dimension {x.dim()} (got {count})")
    given = [k for k, i in enumerate(ids) if i is not None]
    tensors = [i for i in ids if i is not None]
    if masks or not given or any(t._has_symbolic_sizes_strides for t in (x, values, *tensors)):
        return
    try:
        block = torch.broadcast_shapes(*[t.size() for t in tensors])
    except RuntimeError:
        return  # of which the meta kernel knows
    lead = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    rest = [n for k, n in enumerate(x.size()) if k not in given]
    selected, source = [*rest[:lead], *block, *rest[lead:]], list(values.size())
    if len(source) > len(selected) or any(n not in (1, m) for n, m in zip(reversed(source), reversed(selected), strict=False)):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {shown(source)} cannot be broadcast to indexing result of shape {shown(selected)}"
        )


CHECKS |= dict.fromkeys(("aten::index_put", "aten::index_put_", "aten::_index_put_impl_"), _index_put)
