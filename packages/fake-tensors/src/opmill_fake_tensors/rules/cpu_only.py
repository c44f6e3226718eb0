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


RULES = {
    "mkldnn::_linear_pointwise": _mkldnn_linear,
    **dict.fromkeys(("aten::multi_margin_loss_backward", "aten::multilabel_margin_loss_backward", "aten::fractional_max_pool3d_backward"), _like_second),
}
