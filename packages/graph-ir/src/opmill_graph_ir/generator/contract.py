"""What a loop kernel touches, as its contract with the plans that launch it (``opmill_runtime_cache.plan.contract``).

Where sizes are constants, a buffer's ``numel`` says it. Where they move, they are numbers that a plan gives, and the bounds of each access
are said, as far as its index follows from axes and sizes: no size that a launch gives leads outside. What is read from memory lies where
the kernel's own checks let it (``ranges.py``), and what is masked where the mask does (``masks.py``); where neither tells, an access is
held to the buffer's ``numel``. What indices are read from must not change between the check and the access: ``apart`` says so.

A load counts wherever the axes that its place depends on have points: generators compute it outside of the other axes' loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from opmill_runtime_cache.plan.contract import Contract, Touched
from opmill_runtime_cache.plan.extent import itemsize
from opmill_runtime_cache.plan.model import Size

from ..loops.index import Atom, FloorDiv, Index, index
from ..loops.ir import Check, Expr, IndexValue, Load, LoopKernel, Nest, Phase, Ref
from ..loops.masks import Bounds, bounds_of
from ..loops.places import same_points
from ..loops.walk import expressions, inside
from .ranges import Range, range_of

_Ends = tuple[str, str]
"""The smallest and the largest value, as expressions over size symbols."""
_Axes = Mapping[str, Index]
"""Extents by name."""
_Moving = Mapping[Atom, _Ends]
"""Between what that lies which moves while a kernel runs: axes, what is computed from data, and quotients that masks hold."""


def contract_of(kernel: LoopKernel) -> Contract:
    """The contract of a kernel."""
    checks = sum(len(phase.checks) for nest in kernel.nests for phase in nest.phases)
    apart = tuple(_apart(kernel))
    if not kernel.symbols:
        return Contract((), tuple(Touched(b.dtype, b.role != "in", _size(b.numel)) for b in kernel.buffers), checks, 0, apart)
    highest: dict[str, dict[Size, None]] = {b.name: {} for b in kernel.buffers}
    floor: dict[str, None] = {}  # what must not be negative
    numel = {b.name: b.numel for b in kernel.buffers}
    for each in _accesses(kernel):
        floor.update(dict.fromkeys(_moving(each.axes)))
        names = _names_of(each, kernel.symbols)
        ends = None if names is None else _ends(each.at, names, kernel.symbols)
        masked = [names[atom] for atom in each.masks] if names and ends and each.masks else []
        runs = _runs({name: each.axes[name] for name in each.around}, masked)
        if names is None or ends is None:
            highest[each.buffer][f"({numel[each.buffer]}){runs}"] = None
            continue
        floor.update(dict.fromkeys(_signs(each.at, names, kernel.symbols)))
        highest[each.buffer][f"({ends[1]} + 1){runs}"] = None
        if ends[0] != "0":
            floor[f"({ends[0]}){runs}"] = None
    for value, axes in _indices(kernel):
        floor.update(dict.fromkeys(_divided(value, axes, kernel.symbols)))
    buffers = tuple(Touched(b.dtype, b.role != "in", _most(list(highest[b.name]))) for b in kernel.buffers)
    return Contract(kernel.symbols, buffers, checks, f"min({', '.join([*floor, '0'])})" if floor else 0, apart)


def _moving(axes: _Axes) -> list[str]:
    return [str(extent) for extent in axes.values() if extent.constant is None]


def _runs(axes: _Axes, masked: Iterable[_Ends] = ()) -> str:
    """A factor: 1 where all axes have points, and a mask lets some of them in; 0 elsewhere."""
    moving = [*(f"({extent})" for extent in _moving(axes)), *(f"({high} + 1 - ({low}))" for low, high in masked)]
    return f"*min(1, {', '.join(f'{extent} > 0' for extent in moving)})" if moving else ""


def _size(value: Index) -> Size:
    constant = value.constant
    return str(value) if constant is None else constant


def _most(sizes: Sequence[Size], how: str = "max") -> Size:
    if not sizes:
        return 0
    return sizes[0] if len(sizes) == 1 else f"{how}({', '.join(map(str, sizes))})"


class _Access(NamedTuple):
    """``axes``: extents of those of its phase; ``around``: which of them it is inside of. ``read``: between what that in its index lies
    which is computed from data. ``masks``: what a mask holds of axes, None where it says something else."""

    buffer: str
    at: Index
    axes: _Axes
    around: Iterable[str]
    read: Mapping[str, _Ends]
    masks: Bounds | None


def _accesses(kernel: LoopKernel) -> Iterator[_Access]:
    for nest in kernel.nests:
        behind = _behind(nest)
        lets = {let.name: let.value for phase in nest.phases for let in phase.lets}
        before: list[Check] = []
        for phase in nest.phases:
            axes = {axis.name: axis.extent for axis in (*nest.axes, *phase.axes)}
            read = _Read(lets, axes, [*before, *phase.checks])
            before += [] if phase.axes else phase.checks
            for store in phase.stores:
                short = {} if store.first is None else {axis.name: index(store.first) for axis in phase.axes}
                yield _Access(store.buffer, store.index, {**axes, **short}, axes, read.of(store.index), {})
            for value in expressions(phase):
                if type(value) is Load:
                    around = [name for name in axes if name in behind(value)]
                    masks = bounds_of(value, axes, kernel.symbols)
                    yield _Access(value.buffer, value.index, axes, around, read.of(value.index), masks)


def _names_of(access: _Access, symbols: tuple[str, ...]) -> _Moving | None:
    """Between what all that moves in an access lies; None where a mask leaves that open."""
    if access.masks is None:
        return None
    names: dict[Atom, _Ends] = {name: ("0", f"{extent} - 1") for name, extent in access.axes.items()}
    names.update(access.read.items())
    for atom, (lows, highs) in sorted(access.masks.items(), key=lambda item: not isinstance(item[0], str)):
        own = _atom(atom, names, symbols)
        if own is None and not (lows and highs):
            return None
        low, high = own or (None, None)
        names[atom] = (_chosen("max", low, lows), _chosen("min", high, highs))
    return names


def _chosen(how: str, own: str | None, others: list[Index]) -> str:
    ends = list(dict.fromkeys([*([] if own is None else [own]), *map(str, others)]))
    numbers = [int(end) for end in ends if end.removeprefix("-").isdecimal()]
    ends = [end for end in ends if not end.removeprefix("-").isdecimal()] + (
        [str((max if how == "max" else min)(numbers))] if numbers else []
    )
    return ends[0] if len(ends) == 1 else f"{how}({', '.join(ends)})"


class _Read:
    """Between what that lies in a phase which is computed from data."""

    def __init__(self, lets: Mapping[str, Expr], axes: _Axes, checks: Sequence[Check]) -> None:
        self.lets, self.axes, self.checks = lets, axes, checks
        self.known: dict[str, _Ends | None] = {}

    def of(self, at: Index) -> dict[str, _Ends]:
        """Of what is in an index, as far as checks tell."""
        for name in at.symbols & self.lets.keys() - self.known.keys():
            self.known[name] = _texts(range_of(name, self.lets, self.axes, self.checks))
        return {name: ends for name in at.symbols if (ends := self.known.get(name)) is not None}


def _texts(found: Range) -> _Ends | None:
    """The ends of a range as expressions; None where one is open."""
    if not found.low or not found.high:
        return None
    low, high = ([_most(list(map(str, each)), how) for each in ends] for ends, how in zip(found, ("min", "max"), strict=True))
    return str(_most(low, "max")), str(_most(high, "min"))


def _behind(nest: Nest) -> Callable[[Expr], set[str]]:
    """What the place of a load depends on: axes, and what its indices and masks are computed from. Of the results of reductions and scans,
    all axes of the nest."""
    lets = {let.name: let.value for phase in nest.phases for let in phase.lets}
    outer = {axis.name for axis in nest.axes}
    own = {axis.name for phase in nest.phases for axis in phase.axes}

    def names(value: Expr) -> set[str]:
        seen: set[str] = set()
        todo = list(_named(value))
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in lets:
                todo += _named(lets[name])
            elif name not in outer and name not in own:
                todo += outer
        return seen

    return names


def _named(value: Expr) -> set[str]:
    """The names that an expression itself refers to."""
    found: set[str] = set()
    for each in inside(value):
        if type(each) is Load or type(each) is IndexValue:
            found |= each.index.symbols
        elif type(each) is Ref:
            found.add(each.name)
    return found


def _indices(kernel: LoopKernel) -> Iterator[tuple[Index, _Axes]]:
    """Every index expression, with the axes around it."""
    for nest in kernel.nests:
        for phase in nest.phases:
            axes = {axis.name: axis.extent for axis in (*nest.axes, *phase.axes)}
            yield from ((store.index, axes) for store in phase.stores)
            for value in expressions(phase):
                if type(value) is Load or type(value) is IndexValue:
                    yield value.index, axes


def _signs(value: Index, moving: _Moving, symbols: tuple[str, ...]) -> Iterator[str]:
    """The symbols in quotients and remainders of what moves: which end is the far one depends on their signs."""
    for atom in value.atoms():
        if not isinstance(atom, str) and _names(atom) & moving.keys():
            yield from (symbol for symbol in symbols if symbol in _names(atom))


def _divided(value: Index, axes: _Axes, symbols: tuple[str, ...]) -> Iterator[str]:
    """What must not be negative so that nothing is divided by zero: divisors less one, where the axes of the index have points."""
    runs = _runs({name: axes[name] for name in axes if name in value.symbols})
    todo = [value]
    while todo:
        for atom in todo.pop().atoms():
            if not isinstance(atom, str):
                todo += [atom.numerator, atom.denominator]
                if atom.denominator.constant is None and atom.denominator.symbols <= set(symbols):
                    yield f"({atom.denominator} - 1){runs}"


def _apart(kernel: LoopKernel) -> Iterator[tuple[int, int, bool]]:
    """Buffers that are written, and others that indices or masks are read from; and whether the two may be one piece of memory."""
    places = {b.name: k for k, b in enumerate(kernel.buffers)}
    width = {b.name: itemsize(b.dtype) for b in kernel.buffers}
    sources = {name for nest in kernel.nests for name in _sources(nest)}
    for written in (b.name for b in kernel.buffers if b.role != "in"):
        for read in sorted(sources - {written}, key=places.__getitem__):
            yield places[written], places[read], width[written] == width[read] and same_points(kernel, written, read)


def _sources(nest: Nest) -> set[str]:
    """The buffers that indices and masks of a nest are computed from."""
    lets = {let.name: let.value for phase in nest.phases for let in phase.lets}
    results: dict[str, tuple[Expr, ...]] = {}
    todo: list[Expr] = []
    for phase in nest.phases:
        results |= {name: (r.value,) for r in phase.reductions for name in r.names}
        results |= {name: s.values for s in phase.scans for name in s.names}
        todo += _deciding(phase, lets)
    found: set[str] = set()
    seen: set[str] = set()
    while todo:
        for each in inside(todo.pop()):
            if type(each) is Load:
                found.add(each.buffer)
            names = {each.name} if type(each) is Ref else each.index.symbols if type(each) is Load or type(each) is IndexValue else ()
            for name in set(names) - seen:
                seen.add(name)
                todo += [lets[name]] if name in lets else results.get(name, ())
    return found


def _deciding(phase: Phase, lets: Mapping[str, Expr]) -> Iterator[Expr]:
    """Masks of loads, and lets that are symbols of indices."""
    for value in expressions(phase):
        if type(value) is Load:
            yield from () if value.mask is None else (value.mask,)
            yield from (lets[name] for name in value.index.symbols if name in lets)
    yield from (lets[name] for store in phase.stores for name in store.index.symbols if name in lets)


def _names(atom: Atom) -> frozenset[str]:
    return frozenset([atom]) if isinstance(atom, str) else atom.numerator.symbols | atom.denominator.symbols


def _ends(value: Index, names: _Moving, symbols: tuple[str, ...]) -> _Ends | None:
    """Between what an index lies; None where it depends on data of which no check tells. Exactly, unless axes meet in it: then each
    quotient and remainder is taken by itself, as the position along a dimension that it is, and what lies in the box of all of them lies in
    the tensor."""
    fixed: list[str] = []
    factors: dict[tuple[Atom, ...], list[str]] = {}  # of what moves
    for monomial, coefficient in value.terms:
        moving = tuple(atom for atom in monomial if _names(atom) & names.keys())
        rest = [atom for atom in monomial if atom not in moving]
        if not all(_names(atom) <= set(symbols) for atom in rest):
            return None
        text = "*".join([str(coefficient), *(f"({atom})" for atom in rest)])
        (factors.setdefault(moving, []) if moving else fixed).append(text)
    if _differences(value, names):
        return None
    low, high = list(fixed), list(fixed)
    for atoms, parts in factors.items():
        ends = _product([_atom(atom, names, symbols) for atom in atoms])
        if ends is None:
            return None
        smallest, largest = _times(" + ".join(parts), ends)
        low += smallest
        high += largest
    return " + ".join(low) or "0", " + ".join(high) or "0"


def _differences(value: Index, names: _Moving) -> bool:
    """Whether two things are subtracted from each other that grow with one name, so that their ends say little: ``i - 4*(i//4)``."""
    signs: dict[str, set[bool]] = {}
    for monomial, coefficient in value.terms:
        for atom in monomial:
            if isinstance(atom, (str, FloorDiv)):
                for name in _names(atom) & names.keys():
                    signs.setdefault(name, set()).add(coefficient > 0)
    return any(len(found) > 1 for found in signs.values())


def _product(ends: list[_Ends | None]) -> _Ends | None:
    """Between what a product lies of factors that are not negative."""
    known = [each for each in ends if each is not None]
    if len(known) < len(ends) or (len(known) > 1 and any(low != "0" for low, _ in known)):
        return None
    return known[0] if len(known) == 1 else ("0", "*".join(f"({high})" for _, high in known))


def _times(factor: str, ends: _Ends) -> tuple[list[str], list[str]]:
    """Both ends of what lies between ``ends``, times a factor of any sign: as summands."""
    first, last = ([] if end == "0" else [f"({factor})*({end})"] for end in ends)
    if factor.isdecimal():
        return first, last
    if factor.removeprefix("-").isdecimal():
        return last, first
    either = ", ".join([*(first or ["0"]), *(last or ["0"])])
    return [f"min({either})"], [f"max({either})"]


def _atom(atom: Atom, names: _Moving, symbols: tuple[str, ...]) -> _Ends | None:
    """Between what a factor lies that moves, where nothing that `_signs` says is negative."""
    if isinstance(atom, str) or atom in names:
        return names[atom]
    if not atom.denominator.symbols <= set(symbols):
        return None
    inner = _ends(atom.numerator, names, symbols)
    divisor = str(atom.denominator) if atom.denominator.constant is not None else f"max(1, {atom.denominator})"
    if isinstance(atom, FloorDiv) and inner is not None:
        low, high = ("0" if end == "0" else f"({end})//({divisor})" for end in inner)
        return low, high
    if isinstance(atom, FloorDiv):
        return None
    if inner is not None and inner[0] == "0":
        return "0", f"min({divisor} - 1, {inner[1]})"
    return "0", f"{divisor} - 1"


__all__ = ["contract_of"]
