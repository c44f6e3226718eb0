"""What ``flex_attention`` is: attention whose scores the user's own function changes, and whose pairs another one masks.

Taken apart as eager computes it: all scores at once in at least float32, the functions applied to each by four levels of vmap (batch, head,
query, key), a softmax, a product. What stands between the products becomes loops, with the functions inside of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import _functorch
from torch.overrides import TorchFunctionMode

from opmill_fake_tensors import FakeTensor

from ..record import Recorder
from .operands import operands_of
from .registry import Run


def tensors_of(run: Run, *modules: Any) -> dict[int, FakeTensor]:
    """Fakes of the tensors that modules hold, by the ids of these."""
    given = operands_of(run, (), *modules)
    return dict(zip(map(id, given.held), given.tensors, strict=True))


@dataclass(frozen=True)
class Mods:
    """The functions of the user, and the tensors that they read: those that are given to them, and those that their modules hold."""

    run: Run
    score_mod: Any
    mask_mod: Any
    score_buffers: tuple[Any, ...]
    mask_buffers: tuple[Any, ...]
    held: dict[int, FakeTensor]

    @property
    def tensors(self) -> list[FakeTensor]:
        return [*self.score_buffers, *self.mask_buffers, *self.held.values()]

    def inside(self, inner: Recorder, fakes: Sequence[FakeTensor]) -> Mods:
        """As a part of a graph of its own, where ``tensors`` are these fakes."""
        given = iter(fakes)
        score, mask = (tuple(next(given) for _ in of) for of in (self.score_buffers, self.mask_buffers))
        held = dict(zip(self.held, given, strict=True))
        inner.state.held.update(held)
        return Mods(Run(inner, self.run.call), self.score_mod, self.mask_mod, score, mask, held)

    def changed(self, scores: Any) -> Any:
        """Each score as the user's function changes it, in the type of ``scores``."""
        positions = [torch.arange(n, device=scores.device) for n in scores.shape]
        each = lambda score, *at: self.run.inline(self.score_mod, score, *at, *self.score_buffers)
        return _each_pair(each, scores.shape, [scores], positions).to(scores.dtype)

    def kept(self, sizes: Sequence[int], device: torch.device) -> Any:
        """Which pairs count."""
        positions = [torch.arange(n, device=device) for n in sizes]
        return _each_pair(lambda *at: self.run.inline(self.mask_mod, *at, *self.mask_buffers), sizes, [], positions)

    def scores(self, query: Any, key: Any, scale: float) -> tuple[Any, Any]:
        """Scores, and what they are changed to: minus infinity for pairs that do not count."""
        wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)) * scale
        kept = self.kept(scores.shape, query.device)
        nothing = torch.full((), -math.inf, dtype=wide, device=query.device)
        return scores, torch.where(kept, self.changed(scores), nothing)


def attend(mods: Mods, query: Any, key: Any, value: Any, scale: float) -> tuple[Any, Any, Any]:
    """Attention by torch's operators."""
    key, value = (_per_head(t, query) for t in (key, value))
    _, scores = mods.scores(query, key, scale)
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


__all__ = ["Mods", "attend", "tensors_of"]
