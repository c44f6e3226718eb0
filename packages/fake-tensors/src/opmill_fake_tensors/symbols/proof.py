"""Questions that the rules of ``facts.py`` leave open, because they look at each division by itself: whether ``s - 2*(s//2) >= 0``.

First the relation is tried at some sizes. Where both answers are found, as for most of what is asked, it is open in truth, and a guard
decides. Only where all agree is sympy asked for a proof: a size is its least value plus a rest, ``n//d`` is ``(n - r)/d`` with a remainder
``r`` from 0 to ``d - 1``, the whole is brought to one denominator, and each remainder goes to the end that makes the numerator least. A
polynomial in rests without a negative coefficient is never negative, and a whole number that is more than -1 neither: so ``s//2 >= s//3``.
Expressions beyond ``MOST_TERMS`` are not asked: a limit by their form gives the same answer on every machine, which one by the clock would
not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from .facts import Bound, Relation
from .index import Atom, FloorDiv, Index, Mod
from .sympy_form import sympy

MOST_TERMS = 24
MOST_DIVISIONS = 4
#: Of the divisions, how many may be by sizes: each brings a denominator of its own, and the numerator grows with all of them.
MOST_BY_SIZES = 1
MOST_FACTS = 6
#: How far from their least values sizes are tried, for each symbol in turn: primes, so that divisors of all kinds are met.
STEPS = (0, 1, 3, 2, 7, 13, 5, 31, 64, 101)

Ranges = Mapping[str, tuple[int, Bound]]


def prove(relation: Relation, ranges: Ranges, facts: Sequence[Relation], hints: Mapping[str, int | None]) -> bool | None:
    """Its truth for all sizes in the ranges (both ends included) for which the facts hold; None where that is not found out. ``hints``:
    sizes that satisfy the facts, None for those that only data tell."""
    if not worth_asking(relation):
        return None
    names = sorted(relation.expr.symbols.union(*(fact.expr.symbols for fact in facts)))
    limits = tuple((name, *ranges.get(name, (0, None))) for name in names)
    seen = {name: hint for name in names if (hint := hints.get(name)) is not None}
    tried = set()
    for values in chain([seen] if len(seen) == len(names) else [], points(limits)):
        try:
            if all(fact.holds(values) for fact in facts):
                tried.add(relation.holds(values))
        except ZeroDivisionError:
            return None
        if len(tried) > 1:
            return None
    if not tried:
        return None
    [truth] = tried
    return truth if _proven(relation if truth else relation.negated(), limits, tuple(facts[-MOST_FACTS:])) else None


def worth_asking(relation: Relation) -> bool:
    """Whether there is a division, which the rules may have lost something by, and the whole is not too long."""
    divisions = list(dict.fromkeys(_divisions(relation.expr)))
    if sum(each.denominator.constant is None for each in divisions) > MOST_BY_SIZES:
        return False
    return 0 < len(divisions) <= MOST_DIVISIONS and len(relation.expr.terms) + sum(len(d.numerator.terms) for d in divisions) <= MOST_TERMS


def _divisions(expr: Index) -> Iterator[FloorDiv | Mod]:
    for atom in expr.atoms():
        if not isinstance(atom, str):
            yield atom
            yield from _divisions(atom.numerator)
            yield from _divisions(atom.denominator)


def points(limits: Sequence[tuple[str, int, Bound]]) -> Iterator[dict[str, int]]:
    """Sizes within the limits, fewest first."""
    for shift in range(len(STEPS)):
        values = {}
        for k, (name, low, high) in enumerate(limits):
            value = low + STEPS[(shift + k * 3) % len(STEPS)] * (k % 2 + 1)
            values[name] = value if high is None else min(value, high)
        yield values
    yield {name: low for name, low, _ in limits}


@lru_cache(4096)
def _proven(relation: Relation, limits: tuple[tuple[str, int, Bound], ...], facts: tuple[Relation, ...]) -> bool:
    if relation.kind == "!=":
        return any(_proven(Relation(side - 1, ">="), limits, facts) for side in (relation.expr, -relation.expr))
    form = _Form(limits)
    if relation.kind == "==":
        value = form.value(relation.expr)
        if sympy().expand(sympy().fraction(sympy().together(value))[0]) == 0:
            return True
        return all(_proven(Relation(side, ">="), limits, facts) for side in (relation.expr, -relation.expr))
    value = form.value(relation.expr)
    if form.not_below_zero(value, 1):
        return True
    parts = sympy().fraction(sympy().together(value))[1]
    shares = (1, parts) if parts.is_Integer and parts > 1 else (1,)  # of a fact: m//2 - n//2 holds a half of what m - n does
    return any(form.not_below_zero(value - form.value(fact.expr) / share, share) for fact in facts if fact.kind == ">=" for share in shares)


class _Form:
    """Expressions as rational functions of rests and remainders, none of which is ever negative."""

    def __init__(self, limits: Sequence[tuple[str, int, Bound]]) -> None:
        self.limits = {name: (low, high) for name, low, high in limits}
        self.tops: dict[Any, Any] = {}
        """Of each remainder, and of each rest with a limit, its largest value; those that are made of others come behind these."""
        self.good = True
        """Whether all denominators are known to be positive."""
        self._remainders: dict[tuple[Index, Index], Any] = {}
        self._rests: dict[str, Any] = {}

    def value(self, expr: Index) -> Any:
        total = sympy().Integer(0)
        for monomial, coefficient in expr.terms:
            product = sympy().Integer(coefficient)
            for atom in monomial:
                product = product * self._atom(atom)
            total = total + product
        return total

    def _atom(self, atom: Atom) -> Any:
        if isinstance(atom, str):
            low, high = self.limits[atom] if atom in self.limits else (0, None)
            rest = self._rests.get(atom)
            if rest is None:
                rest = self._rests[atom] = sympy().Symbol(f"rest of {atom}")
                if high is not None:
                    self.tops[rest] = sympy().Integer(high - low)
            return low + rest
        remainder = self._remainder(atom)
        if isinstance(atom, Mod):
            return remainder
        return (self.value(atom.numerator) - remainder) / self.value(atom.denominator)

    def _remainder(self, atom: FloorDiv | Mod) -> Any:
        """The same one for the quotient and the remainder of one division."""
        key = atom.numerator, atom.denominator
        if key not in self._remainders:
            denominator = sympy().expand(self.value(atom.denominator))
            self.good = self.good and self._is_positive(denominator)
            self.value(atom.numerator)  # whose remainders come before
            made = self._remainders[key] = sympy().Symbol(f"remainder {len(self._remainders)}")
            self.tops[made] = denominator - 1
        return self._remainders[key]

    def _is_positive(self, value: Any) -> bool:
        """Whether a polynomial of rests only is 1 at least by its coefficients."""
        if not value.free_symbols <= set(self._rests.values()) or not value.is_polynomial():
            return False
        return all(c >= 0 for c in value.as_coefficients_dict().values()) and value.subs(dict.fromkeys(value.free_symbols, 0)) >= 1

    def not_below_zero(self, value: Any, share: Any) -> bool:
        """Of a whole number, less a ``share``th of one that is not negative: whether the whole number is not negative, as it is where the
        difference is known to be more than -1."""
        parts = sympy().fraction(sympy().together(value))[1]
        return self.never_negative(value + 1 - 1 / sympy().ilcm(parts, share) if parts.is_Integer else value)

    def never_negative(self, value: Any) -> bool:
        numerator, denominator = map(sympy().expand, sympy().fraction(sympy().together(value)))
        if denominator.could_extract_minus_sign():
            numerator, denominator = sympy().expand(-numerator), sympy().expand(-denominator)
        if not self.good or not self._is_positive(denominator):
            return False
        for variable, top in reversed(self.tops.items()):
            if variable not in numerator.free_symbols or sympy().degree(numerator, variable) > 1:
                continue
            slope = numerator.coeff(variable, 1)
            if _sign(slope, -1):
                numerator = sympy().expand(numerator.subs(variable, top))
            elif _sign(slope, 1):
                numerator = numerator.subs(variable, 0)
        return _sign(numerator, 1)


def _sign(polynomial: Any, sign: int) -> bool:
    """Whether all coefficients have this sign, or are 0: then so has the value where no variable is negative."""
    return all(c * sign >= 0 for c in sympy().expand(polynomial).as_coefficients_dict().values())


__all__ = ["prove"]
