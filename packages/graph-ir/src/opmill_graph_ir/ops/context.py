"""What lowerings work with: views of buffers to read from, and nodes to write buffers with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from opmill_fake_tensors.symbols import Relation, Sizes
from opmill_runtime_cache.devices.registry import traits_of
from opmill_runtime_cache.plan.model import Literal, Named

from ..capture.graph import Meta, Node
from ..dense import Size, contiguous
from ..loops.index import ONE, ZERO, Index, index
from ..loops.ir import Axis, Check, Expr, Let, Reduction, Scan
from ..lowered import PARTS, BufferArg, BufferInfo, Cumulate, Extern, Pointwise, Read, Reduce
from ..lowered import Node as LoweredNode
from .exprs import cast, const, index_value, op, wide

FEW = 1 << 10
"""Elements up to which a call of torch's takes longer than its work."""
Indices = tuple[Index, ...]
Extents = dict[str, Size]
"""Bounds of names in indices: each ranges over ``[0, extent)``."""


@dataclass(frozen=True)
class View:
    """A tensor as positions of a buffer: the element at ``(v0, v1, ...)`` is the buffer's at ``indices`` (None: the same position)."""

    buffer: str
    dtype: str
    sizes: tuple[Any, ...]
    """Of type ``Size``; untyped, since rows are written for numbers and left where only a number does."""
    indices: Indices | None = None

    def at(self, position: Sequence[Index], extents: Extents) -> Indices:
        """Where in the buffer the element at ``position`` is; ``extents`` bound the names in it."""
        if self.indices is None:
            return tuple(position)
        values = {f"v{k}": p for k, p in enumerate(position)}
        return tuple(i.substitute(values, extents) for i in self.indices)


def view_axes(sizes: Sequence[Size]) -> tuple[Indices, Extents]:
    """The names ``v0, v1, ...`` of a view's dimensions, and their extents."""
    return tuple(index(f"v{k}") for k in range(len(sizes))), {f"v{k}": n for k, n in enumerate(sizes)}


def positions(axes: Sequence[Axis]) -> Indices:
    """Axes as index expressions; an axis of extent one is always 0."""
    return tuple(ZERO if a.extent == ONE else index(a.name) for a in axes)


def named_axes(prefix: str, sizes: Sequence[Size]) -> tuple[Axis, ...]:
    """An axis for each size, called ``prefix`` and its position."""
    return tuple(Axis(f"{prefix}{k}", index(n)) for k, n in enumerate(sizes))


@dataclass(frozen=True)
class Pair:
    """A complex tensor as two real ones; ``origin`` and ``source`` as of the nodes that make them."""

    real: View
    imaginary: View
    origin: str
    source: str = ""


class _Views(dict[str, View]):
    """Complex values that are there as pairs alone are put together when they are asked for."""

    def __init__(self, whole: Callable[[str], View]) -> None:
        super().__init__()
        self._whole = whole

    def __missing__(self, name: str) -> View:
        return self._whole(name)


@dataclass
class Context:
    """The program under construction. ``views`` maps values of the aten graph to what they are now, ``pairs`` complex ones that loops
    made."""

    metas: dict[str, Meta]
    buffers: dict[str, BufferInfo] = field(default_factory=dict)
    nodes: list[LoweredNode] = field(default_factory=list)
    fixed: set[str] = field(default_factory=set)
    origin: str = ""
    source: str = ""
    """The node of the aten graph that is being lowered, by its first result."""
    counter: int = 0
    sizes: Sizes | None = None
    used: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    """Values that leave the graph."""
    readers: Mapping[str, int] = field(default_factory=dict)
    """How many times each value is read, or leaves the graph."""
    heirs: dict[str, str] = field(default_factory=dict)
    """Values that an operator wrote into the memory of another value, which nobody reads any more: that buffer."""
    seeds: dict[str, tuple[View, int]] = field(default_factory=dict)
    """By device: where random sequences begin, and how many of these are taken."""
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    """What buffers hold that nobody writes."""
    exact: bool = False
    """Whether loops round exactly as eager does."""
    products: Mapping[str, bool] = field(default_factory=dict)
    """Results of matrix products that shall be loops, and whether these may compute their operands."""
    computing: set[str] = field(default_factory=set)
    """Buffers that such loops write."""
    compared: frozenset[str] = frozenset()
    """Values that must be the same wherever they are computed."""
    sums: dict[tuple[str, int], View] = field(default_factory=dict)
    """Of buffers along a dimension, which is kept with size one: where they are known without adding."""

    def __post_init__(self) -> None:
        self.symbols = {} if self.sizes is None else dict.fromkeys(self.sizes.symbols)
        self.views = _Views(self.whole)
        self.pairs: dict[str, Pair] = {}
        self.split: dict[str, Pair] = {}
        """Real views of complex values that are there as pairs alone."""
        self.marked: dict[str, Node] = {}
        """Complex values that torch has as views marked as conjugated: what makes them so."""
        self.complex = any(m.dtype in PARTS for m in self.metas.values())

    def mark(self, first: int) -> None:
        """Notes on the program's nodes from number ``first`` on of which node of the aten graph they come, where they do not say."""
        if self.source:
            self.nodes[first:] = [node if node.source else replace(node, source=self.source) for node in self.nodes[first:]]

    # ---- buffers ---------------------------------------------------------------------------------------------------

    def buffer(self, name: str, meta: Meta, role: Any = "temporary") -> View:
        """Declares a buffer."""
        self.buffers[name] = BufferInfo(
            name,
            meta.dtype,
            tuple(map(index, meta.sizes)),
            tuple(map(index, meta.strides)),
            meta.device,
            role,
            role != "temporary",
            self.origin,
            meta.opaque,
            meta.multiplied,
        )
        return View(name, meta.dtype, meta.sizes)

    def on_processor(self, view: View, beyond: int) -> bool:
        """Whether the tensor lies on a processor and has more than so many elements."""
        return traits_of(self.buffers[view.buffer].device).processor and math.prod(view.sizes) > beyond

    def fresh(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    # ---- reading ---------------------------------------------------------------------------------------------------

    def load(self, view: View, position: Sequence[Index], extents: Extents) -> Expr:
        """The element at ``position``, in the type that it is computed in."""
        return cast(self.read(view, position, extents), wide(view.dtype))

    def read(self, view: View, position: Sequence[Index], extents: Extents) -> Any:
        """The element at ``position`` as it is stored: a ``Read``, which stands where expressions have loads."""
        return Read(view.buffer, view.at(position, extents), view.dtype)

    def load_broadcast(self, view: View, position: Sequence[Index], extents: Extents) -> Expr:
        """As :meth:`load`, with the view's dimensions broadcast to the last ones of ``position``."""
        lead = len(position) - len(view.sizes)
        return self.load(view, [ZERO if n == 1 else p for n, p in zip(view.sizes, position[lead:], strict=True)], extents)

    # ---- writing ---------------------------------------------------------------------------------------------------

    def stored(self, name: str, value: Expr, meta: Meta) -> Expr:
        """What a buffer gets of a value."""
        body = cast(value, meta.dtype)
        return op("rounded", body) if name in self.compared else body

    def pointwise(
        self,
        name: str | None,
        meta: Meta,
        value: Callable[[Indices, Extents], Expr],
        *,
        lets: Sequence[Let] = (),
        checks: Sequence[Check] = (),
    ) -> View:
        """A buffer of ``meta`` whose element at each position is ``value(position, extents)``, converted to its type."""
        name = name or self.fresh()
        axes = named_axes("i", meta.sizes)
        view = self.buffer(name, meta)
        if 0 in meta.sizes:  # loops have positive extents
            self.nodes.append(_nothing(name, meta, self.origin))
            return view
        body = self.stored(name, value(positions(axes), extents_of(axes)), meta)
        self.nodes.append(Pointwise(name, axes, body, tuple(lets), tuple(checks), self.origin))
        return view

    def reduce(
        self,
        outputs: Sequence[tuple[str | None, Meta]],
        inner: Sequence[Size],
        make: Callable[[Indices, Indices, Extents], tuple[Sequence[Reduction], Sequence[Expr]]],
        axes: Sequence[Axis] | None = None,
    ) -> list[View]:
        """Buffers computed by reductions over ``inner`` extents: ``make(outer, inner, extents)`` gives reductions and one value each."""
        outer = tuple(axes) if axes is not None else named_axes("i", outputs[0][1].sizes)
        loops = named_axes("r", inner)
        extents = extents_of(outer) | extents_of(loops)
        reductions, values = make(positions(outer), positions(loops), extents)
        names = [n or self.fresh() for n, _ in outputs]
        views = [self.buffer(n, m) for n, (_, m) in zip(names, outputs, strict=True)]
        casted = tuple(self.stored(n, v, m) for n, v, (_, m) in zip(names, values, outputs, strict=True))
        self.nodes.append(Reduce(tuple(names), outer, loops, tuple(reductions), casted, origin=self.origin))
        return views

    def cumulate(
        self,
        outputs: Sequence[tuple[str | None, Meta]],
        along: int,
        make: Callable[[Indices, Extents], tuple[Sequence[Scan], Sequence[Expr]]],
        of: int | None = None,
    ) -> list[View]:
        """Buffers of equal sizes computed by scans along dimension ``along``: ``make(position, extents)`` gives scans and one value each.
        ``of``: so many points are there to scan, and the buffers have the first ones of the result."""
        sizes = outputs[0][1].sizes
        first = None if of is None or of == sizes[along] else sizes[along]
        axes = named_axes("i", sizes if of is None else (*sizes[:along], of, *sizes[along + 1 :]))
        scans, values = make(positions(axes), extents_of(axes))
        names = [n or self.fresh() for n, _ in outputs]
        views = [self.buffer(n, m) for n, (_, m) in zip(names, outputs, strict=True)]
        casted = tuple(self.stored(n, v, m) for n, v, (_, m) in zip(names, values, outputs, strict=True))
        self.nodes.append(Cumulate(tuple(names), axes, along, tuple(scans), casted, origin=self.origin, first=first))
        return views

    def allocated(self, name: str | None, meta: Meta) -> View:
        """A buffer that nothing is written to yet."""
        name = name or self.fresh()
        view = self.buffer(name, meta)
        self.nodes.append(_nothing(name, meta, self.origin))
        self.fixed.add(name)
        return view

    # ---- complex values ----------------------------------------------------------------------------------------------------

    def pair(self, name: str) -> Pair:
        """The parts of a complex value."""
        if (known := self.pairs.get(name)) is not None:
            return known
        return self.parts_of(self.views[name])

    def parts_of(self, view: View) -> Pair:
        """The parts of what lies in memory as torch has it."""
        names, extents = view_axes(view.sizes)
        at = view.at(names, extents)
        real, imaginary = (View(view.buffer, PARTS[view.dtype], view.sizes, (*at, k)) for k in (ZERO, ONE))
        return Pair(real, imaginary, self.origin, self.source)

    def whole(self, name: str) -> View:
        """A complex value of which there is a pair, in memory as torch has it from now on."""
        pair, origin, source, before = self.pairs[name], self.origin, self.source, len(self.nodes)
        self.origin, self.source = pair.origin, pair.source
        self.views[name] = self.interleaved(name, self.metas[name], pair)
        self.mark(before)
        self.origin, self.source = origin, source
        return self.views[name]

    def interleaved(self, name: str, meta: Meta, pair: Pair) -> View:
        """A buffer of complex numbers, made of their parts."""
        view = self.buffer(name, meta)
        axes = named_axes("i", (*meta.sizes, 2))
        self.nodes.append(Pointwise(name, axes, self.part_at(pair, positions(axes), extents_of(axes)), origin=self.origin))
        return view

    def part_at(self, pair: Pair, position: Sequence[Index], extents: Extents) -> Expr:
        """The part of a number that the last position names."""
        real, imaginary = (self.read(p, position[:-1], extents) for p in (pair.real, pair.imaginary))
        return op("where", op("lt", index_value(position[-1]), const(1, "int64")), real, imaginary)

    # ---- arguments of operators that are called as they are --------------------------------------------------------

    def materialise(self, view: View, strides: tuple[Size, ...] | None = None) -> View:
        """The same elements as a buffer of their own."""
        info = self.buffers[view.buffer]
        meta = Meta(view.dtype, view.sizes, strides or contiguous(view.sizes), info.device)
        if view.dtype in PARTS:
            out = self.interleaved(self.fresh(), meta, self.parts_of(view))
            self.fixed.add(out.buffer)
            return out
        out = self.pointwise(None, meta, lambda at, ext: self.read(view, at, ext))
        self.fixed.add(out.buffer)
        return out

    def strided(self, view: View, strides: tuple[Size, ...] | None = None) -> BufferArg:
        """``view`` as an extern argument: a strided view of its buffer where it is one, else a copy."""
        if view.indices is None:
            self.fixed.add(view.buffer)
            return BufferArg(view.buffer)
        geometry = self.geometry(view) if self.buffers[view.buffer].dtype == view.dtype else None
        if geometry is None:
            return BufferArg(self.materialise(view, strides).buffer)
        self.fixed.add(view.buffer)
        return BufferArg(view.buffer, tuple(map(index, view.sizes)), *geometry)

    def geometry(self, view: View) -> tuple[Indices, Index] | None:
        """Strides and offset (elements) of ``view`` in its buffer's memory, where it is a strided view of it."""
        info = self.buffers[view.buffer]
        names, extents = view_axes(view.sizes)
        position = view.at(tuple(ZERO if n == 1 else v for v, n in zip(names, view.sizes, strict=True)), extents)
        total = ZERO
        for i, stride in zip(position, info.strides, strict=True):
            total = total + i * stride
        strides = []
        if 0 in view.sizes:
            return tuple(map(index, contiguous(view.sizes))), ZERO
        for k, n in enumerate(view.sizes):
            found = index(contiguous(view.sizes)[k]) if n == 1 else total.stride_of(f"v{k}")  # operators look at those of one element, too
            if found is None or not self.fixed_in_call(found):
                return None
            strides.append(found)
        offset = total.substitute({f"v{k}": 0 for k in range(len(view.sizes))})
        return (tuple(strides), offset) if self.fixed_in_call(offset) else None

    def fixed_in_call(self, value: Index) -> bool:
        """Whether it is made of sizes alone."""
        return value.symbols <= self.symbols.keys()

    def at_least(self, value: Size, low: Size) -> bool:
        """``value >= low`` in this call; where that depends on sizes, it is from now on assumed to be as it is."""
        difference = index(value) - low
        if (known := difference.constant) is not None:
            return known >= 0
        assert self.sizes is not None
        return self.sizes.decide(Relation(difference, ">="))


def _nothing(name: str, meta: Meta, origin: str) -> Extern:
    sizes, strides = (tuple(n if isinstance(n, Index) else Literal(n) for n in x) for x in (meta.sizes, meta.strides))
    how: dict[str, object] = {"dtype": Named("dtype", meta.dtype), "device": Named("device", meta.device)}
    return Extern("aten::empty_strided", (sizes, strides), how, (name,), origin=origin)


def extents_of(axes: Sequence[Axis]) -> Extents:
    """Extents by axis."""
    return {a.name: a.extent if (n := a.extent.constant) is None else n for a in axes}


__all__ = ["Context", "Extents", "Indices", "Node", "View", "extents_of", "named_axes", "positions", "view_axes"]
