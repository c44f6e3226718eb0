"""Integer index expressions: polynomials over axes and size symbols, with floor division and remainder as atoms.

An ``Index`` is a canonical sum of coefficient times product of atoms, so equal expressions that differ only in the order of
writing compare equal. This stands for a general algebra system where compile time matters (``sympy_form.py`` leads to one); sizes are
non-negative throughout, and axes range over ``[0, extent)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import ClassVar, NoReturn, Union

from ..lazily import cached_property

Monomial = tuple["Atom", ...]
"""Atoms multiplied together, sorted; the empty tuple is 1."""


@dataclass(frozen=True)
class FloorDiv:
    """A quotient, rounded down, that is no sum of simpler terms."""

    numerator: Index
    denominator: Index

    def __str__(self) -> str:
        return f"({self.numerator})//({self.denominator})"


@dataclass(frozen=True)
class Mod:
    """What is left of a division that rounds down: it has the sign of the denominator."""

    numerator: Index
    denominator: Index

    def __str__(self) -> str:
        return f"({self.numerator})%({self.denominator})"


Atom = Union[str, FloorDiv, Mod]
IndexLike = Union["Index", int, str]
Extents = Mapping[str, Union[int, "Index"]]
"""Names that range over ``[0, extent)``. An extent that is no number is made of size symbols, which are not negative."""


class SizeUnknown(TypeError):
    """The value of an expression was asked for, or its order, which only the sizes of a call tell."""


@dataclass(frozen=True)
class Index:
    """``terms`` maps monomials to non-zero integer coefficients, sorted by text. Build with :func:`index`, ``+``, ``-``, ``*``,
    :func:`floordiv` and :func:`mod`."""

    terms: tuple[tuple[Monomial, int], ...]

    free_symbols: ClassVar[frozenset[str]] = frozenset()
    is_Symbol: ClassVar[bool] = False
    args: ClassVar[tuple[()]] = ()
    """Torch's kernels in Python look here for symbols of theirs."""

    def __add__(self, other: IndexLike) -> Index:
        added = index(other)
        if not added.terms:
            return self
        if not self.terms:
            return added
        out = dict(self.terms)
        for monomial, coefficient in added.terms:
            out[monomial] = out.get(monomial, 0) + coefficient
        total = _canonical(out)
        return _recombined(total) if self._has_mod or added._has_mod else total

    __radd__ = __add__

    def __neg__(self) -> Index:
        return Index(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: IndexLike) -> Index:
        return self + -index(other)

    def __rsub__(self, other: IndexLike) -> Index:
        return -self + other

    def __mul__(self, other: IndexLike) -> Index:
        if (k := other if isinstance(other, int) else other.constant if isinstance(other, Index) else None) is not None:
            return Index(tuple((m, c * k) for m, c in self.terms)) if k else ZERO
        out: dict[Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in index(other).terms:
                m = tuple(sorted(m1 + m2, key=str))
                out[m] = out.get(m, 0) + c1 * c2
        return _canonical(out)

    __rmul__ = __mul__

    def __floordiv__(self, other: IndexLike) -> Index:
        return floordiv(self, other)

    def __rfloordiv__(self, other: IndexLike) -> Index:
        return floordiv(other, self)

    def __mod__(self, other: IndexLike) -> Index:
        return mod(self, other)

    def __rmod__(self, other: IndexLike) -> Index:
        return mod(other, self)

    def _unknown(self, *_: object) -> NoReturn:
        raise SizeUnknown(f"the value of {self}")

    __lt__ = __le__ = __gt__ = __ge__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __divmod__ = __rdivmod__ = _unknown
    __int__ = __index__ = __float__ = __abs__ = __round__ = __trunc__ = __floor__ = __ceil__ = _unknown

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = hash(self.terms)
        return known

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k != "_hash"}  # hashes of strings differ from process to process

    @property
    def _has_mod(self) -> bool:
        return any(type(a) is Mod for m, _ in self.terms for a in m)

    @property
    def constant(self) -> int | None:
        """The value, where it does not depend on anything."""
        terms = self.terms
        if not terms:
            return 0
        return terms[0][1] if not terms[0][0] and len(terms) == 1 else None

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Axes and size symbols that occur anywhere in it."""
        out: set[str] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                out |= {atom} if isinstance(atom, str) else atom.numerator.symbols | atom.denominator.symbols
        return frozenset(out)

    def substitute(self, values: Mapping[str, IndexLike], extents: Extents | None = None) -> Index:
        """Replaces symbols; ``extents`` (upper bounds of what remains) let divisions simplify."""
        if not self.symbols & values.keys():
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            product = index(coefficient)
            for atom in monomial:
                product = product * _substitute_atom(atom, values, extents or {})
            total = total + product
        return total

    def stride_of(self, axis: str) -> Index | None:
        """What the value grows by when ``axis`` grows by one; None where that is not the same everywhere."""
        stride = ZERO
        for monomial, coefficient in self.terms:
            if any(not isinstance(a, str) and axis in a.numerator.symbols | a.denominator.symbols for a in monomial):
                return None
            if (n := monomial.count(axis)) > 1:
                return None
            if n:
                stride = stride + Index(((tuple(a for a in monomial if a != axis), coefficient),))
        return stride

    def bounds(self, extents: Extents) -> tuple[int, int] | None:
        """Smallest and largest value when each symbol ``s`` ranges over ``[0, extents[s])``; None where that is unknown or no number."""
        low = high = 0
        for monomial, coefficient in self.terms:
            lo, hi = 1, 1
            for atom in monomial:
                b = _atom_bounds(atom, extents)
                if b is None:
                    return None
                lo, hi = lo * b[0], hi * b[1]  # atoms are non-negative
            low += coefficient * (lo if coefficient > 0 else hi)
            high += coefficient * (hi if coefficient > 0 else lo)
        return low, high

    def evaluate(self, values: Mapping[str, int]) -> int:
        total = 0
        for monomial, coefficient in self.terms:
            for atom in monomial:
                if isinstance(atom, str):
                    coefficient *= values[atom]
                elif isinstance(atom, FloorDiv):
                    coefficient *= atom.numerator.evaluate(values) // atom.denominator.evaluate(values)
                else:
                    coefficient *= atom.numerator.evaluate(values) % atom.denominator.evaluate(values)
            total += coefficient
        return total

    def atoms(self) -> Iterator[Atom]:
        for monomial, _ in self.terms:
            yield from monomial

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts = []
        for monomial, coefficient in self.terms:
            factors = [f"({a})" if not isinstance(a, str) else a for a in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            parts.append("*".join(factors))
        return " + ".join(parts)


def _canonical(terms: Mapping[Monomial, int]) -> Index:
    return Index(tuple(sorted(((m, c) for m, c in terms.items() if c), key=lambda t: tuple(map(str, t[0])))))


def without_remainders(total: Index) -> Index:
    """The same with ``n % k`` as ``n - k*(n//k)``, at the outermost level."""
    out = ZERO
    for monomial, coefficient in total.terms:
        product = index(coefficient)
        for atom in monomial:
            product *= (
                atom.numerator - atom.denominator * floordiv(atom.numerator, atom.denominator)
                if type(atom) is Mod
                else Index((((atom,), 1),))
            )
        out = out + product
    return out


def _recombined(total: Index) -> Index:
    """k*(n//k) + n%k -> n, wherever both halves are there with fitting coefficients."""
    terms = dict(total.terms)
    for monomial, coefficient in total.terms:
        for atom in monomial:
            if not isinstance(atom, Mod) or len(atom.denominator.terms) != 1:
                continue
            [(factors, k)] = atom.denominator.terms
            rest = list(monomial)
            rest.remove(atom)
            quotient = floordiv(atom.numerator, atom.denominator).terms  # of n = x//a it is x//(a*k)
            if len(quotient) != 1 or quotient[0][1] != 1:
                continue
            partner = tuple(sorted([*rest, *factors, *quotient[0][0]], key=str))
            if terms.get(partner) == coefficient * k and monomial in terms:
                del terms[partner], terms[monomial]
                return _canonical(terms) + Index(((tuple(rest), coefficient),)) * atom.numerator
    return total


ZERO = Index(())
ONE = Index((((), 1),))


def index(value: IndexLike) -> Index:
    """An Index from an int, a symbol's name, or an Index."""
    if isinstance(value, Index):
        return value
    if isinstance(value, int):
        return Index((((), value),)) if value else ZERO
    return Index((((value,), 1),))


def _split(numerator: Index, divisor: int) -> tuple[Index, Index]:
    """Terms whose coefficient ``divisor`` divides, already divided; and the rest."""
    whole = {m: c // divisor for m, c in numerator.terms if c % divisor == 0}
    rest = {m: c for m, c in numerator.terms if c % divisor}
    return _canonical(whole), _canonical(rest)


def _shrunk(value: Index, factor: int) -> Index:
    return Index(tuple((m, c // factor) for m, c in value.terms))


def _reduced(numerator: Index, denominator: Index) -> tuple[Index, Index, Index]:
    """Both without the factor, a product of sizes, that all their terms have in common; and that factor."""
    if not numerator.terms:
        return numerator, denominator, ONE
    monomials = [m for m, _ in (*numerator.terms, *denominator.terms)]
    common: list[Atom] = []
    for atom in monomials[0]:
        if all(_without(m, (*common, atom)) is not None for m in monomials):
            common.append(atom)
    factor = gcd(*(c for _, c in (*numerator.terms, *denominator.terms)))
    if not common and factor == 1:
        return numerator, denominator, ONE
    whole = tuple(common)
    parts = (Index(tuple((_without(m, whole) or (), c // factor) for m, c in i.terms)) for i in (numerator, denominator))
    n, d = (_canonical(dict(p.terms)) for p in parts)
    return n, d, Index(((whole, factor),))


def _degree(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    return len(monomial), tuple(map(str, monomial))


def _without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    """``monomial / factor``; None where that is no monomial."""
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _divided(numerator: Index, divisor: Index) -> tuple[Index, Index]:
    """Quotient and rest of the division of polynomials: ``numerator == quotient * divisor + rest``."""
    lead, coefficient = max(divisor.terms, key=lambda t: _degree(t[0]))
    quotient, rest = ZERO, numerator
    for _ in range(8):  # each round takes all terms that the leading one divides; what they leave behind is of lower degree
        found = {left: c // coefficient for m, c in rest.terms if c % coefficient == 0 and (left := _without(m, lead)) is not None}
        if not found:
            break
        part = _canonical(found)
        quotient, rest = quotient + part, rest - part * divisor
    return quotient, rest


def _is_below(value: Index, limit: Index, extents: Extents) -> bool:
    """Whether certainly ``0 <= value < limit``, by extents that are expressions."""
    sizes = limit.symbols.union(*(e.symbols for e in extents.values() if isinstance(e, Index))) - extents.keys()
    low, high = ZERO, ZERO
    for monomial, coefficient in value.terms:
        term = Index((((), coefficient),))
        moves = False
        for atom in monomial:
            if not isinstance(atom, str):
                return False
            moves = moves or atom in extents
            if atom not in extents and atom not in sizes:
                return False
            term = term * (index(extents[atom]) - 1 if atom in extents else index(atom))
        low = low if moves and coefficient > 0 else low + term
        high = high if moves and coefficient < 0 else high + term
    return all(c >= 0 for _, c in low.terms) and all(c >= 0 for _, c in (limit - high - 1).terms)


def floordiv(numerator: IndexLike, denominator: IndexLike, extents: Extents | None = None) -> Index:
    """``numerator // denominator`` (rounded down). Exact parts are pulled out: (8*i + j)//8 -> i where 0 <= j < 8."""
    n, d = index(numerator), index(denominator)
    if n == d:
        return ONE
    if d.constant is None:
        n, d, _ = _reduced(n, d)
    if (k := d.constant) is not None:
        if k == 1:
            return n
        whole, rest = _split(n, k)
        if not rest.terms:
            return whole
        bounds = rest.bounds(extents or {})
        if bounds is not None and bounds[0] // k == bounds[1] // k:
            return whole + bounds[0] // k
        if (c := n.constant) is not None:
            return index(c // k)
        if (factor := gcd(k, *(c for _, c in rest.terms))) > 1:  # (6*i)//10 -> (3*i)//5
            return whole + floordiv(_shrunk(rest, factor), k // factor, extents)
        if whole.terms:
            return whole + Index((((FloorDiv(rest, d),), 1),))
        if len(n.terms) == 1 and len(n.terms[0][0]) == 1 and n.terms[0][1] == 1:
            [atom] = n.terms[0][0]
            if isinstance(atom, FloorDiv) and (k2 := atom.denominator.constant) is not None:
                return floordiv(atom.numerator, k * k2, extents)  # (x//a)//b -> x//(a*b)
    elif d.terms:
        whole, rest = _divided(n, d)  # s*i // s -> i
        if not rest.terms or _is_below(rest, d, extents or {}):
            return whole
        return whole + Index((((FloorDiv(rest, d),), 1),))
    return Index((((FloorDiv(n, d),), 1),))


def mod(numerator: IndexLike, denominator: IndexLike, extents: Extents | None = None) -> Index:
    """``numerator % denominator`` with the sign of the denominator. (8*i + j)%8 -> j where 0 <= j < 8."""
    n, d = index(numerator), index(denominator)
    if n == d:
        return ZERO
    if d.constant is None:
        n, d, factor = _reduced(n, d)
        if factor != ONE:
            return mod(n, d, extents) * factor
    if (k := d.constant) is not None:
        if k == 1:
            return ZERO
        _, rest = _split(n, k)
        if (c := rest.constant) is not None:
            return index(c % k)
        bounds = rest.bounds(extents or {})
        if bounds is not None and bounds[0] >= 0 and bounds[1] < k:
            return rest
        if (common := gcd(k, *(c for _, c in rest.terms))) > 1:  # (6*i)%10 -> 2*((3*i)%5)
            return mod(_shrunk(rest, common), k // common, extents) * common
        return Index((((Mod(rest, d),), 1),))
    _, rest = _divided(n, d)
    if not rest.terms or _is_below(rest, d, extents or {}):
        return rest
    return Index((((Mod(rest, d),), 1),))


def _substitute_atom(atom: Atom, values: Mapping[str, IndexLike], extents: Extents) -> Index:
    if isinstance(atom, str):
        return index(values.get(atom, atom))
    make = floordiv if isinstance(atom, FloorDiv) else mod
    return make(atom.numerator.substitute(values, extents), atom.denominator.substitute(values, extents), extents)


def _atom_bounds(atom: Atom, extents: Extents) -> tuple[int, int] | None:
    if isinstance(atom, str):
        extent = extents.get(atom)
        return (0, max(extent - 1, 0)) if isinstance(extent, int) else None
    k = atom.denominator.constant
    b = atom.numerator.bounds(extents)
    if k is None or k <= 0:
        return None
    if isinstance(atom, Mod):
        return (0, k - 1) if b is None or b[0] < 0 else (0, min(k - 1, b[1]))
    if b is None or b[0] < 0:
        return None
    return b[0] // k, b[1] // k
