"""Attention kernels by the letter of their meaning: all pairs at once, with torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from .arithmetic import torch_dtype
from .ir import POSITIONS, Attention, Expr, Placed

Point = Callable[[Expr, Mapping[str, torch.Tensor], tuple[int, ...]], torch.Tensor]
"""``point(function, values, shape)``: a function at all points, where values are what its names mean."""


def attend(found: Attention, buffers: Mapping[str, torch.Tensor], point: Point, *, wide: bool) -> None:
    """Writes what a kernel of attention computes. ``wide``: float32 arithmetic is done in float64."""
    dtype = torch_dtype("float32", wide)
    operands = dict(found.operands)
    own = found.heads // found.shared
    sizes = (found.batch, found.heads, found.queries, found.keys)
    shapes = {
        "query": (*sizes[:3], found.width),
        "key": (found.batch, own, found.keys, found.width),
        "value": (found.batch, own, found.keys, found.depth),
        "output": (*sizes[:3], found.depth),
        "sums": sizes[:3],
        "rows": sizes[:3],
        "largest": sizes[:3],
    }
    shapes |= {"query_gradient": shapes["query"], "key_gradient": shapes["key"], "value_gradient": shapes["value"]}
    shapes["gradient"] = shapes["output"]

    def view(name: str) -> torch.Tensor:
        placed: Placed = operands[name]
        return buffers[placed.buffer].as_strided(shapes[name], placed.strides, placed.offset)

    query, key, value = (view(name).to(dtype) for name in ("query", "key", "value"))
    key, value = (t.repeat_interleave(found.shared, 1) for t in (key, value))
    places = {name: torch.arange(n).reshape([n if k == m else 1 for m in range(4)]) for k, (name, n) in enumerate(zip(POSITIONS, sizes))}
    score = query @ key.transpose(-2, -1) * found.scale
    values = {**places, "score": score}
    changed = point(found.score, values, sizes).to(dtype).expand(sizes)
    changed = torch.where(point(found.kept, values, sizes), changed, -math.inf)
    if found.part == "forward":
        made = {
            "output": torch.where(_empty(changed).unsqueeze(-1), 0.0, torch.softmax(changed, -1)) @ value,
            "sums": torch.where(_empty(changed), -math.inf, changed.logsumexp(-1)) / math.log(2),
            "largest": changed.amax(-1) / math.log(2),
        }
    else:
        sums, rows, gradient = (view(name).to(dtype) for name in ("sums", "rows", "gradient"))
        sums = torch.where(sums == -math.inf, math.inf, sums * math.log(2))
        weight = (changed - sums.unsqueeze(-1)).exp()
        weighted = weight * (gradient @ value.transpose(-2, -1) - rows.unsqueeze(-1))
        assert found.slope is not None
        slope = found.scale * point(found.slope, {**values, "gradient": weighted}, sizes).to(dtype).expand(sizes)
        grouped = lambda t: t.unflatten(1, (own, found.shared)).sum(2)
        made = {
            "query_gradient": slope @ key,
            "key_gradient": grouped(slope.transpose(-2, -1) @ query),
            "value_gradient": grouped(weight.transpose(-2, -1) @ gradient),
        }
    for name in found.written:
        view(name).copy_(made[name])


def _empty(changed: torch.Tensor) -> torch.Tensor:
    return changed.amax(-1) == -math.inf


__all__ = ["attend"]
