"""Where masks let a load touch memory: bounds of axes, and of their quotients and remainders.

``i >= s0`` and ``i < s0 + s1`` hold ``i`` between two ends. A mask of which a part says something else (of data, say) has no bounds: they
would count places that it leaves out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from opmill_fake_tensors.optional import all_known

from .index import ZERO, Atom, Index, index
from .ir import Const, Expr, IndexValue, Load, Op

Bounds = dict[Atom, tuple[list[Index], list[Index]]]
"""By what moves: what it is not below, and what it is not above."""


def bounds_of(load: Load, axes: Collection[str], symbols: Collection[str]) -> Bounds | None:
    """What holds of axes wherever the mask of ``load`` does. None where that is not all that it says, or where an axis stands in the index
    beside a quotient of it that is held: the ends of both would be more than the mask lets in."""
    found: Bounds = {}
    for part in () if load.mask is None else conjuncts(load.mask):
        if not (type(part) is Op and part.name in COMPARISONS and _bound(part, axes, symbols, found)):
            return None
    beside = {atom for atom in load.index.atoms() if isinstance(atom, str)}
    parts = (atom.numerator.symbols for atom in found if not isinstance(atom, str))
    return None if any(names & beside for names in parts) else found


def conjuncts(mask: Expr) -> Iterator[Expr]:
    """What holds, each by itself, where a mask does."""
    if type(mask) is Op and mask.name == "logical_and":
        for each in mask.args:
            yield from conjuncts(each)
    else:
        yield mask


COMPARISONS: dict[str, tuple[int | None, int | None]] = {"ge": (0, None), "gt": (1, None), "le": (None, 0), "lt": (None, -1), "eq": (0, 0)}
"""Of a comparison, by its name: what the first less the second is not below, and not above."""


def _bound(part: Op, axes: Collection[str], symbols: Collection[str], found: Bounds) -> bool:
    """Notes what a comparison says; False where it is of something else than one axis."""
    sides = all_known(map(index_of, part.args))
    if sides is None:
        return False
    difference = sides[0] - sides[1]
    moving = [(monomial, c) for monomial, c in difference.terms if Index(((monomial, c),)).symbols & set(axes)]
    if len(moving) != 1 or len(moving[0][0]) != 1 or abs(moving[0][1]) != 1:
        return False
    [([atom], sign)] = moving
    rest = difference - Index((((atom,), sign),))
    if not rest.symbols <= set(symbols):
        return False
    low, high = COMPARISONS[part.name]
    lows, highs = found.setdefault(atom, ([], []))
    if low is not None:
        (lows if sign > 0 else highs).append((ZERO + low - rest) * sign)
    if high is not None:
        (highs if sign > 0 else lows).append((ZERO + high - rest) * sign)
    return True


def index_of(value: Expr) -> Index | None:
    """The position that a value is; None where that is not said."""
    if type(value) is IndexValue and value.dtype == "int64":
        return value.index
    return index(value.value) if type(value) is Const and type(value.value) is int else None


__all__ = ["COMPARISONS", "Bounds", "bounds_of", "conjuncts", "index_of"]
