"""Layouts of images between convolutions: what the forward saves, the backward computes, and what is padded or averaged on the way lies as
cuDNN's kernels want it.

Only half precision on GPUs: cuDNN has no other kernels for it, and would copy each operand and result back and forth. What the user sees
keeps eager's layout, and so does what any operator gives whose record does not say ``any_layout``; a program that asks for strides was told
eager's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opmill_fake_tensors.operator import describe
from opmill_runtime_cache.devices.registry import traits_of

from ..loops.ir import HALF
from ..ops.records import record_of
from .graph import AtenGraph, Meta, Node, OutputTensor, values_in

_CONVOLUTIONS = {"aten::convolution": (1, 6), "aten::convolution_backward": (2, 7)}
"""Operators, with how many of their first operands are images, and the place of ``transposed``; of their results the first one is an
image."""


def strides_of(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of images [N, C, H, W] with the channels innermost."""
    _, c, h, w = sizes
    return h * w * c, 1, w * c, c


def in_odd_groups(weight: Sequence[Any], groups: int) -> bool:
    """Whether cuDNN has no kernel that takes channels last for the groups of a convolution: of several channels, not 4, 8, 16, ... On an
    H100 groups of 112 take half the time in rows (32 images of 56 x 56: 222 us against 537), groups of 4 to 64 twice the time."""
    channels = weight[1]
    return groups > 1 and type(channels) is int and channels > 1 and channels & (channels - 1) != 0


def lay_out(graph: AtenGraph) -> None:
    """Rewrites the layout of the images that convolutions read and write, and of those in the same operators as these."""
    if not any(node.func._schema.name in _CONVOLUTIONS for node in graph.nodes):
        return
    nodes = [(node, names) for node in graph.nodes if (names := _images(graph, node))]
    if not any(node.func._schema.name in _CONVOLUTIONS for node, _ in nodes):
        return
    chosen: set[str] = set()
    size = -1
    while len(chosen) > size:
        size = len(chosen)
        for node, names in nodes:
            if node.func._schema.name in _CONVOLUTIONS or not chosen.isdisjoint(names):
                chosen.update(names)
    kept = {*graph.inputs, *graph.held, *graph.constants, *(o.value for o in graph.outputs if isinstance(o, OutputTensor))}
    kept.update(r for node in graph.nodes if _shares(node) for r in node.results if r)
    for name in chosen - kept:
        meta = graph.metas[name]
        graph.metas[name] = replace(meta, strides=strides_of(meta.sizes))


def _images(graph: AtenGraph, node: Node) -> list[str]:
    """The images among operands and results of an operator that has a say here."""
    name = node.func._schema.name
    if name in _CONVOLUTIONS:
        operands, transposed = _CONVOLUTIONS[name]
        names = [v.name for v in values_in(node.args[:operands])] + [r for r in node.results[:1] if r]
        ours = all(_is_image(graph.metas[n]) and graph.metas[n].dtype in HALF for n in names)
        odd = name == "aten::convolution" and in_odd_groups(graph.metas[node.args[1].name].sizes, node.args[-1])
        return names if ours and node.args[transposed] is False and not odd else []
    if not record_of(node.func.name()).any_layout:
        return []
    names = [v.name for v in values_in((node.args, node.kwargs))] + [r for r in node.results if r]
    return [n for n in names if _is_image(graph.metas[n])]


def _is_image(meta: Meta) -> bool:
    return len(meta.sizes) == 4 and traits_of(meta.device).matrix_units and all(type(n) is int and n > 0 for n in meta.sizes)


def _shares(node: Node) -> bool:
    """Whether results lie in the memory of an operand: their layout follows from that."""
    op = describe(node.func)
    return op.aliases or record_of(node.func.name()).shares


__all__ = ["lay_out", "strides_of"]
