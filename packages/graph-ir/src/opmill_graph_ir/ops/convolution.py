"""Convolutions as sums of products over windows, so that what follows them is done while the sums are in the cache.

Weights are read as they are at each call: nothing is folded into them or kept, and so nothing can be stale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..dense import contiguous
from ..loops.index import Index, index
from ..loops.ir import Expr, Reduction, Ref
from .channels_last import on_gpu
from .context import Context, View
from .creation import masked
from .exprs import const, known_order, op
from .half_products import in_float, is_slow, widened
from .pooling import many, window
from .records import Rows
from .transposed_convolution import factors_of, in_turns, of_one_place, phases_of, repeated

ROWS = Rows()
_FEWEST = 16
"""Points of an image below which torch's own operator does better."""
_DEEP, _WASTE = 1024, 1.15
"""Terms of a sum from which on it is arithmetic that takes the time, and what may be lost of it to vectors that points do not fill:
oneDNN's are of channels."""


@ROWS.lowers("convolution", own_memory=True)
def _convolution(
    ctx: Context,
    node: Node,
    x: View,
    weight: View,
    bias: View | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    if not traits_of(ctx.buffers[x.buffer].device).processor:
        return on_gpu(ctx, node, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    if is_slow(ctx, x):
        made = _convolution(
            ctx, node, *(widened(ctx, a) for a in node.args[:3]), stride, padding, dilation, transposed, output_padding, groups
        )
        return in_float(ctx, node) if made is NotImplemented else made
    name, meta = node.results[0], ctx.metas[node.results[0] or ""]
    n, apart = len(x.sizes) - 2, groups > 1  # apart: each channel for itself
    if n not in (1, 2) or (apart and (transposed or not groups == x.sizes[1] == weight.sizes[0])) or not is_known(ctx, x, weight):
        return NotImplemented
    if not _is_contiguous(ctx, weight) or not (_is_contiguous(ctx, x) or _relaid(ctx, x, False)):
        return NotImplemented
    meta = meta.contiguous()
    if transposed:
        return _transposed(ctx, name, meta, (x, weight, bias), (many(stride, n), many(padding, n), many(dilation, n)))
    kernel, points = weight.sizes[2:], math.prod(meta.sizes[2:])
    dot = points == math.prod(kernel) == math.prod(x.sizes[2:]) == 1
    if weight.sizes[0] < 4 or (known_order(_FEWEST, points) is False and not dot):
        return NotImplemented
    if (
        not apart
        and math.prod(kernel) > 1
        and type(points) is int
        and weight.sizes[1] * math.prod(kernel) >= _DEEP
        and _waste(points) > _WASTE
    ):
        return NotImplemented
    steps, known = many(stride, n), [*x.sizes, *weight.sizes, *meta.sizes]
    if not apart and all(type(size) is int for size in known) and _torch_is_quicker(x.sizes, weight.sizes, meta.sizes, max(steps)):
        return NotImplemented
    _relaid(ctx, x, True)
    return products(ctx, name, meta, (x, weight, bias), many(stride, n), many(padding, n), many(dilation, n), apart)


def _transposed(
    ctx: Context,
    name: str | None,
    meta: Meta,
    operands: tuple[View, View, View | None],
    steps: tuple[Sequence[int], Sequence[int], Sequence[int]],
) -> Any:
    """A transposed convolution by its phases; NotImplemented where torch's operator is quicker, or sizes are not known."""
    x, weight, bias = operands
    if not all(type(size) is int for size in (*x.sizes, *meta.sizes)):
        return NotImplemented
    if math.prod(x.sizes[2:]) == 1 and meta.sizes[2:] == weight.sizes[2:] and meta.dtype == x.dtype and not any(steps[1]):
        _relaid(ctx, x, True)
        return of_one_place(ctx, name, meta, x, weight, bias)
    phases = phases_of(weight, meta.sizes, *steps)
    if phases is None or phases.sizes[1] < 4 or math.prod(phases.sizes[2:]) < _FEWEST:
        return NotImplemented
    if math.prod(phases.taps) > 1:
        rows = (phases.sizes[1], weight.sizes[0], *phases.taps)
        if _waste(phases.sizes[-1]) > _WASTE or (phases.alike and _torch_is_quicker(x.sizes, rows, phases.sizes, 1)):
            return NotImplemented
    _relaid(ctx, x, True)
    factors, pads, ones = factors_of(ctx, weight, phases), [d.pad for d in phases.directions], (1,) * len(phases.taps)
    whole = Meta(meta.dtype, phases.sizes, contiguous(phases.sizes), meta.device)
    made = products(ctx, None, whole, (x, factors, None if bias is None else repeated(bias, phases)), ones, pads, ones, False)
    return in_turns(made, meta.sizes, phases)


def _torch_is_quicker(image: Sequence[int], weight: Sequence[int], result: Sequence[int], stride: int) -> bool:
    """Whether oneDNN takes less time, by what was measured of both (AVX-512, one thread; in nanoseconds).

    Loops lay out each term of a window for all channels of the result, which is felt where these are few; oneDNN lays out the weights and
    the image anew, and what follows is one more pass. It is asked for images of some size alone."""
    taps, terms, rows = math.prod(weight[2:]), math.prod(weight[1:]), weight[0]
    points = math.prod(result[2:])
    if 1 < points <= _ONE_VECTOR and terms * rows > _FEW_WEIGHTS:
        return True
    if taps == 1 or math.prod(image) <= _ASKED:
        return False
    elements = math.prod(result)
    work = 2 * terms * elements / 256
    laying = 13.5 * (1.5 if stride > 1 else 1) * _waste(result[-1])
    ours = work * _waste(points) * (1.08 + laying / rows)
    theirs = work * 1.075 * (1 + (36 / terms if image[1] > _FIRST else 0.05)) + 0.3 * terms * rows + elements / 5 + 15e3
    return theirs < ours


_ONE_VECTOR, _FEW_WEIGHTS = 16, 1 << 12
"""Points of an image that are one vector: each weight that is read serves one product then, and where weights are more than so many,
reading them is what takes the time. oneDNN's vectors are of channels, and a weight serves all points: half to a quarter of the time."""
_ASKED = 20480
"""Elements of an image up to which torch has a kernel of its own in one thread."""
_FIRST = 4
"""Channels of pictures, for which oneDNN has kernels apart."""


def _waste(points: int) -> float:
    """How much longer vectors of points take than points alone would."""
    lanes = 16 if torch.backends.cpu.get_cpu_capability().startswith("AVX512") else 8
    return math.ceil(points / lanes) * lanes / points


def products(
    ctx: Context,
    name: str | None,
    meta: Meta,
    operands: tuple[View, View, View | None],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    apart: bool,
) -> View:
    """The sums of products of windows of an image with weights (and a bias); ``apart``: each channel for itself."""
    x, weight, bias = operands
    kernel = weight.sizes[2:]

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        image, row, *at = outer
        channel, *taps = inner
        position, inside = window(x, (image, row if apart else channel, *at), taps, stride, padding, dilation, meta.sizes, kernel)
        value = masked(ctx.read(x, position, ext), inside, const(0.0, x.dtype))
        product = op("mul", ctx.read(weight, (row, channel, *taps), ext), value)
        total: Expr = Ref("a", x.dtype)
        return [Reduction(("a",), "sum", product, x.dtype)], [total if bias is None else op("add", total, ctx.read(bias, (row,), ext))]

    return ctx.reduce([(name, meta)], weight.sizes[1:], make)[0]


def laid_out(ctx: Context, view: View) -> View:
    """The view, contiguous: laid out anew where that costs nothing, else copied."""
    if _is_contiguous(ctx, view) or _relaid(ctx, view, True):
        return view
    return ctx.materialise(view, contiguous(view.sizes))


def is_known(ctx: Context, x: View, weight: View) -> bool:
    """Whether tensors are float32 on a CPU, of weights and channels whose number is known; how many images there are, and their lines and
    columns, may depend on the call."""
    known = [*weight.sizes, x.sizes[1], *(n for n in x.sizes if type(n) is not Index)]
    return all(v.dtype == "float32" and traits_of(ctx.buffers[v.buffer].device).processor for v in (x, weight)) and all(
        type(n) is int and n > 0 for n in known
    )


def _is_contiguous(ctx: Context, view: View) -> bool:
    return view.indices is None and _equal(view.sizes, ctx.buffers[view.buffer].strides, contiguous(view.sizes))


def _equal(sizes: Sequence[Any], first: Sequence[Any], second: Sequence[Any]) -> bool:
    return all(n == 1 or index(a) == index(b) for n, a, b in zip(sizes, first, second, strict=True))


def _relaid(ctx: Context, view: View, now: bool) -> bool:
    """Whether ``view`` is all of a tensor of the graph's own, its dimensions in some order, that may be laid out so that the view is
    contiguous; ``now`` does that."""
    info, names = ctx.buffers[view.buffer], [f"v{k}" for k in range(len(view.sizes))]
    order = names if view.indices is None else [str(i) for i in view.indices]
    if info.role != "temporary" or view.buffer in ctx.fixed or sorted(order) != names:
        return False
    sizes = dict(zip(names, map(index, view.sizes), strict=True))
    if tuple(sizes[name] for name in order) != info.sizes:  # a part from the first on has the positions of the whole
        return False
    if now:
        wanted = dict(zip(names, contiguous(view.sizes), strict=True))
        ctx.buffers[view.buffer] = replace(info, strides=tuple(index(wanted[name]) for name in order))
    return True
