"""What ranges of symbols imply about an expression."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from .index import Atom, Index, Mod, Monomial

Bound = int | None
"""None: unbounded."""


class Relation(Struct, frozen=True):
    """``expr == 0``, ``expr != 0`` or ``expr >= 0`` over the integers."""

    expr: Index
    kind: Literal["==", "!=", ">="]

    def negated(self) -> Relation:
        if self.kind == ">=":
            return Relation(-self.expr - 1, ">=")
        return Relation(self.expr, "!=" if self.kind == "==" else "==")

    def holds(self, values: Mapping[str, int]) -> bool:
        """Its truth where symbols have these values."""
        value = self.expr.evaluate(values)
        return value >= 0 if self.kind == ">=" else (value == 0) == (self.kind == "==")

    def __str__(self) -> str:
        """As a Python expression, negative terms on the other side."""
        left = Index(tuple((m, c) for m, c in self.expr.terms if c > 0))
        right = Index(tuple((m, -c) for m, c in self.expr.terms if c < 0))
        return f"{left} {self.kind} {right}"


class Facts:
    """Relations that hold, found by their symbols: one that shares no symbol with a question tells nothing of it that ranges do not, as the
    least value of a sum without common symbols is the sum of the least values."""

    def __init__(self, facts: Iterable[Relation] = ()) -> None:
        self._by_number: dict[int, Relation] = {}
        self._by_symbol: dict[str, list[int]] = {}
        self._next = 0
        for fact in facts:
            self.add(fact)

    def add(self, fact: Relation) -> None:
        self._by_number[self._next] = fact
        for name in fact.expr.symbols:
            self._by_symbol.setdefault(name, []).append(self._next)
        self._next += 1

    def of(self, expr: Index) -> list[Relation]:
        """Those that share a symbol with it, oldest first."""
        known, symbols = self._by_number, expr.symbols
        if len(symbols) == 1:
            [name] = symbols
            return [known[number] for number in self._by_symbol.get(name, ())]
        return [known[number] for number in sorted(set().union(*(self._by_symbol.get(name, ()) for name in symbols)))]

    def take(self, name: str) -> list[Relation]:
        """Those with this symbol, which are no more."""
        taken = []
        for number in self._by_symbol.pop(name, ()):
            fact = self._by_number.pop(number)
            taken.append(fact)
            for other in fact.expr.symbols - {name}:
                self._by_symbol[other].remove(number)
        return taken

    def __iter__(self) -> Iterator[Relation]:
        return iter(self._by_number.values())


def bounds(expr: Index, ranges: Mapping[str, tuple[int, Bound]]) -> tuple[Bound, Bound]:
    """Limits of ``expr`` where each symbol ``s`` lies in ``ranges[s]`` (both ends included).

    Each atom is written as its least value plus a rest >= 0; in the polynomial of the rests, terms of one sign bound that side. Exact
    for what sizes are made of (products and sums), a sound bound for the others."""
    shifted: dict[Monomial, int] = {}
    tops: dict[Atom, Bound] = {}
    for monomial, coefficient in expr.terms:
        partial: dict[Monomial, int] = {(): coefficient}
        for atom in monomial:
            low, high = _atom_bounds(atom, ranges)
            if low is None:
                return None, None
            tops[atom] = None if high is None else high - low
            grown = {tuple(sorted((*m, atom), key=str)): c for m, c in partial.items()}
            if low:
                for m, c in partial.items():
                    grown[m] = grown.get(m, 0) + c * low
            partial = grown
        for m, c in partial.items():
            shifted[m] = shifted.get(m, 0) + c
    constant = shifted.pop((), 0)
    ends: list[Bound] = [constant, constant]
    for m, c in shifted.items():
        side = c > 0
        known, top = ends[side], [tops[a] for a in m]
        if c and known is not None:
            ends[side] = None if None in top else known + c * math.prod(t for t in top if t is not None)
    return ends[0], ends[1]


def _atom_bounds(atom: Atom, ranges: Mapping[str, tuple[int, Bound]]) -> tuple[Bound, Bound]:
    if isinstance(atom, str):
        return ranges.get(atom, (0, None))
    low, high = bounds(atom.numerator, ranges)
    least, most = bounds(atom.denominator, ranges)
    if least is None or least < 1:
        return None, None
    if isinstance(atom, Mod):
        top = None if most is None else most - 1
        if low is not None and low >= 0 and high is not None:
            top = high if top is None else min(top, high)
        return 0, top
    if low is None:
        return None, None
    bottom = low // least if low < 0 else 0 if most is None else low // most
    if high is None:
        return bottom, None
    return bottom, high // least if high >= 0 else -1 if most is None else high // most


def never_zero(expr: Index) -> bool:
    """Whether no integers make it zero, because the coefficients of all symbols have a factor that the constant lacks."""
    constant = 0
    factors = []
    for monomial, coefficient in expr.terms:
        if monomial:
            factors.append(coefficient)
        else:
            constant = coefficient
    return bool(constant) and (not factors or constant % math.gcd(*factors) != 0)


def reduced(expr: Index, *, inequality: bool) -> Index:
    """``expr`` divided by the common factor of its symbols' coefficients: the same zeros, and as an inequality the same truth."""
    factors = [c for m, c in expr.terms if m]
    factor = math.gcd(*factors) if factors else 0
    if factor <= 1 or (not inequality and any(c % factor for _, c in expr.terms)):
        return expr
    return Index(tuple((m, c // factor) for m, c in expr.terms if c // factor))  # a constant is rounded down: 2*s - 5 >= 0 is s - 3 >= 0
