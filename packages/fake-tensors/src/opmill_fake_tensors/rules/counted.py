"""Operators whose results have sizes that only data tell, and numbers read from tensors: each such size is a new symbol.

A row takes ``fresh(low, high, of)`` and the operator's arguments with metas for tensors; it gives metas, or ``NotImplemented`` where the
operator is not described. ``fresh`` gives a symbol (``torch.SymInt``): the same one each time for what is counted in the same tensor
``of``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..strides import broadcast, same
from ..symbols.asking import demanded
from ..symbols.layouts import in_rows
from ..table import Rules, dense, strided
from .indexing import index_by

COUNTED = Rules()
RULES = Rules()
Tensor = torch.Tensor
Fresh = Callable[..., Any]
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_MASKS = (torch.bool, torch.uint8)


@COUNTED.row("_local_scalar_dense")
def _number(overload: str, fresh: Fresh, x: Tensor) -> Any:
    """An integer of any sign. What floats and truths are is not described."""
    if x.dtype not in _INTEGERS:
        return NotImplemented
    info = torch.iinfo(x.dtype)
    return fresh(info.min, info.max, x)


@COUNTED.row("nonzero")
def _nonzero(overload: str, fresh: Fresh, x: Tensor) -> Any:
    """Column by column in memory, as a processor gives it."""
    if overload != "":
        return NotImplemented
    count = fresh(0, x.numel(), x)
    return strided((count, x.dim()), (1, count), torch.int64)


@COUNTED.row("masked_select")
def _masked_select(overload: str, fresh: Fresh, x: Tensor, mask: Tensor) -> Any:
    if overload != "" or mask.dtype is not torch.bool:
        return NotImplemented
    sizes = broadcast((x.size(), mask.size()))
    return dense((fresh(0, math.prod(sizes), mask if same(sizes, mask.size()) else None),), x.dtype)


@COUNTED.row("index _unsafe_index")
def _index(overload: str, fresh: Fresh, x: Tensor, ids: Sequence[Tensor | None]) -> Any:
    """By one mask, perhaps of several dimensions, which stands for the indices of what it chooses; others may stand beside it."""
    masks = [i for i in ids if i is not None and i.dtype in _MASKS]
    if overload != "Tensor" or len(masks) != 1:
        return NotImplemented
    [mask] = masks
    at, rank, sizes = next(k for k, i in enumerate(ids) if i is mask), mask.dim(), x.size()
    if not rank or len(ids) - 1 + rank > x.dim():
        return NotImplemented
    if not all(m is n or demanded(m == n) for m, n in zip(mask.size(), sizes[at : at + rank], strict=True)):
        return NotImplemented
    chosen = dense((fresh(0, mask.numel(), mask),), torch.int64)
    return index_by("Tensor", x, [*ids[:at], *[chosen] * rank, *ids[at + 1 :]])


@COUNTED.row("repeat_interleave")
def _repeat_interleave(overload: str, fresh: Fresh, repeats: Tensor, *, output_size: Any = None) -> Any:
    if overload != "Tensor" or repeats.dim() != 1 or repeats.dtype not in (torch.int64, torch.int32):
        return NotImplemented
    return dense((fresh(0, None) if output_size is None else output_size,), repeats.dtype)


@COUNTED.row("bincount")
def _bincount(overload: str, fresh: Fresh, x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    if overload != "" or x.dim() != 1 or (weights is not None and not same(weights.size(), x.size())):
        return NotImplemented
    dtype = torch.int64 if weights is None else weights.dtype if weights.dtype is torch.float32 else torch.float64
    return dense((fresh(minlength, None),), dtype)


@COUNTED.row("_ctc_loss")
def _ctc_loss(overload: str, fresh: Fresh, log_probs: Tensor, targets: Tensor, lengths: Any, of_targets: Any, *more: Any) -> Any:
    return _losses_and_states(log_probs, fresh(1, None)) if overload == "Tensor" and log_probs.dim() == 3 else NotImplemented


@RULES.row("_ctc_loss")
def _ctc_loss_of(overload: str, log_probs: Tensor, targets: Tensor, lengths: Any, of_targets: Any, *more: Any) -> Any:
    known = overload == "" and log_probs.dim() == 3
    return _losses_and_states(log_probs, 2 * max(of_targets, default=0) + 1) if known else NotImplemented


def _losses_and_states(log_probs: Tensor, states: Any) -> tuple[Tensor, Tensor]:
    """For the backward there is a number for each step and each label, and blank between, of the longest row of targets."""
    steps, rows, _ = log_probs.size()
    return dense((rows,), log_probs.dtype), dense((rows, steps, states), log_probs.dtype)


@RULES.row("_ctc_loss_backward")
def _ctc_loss_backward(overload: str, gradient: Tensor, log_probs: Tensor, *more: Any) -> Any:
    return dense(log_probs.size(), log_probs.dtype)


def _inverse(x: Tensor, wanted: bool) -> Tensor:
    return dense(x.size() if wanted else (0,), torch.int64)


@COUNTED.row("_unique2")
def _unique(overload: str, fresh: Fresh, x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    if overload != "" or x.is_complex():
        return NotImplemented
    count = fresh(0, x.numel())
    return dense((count,), x.dtype), _inverse(x, return_inverse), dense((count if return_counts else 0,), torch.int64)


@COUNTED.row("unique_dim")
def _unique_dim(overload: str, fresh: Fresh, x: Tensor, dim: int, *_: Any) -> Any:
    if overload != "" or x.dim() < 2 or dim not in (0, -x.dim()) or not in_rows(x) or any(type(n) is not int or n == 0 for n in x.size()):
        return NotImplemented
    count = fresh(1, x.size(0))
    return dense((count, *x.size()[1:]), x.dtype), dense((x.size(0),), torch.int64), dense((count,), torch.int64)


@COUNTED.row("unique_consecutive")
def _unique_consecutive(overload: str, fresh: Fresh, x: Tensor, inverse: bool = False, counts: bool = False, dim: Any = None) -> Any:
    if overload != "" or dim is not None or x.is_complex():
        return NotImplemented
    count = fresh(0, x.numel())
    return dense((count,), x.dtype), _inverse(x, inverse), dense((count if counts else 0,), torch.int64)
