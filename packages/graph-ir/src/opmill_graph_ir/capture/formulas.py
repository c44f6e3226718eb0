"""Elements as formulas of where they stand: whole numbers as polynomials of positions, and what is one of two values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opmill_fake_tensors.symbols import Index, Sizes
from opmill_fake_tensors.symbols.facts import Relation

from ..loops.index import ZERO, index


def axis(place: int) -> str:
    """The position along the dimension ``place``, counted from the last, which is 1: so that broadcast tensors use the same names."""
    return f"@{place}"


@dataclass(frozen=True)
class Truth:
    """Each of ``parts`` is not negative; with ``negated``, one of them is. Without parts it is always so, or never."""

    parts: frozenset[Index] = frozenset()
    negated: bool = False

    def __invert__(self) -> Truth:
        if len(self.parts) == 1:
            return Truth(frozenset(-part - 1 for part in self.parts), self.negated)
        return Truth(self.parts, not self.negated)

    def both(self, other: Truth) -> Truth | None:
        """Where both hold; None where that has no such form."""
        if not self.parts or not other.parts:
            constant, varied = (self, other) if not self.parts else (other, self)
            return constant if constant.negated else varied
        if self.negated or other.negated:
            return None
        return Truth(self.parts | other.parts)

    def moved(self, places: Mapping[str, Index]) -> Truth:
        """That of a tensor that reads another at ``places``."""
        return Truth(frozenset(part.substitute(places) for part in self.parts), self.negated)


ALWAYS, NEVER = Truth(), Truth(negated=True)


@dataclass(frozen=True)
class Choice:
    """``yes`` where ``when`` holds, else ``no``: numbers or truths."""

    when: Truth
    yes: Any
    no: Any

    def moved(self, places: Mapping[str, Index]) -> Choice:
        """That of a tensor that reads another at ``places``."""
        return Choice(self.when.moved(places), self.yes, self.no)

    def each(self, function: Callable[[Any], Any]) -> Choice:
        """With both values changed."""
        return Choice(self.when, function(self.yes), function(self.no))


Formula = Index | Choice


def constant(value: Any) -> Formula:
    """The formula of a tensor that is one number everywhere."""
    return index(value) if type(value) is int or isinstance(value, Index) else Choice(ALWAYS, value, value)


def number_of(formula: Formula) -> Any:
    """The number that it is everywhere; None where it varies."""
    if isinstance(formula, Index):
        return formula.constant
    if formula.yes == formula.no or formula.when == ALWAYS:
        return formula.yes
    return formula.no if formula.when == NEVER else None


def moved(formula: Formula, places: Mapping[str, Index]) -> Formula:
    """The formula of a tensor that reads another at ``places``."""
    return formula.substitute(places) if isinstance(formula, Index) else formula.moved(places)


def truth_of(formula: Formula) -> Truth | None:
    """Where it is not zero."""
    if isinstance(formula, Index):
        return None if formula.constant is None else NEVER if formula.constant == 0 else ALWAYS
    yes, no = bool(formula.yes), bool(formula.no)
    return (ALWAYS if yes else NEVER) if yes == no else formula.when if yes else ~formula.when


def compared(kind: str, left: Formula, right: Formula) -> Choice | None:
    """``kind``: le, lt, ge, gt, eq or ne."""
    if not (isinstance(left, Index) and isinstance(right, Index)):
        return _by_constant(getattr(operator, kind), left, right)
    more = left - right
    truths = {
        "ge": Truth(frozenset({more})),
        "le": Truth(frozenset({-more})),
        "gt": Truth(frozenset({more - 1})),
        "lt": Truth(frozenset({-more - 1})),
        "eq": Truth(frozenset({more, -more})),
        "ne": Truth(frozenset({more, -more}), negated=True),
    }
    if more.constant is not None:
        truth = getattr(operator, kind)(more.constant, 0)
        return Choice(ALWAYS, truth, truth)
    return Choice(truths[kind], True, False)


def combined(function: Callable[[Any, Any], Any], left: Formula, right: Formula) -> Formula | None:
    """A sum, a difference or a product."""
    if isinstance(left, Index) and isinstance(right, Index):
        if function is operator.mul and left.constant is None and right.constant is None:
            return None
        result: Index = function(left, right)
        return result
    return _by_constant(function, left, right)


def _by_constant(function: Callable[[Any, Any], Any], left: Formula, right: Formula) -> Choice | None:
    a, b = number_of(left), number_of(right)
    if b is not None and isinstance(left, Choice):
        return left.each(lambda value: function(value, b))
    if a is not None and isinstance(right, Choice):
        return right.each(lambda value: function(a, value))
    return None


def simplified(truth: Truth, sizes: Sequence[Any], known: Sizes | None) -> Truth:
    """Without what holds at every place of a tensor of these sizes; NEVER where one part holds at none. Of a negated one nothing is left
    out."""
    if truth.negated:
        return truth
    left = set()
    for part in truth.parts:
        least, most = extremes(part, sizes)
        if most is not None and holds(-most - 1, known):
            return NEVER
        if least is None or not holds(least, known):
            left.add(part)
    return Truth(frozenset(left))


def extremes(part: Index, sizes: Sequence[Any]) -> tuple[Index | None, Index | None]:
    """The least and the largest value at the places of a tensor of these sizes, as sizes; None where that is not seen."""
    least: Index = part
    most: Index = part
    for place, size in enumerate(reversed(sizes), 1):
        name = axis(place)
        if name not in part.symbols:
            continue
        stride = part.stride_of(name)
        if stride is None or stride.constant is None:
            return None, None
        ends = ZERO, index(size) - 1
        low, high = ends if stride.constant >= 0 else ends[::-1]
        least, most = least.substitute({name: low}), most.substitute({name: high})
    return least, most


def holds(expr: Index, known: Sizes | None) -> bool:
    """Whether it is known not to be negative."""
    if expr.constant is not None:
        return expr.constant >= 0
    return known is not None and known.known(Relation(expr, ">=")) is True
