"""An environment of size symbols: their ranges, the sizes seen at capture, and what was assumed about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from ..errors import DataDependent
from .definitions import value_of
from .facts import Bound, Facts, Relation, bounds, never_zero, reduced
from .index import Index, IndexLike, Mod, index, without_remainders
from .proof import prove, worth_asking

MOST_DECISIONS = 256
"""Decisions that leave sizes open. A program that asks for more of them sorts numbers or searches among them: no other numbers would give
all the same answers, and each question looks at what was decided before."""


class Symbol(Struct, frozen=True):
    """A size that is not fixed. ``hint``: its value in the call that was captured; None for one that depends on data. ``low`` and ``high``
    (included; None: no limit) are part of what a compiled program relies on. ``origin`` says in the user's words where it came from.
    ``definition``: what it is where earlier symbols tell, in Python with ``min``, ``max`` and truths as 0 and 1."""

    name: str
    hint: int | None
    low: int = 2
    high: int | None = None
    origin: str = ""
    definition: str = ""


class Decision(Struct, frozen=True):
    """Something assumed of the sizes, true of the hints. ``operator`` and ``where``: what asked, and the user's line."""

    relation: Relation
    operator: str = ""
    where: str = ""

    def __str__(self) -> str:
        reason = " at ".join(part for part in (self.operator, self.where) if part)
        return f"{self.relation}" + (f"   # {reason}" if reason else "")


class Sizes:
    """Size symbols and what was decided about them.

    A program that was compiled under an environment is right for every assignment of its symbols that lies in their ranges and
    satisfies all ``decisions``, and for no other. From ``MOST_DECISIONS`` on, sizes that a decision is about are assumed. ``where`` is
    asked for the user's line whenever a decision is recorded.

    >>> sizes = Sizes()
    >>> n = sizes.new(8, origin="x.size(0)")
    >>> sizes.decide(Relation(n - 4, ">=")), sizes.decide(Relation(n - 1, ">="))
    (True, True)
    >>> [str(d.relation) for d in sizes.decisions]        # the second follows from the range
    ['s0 >= 4']
    """

    def __init__(self, where: Callable[[], str] | None = None) -> None:
        self.symbols: dict[str, Symbol] = {}
        self.decisions: list[Decision] = []
        self.asserted: list[Decision] = []
        """What the program must check when it runs, because the sizes depend on data."""
        self.where = where
        self.operator = ""
        """What is being run; named in decisions."""
        self._ranges: dict[str, tuple[int, Bound]] = {}
        self.numbers: dict[int, Any] = {}
        """Nodes of constants, made once."""
        self.compared: dict[Any, bool] = {}
        """Comparisons of two expressions that are known: none is ever taken back."""
        self.tied = False
        """Whether any symbol is tied to others."""
        self._derived: dict[str, Index] = {}
        self.divided: dict[str, tuple[Index, int, bool]] = {}
        """Symbols of numbers that are divided where they may be negative: these, by what, and whether the symbol is the rest of it."""
        self.extremes: dict[str, tuple[str, Index, Index]] = {}
        """Symbols of what is the least (``min``) or the largest (``max``) of two numbers, where only data tell which that is."""
        self._replaced: dict[str, Index] = {}
        self._facts = Facts()
        self._multiples: dict[str, int] = {}
        """Sizes that are known to be multiples of a number, as programs say with ``torch._check(n % 8 == 0)``."""
        self._scale: dict[str, Index] = {}
        self._scaled: Sizes | None = None
        self._known: dict[Relation, bool] = {}
        self._open: set[Relation] = set()
        """Relations that what is known does not tell; the next decision may."""
        self._simplified: dict[Index, Index] = {}

    # ---- symbols ---------------------------------------------------------------------------------------------------

    def new(self, hint: int | None, *, low: int = 2, high: int | None = None, origin: str = "", name: str | None = None) -> Index:
        """A new symbol as an expression. ``low`` must not be negative, but for a number (no size) that depends on data. Raises ValueError
        where the hint is out of the range."""
        name = name or f"{'u' if hint is None else 's'}{len(self.symbols)}"
        if (
            name in self.symbols
            or (low < 0 and hint is not None)
            or (hint is not None and (hint < low or (high is not None and hint > high)))
        ):
            raise ValueError(f"size symbol {name} = {hint} in [{low}, {high}]")
        self.symbols[name] = Symbol(name, hint, low, high, origin)
        self._ranges[name] = (low, high)
        self._scaled = None
        return index(name)

    def derived(self, definition: str, *, low: int = 0, at_most: IndexLike | None = None) -> Index:
        """The symbol of what other sizes that depend on data give, the same one for the same text. ``low`` and ``at_most`` hold by
        construction."""
        known = self._derived.get(definition)
        if known is None:
            name = f"u{len(self.symbols)}"
            self.symbols[name] = Symbol(name, None, low, None, definition, definition)
            self._ranges[name] = (low, None)
            self._scaled = None
            known = self._derived[definition] = index(name)
            if at_most is not None:
                self.learn(Relation(index(at_most) - known, ">="))
        return known

    def rounded_down(self, number: Index, by: int, rest: bool) -> Index | None:
        """What a number that only data tell gives, divided by a positive one, or the rest of that: a symbol, for expressions divide what is
        not negative. None for a number that has a hint."""
        if any(self.symbols[name].hint is not None for name in number.symbols):
            return None
        low = 0 if rest else self.bounds(number)[0]
        if low is None:
            return None
        found = self.derived(f"({number}) {'%' if rest else '//'} {by}", low=low // by, at_most=by - 1 if rest else None)
        self.divided.update(dict.fromkeys(found.symbols, (number, by, rest)))
        return found

    def with_derived(self, values: Mapping[str, int]) -> dict[str, int]:
        """These values of sizes, where those that follow from others are what these give."""
        found = dict(values)
        for name, symbol in self.symbols.items():
            if symbol.definition:
                found[name] = value_of(symbol.definition, found)
        return found

    def hint(self, expr: IndexLike) -> int:
        """The value in the captured call. Raises DataDependent where there is none."""
        expr = self.simplify(index(expr))
        values: dict[str, int] = {}
        for name in expr.symbols:
            hint = self.symbols[name].hint
            if hint is None:
                origin = self.symbols[name].origin
                why = f"it needs the value of {expr}, where {name} depends on data" + (f": {origin}" if origin else "")
                raise DataDependent(self.operator or "size", why)
            values[name] = hint
        return expr.evaluate(values)

    def has_hint(self, expr: Index) -> bool:
        return all(self.symbols[name].hint is not None for name in self.simplify(expr).symbols)

    def simplify(self, expr: Index) -> Index:
        """The expression in terms of symbols that no decision has tied to others."""
        if not self._replaced or not expr.symbols & self._replaced.keys():
            return expr
        known = self._simplified.get(expr)
        if known is None:
            known = self._simplified[expr] = expr.substitute(self._replaced)
        return known

    def bounds(self, expr: Index) -> tuple[Bound, Bound]:
        """Limits of an expression by the ranges of its symbols, None where there is none."""
        return bounds(self.simplify(expr), self._ranges)

    # ---- decisions -------------------------------------------------------------------------------------------------

    def known(self, relation: Relation) -> bool | None:
        """Its truth where ranges and earlier decisions imply it; None where they do not."""
        found = self._known.get(relation)
        if found is None and relation not in self._open:
            found = self._prove(relation)
            if found is None:
                self._open.add(relation)
            else:
                self._known[relation] = found
        return found

    def _prove(self, relation: Relation) -> bool | None:
        """By the rules, which are quick; what they leave open and sizes speak for is asked of sympy."""
        relation = self._reduced(relation)
        found = self._by_rules(relation)
        if found is None and self._multiples and not relation.expr.symbols.isdisjoint(self._multiples):
            return self._in_multiples().known(Relation(relation.expr.substitute(self._scale), relation.kind))
        if found is None and (plain := without_remainders(relation.expr)) != relation.expr:
            found = self._by_rules(Relation(plain, relation.kind))  # n - n%4 is 4*(n//4)
        if found is not None or not worth_asking(relation):
            return found
        facts = self._facts.of(relation.expr)
        names = relation.expr.symbols.union(*(fact.expr.symbols for fact in facts)) & self.symbols.keys()
        return prove(relation, self._ranges, facts, {name: self.symbols[name].hint for name in names})

    def _in_multiples(self) -> Sizes:
        """The same sizes and facts, with each size that is a multiple of ``k`` as ``k`` times another: divisions by what divides ``k``
        go."""
        if self._scaled is None:
            scaled, self._scale = Sizes(), {}
            for name, symbol in self.symbols.items():
                k, (low, high) = self._multiples.get(name, 1), self._ranges[name]
                part = name if k == 1 else f"{name}/{k}"
                hint = None if symbol.hint is None else symbol.hint // k
                scaled._ranges[part] = -(-low // k), None if high is None else high // k
                scaled.symbols[part] = Symbol(part, hint, *scaled._ranges[part])
                if k > 1:
                    self._scale[name] = k * index(part)
            facts = (Relation(fact.expr.substitute(self._scale), fact.kind) for fact in self._facts)
            scaled._facts = Facts(Relation(reduced(fact.expr, inequality=fact.kind == ">="), fact.kind) for fact in facts)
            self._scaled = scaled
        return self._scaled

    def _by_rules(self, relation: Relation) -> bool | None:
        if relation.kind == "!=":
            equal = self._equal_zero(relation.expr)
            return None if equal is None else not equal
        return self._equal_zero(relation.expr) if relation.kind == "==" else self._non_negative(relation.expr)

    def decide(self, relation: Relation) -> bool:
        """Its truth in the captured call; recorded unless it was known. Raises DataDependent where a symbol has no hint."""
        relation = self._reduced(relation)
        known = self.known(relation)
        if known is not None:
            return known
        truth = self.hint(relation.expr) >= 0 if relation.kind == ">=" else (self.hint(relation.expr) == 0) == (relation.kind == "==")
        if len(self.decisions) >= MOST_DECISIONS:
            for name in sorted(relation.expr.symbols):
                self._record(Relation(index(name) - self.hint(index(name)), "=="), self.decisions)
            return truth
        self._record(relation if truth else relation.negated(), self.decisions)
        return truth

    def expect(self, relation: Relation) -> bool:
        """As :meth:`decide`; where data decide, it is taken to be true and listed in ``asserted``."""
        relation = self._reduced(relation)
        known = self.known(relation)
        if known is not None or self.has_hint(relation.expr):
            return self.decide(relation)
        self._record(relation, self.asserted)
        return True

    def typical(self, relation: Relation) -> bool | None:
        """Its truth where all sizes that depend on data are 2 at least; where that does not tell, at one example of them, but that no two
        are equal. None where it is not of sizes. Nothing is assumed by it."""
        known = self.known(relation)
        if known is not None:
            return known
        ranges: dict[str, tuple[int, Bound]] = {}
        for name in self.data():
            low, high = self._ranges[name]
            ranges[name] = max(low, 2), None if high is None else max(low, 2, high)
        expr = self.simplify(relation.expr)
        low_, high_ = bounds(expr, self._ranges | ranges)
        if relation.kind == ">=" and (low_ is None or low_ < 0) and (high_ is None or high_ >= 0):
            low_ = high_ = expr.evaluate({name: self._example(name, ranges) for name in expr.symbols})
        if relation.kind == ">=":
            return low_ is not None and low_ >= 0
        return relation.kind == "!="

    def _example(self, name: str, ranges: Mapping[str, tuple[int, Bound]]) -> int:
        if (hint := self.symbols[name].hint) is not None:
            return hint
        low, high = ranges[name]
        return max(low, 16) if high is None else min(max(low, 16), high)

    def data(self) -> list[str]:
        """The symbols that depend on data."""
        return [name for name, symbol in self.symbols.items() if symbol.hint is None]

    def value(self, expr: Index) -> int:
        """Its value in the captured call, from now on assumed."""
        simple = self.simplify(expr)
        if (constant := simple.constant) is not None:
            return constant
        hint = self.hint(simple)
        self.decide(Relation(simple - hint, "=="))
        return hint

    def learn(self, relation: Relation) -> None:
        """The relation holds by the way its symbols are made."""
        relation = self._reduced(relation)
        if self.known(relation) is None:
            self._record(relation, [])

    def _reduced(self, relation: Relation) -> Relation:
        return Relation(reduced(self.simplify(relation.expr), inequality=relation.kind == ">="), relation.kind)

    def _equal_zero(self, expr: Index) -> bool | None:
        if (constant := expr.constant) is not None:
            return constant == 0
        for fact in self._facts.of(expr):
            if fact.kind != ">=" and fact.expr in (expr, -expr):
                return fact.kind == "=="
        if never_zero(expr) or self._non_negative(expr - 1) or self._non_negative(-expr - 1):
            return False
        return True if bounds(expr, self._ranges) == (0, 0) else None

    def _non_negative(self, expr: Index) -> bool | None:
        low, high = bounds(expr, self._ranges)
        if low is not None and low >= 0:
            return True
        if high is not None and high < 0:
            return False
        for fact in self._facts.of(expr):
            if fact.kind != ">=":
                continue
            if (least := bounds(expr - fact.expr, self._ranges)[0]) is not None and least >= 0:
                return True
            if (most := bounds(expr + fact.expr, self._ranges)[1]) is not None and most < 0:
                return False
        return None

    def _record(self, relation: Relation, into: list[Decision]) -> None:
        self._open.clear()
        into.append(Decision(relation, self.operator, self.where() if self.where is not None else ""))
        self._scaled = None
        solved = self._solve(relation.expr) if relation.kind == "==" else None
        if solved is not None:
            for fact in self._facts.take(solved):
                self._learn_fact(self._reduced(fact))
        elif not self._narrowed(relation):
            self._learn_fact(relation)

    def _learn_fact(self, fact: Relation) -> None:
        if fact.expr.symbols:  # else it is true anyway
            self._facts.add(fact)
            self._note_multiple(fact)

    def _note_multiple(self, relation: Relation) -> None:
        """Whether the relation says that a size is a multiple: ``n % k == 0``."""
        match relation.expr.terms:
            case (((Mod(numerator, denominator),), _),) if relation.kind == "==" and (k := denominator.constant) is not None:
                for name in numerator.symbols:
                    if numerator == index(name) and self._ranges[name][0] >= 0:
                        self._multiples[name] = math.lcm(k, self._multiples.get(name, 1))

    def _narrowed(self, relation: Relation) -> bool:
        """Whether the relation is but a limit of one symbol that depends on data: its range says so from then on."""
        parts = dict(relation.expr.terms)
        constant = parts.pop((), 0)
        [(atoms, sign), *more] = parts.items()
        if more or len(atoms) != 1 or sign not in (1, -1) or not isinstance(name := atoms[0], str) or self.symbols[name].hint is not None:
            return False
        low, high = self._ranges[name]
        if relation.kind == "!=":
            if (-constant if sign > 0 else constant) != low:
                return False
            self._ranges[name] = low + 1, high
        elif relation.kind == "==":
            self._ranges[name] = -constant * sign, -constant * sign
        elif sign > 0:
            self._ranges[name] = max(low, -constant), high
        else:
            self._ranges[name] = low, constant if high is None else min(high, constant)
        return True

    def _solve(self, expr: Index) -> str | None:
        """Ties the youngest symbol that the equation determines to the others, and says which; None where there is none."""
        order = list(self.symbols)
        for name in sorted(expr.symbols, key=order.index, reverse=True):
            stride = expr.stride_of(name)
            if stride is None or stride.constant not in (1, -1):
                continue
            solution = (expr.substitute({name: 0})) * -stride.constant
            if not self._may_replace(name, solution):
                continue
            self._narrow(name, solution)
            one = {name: solution}
            self._replaced = {k: v.substitute(one) for k, v in self._replaced.items()} | one
            self._simplified.clear()
            self.tied = True
            return name
        return None

    def _may_replace(self, name: str, solution: Index) -> bool:
        """Expressions in divisions must not become negative: a symbol is replaced only by what is never so. Data never decide the rest."""
        low, _ = bounds(solution, self._ranges)
        backed = self.symbols[name].hint is None or all(self.symbols[s].hint is not None for s in solution.symbols)
        return backed and low is not None and low >= 0

    def _narrow(self, name: str, solution: Index) -> None:
        """The range of the symbol holds for what replaces it as well."""
        low, high = self._ranges[name]
        [*others] = solution.symbols
        if len(others) == 1 and solution == index(others[0]):
            least, most = self._ranges[others[0]]
            tops = [t for t in (high, most) if t is not None]
            self._ranges[others[0]] = max(low, least), min(tops) if tops else None
        elif others:
            self._facts.add(Relation(solution - low, ">="))
            if high is not None:
                self._facts.add(Relation(index(high) - solution, ">="))

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether what was compiled under this environment is right for these sizes."""
        inside = all(
            s.low <= values[s.name] and (s.high is None or values[s.name] <= s.high) for s in self.symbols.values() if s.hint is not None
        )
        return inside and all(d.relation.holds(values) for d in self.decisions)
