"""Simplifies the axes of a nest: order by strides, neighbours merged where memory allows, so that contiguous work is one loop."""

from __future__ import annotations

from dataclasses import replace

from ..loops.index import Index, index
from ..loops.ir import Axis, Check, IndexValue, Let, Load, Nest, Phase, Reduction, Store
from ..loops.walk import roots
from .rewrite import Rewriter, walk


def shape_nest(nest: Nest, extents: dict[str, int | Index]) -> Nest:
    """The same computation over as few axes as possible."""
    nest = replace(nest, axes=_by_stride(nest.axes, nest.phases))
    nest = _merge_outer(nest, extents)
    return replace(nest, phases=tuple(_shape_phase(p, extents) for p in nest.phases))


def indices(phases: tuple[Phase, ...]) -> list[Index]:
    """Every index expression that occurs, in loads, stores and values."""
    found: dict[Index, None] = {}
    for phase in phases:
        for store in phase.stores:
            found[store.index] = None
        for e in walk(*roots(phase)):
            if isinstance(e, (Load, IndexValue)):
                found[e.index] = None
    return list(found)


def map_phase(phase: Phase, rewriter: Rewriter, axes: tuple[Axis, ...]) -> Phase:
    """The phase over other ``axes``, with all of its expressions and indices rewritten."""
    return Phase(
        axes,
        tuple(Let(let.name, rewriter(let.value)) for let in phase.lets),
        tuple(Check(rewriter(c.condition), c.error, c.message) for c in phase.checks),
        tuple(Reduction(r.names, r.op, rewriter(r.value), r.dtype) for r in phase.reductions),
        tuple(Store(s.buffer, rewriter.index(s.index), rewriter(s.value), s.mode, s.first) for s in phase.stores),
        tuple(replace(s, values=tuple(map(rewriter, s.values))) for s in phase.scans),
    )


def _by_stride(axes: tuple[Axis, ...], phases: tuple[Phase, ...]) -> tuple[Axis, ...]:
    """Axes with larger strides of the first store (of loads, where there is none) further out; the order stays where unknown. Axes that
    decide only by data where is written stay in order: the last that comes to a place counts. They are as far out as loads want the first
    of them."""
    stores = [s.index for p in phases for s in p.stores if any(a.name in s.index.symbols for a in axes)]
    found = stores or indices(phases)
    if not found:
        return axes

    def stride(axis: Axis, along: list[Index]) -> int:
        constants = [s.constant for i in along if (s := i.stride_of(axis.name)) is not None and s.constant is not None]
        return -max(constants, default=0) if len(constants) == len(along) else -(1 << 62)

    strides = [stride(a, found[:1] if stores else found) for a in axes]
    computed = {let.name for p in phases for let in p.lets}
    if stores and not computed.isdisjoint(stores[0].symbols):
        by_data = [k for k, a in enumerate(axes) if a.name not in stores[0].symbols]
        furthest = min((stride(axes[k], indices(phases)) for k in by_data), default=0)
        strides = [furthest if k in by_data else s for k, s in enumerate(strides)]
    if any(s == -(1 << 62) for s in strides):
        return axes
    return tuple(a for _, _, a in sorted(zip(strides, range(len(axes)), axes, strict=True), key=lambda t: t[:2]))


def _mergeable(first: Axis, second: Axis, found: list[Index]) -> bool:
    """Whether ``first`` steps exactly as a whole turn of ``second``, everywhere."""
    for i in found:
        if first.name not in i.symbols and second.name not in i.symbols:
            continue
        a, b = i.stride_of(first.name), i.stride_of(second.name)
        if a is None or b is None or a != b * second.extent:
            return False
    return True


def _merged(
    axes: tuple[Axis, ...], phases: tuple[Phase, ...], extents: dict[str, int | Index]
) -> tuple[tuple[Axis, ...], tuple[Phase, ...]]:
    found = indices(phases)
    k = 0
    while k + 1 < len(axes):
        first, second = axes[k], axes[k + 1]
        if not _mergeable(first, second, found):
            k += 1
            continue
        whole = Axis(second.name, first.extent * second.extent)
        extents[whole.name] = whole.extent if (n := whole.extent.constant) is None else n
        rewriter = Rewriter({first.name: index(0)}, extents=extents)
        phases = tuple(map_phase(p, rewriter, p.axes) for p in phases)
        found = indices(phases)
        axes = (*axes[:k], whole, *axes[k + 2 :])
        k = max(k - 1, 0)
    return axes, phases


def _merge_outer(nest: Nest, extents: dict[str, int | Index]) -> Nest:
    axes, phases = _merged(nest.axes, nest.phases, dict(extents))
    return replace(nest, axes=axes, phases=phases)


def _shape_phase(phase: Phase, extents: dict[str, int | Index]) -> Phase:
    if not phase.axes:
        return phase
    ordered = any(r.op.startswith("arg") for r in phase.reductions)  # positions count in the order of the axes
    axes = phase.axes if ordered else _by_stride(phase.axes, (phase,))
    axes, (phase,) = _merged(axes, (phase,), dict(extents))
    return replace(phase, axes=axes)
