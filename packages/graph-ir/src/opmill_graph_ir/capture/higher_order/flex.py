"""``flex_attention``: in one kernel where a device has tensor cores, as eager computes it elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .flex_dense import Mods, attend, tensors_of
from .flex_fused import blocks_of, can_fuse, fused, of_numbers
from .registry import Run, row


@row("flex_attention")
def flex_attention(
    run: Run,
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any,
    block_mask: Sequence[Any],
    scale: float,
    options: Any = None,
    score_buffers: Sequence[Any] = (),
    mask_buffers: Sequence[Any] = (),
) -> tuple[Any, Any, Any]:
    """(output, log2 of the sums of exponentials, largest scores in base 2), the latter two of size [batch, heads, queries].

    Sizes: query [batch, heads, queries, width], key and value [batch or 1, heads / n, keys, width]."""
    if torch.is_autocast_enabled(query.device.type):
        query, key, value = (t.to(torch.get_autocast_dtype(query.device.type)) for t in (query, key, value))
    held = tensors_of(run, score_mod, block_mask[-1])
    mods = Mods(run, score_mod, block_mask[-1], tuple(score_buffers), tuple(mask_buffers), held)
    if can_fuse(mods, query, key, value, scale):
        blocks = blocks_of(block_mask, query, key)
        mods, (query, key, value) = of_numbers(mods, query, key, value)
        return fused(mods, query, key.expand(query.size(0), -1, -1, -1), value.expand(query.size(0), -1, -1, -1), float(scale), blocks)
    return attend(mods, query, key, value, scale)
