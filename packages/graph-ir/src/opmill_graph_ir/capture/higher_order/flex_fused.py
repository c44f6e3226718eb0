"""``flex_attention`` as one operator of the graph, with a gradient of its own: scores are never in memory, forwards and backwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from opmill_fake_tensors import FakeTensor
from opmill_runtime_cache.devices.registry import traits_of

from ..attending import WIDTHS, AttentionOperator
from ..bodies import body, outputs_of
from ..graph import AtenGraph, Meta
from ..record import Recorder
from .flex_dense import Mods, attend
from .operands import Differentiable, gradients_of

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def can_fuse(mods: Mods, query: Any, key: Any, value: Any, scale: Any) -> bool:
    """Whether there is a kernel for such tensors. Gradients of what the functions read are torch's to find."""
    tensors = (query, key, value)
    if not traits_of(query.device.type).matrix_units or query.dtype not in _DTYPES or any(t.dtype != query.dtype for t in tensors):
        return False
    if not all(isinstance(t, torch.Tensor) for t in mods.tensors) or type(scale) not in (int, float):
        return False
    if any(t.device != query.device and t.dim() for t in mods.tensors) or not all(map(_is_known, (*tensors, *mods.tensors))):
        return False
    if query.size(3) not in WIDTHS or value.size(3) not in WIDTHS or any(0 in t.shape for t in tensors):
        return False
    return not (torch.is_grad_enabled() and any(t.requires_grad for t in mods.tensors))


def _is_known(tensor: Any) -> bool:
    """Whether sizes do not depend on data."""
    return all(type(n) is int or n.node.has_hint() for n in (*tensor.shape, *tensor.stride()))


def of_numbers(mods: Mods, *tensors: Any) -> tuple[Mods, list[Any]]:
    """The functions and tensors with sizes that are numbers: these of this call, for kernels are of numbers."""
    score, mask = (tuple(map(_of_numbers, of)) for of in (mods.score_buffers, mods.mask_buffers))
    held = {name: _of_numbers(t) for name, t in mods.held.items()}
    return replace(mods, score_buffers=score, mask_buffers=mask, held=held), list(map(_of_numbers, tensors))


def _of_numbers(tensor: Any) -> Any:
    if not tensor._has_symbolic_sizes_strides:
        return tensor
    sizes, _ = ([int(n) for n in of] for of in (tensor.shape, tensor.stride()))
    return tensor.expand(sizes)


@dataclass(frozen=True)
class Blocks:
    """What a ``BlockMask`` tells of whole blocks; ``sizes``: queries and keys of one. ``tensors`` as of the operator."""

    sizes: tuple[int, int] | None = None
    full: bool = False
    tensors: tuple[Any, ...] = ()


def blocks_of(block_mask: Sequence[Any], query: Any, key: Any) -> Blocks:
    """Nothing where blocks are not of these tensors, or of sizes that no tile has."""
    by_queries, by_keys, (query_block, key_block) = block_mask[2:6], block_mask[6:10], block_mask[-3:-1]
    if type(query_block) is not int or type(key_block) is not int or query_block % WIDTHS[0] or key_block % WIDTHS[0]:
        return Blocks()
    rows, columns = (-(-int(n) // block) for n, block in ((query.size(2), query_block), (key.size(2), key_block)))
    full = by_queries[2] is not None
    given = [of if full else of[:2] for of in (by_queries, by_keys)]
    of_queries, of_keys = (all(_are_of(t, query, n) for t in of) for of, n in zip(given, (rows, columns), strict=True))
    if not of_queries or rows == columns == 1:
        return Blocks()
    return Blocks((query_block, key_block), full, tuple(map(_of_numbers, (*given[0], *(given[1] if of_keys else ())))))


def _are_of(blocks: Any, query: Any, count: int) -> bool:
    """Whether numbers or lists of blocks are of each sequence and head of the query, or of all."""
    if not isinstance(blocks, torch.Tensor) or blocks.dtype not in (torch.int32, torch.int64) or blocks.dim() not in (3, 4):
        return False
    if blocks.device != query.device or not _is_known(blocks):
        return False
    batch, heads, own, *_ = map(int, blocks.shape)
    return batch in (1, int(query.size(0))) and heads in (1, query.size(1)) and own == count and 0 not in blocks.shape


def fused(mods: Mods, query: Any, key: Any, value: Any, scale: float, blocks: Blocks) -> tuple[Any, Any, Any]:
    """As ``attend``, for keys and values of as many batches as the query."""
    tensors = (query, key, value, *mods.tensors, *blocks.tensors)
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        out, sums, largest = _forward(mods, tensors, scale, blocks)
        return out, sums, largest

    def forward(given: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        out, sums, largest = _forward(mods, given, scale, blocks)
        return (out, sums, largest), (out, sums)

    def backward(saved: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        *given, out, sums = saved
        if gradients[2] is not None:
            found = _dense_gradients(mods, given[: len(given) - len(blocks.tensors)], gradients, scale)
        else:
            found = _backward(mods, given, out, sums, gradients, scale, blocks)
        return [g if t.requires_grad else None for t, g in zip(tensors, (*found, *(None for _ in tensors[3:])), strict=True)]

    out, sums, largest = Differentiable.apply(forward, backward, *tensors)
    return out, sums, largest


def _forward(mods: Mods, tensors: Sequence[Any], scale: float, blocks: Blocks) -> list[FakeTensor]:
    recorder = mods.run.recorder

    def dense(inner: Recorder, fakes: Sequence[FakeTensor]) -> Sequence[Any]:
        return attend(mods.inside(inner, _others(fakes[3:], blocks)), fakes[0], fakes[1], fakes[2], scale)

    graph = body(recorder, dense, tensors)
    others = _others(tensors[3:], blocks)
    operator = AttentionOperator(False, scale, graph, *_functions(mods, tensors[:2], others), None, blocks.sizes, blocks.full)
    return _recorded(recorder, operator, [*tensors[:3], others, tensors[3 + len(others) :]])


def _others(tensors: Sequence[Any], blocks: Blocks) -> Sequence[Any]:
    """Those of ``tensors`` that the functions read."""
    return tensors[: len(tensors) - len(blocks.tensors)]


def _backward(
    mods: Mods, tensors: Sequence[Any], out: Any, sums: Any, gradients: Sequence[Any], scale: float, blocks: Blocks
) -> list[FakeTensor]:
    """A score's gradient is its weight times what the output's gradient makes of its value, less the same of the whole row."""
    gradient = torch.zeros_like(out) if gradients[0] is None else gradients[0].to(out.dtype)
    rows = (gradient.float() * out.float()).sum(-1)
    if gradients[1] is not None:
        rows = rows - gradients[1] / math.log(2)
    given = [*tensors[:3], gradient, sums, rows, *tensors[3:]]

    def dense(inner: Recorder, fakes: Sequence[FakeTensor]) -> Sequence[Any]:
        query, key, value, gradient, sums, rows, *others = fakes
        return _gradients(mods.inside(inner, _others(others, blocks)), query, key, value, gradient, sums, rows, scale)

    def slope(inner: Recorder, fakes: Sequence[FakeTensor]) -> Sequence[Any]:
        return [_slope(mods.inside(inner, fakes[2:]), fakes[0], fakes[1])]

    recorder = mods.run.recorder
    graph = body(recorder, dense, given, differentiate=True)
    scores = [_scores(recorder, tensors) for _ in range(2)]
    others = _others(tensors[3:], blocks)
    slopes = body(recorder, slope, [*scores, *others], differentiate=True)
    operator = AttentionOperator(True, scale, graph, *_functions(mods, tensors[:2], others), slopes, blocks.sizes, blocks.full)
    return _recorded(recorder, operator, [*given[:6], others, tensors[3 + len(others) :]])


def _functions(mods: Mods, tensors: Sequence[Any], others: Sequence[Any]) -> tuple[AtenGraph, AtenGraph]:
    """The user's functions as graphs of all scores."""
    recorder = mods.run.recorder
    scores = _scores(recorder, tensors)

    def changed(inner: Recorder, fakes: Sequence[FakeTensor]) -> Sequence[Any]:
        return [mods.inside(inner, fakes[1:]).changed(fakes[0])]

    def kept(inner: Recorder, fakes: Sequence[FakeTensor]) -> Sequence[Any]:
        return [mods.inside(inner, fakes).kept(scores.shape, scores.device).to(torch.bool)]

    return body(recorder, changed, [scores, *others]), body(recorder, kept, others)


def _scores(recorder: Recorder, tensors: Sequence[Any]) -> FakeTensor:
    """A fake of all scores."""
    query, key = tensors[:2]
    _, heads, queries, keys = sizes = (*query.shape[:3], key.size(2))
    return recorder.fake_of(Meta("float32", sizes, (heads * queries * keys, queries * keys, keys, 1), str(query.device)))


def _recorded(recorder: Recorder, operator: AttentionOperator, args: Sequence[Any]) -> list[FakeTensor]:
    fakes = [recorder.fake_of(meta) for meta in outputs_of(operator.dense)]
    recorder.record(operator, [list(a) if isinstance(a, (list, tuple)) else a for a in args], fakes)
    return fakes


# ---- by torch's operators --------------------------------------------------------------------------------------------------


def _slope(mods: Mods, scores: Any, gradient: Any) -> Any:
    """The gradient of scores, given that of the changed ones."""
    with torch.enable_grad():
        scores = scores.detach().requires_grad_()
        changed = mods.changed(scores)
        [found] = gradients_of([changed], [gradient], [scores])
    return found


def _gradients(mods: Mods, query: Any, key: Any, value: Any, gradient: Any, sums: Any, rows: Any, scale: float) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value; ``sums`` and ``rows`` as of the operator."""
    with torch.no_grad():
        shared = query.size(1) // key.size(1)
        keys, values = (torch.repeat_interleave(t.float(), shared, dim=1) for t in (key, value))
        scores, changed = mods.scores(query, keys, scale)
        sums = torch.where(sums == -math.inf, math.inf, sums * math.log(2))
        weights = (changed - sums.unsqueeze(-1)).exp()
        weighted = weights * (gradient.float() @ values.transpose(-2, -1) - rows.unsqueeze(-1))
    inner = _slope(mods, scores, weighted)
    with torch.no_grad():
        found = inner @ keys * scale, inner.transpose(-2, -1) @ query.float() * scale, weights.transpose(-2, -1) @ gradient.float()
        grouped = [t.unflatten(1, (key.size(1), shared)).sum(2) for t in found[1:]]
        by_query, by_key, by_value = (t.to(query.dtype) for t in (found[0], *grouped))
        return by_query, by_key, by_value


def _dense_gradients(mods: Mods, tensors: Sequence[Any], gradients: Sequence[Any], scale: float) -> list[Any]:
    """Also where largest scores have gradients: few programs ask for that."""
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in tensors[:3]]
        query, key, value = leaves
        outputs = attend(mods, query, key, value, scale)
        pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if g is not None]
        return gradients_of([o for o, _ in pairs], [g for _, g in pairs], leaves)


__all__ = ["blocks_of", "can_fuse", "fused"]
