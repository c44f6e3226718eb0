"""Matrix products whose rows do not begin at multiples of 16 bytes, computed in larger matrices that do.

Libraries have kernels for tensor cores only where every matrix begins its rows so, and where the sizes along rows are such multiples, too:
a vocabulary of 50,257 words costs eight times what one of 50,264 does. Operands are padded with zeros, which add nothing to any sum; of the
result the part is read that was asked for. An operand that loops make is made padded at once; others are copied, and are therefore padded
only where the product saves more than the copy takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from opmill_fake_tensors.operator import describe
from opmill_runtime_cache.devices.registry import traits_of

from ..loops.ir import HALF
from .graph import AtenGraph, Meta, Node, OutputTensor, Value, values_in

aten = torch.ops.aten

_BYTES = 16
_FAST, _SLOW = 600e12, 130e12
"""Operations a second of products on an H200, with rows that begin at such multiples and without."""
_BANDWIDTH, _LAUNCH = 3.5e12, 3e-6
"""Bytes a second that copies move there, and seconds that a kernel more takes."""
_CALLS = frozenset(f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "embedding"))


def pad_products(graph: AtenGraph) -> None:
    """Rewrites the products of half precision on GPUs that gain by it."""
    found = [node for node in graph.nodes if node.func in _PLACES]
    if not found:
        return
    padder = _Padder(graph)
    for node in found:
        padder.consider(node)
    padder.finish()


_PLACES: Mapping[Any, int] = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
"""Products, with where among their arguments the first matrix stands."""


@dataclass
class _Padder:
    graph: AtenGraph
    before: dict[int, list[Node]] = field(default_factory=dict)
    """New nodes by the node (its ``id``) that they come before."""
    instead: dict[int, list[Node]] = field(default_factory=dict)
    """What takes the place of a product."""
    padded: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)
    """Values by what they pad, and how."""
    parts: set[str] = field(default_factory=set)
    """Results of padded products, and views of these."""

    def __post_init__(self) -> None:
        self.makers = self.graph.makers()
        self.outside = {o.value for o in self.graph.outputs if isinstance(o, OutputTensor)} | set(self.graph.mutations.values())
        self.readers: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            for value in values_in((node.args, node.kwargs)):
                self.readers.setdefault(value.name, []).append(node)

    def consider(self, node: Node) -> None:
        """Pads the product ``node``, where that pays."""
        first, result = _PLACES[node.func], node.results[0] or ""
        operands = [a.name for a in node.args[: first + 2]]
        if not all(_suits(self.graph.metas[name]) for name in (*operands, result)):
            return
        a, b, c = (self.graph.metas[name] for name in (*operands[first:], result))
        rows, depth, columns = a.sizes[-2], a.sizes[-1], b.sizes[-1]
        more = _Pads(
            rows=_missing(rows, c) if a.strides[-2] == 1 else 0,
            depth=_missing(depth, c) if a.strides[-1] == 1 or b.strides[-2] == 1 else 0,
            columns=_missing(columns, c),
        )
        pads: list[tuple[int, ...]] = [(0, more.depth, 0, more.rows), (0, more.columns, 0, more.depth)]
        if first:
            sizes = self.graph.metas[operands[0]].sizes
            ends = [more.columns if sizes[-1:] == (columns,) else 0, more.rows if sizes[-2:-1] == (rows,) else 0]
            pads.insert(0, tuple(n for end in ends[: len(sizes)] for n in (0, end)))
        if not any(more) or not self._pays(operands, pads, result, 2.0 * math.prod(c.sizes) * depth, more.rows or more.columns):
            return
        names = [self._padded(name, pad, node) for name, pad in zip(operands, pads, strict=True)]
        args = (*map(Value, names), *node.args[first + 2 :])
        if not (more.rows or more.columns):
            self.instead[id(node)] = [replace(node, args=args)]
            return
        whole, sizes = f"{result}_padded", (*c.sizes[:-2], rows + more.rows, columns + more.columns)
        self.graph.metas[whole] = c.contiguous(sizes)
        self.instead[id(node)] = [replace(node, args=args, results=(whole,)), *self._part(whole, result, node)]

    def _pays(self, operands: list[str], pads: list[tuple[int, ...]], result: str, operations: float, grows: int) -> bool:
        copies = [name for name, pad in zip(operands, pads, strict=True) if any(pad) and self._is_copied(name, pad)]
        moved = sum(2 * _bytes(self.graph.metas[name]) for name in copies)
        moved += 2 * _bytes(self.graph.metas[result]) if grows and self._leaves(result) else 0
        return operations * (1 / _SLOW - 1 / _FAST) > moved / _BANDWIDTH + _LAUNCH * (1 + len(copies))

    def _padded(self, name: str, pad: tuple[int, ...], node: Node) -> str:
        """``name`` with zeros behind its last dimensions: ``pad`` as of torch's operator, the last dimension first."""
        if not any(pad):
            return name
        base, turned = self._straight(name)
        key = base, (*pad[2:], *pad[:2]) if turned else pad
        if key not in self.padded:
            meta = self.graph.metas[base]
            grown = [*key[1][1::2], *[0] * (len(meta.sizes) - len(pad) // 2)]
            sizes = tuple(n + more for n, more in zip(meta.sizes, reversed(grown), strict=True))
            made = self.padded[key] = f"{base}_padded{len(self.padded)}"
            self.graph.metas[made] = meta.contiguous(sizes)
            self._before(
                node, Node(aten.constant_pad_nd.default, (Value(base), list(key[1]), 0.0), {}, (made,), node.origin, label=node.label)
            )
        return self._turned(self.padded[key], node) if turned else self.padded[key]

    def _turned(self, name: str, node: Node) -> str:
        """The transpose of a value."""
        made, meta = f"{name}_turned", self.graph.metas[name]
        if made not in self.graph.metas:
            *batch, rows, columns = range(len(meta.sizes))
            order = [*batch, columns, rows]
            sizes, strides = (tuple(numbers[d] for d in order) for numbers in (meta.sizes, meta.strides))
            self.graph.metas[made] = replace(meta, sizes=sizes, strides=strides)
            self._before(node, Node(aten.permute.default, (Value(name), order), {}, (made,), node.origin, label=node.label))
        return made

    def _before(self, node: Node, new: Node) -> None:
        self.before.setdefault(id(node), []).append(new)

    def _straight(self, name: str) -> tuple[str, bool]:
        """What ``name`` is a transpose of, and whether it is: padded, that keeps the direction in which its rows run."""
        turned = False
        while (node := self.makers.get(name)) is not None and _is_transpose(node, len(self.graph.metas[name].sizes)):
            name, turned = node.args[0].name, not turned
        return name, turned

    def _part(self, whole: str, result: str, node: Node) -> list[Node]:
        """The nodes that take the part of the padded product that was asked for. It is a view, and so is what were its views in any
        memory."""
        out: list[Node] = []
        wanted = self.graph.metas[result].sizes
        meta = self.graph.metas[whole]
        narrowed = [d for d, n in enumerate(wanted) if meta.sizes[d] != n]
        for d in narrowed:
            name = result if d == narrowed[-1] else f"{result}_part{d}"
            meta = replace(meta, sizes=(*meta.sizes[:d], wanted[d], *meta.sizes[d + 1 :]))
            out.append(Node(aten.slice.Tensor, (Value(whole), d, 0, wanted[d]), {}, (name,), node.origin))
            self.graph.metas[name], whole = meta, name
        self.parts.add(result)
        return out

    # ---- what padding costs ------------------------------------------------------------------------------------------------

    def _is_copied(self, name: str, pad: tuple[int, ...]) -> bool:
        """Whether the operand lies in memory already: an input, or what an operator of a library gives."""
        base, turned = self._straight(name)
        if (base, (*pad[2:], *pad[:2]) if turned else pad) in self.padded:
            return False
        node = self._maker(base)
        return node is None or node.func._schema.name in _CALLS or len([r for r in node.results if r]) != 1

    def _maker(self, name: str) -> Node | None:
        """What computes the elements of ``name``."""
        node = self.makers.get(name)
        while node is not None and _is_view(node):
            node = self.makers.get(values_in(node.args)[0].name)
        return node

    def _leaves(self, name: str) -> bool:
        """Whether the caller, or an operator that is called as it is, sees the value or a view of it."""
        if name in self.outside:
            return True
        return any(
            node.func._schema.name in _CALLS or (_is_view(node) and any(r and self._leaves(r) for r in node.results))
            for node in self.readers.get(name, ())
        )

    def finish(self) -> None:
        """The nodes of the graph, with the new ones in their places. What leaves it is laid out as it was."""
        nodes: list[Node] = []
        for node in self.graph.nodes:
            nodes += self.before.get(id(node), ())
            if node.func is aten._unsafe_view.default and node.args[0].name in self.parts:
                node = replace(node, func=aten.view.default)
            nodes += self.instead.get(id(node), (node,))
            if _is_view(node) and not self.parts.isdisjoint(v.name for v in values_in(node.args[:1])):
                self.parts.update(r for r in node.results if r)
        copies: dict[str, str] = {}
        for k, out in enumerate(self.graph.outputs):
            if isinstance(out, OutputTensor) and out.value in self.parts:
                self.graph.outputs[k] = replace(out, value=copies.setdefault(out.value, f"{out.value}_out"))
        for value, copy in copies.items():
            meta = self.graph.metas[value]
            self.graph.metas[copy] = meta.contiguous()
            nodes.append(Node(aten.clone.default, (Value(value),), {}, (copy,), self.makers[value].origin))
        self.graph.nodes = nodes


class _Pads(NamedTuple):
    """By how much the dimensions of a product grow."""

    rows: int
    depth: int
    columns: int


def _suits(meta: Meta) -> bool:
    numbers = all(type(n) is int for n in (*meta.sizes, *meta.strides))
    return meta.dtype in HALF and traits_of(meta.device).matrix_units and numbers and 0 not in meta.sizes


def _missing(size: int, meta: Meta) -> int:
    """Elements up to the next multiple of 16 bytes."""
    return -size % (_BYTES // getattr(torch, meta.dtype).itemsize)


def _bytes(meta: Meta) -> int:
    return int(getattr(torch, meta.dtype).itemsize * math.prod(meta.sizes))


def _is_transpose(node: Node, rank: int) -> bool:
    """Whether the node swaps the last two dimensions of a value of rank ``rank``, and does nothing else."""
    last = {rank - 2, rank - 1}
    if node.func is aten.t.default:
        return rank == 2
    if node.func is aten.transpose.int:
        return {d % rank for d in node.args[1:3]} == last
    return node.func is aten.permute.default and [d % rank for d in node.args[1]] == [*range(rank - 2), rank - 1, rank - 2]


def _is_view(node: Node) -> bool:
    op = describe(node.func)
    return (op.aliases and not op.writes) or node.func._schema.name == "aten::_unsafe_view"
