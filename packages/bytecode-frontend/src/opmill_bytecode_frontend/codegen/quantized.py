"""Quantised tensors that leave captured code: made of their integers, once."""

from __future__ import annotations

import torch

from ..values.quantized import QuantizedValue
from .rebuild import Rebuilder, rebuilds


@rebuilds(QuantizedValue)
def quantized(r: Rebuilder, value: QuantizedValue) -> str:
    """A tensor of the integers that the graph gives."""
    make = r.constants.name(torch._make_per_tensor_quantized_tensor)
    return r.assign(value, f"{make}({r.expr(value.ints)}, {value.scale!r}, {value.zero_point!r})")


__all__ = ["quantized"]
