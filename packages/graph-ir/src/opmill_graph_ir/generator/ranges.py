"""Between what values lie that indices are computed from data with, as far as a kernel's own checks and choices tell.

``g = where(raw < 0, raw + n, raw)`` with the check ``-n <= raw < n`` lies in ``[0, n)``, whatever is read from memory: a kernel whose
checks fail touches nothing behind them. Ends are polynomials over size symbols; no sign of a size is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ..loops.index import ZERO, Index, index
from ..loops.ir import Check, Const, Expr, IndexValue, Op, Ref

Ends = tuple[tuple[Index, ...], ...]
"""Several ends that all hold, each as the outermost of some; none where nothing is known."""
_MOST = 8
"""Ends of one value, and of one of them; what is more, and longer, is forgotten."""


class Range(NamedTuple):
    """Values that are at least the least of each of ``low``, and at most the greatest of each of ``high``."""

    low: Ends
    high: Ends


ANYTHING = Range((), ())
_LIMITS = {
    "bool": (0, 1),
    "uint8": (0, 255),
    "int8": (-128, 127),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
}


class _Facts:
    """What is known at one point of a kernel: ranges of values by name, conditions that hold or do not, and choices of which one holds."""

    def __init__(self, lets: Mapping[str, Expr], extents: Mapping[str, Index]) -> None:
        self.lets, self.extents = lets, extents
        self.known: dict[str | Index, list[Range]] = {}  # of values by name, and of what moves in positions
        self.decided: set[tuple[Expr, bool]] = set()
        self.open: list[tuple[Expr, Expr]] = []

    def __and__(self, condition: tuple[Expr, bool]) -> _Facts:
        """With a condition that holds, or does not."""
        more = _Facts(self.lets, self.extents)
        more.known = {name: list(ranges) for name, ranges in self.known.items()}
        more.decided, more.open = set(self.decided), list(self.open)
        more.assume(*condition)
        return more

    def assume(self, condition: Expr, holds: bool) -> None:
        if (condition, holds) in self.decided:
            return
        self.decided.add((condition, holds))
        if type(condition) is Op:
            if condition.name == "logical_not":
                self.assume(condition.args[0], not holds)
            elif condition.name == ("logical_and" if holds else "logical_or"):
                for each in condition.args:
                    self.assume(each, holds)
            elif condition.name == "logical_or":
                self.open.append((condition.args[0], condition.args[1]))
            elif condition.name in _COMPARED:
                self._compare(_COMPARED[condition.name][not holds], *condition.args)
        for first, second in list(self.open):
            for one, other in ((first, second), (second, first)):
                if self._fails(one):
                    self.assume(other, True)

    def _fails(self, condition: Expr) -> bool:
        if type(condition) is Op and condition.name == "logical_not":
            return (condition, False) in self.decided or (condition.args[0], True) in self.decided
        return (condition, False) in self.decided

    def _compare(self, how: str, a: Expr, b: Expr) -> None:
        if how and all(each.dtype == "int64" or each.dtype in _LIMITS for each in (a, b)):
            self._bound(how, a, b)
            self._bound(_MIRRORED[how], b, a)

    def _bound(self, how: str, value: Expr, end: Expr) -> None:
        if type(value) is Ref:
            known, by = self.known.setdefault(value.name, []), ZERO
        elif type(value) is IndexValue:
            moving, by = self._parts(value.index)
            known = self.known.setdefault(moving, [])
        else:
            return
        low, high = self.range_of(end)
        step = ZERO + {"lt": -1, "gt": 1}.get(how, 0) - by
        known.append(Range(_moved(low, step) if how in ("gt", "ge", "eq") else (), _moved(high, step) if how in ("lt", "le", "eq") else ()))

    def _parts(self, at: Index) -> tuple[Index, Index]:
        """What moves in a position while a kernel runs, and what is added to it."""
        moving = ZERO
        for monomial, coefficient in at.terms:
            term = Index(((monomial, coefficient),))
            if term.symbols & (self.extents.keys() | self.lets.keys()):
                moving = moving + term
        return moving, at - moving

    def range_of(self, value: Expr) -> Range:
        """Between what a value lies."""
        if type(value) is Const:
            return _exactly(index(int(value.value))) if isinstance(value.value, int) else ANYTHING
        if type(value) is IndexValue:
            return self._of_index(value.index)
        if type(value) is Ref:
            own = self.lets.get(value.name)
            ranges = [*self.known.get(value.name, ()), *([] if own is None else [self.range_of(own)])]
            return Range(_all([r.low for r in ranges], -1), _all([r.high for r in ranges], 1))
        if type(value) is Op and (rule := _RULES.get(value.name)) is not None:
            return rule(self, value)
        return _within_type(value.dtype)

    def _of_index(self, at: Index) -> Range:
        """Of an index over axes whose factors are numbers, and sizes."""
        moving, by = self._parts(at)
        ranges = [self._over_axes(moving), *self.known.get(moving, ())]
        return Range(_all([_moved(r.low, by) for r in ranges], -1), _all([_moved(r.high, by) for r in ranges], 1))

    def _over_axes(self, moving: Index) -> Range:
        low = high = ZERO
        for monomial, coefficient in moving.terms:
            [name] = monomial if len(monomial) == 1 else [None]
            if not isinstance(name, str) or name not in self.extents:
                return ANYTHING
            last = (self.extents[name] - 1) * coefficient
            low, high = (low, high + last) if coefficient > 0 else (low + last, high)
        return Range(((low,),), ((high,),))


def _exactly(value: Index) -> Range:
    return Range(((value,),), ((value,),))


def _moved(ends: Ends, by: Index) -> Ends:
    return tuple(tuple(end + by for end in each) for each in ends)


def _negative(ends: Ends) -> Ends:
    return tuple(tuple(-end for end in each) for each in ends)


def _sums(a: Ends, b: Ends) -> Ends:
    return _short(tuple(x + y for x in first for y in second) for first in a for second in b)


def _either(a: Ends, b: Ends, side: int) -> Ends:
    """The ends of values that lie in one of two ranges. ``side``: 1 for what they do not exceed, -1 for what they are not below."""
    return _short(_outermost((*first, *second), side) for first in a for second in b)


def _outermost(ends: Iterable[Index], side: int) -> tuple[Index, ...]:
    """Without those that another one is beyond whatever the sizes are."""
    kept: list[Index] = []
    for end in ends:
        apart = [(end - other).constant for other in kept]
        if all(by is None or by * side > 0 for by in apart):
            kept = [*(other for other, by in zip(kept, apart, strict=True) if by is None), end]
    return tuple(kept)


def _all(ends: Iterable[Ends], side: int) -> Ends:
    """Ends that all hold, without those that say less than another where no size is negative."""
    kept: list[tuple[Index, ...]] = []
    for new in (each for some in ends for each in some):
        if not any(_says_more(other, new, side) for other in kept):
            kept = [*(other for other in kept if not _says_more(new, other, side)), new]
    return _short(kept)


def _says_more(a: tuple[Index, ...], b: tuple[Index, ...], side: int) -> bool:
    """Whether each of ``a`` is further in than one of ``b``, or the same."""
    return all(any(all(c * side >= 0 for _, c in (y - x).terms) for y in b) for x in a)


def _short(ends: Iterable[tuple[Index, ...]]) -> Ends:
    return tuple(sorted((each for each in dict.fromkeys(ends) if len(each) <= _MOST), key=_length)[:_MOST])


def _length(end: tuple[Index, ...]) -> tuple[int, int]:
    return len(end), sum(len(each.terms) for each in end)


def _within_type(dtype: str) -> Range:
    least, most = _LIMITS.get(dtype, (None, None))
    return ANYTHING if least is None or most is None else Range(((index(least),),), ((index(most),),))


def _add(facts: _Facts, value: Op) -> Range:
    a, b = map(facts.range_of, value.args)
    return Range(_sums(a.low, b.low), _sums(a.high, b.high)) if value.dtype == "int64" else _within_type(value.dtype)


def _sub(facts: _Facts, value: Op) -> Range:
    a, b = map(facts.range_of, value.args)
    return Range(_sums(a.low, _negative(b.high)), _sums(a.high, _negative(b.low))) if value.dtype == "int64" else _within_type(value.dtype)


def _where(facts: _Facts, value: Op) -> Range:
    condition, *values = value.args
    a, b = ((facts & (condition, holds)).range_of(each) for each, holds in zip(values, (True, False), strict=True))
    return Range(_either(a.low, b.low, -1), _either(a.high, b.high, 1))


def _min(facts: _Facts, value: Op) -> Range:
    a, b = map(facts.range_of, value.args)
    return Range(_either(a.low, b.low, -1), _all((a.high, b.high), 1))


def _max(facts: _Facts, value: Op) -> Range:
    a, b = map(facts.range_of, value.args)
    return Range(_all((a.low, b.low), -1), _either(a.high, b.high, 1))


def _mod(facts: _Facts, value: Op) -> Range:
    by = value.args[1]
    if type(by) is Const and type(by.value) is int and by.value > 0:
        return Range(((ZERO,),), ((index(by.value - 1),),))
    return _within_type(value.dtype)


def _abs(facts: _Facts, value: Op) -> Range:
    a = facts.range_of(value.args[0])
    if value.dtype != "int64":
        return _within_type(value.dtype)
    return Range(((ZERO,),), _either(a.high, _negative(a.low), 1))


def _cast(facts: _Facts, value: Op) -> Range:
    source = value.args[0].dtype
    if value.dtype == "int64" and (source == "int64" or source in _LIMITS):
        return facts.range_of(value.args[0])
    return _within_type(value.dtype)


_RULES: dict[str, Callable[[_Facts, Op], Range]] = {
    "add": _add, "sub": _sub, "where": _where, "min": _min, "max": _max, "mod": _mod, "abs": _abs, "cast": _cast
}  # fmt: skip
_COMPARED = {"lt": ("lt", "ge"), "le": ("le", "gt"), "gt": ("gt", "le"), "ge": ("ge", "lt"), "eq": ("eq", ""), "ne": ("", "eq")}
"""What a comparison says where it holds, and where it does not."""
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def range_of(name: str, lets: Mapping[str, Expr], extents: Mapping[str, Index], checks: Iterable[Check]) -> Range:
    """Between what the let ``name`` lies behind ``checks``. ``lets``: values by name; ``extents`` of axes."""
    facts = _Facts(lets, extents)
    for check in checks:
        facts.assume(check.condition, True)
    return facts.range_of(Ref(name, "int64"))


__all__ = ["Range", "range_of"]
