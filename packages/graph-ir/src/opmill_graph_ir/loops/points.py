"""What the outer points of a nest may read of each other: nothing. They run in any order, and at once.

Indices that are no sums of axes times numbers (``i//4``, what values tell) are not judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from . import walk
from .index import Index
from .ir import Load, Nest


def crossings(nest: Nest) -> Iterator[str]:
    """Reads of what the nest writes at another outer point than the one that runs: one line each."""
    stores: dict[str, list[Index]] = {}
    for store in (s for phase in nest.phases for s in phase.stores):
        stores.setdefault(store.buffer, []).append(store.index)
    if not stores:
        return
    extents = {a.name: a.extent.constant for a in (*nest.axes, *(a for phase in nest.phases for a in phase.axes))}
    outer = {a.name for a in nest.axes if a.extent.constant != 1}
    for phase in nest.phases:
        for load in (e for root in walk.roots(phase) for e in walk.inside(root) if isinstance(e, Load)):
            written = stores.get(load.buffer)
            if written and _apart(load, written, outer, extents):
                yield f"{load.buffer}[{load.index}] is read where {load.buffer}[{written[0]}] is written: other outer points write that"


def _apart(load: Load, written: list[Index], outer: set[str], extents: Mapping[str, int | None]) -> bool:
    """Whether a load surely reads what no store of this point writes there. Several stores may write what is read piece by piece: what lies
    between the first and the last place of all of them counts as written."""
    read, made = _coefficients(load.index), [_coefficients(index) for index in written]
    if read is None or None in made:
        return False
    own = [each for each in made if each is not None and all(read.get(axis, 0) == each.get(axis, 0) for axis in outer)]
    if not own:
        return True
    if load.mask is not None or any((read.keys() | each.keys()) - outer - extents.keys() - {""} for each in own):
        return False
    theirs, *ours = (_range({name: k for name, k in each.items() if name not in outer}, extents) for each in (read, *own))
    ends = [end for end in ours if end is not None]
    if theirs is None or len(ends) < len(ours):
        return False
    return theirs[0] < min(low for low, _ in ends) or theirs[1] > max(high for _, high in ends)


def _coefficients(index: Index) -> dict[str, int] | None:
    """The number that each symbol is multiplied by, and the constant under the empty name; None for anything but a sum of these."""
    found: dict[str, int] = {}
    for symbols, factor in index.terms:
        if len(symbols) > 1 or not all(isinstance(s, str) for s in symbols):
            return None
        found["".join(symbols)] = factor  # type: ignore[arg-type]
    return found


def _range(coefficients: Mapping[str, int], extents: Mapping[str, int | None]) -> tuple[int, int] | None:
    """The least and the greatest value; None where an extent is not known."""
    low = high = 0
    for name, factor in coefficients.items():
        last = 1 if not name else extents[name]
        if last is None:
            return None
        span = factor if not name else factor * (last - 1)
        low, high = (low + span, high + span) if not name else (low + min(span, 0), high + max(span, 0))
    return low, high


__all__ = ["crossings"]
