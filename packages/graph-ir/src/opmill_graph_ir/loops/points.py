"""What the outer points of a nest may read of each other: nothing. They run in any order, and at once.

Indices that are no sums of axes times numbers (``i//4``, what values tell) are not judged."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from . import walk
from .index import Index, index
from .ir import Load, Nest, Op
from .masks import bounds_of, conjuncts, index_of


def crossings(nest: Nest) -> Iterator[str]:
    """Reads of what the nest writes at another outer point than the one that runs: one line each."""
    phases = [(phase, {a.name: a.extent.constant for a in (*nest.axes, *phase.axes)}) for phase in nest.phases]
    stores: dict[str, list[_Place]] = {}
    for phase, extents in phases:
        for store in phase.stores:
            stores.setdefault(store.buffer, []).append(_Place(store.index, extents))
    if not stores:
        return
    outer = sorted(a.name for a in nest.axes if a.extent.constant != 1)
    for phase, extents in phases:
        for load in (e for root in walk.roots(phase) for e in walk.inside(root) if isinstance(e, Load)):
            written, place = stores.get(load.buffer), _read(load, extents, outer)
            if not written or place is None:
                continue
            place, *written = _in_one_period([_moved(load, place, written, outer), *written], outer)
            if _apart(load, place, written, outer) and any(_may_meet(place, w, outer) for w in written):
                where = f"{load.buffer}[{load.index}] is read where {load.buffer}[{written[0].index}] is written"
                yield f"{where}: other outer points write that"


@dataclass(frozen=True)
class _Place:
    """Where a phase reads or writes. ``extents``: of its axes, which another phase may have under the same names."""

    index: Index
    extents: Mapping[str, int | None]


def _read(load: Load, extents: Mapping[str, int | None], outer: Sequence[str]) -> _Place | None:
    """Where a load reads: its mask may leave out some at both ends of an axis, which begins with 0 where the first is read. None where
    the mask never holds."""
    inner = {name: extent for name, extent in extents.items() if name not in outer and extent is not None}
    begin, narrowed = dict[str, Index](), dict(extents)
    for atom, ends in (bounds_of(load, inner, ()) or {}).items():
        if isinstance(atom, str):
            lows, highs = ([end.constant for end in side if end.constant is not None] for side in ends)
            low, high = max([0, *lows]), min([inner[atom] - 1, *highs])
            if high < low:
                return None
            begin[atom], narrowed[atom] = index(atom) + low, high - low + 1
    return _Place(load.index.substitute(begin), narrowed)


def _moved(load: Load, read: _Place, written: list[_Place], outer: Sequence[str]) -> _Place:
    """The place by other axes where the mask says that they are equal: an outer axis moves it as it moves what is written, where it can."""
    ours, theirs = _coefficients(read.index), _coefficients(written[0].index)
    if load.mask is None or ours is None or theirs is None:
        return read
    moved = read.index
    for part in conjuncts(load.mask):
        sides = [index_of(each) for each in part.args] if type(part) is Op and part.name == "eq" else []
        pair = [str(side) for side in sides if side is not None and side in map(index, read.extents)]
        axis, other = (
            next(((a, b) for a, b in (pair, pair[::-1]) if a in outer and b not in outer), (None, "")) if len(pair) == 2 else (None, "")
        )
        if axis is not None:
            moved += (index(other) - axis) * (ours.get(axis, 0) - theirs.get(axis, 0))
            ours = {**ours, axis: theirs.get(axis, 0)}
    here, *there = [
        _range({n: k for n, k in (_coefficients(at.index) or {}).items() if n not in outer}, at.extents)
        for at in (_Place(moved, read.extents), *written)
    ]
    ends = [end for end in there if end is not None]
    inside = here is not None and bool(ends) and min(low for low, _ in ends) <= here[0] and here[1] <= max(high for _, high in ends)
    return _Place(moved, read.extents) if inside else read


def _in_one_period(places: list[_Place], outer: Sequence[str]) -> list[_Place]:
    """The places within a row, where what picks the row is not known (an index tensor does): where all places lie in rows of the same
    length, two of them are the same only if they are so within their rows."""
    sums = [_coefficients(place.index) for place in places]
    known = [found for found in sums if found is not None]
    if len(known) < len(sums) or all(_range(found, place.extents) is not None for found, place in zip(known, places, strict=True)):
        return places
    for row in sorted({abs(k) for found in known for name, k in found.items() if name and name not in outer}, reverse=True):
        within = [{name: k for name, k in found.items() if not name or name in outer or k % row} for found in known]
        spans = [_range(found, place.extents) for found, place in zip(within, places, strict=True)]
        ends = [span for span in spans if span is not None]
        if len(ends) == len(spans) and max(high for _, high in ends) - min(low for low, _ in ends) < row:
            return [
                _Place(sum((index(n) * k if n else index(k) for n, k in each.items()), index(0)), at.extents)
                for each, at in zip(within, places, strict=True)
            ]
    return places


def _apart(load: Load, read: _Place, written: list[_Place], outer: Sequence[str]) -> bool:
    """Whether a load reads what no store of this point writes there. Several stores may write what is read piece by piece: what lies
    between the first and the last place of all of them counts as written."""
    ours, alike = _coefficients(read.index), defaultdict(list)
    if ours is None:
        return False
    for place in written:
        if (theirs := _coefficients(place.index)) is None:
            return False
        alike[tuple(ours.get(axis, 0) - theirs.get(axis, 0) for axis in outer)].append(
            _range({name: k for name, k in theirs.items() if name not in outer}, place.extents)
        )
    inner = {name: k for name, k in ours.items() if name not in outer}
    return all(
        _leaves(load, _range({**inner, **dict(zip(outer, steps, strict=True))}, read.extents), ends, any(steps))
        for steps, ends in alike.items()
    )


def _leaves(load: Load, read: tuple[int, int] | None, written: Sequence[tuple[int, int] | None], moves: bool) -> bool:
    """Whether a load reads anything but what is written at the same point. ``moves``: from point to point it moves otherwise than what is
    written; then it is so unless it surely is not, else it must surely be so."""
    ends = [end for end in written if end is not None]
    if read is None or len(ends) < len(written) or (load.mask is not None and not moves):
        return moves
    return read[0] < min(low for low, _ in ends) or read[1] > max(high for _, high in ends)


_MANY = 64
"""Values of one number that are tried."""


def _may_meet(read: _Place, written: _Place, outer: Sequence[str]) -> bool:
    """Whether some outer point may write what another one reads."""
    ours, theirs = _coefficients(read.index), _coefficients(written.index)
    if ours is None or theirs is None:
        return True
    rest, spans = theirs.get("", 0) - ours.get("", 0), dict[int, tuple[int, int]]()
    if (step := _common_step(ours, theirs, outer)) > 1:
        # By the rests of dividing by that, both move alike from point to point, and all else does not move: inside of a column a diagonal
        # is where the column is, whatever the rows are.
        ours, theirs = ({n: k % step for n, k in each.items() if n in outer and k % step} for each in (ours, theirs))
        reach = abs(rest) + sum(k * (at.extents.get(n) or _MANY) for c, at in ((ours, read), (theirs, written)) for n, k in c.items())
        spans[step] = (-reach // step - 1, reach // step + 1)
    steps: list[tuple[int, int]] = []
    """Axes on which both go alike: by how much they move, and how far two points are apart at most."""
    for name in {*ours, *theirs} - {""}:
        pairs = [(theirs.get(name, 0), written.extents.get(name)), (-ours.get(name, 0), read.extents.get(name))]
        if any(factor and extent is None for factor, extent in pairs):
            return True
        if name in outer and ours.get(name) == theirs.get(name):
            steps.append((abs(ours[name]), (pairs[0][1] or 1) - 1))
            continue
        for factor, extent in pairs:  # what is multiplied by the same is one number
            low, high = spans.get(abs(factor), (0, 0))
            last = (extent or 1) - 1
            spans[abs(factor)] = (low, high + last) if factor > 0 else (low - last, high)
    spans.pop(0, None)
    fixed = [(f, (-n, n)) for f, n in steps]
    if len(steps) < len(outer):  # points that differ on another axis alone
        return _is_zero(sorted([*spans.items(), *fixed], reverse=True), rest)
    return any(
        _is_zero(sorted([*spans.items(), *fixed[:k], (f, span), *fixed[k + 1 :]], reverse=True), rest)
        for k, (f, n) in enumerate(steps)
        for span in ((1, n), (-n, -1))
        if n
    )


def _common_step(ours: Mapping[str, int], theirs: Mapping[str, int], outer: Sequence[str]) -> int:
    """What all other axes move by multiples of, where the outer axes move both sides otherwise, but by multiples of it apart; else 0."""
    differ = [ours.get(name, 0) - theirs.get(name, 0) for name in outer]
    step = math.gcd(*(k for each in (ours, theirs) for name, k in each.items() if name and name not in outer))
    return step if any(differ) and step and not any(d % step for d in differ) else 0


def _is_zero(terms: Sequence[tuple[int, tuple[int, int]]], rest: int) -> bool:
    """Whether ``rest`` and multiples of each factor, within its span, may add up to zero; the largest factor comes first."""
    if not terms:
        return rest == 0
    (factor, (low, high)), *others = terms
    least, most = sum(f * a for f, (a, _) in others), sum(f * b for f, (_, b) in others)
    first, last = max(low, -((most + rest) // factor)), min(high, (-least - rest) // factor)
    return last - first >= _MANY or any(_is_zero(others, rest + factor * k) for k in range(first, last + 1))


def _coefficients(index: Index) -> dict[str, int] | None:
    """The number that each symbol is multiplied by, and the constant under the empty name; None for anything but a sum of these."""
    found: dict[str, int] = {}
    for symbols, factor in index.terms:
        names = [s for s in symbols if isinstance(s, str)]
        if len(symbols) > 1 or len(names) < len(symbols):
            return None
        found["".join(names)] = factor
    return found


def _range(coefficients: Mapping[str, int], extents: Mapping[str, int | None]) -> tuple[int, int] | None:
    """The least and the greatest value; None where an extent is not known."""
    low = high = 0
    for name, factor in coefficients.items():
        last = 1 if not name else extents.get(name)
        if last is None:
            return None
        span = factor if not name else factor * (last - 1)
        low, high = (low + span, high + span) if not name else (low + min(span, 0), high + max(span, 0))
    return low, high


__all__ = ["crossings"]
