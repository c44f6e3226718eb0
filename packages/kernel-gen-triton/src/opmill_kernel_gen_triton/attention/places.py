"""Places as numbers: the difference of two is one of floats that each vary along one side of a tile."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from opmill_graph_ir.loops.index import Index
from opmill_graph_ir.loops.ir import Expr, IndexValue, Op

_EXACT = 1 << 24
"""Whole numbers below this are floats, and so are their sums."""


def with_places_apart(e: Expr, extents: Mapping[str, int]) -> Expr:
    """``e`` with ``float(i) - float(j)`` in place of ``float(i - j)``: converting takes a device longer than adding, and each of the two is
    converted once for a row or column of a tile."""
    return _apart(e, extents, {})


def _apart(e: Expr, extents: Mapping[str, int], known: dict[Expr, Expr]) -> Expr:
    if type(e) is not Op:
        return e
    if e not in known:
        args = tuple(_apart(a, extents, known) for a in e.args)
        known[e] = e if args == e.args else Op(e.name, args, e.dtype)
        if e.name == "cast" and e.dtype == "float32" and type(e.args[0]) is IndexValue and (terms := _terms(e.args[0], extents)):
            casts = [Op("cast", (IndexValue(t, "int64"),), "float32") for t in terms]
            known[e] = reduce(lambda a, b: Op("add", (a, b), "float32"), casts)
    return known[e]


def _terms(place: IndexValue, extents: Mapping[str, int]) -> list[Index]:
    """What a place is the sum of; nothing where that is not more than one number, or not exact."""
    terms = place.index.terms
    plain = all(len(m) <= 1 and all(type(a) is str and a in extents for a in m) for m, _ in terms)
    if place.dtype != "int64" or len(terms) < 2 or not plain:
        return []
    largest = sum(abs(c) * (extents[str(m[0])] if m else 1) for m, c in terms)
    return [Index(((m, c),)) for m, c in terms] if largest < _EXACT else []


__all__ = ["with_places_apart"]
