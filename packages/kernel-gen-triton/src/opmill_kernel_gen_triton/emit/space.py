"""The tile of a program: dimensions, the axes behind each, and index expressions over them as text.

A nest's tile has one or two outer dimensions (``y``, ``x``) and, where phases have inner axes, the dimension ``r``. Each dimension is a
flattened group of axes. Axes that step through memory as one are kept as one: ``7*i + j`` over axes of extents 3 and 7 is ``x``, not
``7*(x // 7) + x % 7``, so that the compiler sees contiguous addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opmill_graph_ir.loops.index import ONE, ZERO, Atom, FloorDiv, Index, floordiv
from opmill_graph_ir.loops.ir import Axis

from .helpers import resolve

Dims = frozenset[str]
NONE: Dims = frozenset()


def product(axes: tuple[Axis, ...]) -> Index:
    """The number of points of a domain."""
    total = ONE
    for a in axes:
        total = total * a.extent
    return total


def tiles(extent: Index, block: int) -> Index:
    """How many blocks it takes to cover so many points."""
    return floordiv(extent + (block - 1), block)


@dataclass(frozen=True)
class Text:
    """``text`` of a value that varies along ``dims`` of the tile; ``atomic`` needs no parentheses."""

    text: str
    dims: Dims = NONE
    atomic: bool = False

    @property
    def tight(self) -> str:
        return self.text if self.atomic else f"({self.text})"


@dataclass
class Group:
    """One dimension of the tile: ``name``, its ``axes`` (the last one fastest), ``block`` elements, ``masked`` where the extent is no
    multiple of it. ``define`` writes a line where the dimension is known and returns its variable. ``start``: text of a tile's first
    position, ``along``: of the subscript that spreads its positions along the dimension. ``reach``: where it is not 0, positions up to
    there (beyond the extent) may be read of buffers that have them, so that all loads of a row are of whole vectors."""

    name: str
    axes: tuple[Axis, ...]
    block: int
    masked: bool
    define: Callable[[str, str], str]
    start: str = "0"
    along: str = ""
    reach: int = 0
    runs: dict[tuple[int, int], str] = field(default_factory=dict)

    @property
    def variable(self) -> str:
        return f"{self.name}index"

    @property
    def extent(self) -> Index:
        return product(self.axes)

    def run(self, first: int, last: int, scalars: Callable[[Index], str]) -> str:
        """The variable that counts through axes ``first`` to ``last`` (inclusive) as one."""
        if first == 0 and last == len(self.axes) - 1:
            return self.variable
        if (first, last) not in self.runs:
            tail, own = product(self.axes[last + 1 :]), product(self.axes[first : last + 1])
            text = self.variable if tail == ONE else f"({self.variable} // {scalars(tail)})"
            if first:
                text = f"{text} % {scalars(own)}"
            self.runs[first, last] = self.define("".join(a.name for a in self.axes[first : last + 1]) + "_at", text)
        return self.runs[first, last]


@dataclass
class Space:
    """The dimensions of the tile in order, and what other names (lets, size symbols) mean."""

    groups: list[Group]
    names: Mapping[str, Text]
    needs: dict[str, None]

    def index(self, i: Index) -> Text:
        """An index expression as text."""
        rest, linear = self._split(i)
        parts: list[tuple[str, int]] = []
        dims: set[str] = set()
        for group in self.groups:
            for first, last, coefficient in _runs(group, linear):
                scale = self.index(coefficient)
                dims |= {group.name} | scale.dims
                variable = group.run(first, last, self.scalar)
                sign, text = _scaled(coefficient, scale, variable)
                parts.append((text, sign))
        for monomial, c in rest.terms:
            factors = [self._atom(a) for a in monomial]
            dims |= {d for f in factors for d in f.dims}
            names = [f.tight for f in factors]
            if abs(c) != 1 or not names:
                names.insert(0, str(abs(c)))
            parts.append((" * ".join(names), 1 if c > 0 else -1))
        if not parts:
            return Text("0", NONE, True)
        text = parts[0][0] if parts[0][1] > 0 else f"-{parts[0][0]}"
        for part, sign in parts[1:]:
            text += f" {'+' if sign > 0 else '-'} {part}"
        return Text(text, frozenset(dims), len(parts) == 1 and (parts[0][0].isidentifier() or parts[0][0].isdigit()) and parts[0][1] > 0)

    def scalar(self, i: Index) -> str:
        """A size as text."""
        return self.index(i).tight

    def _split(self, i: Index) -> tuple[Index, dict[str, Index]]:
        """What is not a multiple of a plain axis, and the factors of those."""
        axes = {a.name for g in self.groups for a in g.axes}
        linear: dict[str, Index] = {}
        rest = ZERO
        for monomial, c in i.terms:
            plain = [a for a in monomial if isinstance(a, str) and a in axes]
            if len(plain) == 1 and not any(_mentions(a, axes) for a in monomial if a is not plain[0]):
                left = list(monomial)
                left.remove(plain[0])
                linear[plain[0]] = linear.get(plain[0], ZERO) + Index(((tuple(left), c),))
            else:
                rest = rest + Index(((monomial, c),))
        return rest, linear

    def _atom(self, atom: Atom) -> Text:
        if isinstance(atom, str):
            for group in self.groups:
                for k, a in enumerate(group.axes):
                    if a.name == atom:
                        return Text(group.run(k, k, self.scalar), frozenset({group.name}), True)
            return self.names[atom]
        n, d = self.index(atom.numerator), self.index(atom.denominator)
        if self._sure(atom.numerator):
            return Text(f"{n.tight} {'//' if isinstance(atom, FloorDiv) else '%'} {d.tight}", n.dims | d.dims)
        name = "index_floordiv" if isinstance(atom, FloorDiv) else "index_mod"
        return Text(resolve(f"%{name}({n.text}, {d.text})", self.needs), n.dims | d.dims, True)

    def _sure(self, i: Index) -> bool:
        """Whether it cannot be negative: sums of axes and sizes are not, lets may be anything."""
        lets = {n for n, t in self.names.items() if not t.atomic or t.dims or n != t.text}
        return all(c > 0 for _, c in i.terms) and not i.symbols & lets


def _mentions(atom: Atom, axes: set[str]) -> bool:
    return atom in axes if isinstance(atom, str) else bool((atom.numerator.symbols | atom.denominator.symbols) & axes)


def _runs(group: Group, linear: Mapping[str, Index]) -> list[tuple[int, int, Index]]:
    """Stretches of axes that step through memory as one: (first, last, step of the last)."""
    out: list[tuple[int, int, Index]] = []
    for k, axis in enumerate(group.axes):
        step = linear.get(axis.name)
        if step is None or step == ZERO:
            continue
        if out and out[-1][1] == k - 1 and out[-1][2] == step * axis.extent:
            out[-1] = (out[-1][0], k, step)
        else:
            out.append((k, k, step))
    return out


def _scaled(coefficient: Index, scale: Text, variable: str) -> tuple[int, str]:
    """Sign and text of ``coefficient * variable``."""
    k = coefficient.constant
    if k is None:
        return 1, f"{scale.tight} * {variable}"
    return (1 if k > 0 else -1), variable if abs(k) == 1 else f"{abs(k)} * {variable}"
