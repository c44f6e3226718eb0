"""What a loop kernel touches, as its contract with the plans that launch it (``opmill_runtime_cache.plan.contract``).

Where sizes are constants, a buffer's ``numel`` says it. Where they move, they are numbers that a plan gives, and the bounds of each access are
said, as far as its index follows from axes and sizes: no size that a launch gives leads outside. Indices that are read from memory are the
affair of the kernel's own checks, masked ones of its masks; the buffer has ``numel`` elements for these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opmill_runtime_cache.plan.contract import Contract, Touched
from opmill_runtime_cache.plan.model import Size

from ..loops.index import Atom, FloorDiv, Index, index
from ..loops.ir import Load, LoopKernel
from ..loops.walk import expressions

_Ends = tuple[str, str]
"""The smallest and the largest value, as expressions over size symbols."""


def contract_of(kernel: LoopKernel) -> Contract:
    """The contract of a kernel."""
    checks = sum(len(phase.checks) for nest in kernel.nests for phase in nest.phases)
    if not kernel.symbols:
        return Contract((), tuple(Touched(b.dtype, b.role != "in", _size(b.numel)) for b in kernel.buffers), checks)
    highest: dict[str, dict[Size, None]] = {b.name: {} for b in kernel.buffers}
    floor: dict[str, None] = {}  # what must not be negative
    numel = {b.name: b.numel for b in kernel.buffers}
    for buffer, at, axes in _accesses(kernel):
        moving = [str(extent) for extent in axes.values() if extent.constant is None]
        floor.update(dict.fromkeys(moving))
        runs = f"*min(1, {', '.join(f'({extent}) > 0' for extent in moving)})" if moving else ""
        ends = None if at is None else _ends(at, axes, kernel.symbols)
        if at is None or ends is None:
            highest[buffer][f"({numel[buffer]}){runs}"] = None
            continue
        floor.update(dict.fromkeys(_divided(at, axes, kernel.symbols)))
        highest[buffer][f"({ends[1]} + 1){runs}"] = None
        if ends[0] != "0":
            floor[f"({ends[0]}){runs}"] = None
    buffers = tuple(Touched(b.dtype, b.role != "in", _most(list(highest[b.name]))) for b in kernel.buffers)
    return Contract(kernel.symbols, buffers, checks, f"min({', '.join([*floor, '0'])})" if floor else 0)


def _size(value: Index) -> Size:
    constant = value.constant
    return str(value) if constant is None else constant


def _most(sizes: list[Size]) -> Size:
    if not sizes:
        return 0
    return sizes[0] if len(sizes) == 1 else f"max({', '.join(map(str, sizes))})"


def _accesses(kernel: LoopKernel) -> Iterator[tuple[str, Index | None, Mapping[str, Index]]]:
    """Every access: buffer, index (None where a mask decides), and the extents of the axes around it."""
    for nest in kernel.nests:
        for phase in nest.phases:
            axes = {axis.name: axis.extent for axis in (*nest.axes, *phase.axes)}
            for store in phase.stores:
                short = {} if store.first is None else {axis.name: index(store.first) for axis in phase.axes}
                yield store.buffer, store.index, {**axes, **short}
            for value in expressions(phase):
                if type(value) is Load:
                    yield value.buffer, None if value.mask is not None else value.index, axes


def _divided(value: Index, axes: Mapping[str, Index], symbols: tuple[str, ...]) -> Iterator[str]:
    """The symbols in quotients and remainders of axes: which end is the far one depends on their signs."""
    for monomial, _ in value.terms:
        for atom in monomial:
            if not isinstance(atom, str) and _names(atom) & axes.keys():
                yield from (symbol for symbol in symbols if symbol in _names(atom))


def _names(atom: Atom) -> frozenset[str]:
    return frozenset([atom]) if isinstance(atom, str) else atom.numerator.symbols | atom.denominator.symbols


def _ends(value: Index, axes: Mapping[str, Index], symbols: tuple[str, ...]) -> _Ends | None:
    """Between what an index lies, exactly; None where it depends on data, or where axes meet in it."""
    fixed: list[str] = []
    factors: dict[Atom, list[str]] = {}  # of what moves with axes
    for monomial, coefficient in value.terms:
        moving = [atom for atom in monomial if _names(atom) & axes.keys()]
        rest = [atom for atom in monomial if atom not in moving]
        if len(moving) > 1 or not all(_names(atom) <= set(symbols) for atom in rest):
            return None
        text = "*".join([str(coefficient), *(f"({atom})" for atom in rest)])
        (factors.setdefault(moving[0], []) if moving else fixed).append(text)
    met = [name for atom in factors for name in _names(atom) & axes.keys()]
    if len(met) != len(set(met)):
        return None
    low, high = list(fixed), list(fixed)
    for atom, parts in factors.items():
        ends = _atom(atom, axes, symbols)
        if ends is None:
            return None
        smallest, largest = _times(" + ".join(parts), ends)
        low += smallest
        high += largest
    return " + ".join(low) or "0", " + ".join(high) or "0"


def _times(factor: str, ends: _Ends) -> tuple[list[str], list[str]]:
    """Both ends of what lies between ``ends``, times a factor of any sign: as summands."""
    first, last = ([] if end == "0" else [f"({factor})*({end})"] for end in ends)
    if factor.isdecimal():
        return first, last
    if factor.removeprefix("-").isdecimal():
        return last, first
    either = ", ".join([*(first or ["0"]), *(last or ["0"])])
    return [f"min({either})"], [f"max({either})"]


def _atom(atom: Atom, axes: Mapping[str, Index], symbols: tuple[str, ...]) -> _Ends | None:
    """Between what a factor lies that moves with axes, where `_divided` is not negative."""
    if isinstance(atom, str):
        return "0", f"{axes[atom]} - 1"
    if not atom.denominator.symbols <= set(symbols):
        return None
    inner = _ends(atom.numerator, axes, symbols)
    if inner is None:
        return None
    if isinstance(atom, FloorDiv):
        return tuple("0" if end == "0" else f"({end})//({atom.denominator})" for end in inner)  # type: ignore[return-value]
    if atom.numerator not in map(index, axes):
        return None  # it need not begin at 0, or reach the divisor
    return "0", f"min({atom.denominator} - 1, {inner[1]})"


__all__ = ["contract_of"]
