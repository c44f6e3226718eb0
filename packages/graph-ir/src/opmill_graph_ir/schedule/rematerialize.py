"""Keeps dear values between the phases of a nest instead of computing them again.

A softmax needs exp(x - max) twice: once for the sum, once for the result. The first phase stores it where the result will be, the later one
reads it from there, out of the cache, and overwrites it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..loops.index import Index, index
from ..loops.ir import Axis, Expr, Let, Load, Nest, Op, Phase, Ref, Store
from ..loops.primitives import PRIMITIVES
from ..loops.walk import roots
from .coalesce import map_phase
from .cost import EXPENSIVE
from .rewrite import Rewriter, walk


def reuse_between_phases(nest: Nest, fresh_name: Callable[[str], str]) -> Nest:
    """The nest with one dear value a pair of phases kept in the later phase's result, where that is safe."""
    phases = list(nest.phases)
    for later in range(1, len(phases)):
        for earlier in range(later):
            found = _shared(phases[earlier], phases[later])
            home = found and _home(found, later, phases, nest.axes)
            if found and home:
                phases[earlier], phases[later] = _kept(phases[earlier], phases[later], found, home, fresh_name("v"))
                break
    return replace(nest, phases=tuple(phases))


def _shared(first: Phase, second: Phase) -> Expr | None:
    """The dearest value of ``second``, in its names, that ``first`` computes at the same inner point."""
    if not first.axes or first.checks or [a.extent for a in first.axes] != [a.extent for a in second.axes]:
        return None
    own = {let.name for p in (first, second) for let in p.lets} | {n for p in (first, second) for s in p.scans for n in s.names}
    rename = Rewriter(_renamed(first.axes, second.axes))
    ours = {rename(e) for e in walk(*roots(first)) if _is_dear(e)}
    common = [e for e in walk(*roots(second)) if _is_dear(e) and e in ours and not _refs(e) & own]
    return max(common, key=lambda e: sum(1 for _ in walk(e)), default=None)


def _is_dear(e: Expr) -> bool:
    return type(e) is Op and PRIMITIVES[e.name].cost >= EXPENSIVE


def _refs(root: Expr) -> set[str]:
    found = {e.name for e in walk(root) if type(e) is Ref}
    return found.union(*(e.index.symbols for e in walk(root) if type(e) is Load))


def _renamed(old: tuple[Axis, ...], new: tuple[Axis, ...]) -> Mapping[str, Index]:
    return {a.name: index(b.name) for a, b in zip(old, new, strict=True) if a.name != b.name}


def _home(value: Expr, later: int, phases: list[Phase], outer: tuple[Axis, ...]) -> Store | None:
    """A store of the later phase whose memory nothing else in the nest touches, of one element a point. It lies as what the value is made
    of: what is kept would be written and read across lines of a cache otherwise."""
    axes = {a.name for a in (*outer, *phases[later].axes)}
    lying = {a for e in walk(value) if type(e) is Load for a in _along(e.index, axes)}
    touched = [s.buffer for p in phases for s in p.stores]
    loaded = {e.buffer for p in phases for e in walk(*roots(p)) if type(e) is Load}
    for s in phases[later].stores:
        if (
            s.mode == "set"
            and s.first is None
            and s.value.dtype == value.dtype
            and axes <= s.index.symbols
            and touched.count(s.buffer) == 1
            and s.buffer not in loaded
            and (not lying or lying & _along(s.index, axes))
        ):
            return s
    return None


def _along(place: Index, axes: set[str]) -> set[str]:
    """The axes whose next point is the next element."""
    return {a for a in axes if (step := place.stride_of(a)) is not None and step.constant == 1}


def _kept(first: Phase, second: Phase, value: Expr, home: Store, name: str) -> tuple[Phase, Phase]:
    back = Rewriter(_renamed(second.axes, first.axes))
    here, at = back(value), back.index(home.index)
    named = map_phase(first, Rewriter.replacing({here: Ref(name, value.dtype)}), first.axes)
    named = replace(named, lets=(Let(name, here), *named.lets), stores=(*named.stores, Store(home.buffer, at, Ref(name, value.dtype))))
    return named, map_phase(second, Rewriter.replacing({value: Load(home.buffer, home.index, value.dtype)}), second.axes)
