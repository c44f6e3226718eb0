"""Between what the partners of a row lie, where a mask says so by places alone: causal masks, windows."""

from __future__ import annotations

from dataclasses import dataclass

from opmill_graph_ir.loops.ir import Const, Expr, IndexValue, Op


@dataclass(frozen=True)
class Band:
    """``low <= other - own <= high``, open where None. ``whole``: that is all that the mask says."""

    low: int | None
    high: int | None
    whole: bool


def band_of(kept: Expr, own: str, other: str) -> Band:
    """What ``kept`` says of the difference of two positions."""
    low: int | None = None
    high: int | None = None
    whole = True
    for term in _terms(kept):
        if term == Const(True, "bool"):
            continue
        found = _distance(term, own, other)
        if found is None:
            whole = False
            continue
        lowest, highest = found
        low = lowest if low is None else low if lowest is None else max(low, lowest)
        high = highest if high is None else high if highest is None else min(high, highest)
    return Band(low, high, whole)


def _terms(e: Expr) -> list[Expr]:
    if type(e) is Op and e.name in ("logical_and", "bitand") and e.dtype == "bool":
        return [t for a in e.args for t in _terms(a)]
    return [e]


def _distance(e: Expr, own: str, other: str) -> tuple[int | None, int | None] | None:
    """The ends that a comparison of ``other - own`` with a number gives."""
    if type(e) is not Op or e.name not in ("lt", "le", "gt", "ge"):
        return None
    place, bound = e.args
    if type(place) is not IndexValue or type(bound) is not Const or place.index.constant is not None:
        return None
    terms = dict(place.index.terms)
    sign = terms.pop((other,), 0)
    if sign not in (1, -1) or terms.pop((own,), 0) != -sign or any(monomial for monomial in terms):
        return None
    value = int(bound.value) - sum(terms.values())  # sign * distance, compared with that
    name = e.name if sign == 1 else {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[e.name]
    value *= sign
    if name in ("lt", "le"):
        return None, value - (name == "lt")
    return value + (name == "gt"), None


__all__ = ["Band", "band_of"]
