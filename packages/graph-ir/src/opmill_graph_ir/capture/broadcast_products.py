"""Products of matrices that a program writes by broadcasting: ``(a[:, :, None] * b[:, None]).sum(-1)``. A library multiplies them.

As loops each element of the sum would go through memory of its own, a hundred times slower where the matrices are large: state spaces and
outer products of attention are often written so. The sum of a library's product is as exact, and that of half precision more so, as its
terms are not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from opmill_runtime_cache.devices.registry import traits_of

from .graph import AtenGraph, Meta, Node, Value
from .log_softmax import Steps

aten = torch.ops.aten
_SMALLEST = 1 << 16
"""Terms of all sums below which loops are as quick."""
_SIDE, _DEPTH = 4, 4
"""Rows, columns and terms of a product that is worth a call."""
_FLOATING = ("float32", "float64", "bfloat16", "float16")


def as_products(graph: AtenGraph) -> None:
    """Rewrites sums over products of two values, each of which has a dimension that the other has not."""
    makers, uses = graph.makers(), graph.readers()
    nodes: list[Node] = []
    dropped: set[int] = set()
    for node in graph.nodes:
        terms = makers.get(node.args[0].name) if node.func is aten.sum.dim_IntList else None
        if terms is not None and terms.func is aten.mul.Tensor and uses[node.args[0].name] == 1 and (steps := _product(graph, terms, node)):
            nodes += steps
            dropped.add(id(terms))
        else:
            nodes.append(node)
    graph.nodes = [node for node in nodes if id(node) not in dropped]


@dataclass
class _Dimensions:
    """Those of the terms: of both operands (``batch``), of the first or the second one, and those that are summed over."""

    batch: list[int]
    rows: list[int]
    columns: list[int]
    summed: list[int]


def _product(graph: AtenGraph, terms: Node, node: Node) -> list[Node]:
    """The steps that give the sum of the terms; none where loops are the better way."""
    first, second = terms.args
    result = node.results[0]
    if result is None or node.again or terms.again or not (isinstance(first, Value) and isinstance(second, Value)):
        return []
    whole, made = graph.metas[terms.results[0] or ""], graph.metas[result]
    operands = [graph.metas[first.name], graph.metas[second.name]]
    alike = all(m.dtype == whole.dtype == made.dtype and m.device == whole.device and not m.opaque for m in operands)
    known = all(type(n) is int for m in (whole, made, *operands) for n in (*m.sizes, *m.strides))
    if not (alike and known) or whole.dtype not in _FLOATING:
        return []
    if whole.dtype == "float32" and traits_of(whole.device).matrix_units:
        return []  # the library may round what it multiplies; generators make tiles of the loop
    found = _dimensions(whole, operands, node.args[1])
    if found is None or not _pays(whole, found) or not _is_laid_out(made):
        return []
    out = Steps(graph, node)
    left = _matrices(out, first, operands[0], whole, (found.batch, found.rows, found.summed))
    right = _matrices(out, second, operands[1], whole, (found.batch, found.summed, found.columns))
    batch, rows, columns = (_count(whole, dims) for dims in (found.batch, found.rows, found.columns))
    value = out.add(aten.bmm.default, made.contiguous((batch, rows, columns)), left, right)
    return _laid_out(out, value, whole, made, found)


def _dimensions(whole: Meta, operands: Sequence[Meta], summed: Sequence[int]) -> _Dimensions | None:
    """None where a side has no dimension of its own, or one operand alone is summed over."""
    rank = len(whole.sizes)
    there = [_present(meta, rank) for meta in operands]
    kinds: dict[tuple[bool, bool], list[int]] = {}
    over = {dim % rank for dim in summed}
    for dim in range(rank):
        kinds.setdefault((dim in there[0], dim in there[1]), []).append(dim)
    both, rows, columns = (kinds.get(kind, []) for kind in ((True, True), (True, False), (False, True)))
    depth = [dim for dim in both if dim in over]
    absent = [dim for dim in kinds.get((False, False), []) if whole.sizes[dim] != 1]
    if absent or not (rows and columns and depth) or over.intersection([*rows, *columns]):
        return None
    return _Dimensions([dim for dim in both if dim not in over], rows, columns, depth)


def _present(meta: Meta, rank: int) -> set[int]:
    """The dimensions in which an operand differs, counted among those of the terms."""
    first = rank - len(meta.sizes)
    return {first + k for k, (size, stride) in enumerate(zip(meta.sizes, meta.strides, strict=True)) if size != 1 and stride != 0}


def _count(whole: Meta, dims: Sequence[int]) -> int:
    return math.prod(whole.sizes[dim] for dim in dims)


def _pays(whole: Meta, found: _Dimensions) -> bool:
    sides = min(_count(whole, found.rows), _count(whole, found.columns))
    return sides >= _SIDE and _count(whole, found.summed) >= _DEPTH and math.prod(whole.sizes) >= _SMALLEST


def _matrices(out: Steps, value: Value, meta: Meta, whole: Meta, groups: Sequence[Sequence[int]]) -> Value:
    """An operand as matrices: without the dimensions that it is broadcast in, each group of dimensions made one. It is copied only where
    no view shows it so."""
    rank = len(whole.sizes)
    first = rank - len(meta.sizes)
    there = sorted(_present(meta, rank))
    for dim in reversed(range(len(meta.sizes))):
        if first + dim not in there:
            meta = replace(meta, sizes=_without(meta.sizes, dim), strides=_without(meta.strides, dim))
            value = out.add(aten.select.int, meta, value, dim, 0)
    meta, value = _permuted(out, meta, value, [there.index(dim) for group in groups for dim in group])
    sizes = tuple(_count(whole, group) for group in groups)
    strides = _merged(meta, [len(group) for group in groups])
    if strides is None:
        meta = meta.contiguous()
        value = out.add(aten.clone.default, meta, value, memory_format=torch.contiguous_format)
        strides = meta.contiguous(sizes).strides
    if meta.sizes == sizes:
        return value
    return out.add(aten.view.default, replace(meta, sizes=sizes, strides=strides), value, list(sizes))


def _without(items: tuple[int, ...], place: int) -> tuple[int, ...]:
    return (*items[:place], *items[place + 1 :])


def _merged(meta: Meta, lengths: Sequence[int]) -> tuple[int, ...] | None:
    """The strides where so many dimensions after one another are made one; None where no strides show that."""
    strides, place = [], 0
    for length in lengths:
        dims = range(place, place + length)
        if any(meta.strides[k] != meta.strides[k + 1] * meta.sizes[k + 1] for k in dims[:-1]):
            return None
        strides.append(meta.strides[dims[-1]] if length else math.prod(meta.sizes[place:]))
        place += length
    return tuple(strides)


def _laid_out(out: Steps, value: Value, whole: Meta, made: Meta, found: _Dimensions) -> list[Node]:
    """The steps, with the product laid out as the sum is and under its name."""
    dims = [*found.batch, *found.rows, *found.columns]
    meta = made.contiguous(tuple(whole.sizes[dim] for dim in dims))
    value = out.add(aten.view.default, meta, value, list(meta.sizes))
    kept = [stride for size, stride in zip(made.sizes, made.strides, strict=True) if size != 1]
    inner = sorted(range(len(kept)), key=lambda k: -kept[k])  # the sum's own dimensions as they lie in memory
    meta, value = _permuted(out, meta, value, [dims.index(sorted(dims)[k]) for k in inner])
    if meta.strides != meta.contiguous().strides:
        meta = meta.contiguous()
        value = out.add(aten.clone.default, meta, value, memory_format=torch.contiguous_format)
    meta, value = _permuted(out, meta, value, [inner.index(k) for k in range(len(inner))])
    out.add(aten.view.default, made, value, list(made.sizes))
    last = out.nodes[-1]
    del out.graph.metas[last.results[0] or ""]
    out.nodes[-1] = replace(last, results=out.node.results)
    return out.nodes


def _permuted(out: Steps, meta: Meta, value: Value, order: Sequence[int]) -> tuple[Meta, Value]:
    if list(order) == sorted(order):
        return meta, value
    meta = replace(meta, sizes=tuple(meta.sizes[k] for k in order), strides=tuple(meta.strides[k] for k in order))
    return meta, out.add(aten.permute.default, meta, value, list(order))


def _is_laid_out(made: Meta) -> bool:
    """Whether a sum lies densely, in any order of its dimensions; where it has some of size one, in their own."""
    if made.strides == made.contiguous().strides:
        return True
    order = sorted(range(len(made.sizes)), key=lambda k: -made.strides[k])
    sizes = tuple(made.sizes[k] for k in order)
    return 1 not in sizes and tuple(made.strides[k] for k in order) == made.contiguous(sizes).strides


__all__ = ["as_products"]
