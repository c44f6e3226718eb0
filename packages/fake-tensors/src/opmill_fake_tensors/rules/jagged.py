"""Rows of different lengths, packed one behind the other or padded to one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..table import Rules, dense

RULES = Rules()
Tensor = torch.Tensor


@RULES.row("_padded_dense_to_jagged_forward")
def _packed(overload: str, padded: Tensor, offsets: Sequence[Tensor], total_L: Any = None) -> Any:
    """How many rows there are in all is said by whoever calls it; torch has no meta kernel."""
    if overload or total_L is None or len(offsets) != 1 or padded.dim() < 2:
        return NotImplemented
    return dense((total_L, *padded.size()[2:]), padded.dtype)
