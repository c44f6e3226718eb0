"""``flex_attention``: attention whose scores the user's own function changes, and whose pairs another one masks.

Taken apart as eager computes it: all scores at once in at least float32, the functions applied to each by four levels of vmap (batch, head,
query, key), a softmax, a product. What stands between the products becomes loops, with the functions inside of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _functorch
from torch.overrides import TorchFunctionMode

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
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    key, value = (_per_head(t, query) for t in (key, value))
    scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)) * scale
    positions = [torch.arange(n, device=query.device) for n in scores.shape]
    kept = _each_pair(lambda *at: run.inline(block_mask[-1], *at, *mask_buffers), scores.shape, [], positions)
    changed = _each_pair(lambda score, *at: run.inline(score_mod, score, *at, *score_buffers), scores.shape, [scores], positions)
    scores = torch.where(kept, changed.to(wide), torch.full((), -math.inf, dtype=wide, device=query.device))
    largest = scores.amax(-1)
    sums = torch.where(largest == -math.inf, -math.inf, scores.logsumexp(-1))
    out = torch._safe_softmax(scores, -1).to(query.dtype) @ value.to(query.dtype)
    return _laid_out_like(out, query), sums / math.log(2), largest / math.log(2)


def _per_head(t: Any, query: Any) -> Any:
    """Keys or values for each head and batch of the query."""
    groups = query.size(1) // t.size(1)
    t = t if groups == 1 else torch.repeat_interleave(t, groups, dim=1)
    return t.expand(query.size(0), *t.shape[1:])


class _TensorsIndex(TorchFunctionMode):
    """Subscripts by whole numbers that are tensors index, they do not become numbers."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            parts = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(p, torch.Tensor) for p in parts) and all(isinstance(p, (torch.Tensor, int)) for p in parts):
                return torch.ops.aten.index.Tensor(
                    args[0], [p if isinstance(p, torch.Tensor) else torch.tensor(p, device=args[0].device) for p in parts]
                )
        return func(*args, **(kwargs or {}))


def _each_pair(function: Callable[..., Any], sizes: Sequence[Any], whole: list[Any], positions: Sequence[Any]) -> Any:
    """``function(*elements of whole, *positions)`` for each element, as a tensor of these sizes."""
    levels = []
    at = list(positions)
    for k, size in enumerate(sizes):
        level = _functorch._vmap_increment_nesting(size, "error")
        levels.append((level, size))
        whole = [_functorch._add_batch_dim(t, 0, level) for t in whole]
        at[k] = _functorch._add_batch_dim(at[k], 0, level)
    try:
        with _TensorsIndex():
            out = function(*whole, *at)
        while levels:
            out = _functorch._remove_batch_dim(out, *levels.pop(), 0)
            _functorch._vmap_decrement_nesting()
        return out
    finally:
        for _ in levels:
            _functorch._vmap_decrement_nesting()


def _laid_out_like(out: Any, query: Any) -> Any:
    """``out`` with dimensions in memory in the order of the query's, the last one innermost."""
    order = [*sorted(range(out.dim() - 1), key=lambda d: query.stride(d), reverse=True), out.dim() - 1]
    return out.permute(order).contiguous().permute([order.index(d) for d in range(out.dim())])
