"""Operators of the CPU for which torch has no meta kernel, or one that is wrong about strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_META = torch.device("meta")


def _mkldnn_linear(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    source, weight = args[:2]
    return source.new_empty((*source.shape[:-1], weight.shape[0]))


RULES = {"mkldnn::_linear_pointwise": _mkldnn_linear}
