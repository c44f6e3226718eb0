"""Where lanes of a vector read that are not a step apart: each channel of a group its group's mean, each element that was repeated its
source."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from opmill_graph_ir.loops.index import ZERO, Atom, FloorDiv, Index, Mod, floordiv, index, mod

_BLOCK, _LANE = "lane block", "lane"


def by_lane(i: Index, axis: str, lanes: int, extents: Mapping[str, int]) -> Index:
    """``i`` by vector and by lane of it, along ``axis``, whose vectors begin at multiples of ``lanes``."""
    blocks = extents.get(axis, 1 << 40) // lanes + 1
    bounds = {**extents, _LANE: lanes, _BLOCK: blocks}
    return _parted(i, {axis: index(_BLOCK) * lanes + _LANE}, bounds)


def _parted(i: Index, values: Mapping[str, Index], bounds: Mapping[str, int]) -> Index:
    """``i`` with ``values``, divisions by multiples of whole vectors done on these: (16 b + l) // 64 is b // 4, for l below 16."""
    total = ZERO
    for atoms, coefficient in i.terms:
        term = index(coefficient)
        for atom in atoms:
            term = term * _parted_atom(atom, values, bounds)
        total = total + term
    return total


def _parted_atom(atom: Atom, values: Mapping[str, Index], bounds: Mapping[str, int]) -> Index:
    if isinstance(atom, str):
        return index(values.get(atom, atom))
    divide = floordiv if isinstance(atom, FloorDiv) else mod
    n, by = _parted(atom.numerator, values, bounds), _parted(atom.denominator, values, bounds)
    if (k := by.constant) is not None and k > 0:
        rest = Index(tuple(t for t in n.terms if _LANE in t[0]))
        step = gcd(k, *(c for _, c in (n - rest).terms))
        reach = rest.bounds(bounds)
        if step > 1 and reach is not None and 0 <= reach[0] and reach[1] < step:
            whole = divide(Index(tuple((m, c // step) for m, c in (n - rest).terms)), k // step, bounds)
            return whole if divide is floordiv else whole * step + rest
    return divide(n, by, bounds)


def even_step(i: Index, axis: str, lanes: int, extents: Mapping[str, int]) -> Index | None:
    """What lies between two lanes, where that is the same everywhere: i // 64 and i % 64 are even within vectors of 8."""
    step = by_lane(i, axis, lanes, extents).stride_of(_LANE)
    return None if step is None or _BLOCK in step.symbols else step


def offsets(i: Index, axis: str, lanes: int, extents: Mapping[str, int]) -> tuple[int, ...] | None:
    """How far each lane is from the first, where that is the same in all vectors and they are of a few neighbours: i // 4 and i % 4."""
    parts = by_lane(i, axis, lanes, extents)
    first, found = parts.substitute({_LANE: 0}, extents), []
    for lane in range(lanes):
        distance = (parts.substitute({_LANE: lane}, extents) - first).constant
        if distance is None or not 0 <= distance < lanes:
            return None
        found.append(distance)
    return tuple(found)


def step_between_turns(i: Index, axis: str, lanes: int) -> int | None:
    """What lies between two lanes of vectors in which a division by more than they span does not go on to the next quotient: 1 for
    (i + 3) % 256, 0 for i // 100. The first and the last lane tell of a vector whether it does: at most once, and then the distance of
    the two is another, or all lanes are such steps apart after all."""
    step, turning = 0, set()
    for atoms, coefficient in i.terms:
        moving = [a for a in atoms if a == axis or (not isinstance(a, str) and axis in a.numerator.symbols | a.denominator.symbols)]
        if not moving:
            continue
        [atom, *others] = moving
        if others or len(atoms) > 1:
            return None
        if isinstance(atom, str):
            step += coefficient
            continue
        inner, divisor = atom.numerator.stride_of(axis), atom.denominator.constant
        if inner is None or divisor is None or (a := inner.constant) is None or not 0 < a * (lanes - 1) < divisor:
            return None
        turning.add((atom.numerator, atom.denominator))
        step += coefficient * a if isinstance(atom, Mod) else 0
    return step if len(turning) == 1 else None
