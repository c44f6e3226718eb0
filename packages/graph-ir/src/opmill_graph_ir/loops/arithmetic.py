"""What primitives compute, in terms of torch: the reference for generators and constant folding."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .float8 import FLOAT8
from .primitives import PRIMITIVES


def torch_dtype(name: str, wide: bool = False) -> torch.dtype:
    """The torch element type of a loop IR type; with ``wide``, float32 is computed as float64."""
    return torch.float64 if wide and name == "float32" else getattr(torch, name)


def _converted(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """As torch's ``to``, but that what is too large for a type without infinity stays at the largest number, as in torch from 2.13 on."""
    if dtype is torch.float8_e4m3fn and value.dtype is not dtype:
        form = FLOAT8["float8_e4m3fn"]
        largest = form.decode(form.largest)
        return value.to(torch.float32).clamp(-largest, largest).to(dtype)
    return value.to(dtype)


def apply(name: str, args: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """The value of a primitive whose result has element type ``dtype``."""
    if name == "cast":
        return _converted(args[0], dtype)
    if name == "bitcast":
        return args[0].view(dtype)
    meaning = PRIMITIVES[name].meaning
    assert meaning is not None
    return meaning(*args).to(dtype)
