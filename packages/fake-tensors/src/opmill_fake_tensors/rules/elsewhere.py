"""Operators whose kernels for other devices lay results out otherwise than those for processors do, or give them in other types."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..table import Rules, alike, dense
from .reductions import batch_norm, batch_norm_legit, layer_norm

ELSEWHERE = Rules()
RULES = Rules()


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


@ELSEWHERE.row("native_layer_norm")
def _layer_norm(*given: Any) -> Any:
    return _wide_statistics(layer_norm(*given))


@ELSEWHERE.row("native_batch_norm")
def _batch_norm(*given: Any) -> Any:
    return _wide_statistics(batch_norm(*given))


@ELSEWHERE.row("_native_batch_norm_legit")
def _batch_norm_legit(*given: Any) -> Any:
    return _wide_statistics(batch_norm_legit(*given))


def _wide_statistics(results: Any) -> Any:
    """Means and deviations of narrow numbers stay as wide as they were computed; a processor's kernel rounds them."""
    if results is NotImplemented:
        return results
    out, *statistics = results
    return out, *(s.float() if s.dtype in (torch.float16, torch.bfloat16) else s for s in statistics)


@RULES.row("log_sigmoid_forward")
def _log_sigmoid_on_processors(overload: str, x: Tensor) -> Any:
    """In rows, with what the backward reads; torch's meta kernel promises what other devices give."""
    return (dense(x.size(), x.dtype), dense(x.size(), x.dtype)) if overload == "" and x.is_floating_point() else NotImplemented


@ELSEWHERE.row("log_sigmoid_forward")
def _log_sigmoid(overload: str, x: Tensor) -> Any:
    """Nothing is kept for the backward."""
    return (alike(x), dense((0,), x.dtype)) if overload == "" and x.is_floating_point() else NotImplemented


@ELSEWHERE.row("_thnn_fused_gru_cell")
def _gru_cell(overload: str, input_gates: Tensor, hidden_gates: Tensor, state: Tensor, *biases: Any) -> Any:
    """The new state, and what the backward reads: three gates, the old state and what reset acts on."""
    rows, width = state.size()
    return alike(state), dense((rows, 5 * width), state.dtype)


@ELSEWHERE.row("_thnn_fused_gru_cell_backward")
def _gru_cell_backward(overload: str, gradient: Tensor, kept: Tensor, has_bias: bool) -> Any:
    rows, width = gradient.size()
    gates, bias = (rows, 3 * width), (3 * width,) if has_bias else (0,)
    made = [dense(sizes, kept.dtype) for sizes in (gates, gates, (rows, width), bias, bias)]
    return tuple(made) if has_bias else NotImplemented
