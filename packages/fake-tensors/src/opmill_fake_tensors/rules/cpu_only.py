"""Operators of the CPU for which torch has no meta kernel, or one that is wrong about strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_META = torch.device("meta")


def _mkldnn_linear(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    source, weight = args[:2]
    return source.new_empty((*source.shape[:-1], weight.shape[0]))


def _like_second(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A gradient: sizes and type of what was given forward, dense."""
    return NotImplemented if overload else args[1].new_empty(args[1].shape)


def _margin_of_one(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The loss of one row alone has no dimensions; torch's meta kernel gives it one."""
    source, target = args[:2]
    reduction = args[5] if len(args) > 5 else kwargs.get("reduction", 1)
    return source.new_empty(()) if not overload and source.dim() <= 1 and not target.dim() and reduction == 0 else NotImplemented


def _labels_of_one(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    source, target, reduction = args
    if overload or source.dim() != 1 or target.shape != source.shape or reduction != 0:
        return NotImplemented
    return source.new_empty(()), source.new_empty(source.shape)


RULES = {
    "mkldnn::_linear_pointwise": _mkldnn_linear,
    "aten::multi_margin_loss": _margin_of_one,
    "aten::multilabel_margin_loss_forward": _labels_of_one,
    **dict.fromkeys(
        ("aten::multi_margin_loss_backward", "aten::multilabel_margin_loss_backward", "aten::fractional_max_pool3d_backward"), _like_second
    ),
}
