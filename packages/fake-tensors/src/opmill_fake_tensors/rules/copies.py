"""Copies, conversions and whole-tensor writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..strides import broadcast, contiguous, in_order, like
from ..table import dense
from ..views import inferred

_META = torch.device("meta")


def _strides(source: torch.Tensor, memory_format: torch.memory_format | None) -> tuple[int, ...] | None:
    if memory_format is None or memory_format is torch.preserve_format:
        return like(source.size(), source.stride())
    if memory_format is torch.contiguous_format:
        return contiguous(source.size())
    order = _CHANNELS_LAST.get(memory_format, ())
    return in_order(source.size(), order) if len(order) == source.dim() else None


_CHANNELS_LAST = {torch.channels_last: (1, 3, 2, 0), torch.channels_last_3d: (1, 4, 3, 2, 0)}
"""Dimensions from the innermost out."""


def _clone(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    [source] = args
    strides = _strides(source, kwargs.get("memory_format"))
    if strides is None or (_is_marked(source) and not source._has_symbolic_sizes_strides):
        return NotImplemented
    return torch.empty_strided(source.size(), strides, dtype=source.dtype, device=_META)


def _is_marked(source: torch.Tensor) -> bool:
    return source.is_conj() or source.is_neg()


def _to_copy(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    [source] = args
    strides = _strides(source, kwargs.get("memory_format"))
    if strides is None or _is_marked(source) or kwargs.get("layout") not in (None, torch.strided):
        return NotImplemented
    return torch.empty_strided(source.size(), strides, dtype=kwargs.get("dtype") or source.dtype, device=_META)


def _fills(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return args[0]


def _copy(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    target, source = args[:2]
    if broadcast((target.size(), source.size())) != tuple(target.size()):
        source.expand(target.size())  # raises as eager does
    return target


def _view_copy(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Unlike a view, whatever the layout of the source."""
    source, sizes = args
    return NotImplemented if overload != "" or kwargs else dense(inferred(sizes, source.numel()), source.dtype)


RULES = {
    "aten::clone": _clone,
    "aten::view_copy": _view_copy,
    "aten::_to_copy": _to_copy,
    "aten::copy_": _copy,
    "aten::zero_": _fills,
}
