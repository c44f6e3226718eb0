"""Operators whose kernels for other devices lay results out otherwise than those for processors do."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..table import Rules, dense

ELSEWHERE = Rules()


@ELSEWHERE.row("pixel_shuffle")
def _pixel_shuffle(overload: str, x: Tensor, upscale_factor: int) -> Any:
    """In rows always; a processor's kernel keeps channels last."""
    r = upscale_factor
    if x.dim() < 3 or r < 1:
        return NotImplemented
    *batch, c, h, w = x.size()
    return dense((*batch, c // (r * r), h * r, w * r), x.dtype) if c % (r * r) == 0 else NotImplemented


@ELSEWHERE.row("pixel_unshuffle")
def _pixel_unshuffle(overload: str, x: Tensor, downscale_factor: int) -> Any:
    r = downscale_factor
    if x.dim() < 3 or r < 1:
        return NotImplemented
    *batch, c, h, w = x.size()
    return dense((*batch, c * r * r, h // r, w // r), x.dtype) if h % r == 0 and w % r == 0 else NotImplemented
