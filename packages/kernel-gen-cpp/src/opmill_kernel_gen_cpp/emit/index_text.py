"""Index expressions as C++ text over ``long``."""

from __future__ import annotations

from collections.abc import Mapping

from opmill_graph_ir.loops.index import Atom, FloorDiv, Index

from .needs import Needs

UNKNOWN = 1 << 40
"""Stands for the extent of a size symbol in bounds."""

_FLOOR = """static inline long floor_div(long a, long b) { const long q = a / b; return q - (a % b != 0 && (a < 0) != (b < 0)); }
static inline long floor_mod(long a, long b) { const long r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r; }"""


def index_text(index: Index, names: Mapping[str, str], extents: Mapping[str, int], needs: Needs) -> str:
    """``names`` maps symbols to C++ text, ``extents`` bounds them (symbols range below), so that plain division can be used."""
    if not index.terms:
        return "0"
    parts = []
    for monomial, coefficient in index.terms:
        factors = [_atom(a, names, extents, needs) for a in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, f"{coefficient}L" if abs(coefficient) >= 1 << 31 else str(coefficient))
        parts.append(" * ".join(factors))
    text = " + ".join(parts).replace("+ -", "- ")
    return f"({text})" if len(parts) > 1 else text


def _atom(atom: Atom, names: Mapping[str, str], extents: Mapping[str, int], needs: Needs) -> str:
    if isinstance(atom, str):
        return names[atom]
    n = index_text(atom.numerator, names, extents, needs)
    d = index_text(atom.denominator, names, extents, needs)
    known = atom.numerator.bounds(extents)
    divide = isinstance(atom, FloorDiv)
    if known is not None and known[0] >= 0:
        return f"(({n}) {'/' if divide else '%'} ({d}))"
    needs.add("floor division", _FLOOR)
    return f"{'floor_div' if divide else 'floor_mod'}({n}, {d})"
