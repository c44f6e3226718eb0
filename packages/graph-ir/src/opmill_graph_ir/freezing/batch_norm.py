"""Norms over batches behind convolutions, with statistics that stay: folded into the convolutions' weights.

    norm(conv(x, w) + b) = conv(x, w * s) + (b - mean) * s + shift,   s = scale / sqrt(variance + eps)

in double precision, rounded once. The results differ from eager's by rounding only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from ..capture.graph import AtenGraph, Meta, Node, Value
from .constant import Constant
from .made import Maker, rows

aten = torch.ops.aten

_PLACES: dict[str, tuple[int, ...]] = {
    # operator -> where its weight, bias, mean, variance, switch of training (-1: never on) and eps stand
    "aten::native_batch_norm": (1, 2, 3, 4, 5, 7),
    "aten::_native_batch_norm_legit_no_training": (1, 2, 3, 4, -1, 6),
    "aten::_native_batch_norm_legit": (1, 2, 3, 4, 5, 7),
}


def fold_batch_norms(graph: AtenGraph, constant: Constant) -> None:
    """Rewrites each norm that is the only reader of a convolution with constant weights."""
    makers, readers = graph.makers(), graph.readers()
    instead: dict[int, list[Node]] = {}
    for norm in graph.nodes:
        conv = _behind(graph, norm, makers, readers, constant)
        if conv is not None:
            instead[id(conv)], instead[id(norm)] = [], _folded(graph, conv, norm)
    if instead:
        graph.nodes = [new for node in graph.nodes for new in instead.get(id(node), (node,))]


def _behind(graph: AtenGraph, norm: Node, makers: dict[str, Node], readers: Counter[str], constant: Constant) -> Node | None:
    """The convolution whose results alone the norm takes, if it can be folded into that."""
    places = _PLACES.get(norm.func.name())
    if places is None or type(norm.args[0]) is not Value or any(readers[r] for r in norm.results[1:] if r):
        return None
    if places[4] >= 0 and norm.args[places[4]] is not False:
        return None
    conv = makers.get(norm.args[0].name)
    if conv is None or conv.func is not aten.convolution.default or readers[norm.args[0].name] != 1:
        return None
    if conv.args[6] and conv.args[8] != 1:  # channels of a group lie beside those of others in its weight
        return None
    needed = [conv.args[1], conv.args[2], *(norm.args[p] for p in places[:4])]
    if any(a is not None and a.name not in constant for a in needed) or None in (needed[0], needed[4], needed[5]):
        return None
    kinds = {graph.metas[a.name].dtype for a in needed if a is not None}
    return conv if kinds <= {"float32", "float64"} else None


def _folded(graph: AtenGraph, conv: Node, norm: Node) -> list[Node]:
    places = _PLACES[norm.func.name()]
    scale, shift, mean, variance = (norm.args[p] for p in places[:4])
    make, eps = Maker(graph, norm.origin), norm.args[places[5]]
    dtype, device = make.meta(conv.args[1]).dtype, make.meta(conv.args[1]).device
    vector = Meta("float64", make.meta(mean).sizes, (1,), device)

    def wide(value: Value) -> Value:
        meta = make.meta(value)
        return make(aten._to_copy.default, (value,), Meta("float64", meta.sizes, rows(meta.sizes), device), dtype=torch.float64)

    def narrow(value: Value) -> Value:
        return make(aten._to_copy.default, (value,), replace(make.meta(value), dtype=dtype), dtype=getattr(torch, dtype))

    def each(func: Any, first: Value, second: Any) -> Value:
        return make(func, (first, second), make.meta(first))

    factor = make(aten.rsqrt.default, (each(aten.add.Scalar, wide(variance), eps),), vector)
    if scale is not None:
        factor = each(aten.mul.Tensor, factor, wide(scale))
    minus = wide(mean)
    bias = each(aten.sub.Tensor, wide(conv.args[2]), minus) if conv.args[2] is not None else make(aten.neg.default, (minus,), vector)
    bias = each(aten.mul.Tensor, bias, factor)
    if shift is not None:
        bias = each(aten.add.Tensor, bias, wide(shift))
    weight = make.meta(conv.args[1])
    channels, rest = make.meta(mean).sizes[0], [1] * (len(weight.sizes) - 2)
    column = (1, channels, *rest) if conv.args[6] else (channels, 1, *rest)
    turned = make(aten.view.default, (factor, list(column)), Meta("float64", column, rows(column), device))
    scaled = each(aten.mul.Tensor, wide(conv.args[1]), turned)
    args = (conv.args[0], narrow(scaled), narrow(bias), *conv.args[3:])
    return [*make.nodes, replace(conv, args=args, results=norm.results[:1])]


__all__ = ["fold_batch_norms"]
