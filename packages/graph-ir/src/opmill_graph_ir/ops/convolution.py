"""Convolutions as sums of products over windows, so that what follows them is done while the sums are in the cache.

Weights are read as they are at each call: nothing is folded into them or kept, and so nothing can be stale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..capture.graph import Node
from ..loops.ir import Expr, Reduction, Ref
from .context import Context, View
from .creation import masked
from .exprs import const, op
from .pooling import many, window
from .rows import Rows

ROWS = Rows()
_FEWEST = 16
"""Points of an image below which torch's own operator does better."""


@ROWS.lowers("convolution")
def _convolution(
    ctx: Context, node: Node, x: View, weight: View, bias: View | None, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int
) -> Any:  # fmt: skip
    name, meta = node.results[0], ctx.metas[node.results[0] or ""]
    n = len(x.sizes) - 2
    if transposed or groups != 1 or n not in (1, 2) or not all(_is_plain(ctx, v) for v in (x, weight)) or not _is_contiguous(meta.sizes, meta.strides):
        return NotImplemented
    kernel, points = weight.sizes[2:], math.prod(meta.sizes[2:])
    dot = points == math.prod(kernel) == math.prod(x.sizes[2:]) == 1
    if weight.sizes[0] < 4 or (points < _FEWEST and not dot):
        return NotImplemented
    stride, padding, dilation = many(stride, n), many(padding, n), many(dilation, n)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        image, row, *at = outer
        channel, *taps = inner
        position, inside = window(x, (image, channel, *at), taps, stride, padding, dilation, meta.sizes, kernel)
        value = masked(ctx.read(x, position, ext), inside, const(0.0, x.dtype))
        product = op("mul", ctx.read(weight, (row, channel, *taps), ext), value)
        total: Expr = Ref("a", x.dtype)
        return [Reduction(("a",), "sum", product, x.dtype)], [total if bias is None else op("add", total, ctx.read(bias, (row,), ext))]

    return ctx.reduce([(name, meta)], weight.sizes[1:], make)[0]


def _is_plain(ctx: Context, view: View) -> bool:
    """Whether a tensor is float32 on a CPU, of known sizes, and contiguous."""
    info = ctx.buffers[view.buffer]
    strides = tuple(s.constant for s in info.strides)
    return view.indices is None and view.dtype == "float32" and info.device == "cpu" and _is_contiguous(view.sizes, strides)


def _is_contiguous(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether elements follow each other, in sizes that are known and positive."""
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if type(size) is not int or size < 1 or (size > 1 and stride != expected):
            return False
        expected *= size
    return True
