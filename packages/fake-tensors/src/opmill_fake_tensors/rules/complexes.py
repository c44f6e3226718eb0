"""Pointwise operators of complex numbers with symbolic sizes, beside those of the pointwise rules. Of others torch's meta kernels tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..table import Rules
from .pointwise import laid_out, unmarked

RULES: dict[str, Callable[..., Any]] = {}
SYMBOLIC = Rules()
Tensor = torch.Tensor


@SYMBOLIC.row("isinf isfinite")
def _truths(overload: str, x: Tensor) -> Any:
    return laid_out([unmarked(x, x.dtype)], torch.bool) if x.is_complex() else NotImplemented


@SYMBOLIC.row("_conj_physical conj_physical")
def _conj_physical(overload: str, x: Tensor) -> Any:
    return laid_out([unmarked(x, x.dtype)], x.dtype) if x.is_complex() else NotImplemented
