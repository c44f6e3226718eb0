"""Copies, conversions and whole-tensor writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..strides import broadcast, contiguous, like

_META = torch.device("meta")


def _strides(source: torch.Tensor, memory_format: torch.memory_format | None) -> tuple[int, ...] | None:
    if memory_format is None or memory_format is torch.preserve_format:
        return like(source.size(), source.stride())
    return contiguous(source.size()) if memory_format is torch.contiguous_format else None


def _clone(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    [source] = args
    strides = _strides(source, kwargs.get("memory_format"))
    if strides is None or source.is_conj() or source.is_neg():
        return NotImplemented
    return torch.empty_strided(source.size(), strides, dtype=source.dtype, device=_META)


def _to_copy(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    [source] = args
    strides = _strides(source, kwargs.get("memory_format"))
    if strides is None or source.is_conj() or source.is_neg() or kwargs.get("layout") not in (None, torch.strided):
        return NotImplemented
    return torch.empty_strided(source.size(), strides, dtype=kwargs.get("dtype") or source.dtype, device=_META)


def _fills(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return args[0]


def _copy(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    target, source = args[:2]
    if broadcast((target.size(), source.size())) != tuple(target.size()):
        source.expand(target.size())  # raises as eager does
    return target


RULES = {
    "aten::clone": _clone,
    "aten::_to_copy": _to_copy,
    "aten::copy_": _copy,
    "aten::zero_": _fills,
}
