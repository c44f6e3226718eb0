"""Products and convolutions with weights that stay, on processors: weights are reordered once into the blocks that oneDNN's kernels read.

Activations that follow are done while results are in registers, those that oneDNN computes as torch does. (Its ``relu`` and ``hardtanh``
turn NaN into a number: these stay loops.)
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of
from opmill_runtime_cache.executor.native import packs_matrices

from ..capture.graph import AtenGraph, Node, OutputTensor, Value, replace_values, values_in
from ..dense import Size
from ..planning.few_rows import reads_once
from .beside import put_together
from .constant import Constant, constant_values, is_view
from .made import Maker, rows

aten = torch.ops.aten

_LEAST_PRODUCT = 1 << 19
"""Multiplications below which what a call of oneDNN costs (about five microseconds more than one of BLAS) is not made up for."""
_LEAST_MATRIX = {"float32": 1 << 18}
"""Elements of a matrix that another BLAS than MKL lays out in next to no time, and multiplies as quickly or quicker then."""
_LEAST_CONVOLUTION = 1 << 22
"""The same for convolutions: our own kernels do small ones as quickly, together with what is around them."""
_LEAST_TRANSPOSED = 1 << 17
"""The same for transposed ones, which are oneDNN's in any case."""
_STRAIGHT = (torch.ops.mkldnn._reorder_convolution_weight.default, torch.ops.mkldnn._convolution_pointwise.default)
_TRANSPOSED = (
    torch.ops.mkldnn._reorder_convolution_transpose_weight.default,
    torch.ops.mkldnn._convolution_transpose_pointwise.default,
)
"""What lays weights out, and what multiplies with them."""
_LEAST_PACKED = 3 << 15
"""Elements of a matrix below which products with few others beside them are as quick if it lies in rows."""
_FEWEST_ROWS = 24
"""Of what is multiplied, for a packed form to pay."""
_PAGE, _GAP = 1024, 16
"""Rows of a multiple of so many elements get a gap behind them: their elements of one column fall into the same few places of a cache, and
products of 128 rows with a matrix of 768 by 3,072 take 5.4 ms instead of 3.5."""
_UNKNOWN_ROWS = 32
"""What a number of rows that depends on the call is taken for."""

Activation = tuple[str, list[Any], str]


def pack(graph: AtenGraph, frozen: Set[str]) -> None:
    """Rewrites the products and convolutions that gain by it. ``frozen``: the inputs that stay."""
    if not torch.backends.mkldnn.is_available() or not torch._C._get_mkldnn_enabled():
        return
    put_together(graph, constant_values(graph, frozen), _LEAST_PRODUCT)
    packer = _Packer(graph, constant_values(graph, frozen))
    graph.nodes = [new for node in graph.nodes for new in packer.instead(node)]
    if packer.renamed:
        for node in graph.nodes:
            node.args, node.kwargs = replace_values(node.args, packer.renamed), replace_values(node.kwargs, packer.renamed)


def _width(graph: AtenGraph, name: str) -> int:
    return int(getattr(torch, graph.metas[name].dtype).itemsize)


class _Packer:
    def __init__(self, graph: AtenGraph, constant: Constant) -> None:
        self.graph, self.constant = graph, constant
        self.readers: dict[str, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for value in values_in((node.args, node.kwargs)):
                self.readers[value.name].append(node)
        self.leaving = {o.value for o in graph.outputs if isinstance(o, OutputTensor)} | set(graph.mutations.values())
        self.renamed: dict[str, str] = {}
        self.dropped: set[int] = set()
        self.packed: dict[Any, Value] = {}
        self.makers = graph.makers()

    def instead(self, node: Node) -> list[Node]:
        if id(node) in self.dropped:
            return []
        rule = _RULES.get(node.func)
        made = None if rule is None else rule(self, node)
        return [node] if made is None else made

    def suits(self, *values: Value | None) -> bool:
        """Whether tensors are of one type that oneDNN computes in, on a processor, and have elements."""
        metas = [self.graph.metas[v.name] for v in values if v is not None]
        types = {m.dtype for m in metas}
        known = types == {"float32"} or (types == {"bfloat16"} and _has_bfloat16())
        return known and all(traits_of(m.device).processor and not m.opaque and 0 not in m.sizes for m in metas)

    # ---- products ----------------------------------------------------------------------------------------------------------

    def product(self, node: Node, x: Value, matrix: Value, bias: Value | None) -> list[Node] | None:
        """``x @ matrix + bias``."""
        if node.kwargs or x.name in self.constant or matrix.name not in self.constant.weights or not self.suits(x, matrix, bias):
            return None
        depth, columns = self.graph.metas[matrix.name].sizes
        given, out = self.graph.metas[x.name].sizes[0], self.graph.metas[node.results[0] or ""]
        count = given if type(given) is int else _UNKNOWN_ROWS
        if reads_once(self.graph.metas[x.name], self.graph.metas[matrix.name]) and not self._is_widened(matrix):
            return None  # loops go over the matrix at the memory's speed, in the time that oneDNN's kernels take or half of it
        if out.dtype == "float32" and torch.backends.mkl.is_available():
            return self._kept_by_the_executor(node, matrix, given) or self._laid_in_rows(node, matrix)
        if depth * columns < _LEAST_MATRIX.get(out.dtype, 0):
            return None
        if count * depth * columns < _LEAST_PRODUCT or (bias is not None and self.graph.metas[bias.name].sizes != (columns,)):
            return None
        make = Maker(self.graph, node.origin)
        weights = self._reordered(make, matrix, count)
        args = (x, weights, bias, *self._activation(node, _AFTER_PRODUCTS))
        make(torch.ops.mkldnn._linear_pointwise.default, args, out, node.results[0] or "")
        return make.nodes

    def _kept_by_the_executor(self, node: Node, matrix: Value, rows: Size) -> list[Node] | None:
        """The product as it is, of a matrix that the executor may pack as MKL's kernels read it; what it is a view of stays as it is."""
        depth, columns = self.graph.metas[matrix.name].sizes
        if type(rows) is not int or rows < _FEWEST_ROWS or depth * columns < _LEAST_PACKED or not packs_matrices():
            return None
        name = matrix.name
        while (maker := self.makers.get(name)) is not None and is_view(maker):
            name = maker.args[0].name
        meta = self.graph.metas[name]
        if meta.multiplied not in (0, rows) or meta.dtype != "float32":
            return None
        self.graph.metas[name] = replace(meta, multiplied=rows)
        return [node]

    def _laid_in_rows(self, node: Node, matrix: Value) -> list[Node] | None:
        """The product as it is, of a matrix that lies as MKL reads it: a tenth quicker than turning it in every call, and quicker than
        oneDNN's kernels."""
        make = Maker(self.graph, node.origin)
        meta = make.meta(matrix)
        depth, columns = meta.sizes
        gap = _GAP if columns % _PAGE == 0 else 0
        laid = replace(meta, strides=(columns + gap, 1))
        if meta == laid:
            return None
        key = matrix.name, "rows"
        if key not in self.packed:
            whole = replace(meta, sizes=(depth, columns + gap), strides=laid.strides)
            if gap:
                wide = make(aten.constant_pad_nd.default, (matrix, [0, gap]), whole)
                self.packed[key] = make(aten.slice.Tensor, (wide, 1, 0, columns), laid)
            else:
                self.packed[key] = make(aten.clone.default, (matrix,), laid, memory_format=torch.contiguous_format)
        make.nodes.append(replace(node, args=replace_values(node.args, {matrix.name: self.packed[key].name})))
        return make.nodes

    def _is_widened(self, matrix: Value) -> bool:
        """Whether elements were narrower in memory: they are kept wide, and packed."""
        names, width = [matrix.name], _width(self.graph, matrix.name)
        while names:
            name = names.pop()
            if _width(self.graph, name) < width:
                return True
            node = self.makers.get(name)
            names += [] if node is None else [v.name for v in values_in((node.args, node.kwargs))]
        return False

    def _reordered(self, make: Maker, matrix: Value, count: int) -> Value:
        key = matrix.name, count
        if key not in self.packed:
            meta = make.meta(matrix)
            sizes = meta.sizes[::-1]
            turned = make(aten.t.default, (matrix,), replace(meta, sizes=sizes, strides=meta.strides[::-1]))
            if make.meta(turned).strides != rows(sizes):
                turned = make(
                    aten.clone.default, (turned,), replace(meta, sizes=sizes, strides=rows(sizes)), memory_format=torch.contiguous_format
                )
            laid = replace(make.meta(turned), opaque=True)
            self.packed[key] = make(torch.ops.mkldnn._reorder_linear_weight.default, (turned, count), laid)
        return self.packed[key]

    def _activation(self, node: Node, known: Mapping[Any, Callable[[Node], Activation | None]]) -> Activation:
        """The function that is all that becomes of the results, which is then the operator's own affair; it may come behind views."""
        name, out = node.results[0] or "", self.graph.metas
        while len(self.readers[name]) == 1 and name not in self.leaving:
            [reader] = self.readers[name]
            if reader.func in known and reader.args[0] == Value(name):
                found, result = known[reader.func](reader), reader.results[0] or ""
                if found is None or result in self.leaving or out[result] != out[name]:
                    break
                self.dropped.add(id(reader))
                self.renamed[result] = name
                return found
            if (
                not (is_view(reader) or reader.func is aten._unsafe_view.default)
                or len(reader.results) != 1
                or reader.args[0] != Value(name)
            ):
                break
            name = reader.results[0] or ""
        return "none", [], ""

    # ---- convolutions ------------------------------------------------------------------------------------------------------

    def convolution(self, node: Node) -> list[Node] | None:
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = node.args
        name = node.results[0] or ""
        if (transposed and groups > 1) or not self.suits(x, weight, bias):
            return None
        if x.name in self.constant or weight.name not in self.constant.weights:
            return None
        metas = [self.graph.metas[n] for n in (x.name, weight.name, name)]
        if any(len(m.sizes) != 4 or not all(type(n) is int for n in m.sizes) for m in metas):
            return None
        read = metas[0] if transposed else metas[2]  # each of its elements is multiplied with all of a channel's weights
        if math.prod(read.sizes) * math.prod(metas[1].sizes[1:]) < (_LEAST_TRANSPOSED if transposed else _LEAST_CONVOLUTION):
            return None
        spread = (output_padding,) if transposed else ()
        make = Maker(self.graph, node.origin)
        reorder, convolve = _TRANSPOSED if transposed else _STRAIGHT
        how = (padding, *spread, stride, dilation, groups)
        key = weight.name, metas[0].sizes, repr((transposed, how))
        if key not in self.packed:
            laid = replace(metas[1], opaque=True)
            self.packed[key] = make(reorder, (weight, *how, list(metas[0].sizes)), laid)
        make(convolve, (x, self.packed[key], bias, *how, *self._activation(node, _AFTER_CONVOLUTIONS)), metas[2], name)
        return make.nodes


@functools.cache
def _has_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _mm(packer: _Packer, node: Node) -> list[Node] | None:
    return packer.product(node, node.args[0], node.args[1], None)


def _addmm(packer: _Packer, node: Node) -> list[Node] | None:
    return packer.product(node, node.args[1], node.args[2], node.args[0])


_RULES: Mapping[Any, Callable[[_Packer, Node], list[Node] | None]] = {
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.convolution.default: _Packer.convolution,
}


def _plain(name: str) -> Callable[[Node], Activation | None]:
    return lambda node: (name, [], "")


def _gelu(node: Node) -> Activation:
    return "gelu", [], node.kwargs.get("approximate", node.args[1] if len(node.args) > 1 else "none")


_AFTER_CONVOLUTIONS: Mapping[Any, Callable[[Node], Activation | None]] = {
    aten.hardswish.default: _plain("hardswish"),
    aten.silu.default: _plain("swish"),
    aten.sigmoid.default: _plain("sigmoid"),
    aten.tanh.default: _plain("tanh"),
}
_AFTER_PRODUCTS = {**_AFTER_CONVOLUTIONS, aten.gelu.default: _gelu}

__all__ = ["pack"]
