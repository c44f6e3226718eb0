"""Splits nests with few long rows over many programs: loop IR to loop IR.

A row is cut into chunks; one launch reduces each chunk into scratch memory, a second one combines the chunks, and phases that walk the
row again become launches of their own over all its points. Results travel in scratch buffers, one element a row. So a mean over
everything, a softmax over one long row and a column sum all fill the machine. Where rows are not alike, or nothing is reduced along them,
each phase first becomes a launch of its own, and those that reduce are split in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar

from opmill_graph_ir.loops.index import Index, floordiv, index, mod
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Expr, IndexValue, Let, Load, Nest, Op, Phase, Reduction, Ref, Store
from opmill_graph_ir.schedule.coalesce import map_phase, shape_nest
from opmill_graph_ir.schedule.rewrite import Rewriter

from . import walk
from .emit.reductions import identity
from .emit.space import product
from .emit.types import typed
from .tiling import COLUMNS, UNKNOWN, Budget, choose, even
from .walk import points

_UNKNOWN_CHUNKS = 64
_STEP = 64
_CHUNKS = 8
"""Of a row, that are worth a launch more where there are few rows."""
_WAVES = 8
"""Programs a multiprocessor that reduce parts of columns: each has several loads under way."""
_STORING_WAVES = 16
"""The same where they store what they have computed."""
_DTYPES = {"float32", "float64", "int32", "int64", "bool"}


def split_nest(nest: Nest, symbols: Iterable[str], prefix: str, budget: Budget) -> tuple[list[Nest], list[Buffer]]:
    """The nests that do what ``nest`` does, and the scratch buffers (names start with ``prefix``) between them."""
    symbols = tuple(symbols)
    chunks = _chunks(nest, symbols, budget)
    if chunks < 2 and not _crowded(nest, symbols, budget):
        return [nest], []
    splitter = _Splitter(nest, prefix, chunks)
    splitter.run()
    if chunks > 1:
        return splitter.nests, splitter.scratch
    parts = [split_nest(part, symbols, f"{prefix}_{k}", budget) for k, part in enumerate(splitter.nests)]
    return [n for nests, _ in parts for n in nests], [*splitter.scratch, *(b for _, buffers in parts for b in buffers)]


def _crowded(nest: Nest, symbols: tuple[str, ...], budget: Budget) -> bool:
    """Whether a few programs would do all the work of phases that may as well stand apart."""
    inner = [p for p in nest.phases if p.axes]
    reductions = [r for p in inner for r in p.reductions]
    if not inner or (
        reductions and len({tuple(a.extent for a in p.axes) for p in inner}) == 1
    ):  # rows that are alike stay in registers, or are cut
        return False
    if any(p.checks or p.scans for p in nest.phases) or any(r.dtype not in _DTYPES for r in reductions):
        return False
    tiling, longest = choose(nest, symbols, budget), max(points(p.axes, dict.fromkeys(symbols, UNKNOWN)) for p in inner)
    return tiling.looped and longest >= _CHUNKS * budget.chunk and tiling.programs * 2 <= budget.processors


def _chunks(nest: Nest, symbols: tuple[str, ...], budget: Budget) -> int:
    """Into how many parts rows are cut; 1 where they are not."""
    phases = [p for p in nest.phases if p.axes]
    reductions = [r for p in phases for r in p.reductions]
    checked = [p for p in nest.phases if p.checks]
    if (
        not reductions
        or any(p.scans for p in phases)
        or not all(map(_checks_with_chunks, checked))
        or any(r.dtype not in _DTYPES for r in reductions)
    ):
        return 1
    if len({tuple(a.extent for a in p.axes) for p in phases}) > 1:
        return 1
    tiling = choose(nest, symbols, budget)
    if not tiling.looped or not tiling.apart or tiling.programs >= 2 * budget.processors:
        return 1
    length = product(phases[0].axes).constant
    if length is None:
        return 1 if checked else _UNKNOWN_CHUNKS
    columns = tiling.block("x") > 1
    programs = -(-points(nest.axes, dict.fromkeys(symbols, UNKNOWN)) // COLUMNS) if columns else tiling.programs
    waves = 8 if not columns else _STORING_WAVES if any(p.stores for p in phases) else _WAVES
    wanted = min(waves * budget.processors // programs, length // max(budget.chunk // tiling.block("x"), budget.steps))
    chunks = _whole_number(length, wanted)
    return chunks if not checked or (chunks > 1 and length % chunks == 0) else 1


def _checks_with_chunks(phase: Phase) -> bool:
    """Whether the checks of a phase can be made by the launch that reduces chunks: it does nothing else, each point is visited once."""
    return bool(phase.axes and phase.reductions) and not phase.stores


def _whole_number(length: int, wanted: int) -> int:
    """``wanted`` or, where there is one not far off, a divisor of ``length``: rather one whose parts are walked in steps without a rest."""
    near = [k for k in range(max(wanted // 2, 2), 2 * wanted + 1) if length % k == 0]
    return min(near, key=lambda k: (-min(even(length // k), _STEP), abs(k - wanted)), default=wanted)


class _Splitter:
    """``chunks`` of 1: rows stay whole."""

    def __init__(self, nest: Nest, prefix: str, chunks: int) -> None:
        self.nest, self.prefix = nest, prefix
        self.nests: list[Nest] = []
        self.scratch: list[Buffer] = []
        self.saved: dict[str, str] = {}
        self.rows = product(nest.axes)
        self.row = _row_major(nest.axes)
        self.length = product(next(p.axes for p in nest.phases if p.axes))
        self.exact = self.length.constant is not None and self.length.constant % chunks == 0
        self.size = floordiv(self.length + (chunks - 1), chunks)
        n = self.size.constant
        self.chunks = chunks if n is None else -(-(self.length.constant or 0) // n)
        self.phases = nest.phases if self.exact or chunks == 1 else tuple(q for p in nest.phases for q in _two_passes(p, self.length))

    def run(self) -> None:
        """Adds the nests of all phases. Phases without inner axes go along with the launch that ends the reduction before them."""
        number = 0
        while number < len(self.phases):
            phase, end = self.phases[number], number + bool(self.phases[number].axes)
            while end < len(self.phases) and not self.phases[end].axes:
                end += 1
            plain = [p for p in self.phases[number:end] if not p.axes]
            combined = self._reduced(phase, number) if phase.reductions else []
            if phase.axes and phase.stores and not self._in_one_pass(phase):  # after the reduction, which may read what they overwrite
                self._add((*self.nest.axes, *phase.axes), [Phase((), phase.lets, (), (), phase.stores)], replace(phase, reductions=()))
            names = [(let.name, let.value.dtype) for p in plain for let in p.lets]
            names += [result for p in combined for r in p.reductions for result in _results(r)]
            names += [(let.name, let.value.dtype) for p in combined if not p.axes for let in p.lets]
            if combined or plain:
                known = dict(self.saved)
                self._add(self.nest.axes, [*combined, *plain, self._save(names, self._later(end - 1))], *combined, *plain, known=known)
            number = end

    def _in_one_pass(self, phase: Phase) -> bool:
        """Whether the launch that reduces chunks stores, too: each point is visited once, and is read before it is overwritten."""
        return self.chunks > 1 and self.exact and bool(phase.reductions)

    def _reduced(self, phase: Phase, number: int) -> list[Phase]:
        """The phases that end the reductions of ``phase``, where they may share a launch with what follows."""
        if self.chunks > 1:
            return self._reduce(phase)
        own = replace(phase, stores=())
        if not phase.stores:
            return [own]
        known = dict(self.saved)
        names = [result for r in phase.reductions for result in _results(r)]
        self._add(self.nest.axes, [own, self._save(names, self._later(number))], own, known=known)
        return []

    def _later(self, number: int) -> frozenset[str]:
        """Names that the phases after ``number`` mention."""
        return frozenset().union(*(walk.names_in(p) for p in self.phases[number + 1 :]))

    def _add(self, axes: tuple[Axis, ...], phases: list[Phase], *users: Phase, known: dict[str, str] | None = None) -> None:
        """A nest that starts by reading back what its phases need of earlier ones: of ``known``, by default all that is saved."""
        mentioned = frozenset().union(*(walk.names_in(p) for p in users))
        lets = tuple(
            Let(n, Load(f"{self.prefix}_{n}", self.row, d)) for n, d in (self.saved if known is None else known).items() if n in mentioned
        )
        own = [p for p in phases if p != Phase()]
        if own:
            nest = Nest(axes, ((Phase(lets=lets), *own) if lets else tuple(own)), self.nest.origin)
            pointwise = not any(p.axes for p in own)  # the axes of rows and of what is along them, not yet ordered as memory is
            self.nests.append(shape_nest(nest, {a.name: a.extent for a in axes}) if pointwise and axes else nest)

    def _buffer(self, name: str, dtype: str, numel: Index) -> str:
        name = f"{self.prefix}_{name}"
        self.scratch.append(Buffer(name, dtype, "inout", numel, "scratch"))
        return name

    def _save(self, names: list[tuple[str, str]], later: frozenset[str]) -> Phase:
        """Stores what later phases need."""
        stores = []
        for name, dtype in names:
            if name in later:
                stores.append(Store(self._buffer(name, dtype, self.rows), self.row, Ref(name, dtype)))
                self.saved[name] = dtype
        return Phase(stores=tuple(stores))

    def _reduce(self, phase: Phase) -> list[Phase]:
        """Adds the nest that reduces chunks; gives the phases that combine them."""
        k, c, q = (Axis(f"{self.prefix}_{n}", index(e)) for n, e in (("k", self.chunks), ("c", self.size), ("q", self.chunks)))
        place = index(k.name) * self.size + c.name
        inside = None if self.exact else Op("lt", (IndexValue(place, "int64"), IndexValue(self.length, "int64")), "bool")
        whole = phase if self._in_one_pass(phase) else replace(phase, stores=())
        moved = map_phase(whole, _OfChunk(_unflatten(place, phase.axes), inside), (c,))
        names = {n: (d, self._buffer(f"{n}_parts", d, self.rows * self.chunks)) for r in phase.reductions for n, d in _results(r)}
        partial = replace(moved, reductions=tuple(replace(r, value=_masked(inside, r.value, r)) for r in moved.reductions))
        part = index(k.name) * self.rows + self.row
        stores = tuple(Store(b, part, self._global(n, d, phase, k)) for n, (d, b) in names.items())
        self._add((k, *self.nest.axes), [partial, Phase(stores=stores)], phase)
        there = index(q.name) * self.rows + self.row
        parts = {n: Load(b, there, d) for n, (d, b) in names.items()}
        return [p for r in phase.reductions for p in self._combine(r, q, parts)]

    def _global(self, name: str, dtype: str, phase: Phase, k: Axis) -> Expr:
        """A result of a chunk; positions count from the start of the row."""
        if not any(r.op.startswith("arg") and r.names[1] == name for r in phase.reductions):
            return Ref(name, dtype)
        return Op("add", (Ref(name, dtype), IndexValue(index(k.name) * self.size, dtype)), dtype)

    def _combine(self, r: Reduction, q: Axis, parts: dict[str, Load]) -> list[Phase]:
        """Phases that make one result of the chunks'."""
        if r.op.startswith("arg"):
            value, at = r.names
            best = f"{self.prefix}_{at}_best"
            there = index(best) * self.rows + self.row
            first = Phase((q,), (), (), (Reduction((value, best), r.op, parts[value], r.dtype),))
            return [first, Phase(lets=(Let(at, Load(parts[at].buffer, there, "int64")),))]
        if r.op != "welford":
            return [Phase((q,), (), (), (Reduction(r.names, r.op, parts[r.names[0]], r.dtype),))]
        mean, m2 = r.names
        total = f"{self.prefix}_{mean}_sum"
        average = Op("div", (Ref(total, r.dtype), Const(float(self.chunks), r.dtype)), r.dtype)
        distance = Op("sub", (parts[mean], Ref(mean, r.dtype)), r.dtype)
        square = Op("mul", (Op("mul", (distance, distance), r.dtype), IndexValue(self.size, r.dtype)), r.dtype)
        return [
            Phase((q,), (), (), (Reduction((total,), "sum", parts[mean], r.dtype),)),
            Phase(lets=(Let(mean, average),)),
            Phase((q,), (), (), (Reduction((m2,), "sum", Op("add", (parts[m2], square), r.dtype), r.dtype),)),
        ]


def _results(r: Reduction) -> list[tuple[str, str]]:
    return [(n, "int64" if k and r.op.startswith("arg") else r.dtype) for k, n in enumerate(r.names)]


def _two_passes(phase: Phase, length: Index) -> list[Phase]:
    """Welford's mean and squares as two sums, each of which chunks of unequal length can share."""
    found = [r for r in phase.reductions if r.op == "welford"]
    if not found:
        return [phase]
    sums, lets, squares = [], [], []
    for r in found:
        mean, m2 = r.names
        sums.append(Reduction((f"{mean}_sum",), "sum", r.value, r.dtype))
        lets.append(Let(mean, Op("div", (Ref(f"{mean}_sum", r.dtype), IndexValue(length, r.dtype)), r.dtype)))
        distance = Op("sub", (r.value, Ref(mean, r.dtype)), r.dtype)
        squares.append(Reduction((m2,), "sum", Op("mul", (distance, distance), r.dtype), r.dtype))
    others = tuple(r for r in phase.reductions if r.op != "welford")
    first = replace(phase, reductions=(*others, *sums), stores=())
    return [first, Phase(lets=tuple(lets)), replace(phase, checks=(), reductions=tuple(squares))]


def _masked(inside: Expr | None, value: Expr, r: Reduction) -> Expr:
    if inside is None:
        return value
    if r.dtype == "bool":
        start = Const(r.op in ("all", "prod", "min"), "bool")
    else:
        start = identity(r.op, r.dtype)
    return Op("where", (inside, value, start), r.dtype)


def _row_major(axes: tuple[Axis, ...]) -> Index:
    total = index(0)
    for a in axes:
        total = total * a.extent + a.name
    return total


def _unflatten(place: Index, axes: tuple[Axis, ...]) -> dict[str, Index]:
    """The axes of a row by the position in it."""
    out: dict[str, Index] = {}
    for a in reversed(axes[1:]):
        out[a.name] = mod(place, a.extent)
        place = floordiv(place, a.extent)
    out[axes[0].name] = place
    return out


class _OfChunk(Rewriter):
    """Moves expressions to the axes of a chunk; beyond the end of the row nothing is read."""

    def __init__(self, axes: dict[str, Index], inside: Expr | None) -> None:
        super().__init__(axes)
        self.inside = inside

    def _load(self, expr: Load) -> Expr:
        mask = None if expr.mask is None else self(expr.mask)
        if self.inside is not None and expr.index.symbols & self.symbols.keys():
            mask = self.inside if mask is None else Op("logical_and", (self.inside, mask), "bool")
        other = expr.other
        if mask is not None and other is None:
            other = Const(typed(0, expr.dtype), expr.dtype)
        return Load(expr.buffer, self.index(expr.index), expr.dtype, mask, other)

    _RULES: ClassVar[dict[type, Callable[..., Expr]]] = {**Rewriter._RULES, Load: _load}
