"""Rows and the sums down their columns in one pass: a program goes over several rows, and keeps what it has summed of each column.

There are as many programs as a device runs at once, and each takes rows at equal distances. What they have summed goes to scratch memory,
a row a program, and a second launch puts it together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Axis, Buffer, Expr, Load, Nest, Phase, Store
from opmill_graph_ir.schedule.columns import along_one_axis, summed_beside

from . import walk
from .emit.body import Lines
from .emit.space import Group, Text
from .nest import Frame, NestWriter
from .tiling import Budget, Tiling, choose, even

_PROGRAM = "program"
"""The name of a program's number in places of scratch memory."""
_VALUES = 2
"""How many times as much of a row is kept where it would be read once more otherwise, and its columns, too."""
_AHEAD = 4
"""Rows of buffers that are read a turn ahead: more take registers that other programs of a multiprocessor need."""
_TURNS = 4
"""Rows that a program should at least go over: each leaves as much as one row."""


@dataclass(frozen=True)
class Summed:
    """``rows``, and for each of them ``sums``, which stores what a program has summed: a row of scratch memory for each of ``programs``.
    ``tiling``: of one turn. ``ends``: what puts the sums together, with the ``scratch`` between. ``count``: nests that this does."""

    rows: Nest
    sums: Phase
    tiling: Tiling
    programs: int
    ends: tuple[Nest, ...]
    scratch: tuple[Buffer, ...]

    @property
    def count(self) -> int:
        return len(self.ends) + 1

    @property
    def whole(self) -> Nest:
        return replace(self.rows, phases=(*self.rows.phases, self.sums))


def in_one_pass(nests: Sequence[Nest], symbols: tuple[str, ...], prefix: str, budget: Budget) -> Summed | None:
    """The first nest and those behind it that only sum down its columns (names of scratch memory start with ``prefix``); None where it is
    by itself."""
    rows = along_one_axis(nests[0])
    found: list[Phase] = []
    for nest in nests[1:]:
        if (phase := summed_beside(rows, nest)) is None or _needs(nest, nests[1 : len(found) + 1]):
            break
        found.append(phase)
    if not found or not budget.resident:
        return None
    tiling = choose(rows, symbols, replace(budget, values=_VALUES * budget.values))
    if tiling.looped or tiling.turns > 1 or tiling.dot is not None or len(tiling.outer) != 1:
        return None
    [row], [column] = rows.axes, found[0].axes
    x = min(tiling.block("x"), even(row.extent.constant or 1))
    tiling = replace(tiling, blocks=(("x", x), ("r", tiling.block("r"))))
    programs = _programs((row.extent.constant or 1) // x, tiling.warps, budget)
    buffers: list[Buffer] = []
    stores: list[Store] = []
    ends: list[Nest] = []
    for k, (phase, nest) in enumerate(zip(found, nests[1:], strict=False)):
        part = Axis(f"{prefix}_q{k}", index(programs))
        [own] = nest.axes
        reductions = []
        for r in phase.reductions:
            buffers.append(Buffer(f"{prefix}_{r.names[0]}_parts", r.dtype, "inout", column.extent * programs, "scratch"))
            stores.append(Store(buffers[-1].name, index(_PROGRAM) * column.extent + column.name, r.value))
            reductions.append(replace(r, value=Load(buffers[-1].name, index(part.name) * column.extent + own.name, r.dtype)))
        ends.append(Nest(nest.axes, (Phase((part,), reductions=tuple(reductions)), *nest.phases[1:]), nest.origin))
    lets = tuple(let for phase in found for let in phase.lets)
    sums = Phase((column,), lets, stores=tuple(stores))
    return Summed(rows, sums, tiling, programs, tuple(ends), tuple(buffers))


def _needs(nest: Nest, others: Sequence[Nest]) -> bool:
    """Whether it touches what others write, or writes what they touch."""
    touched = walk.read(nest) | walk.written(nest)
    return any(touched & walk.written(o) or walk.written(nest) & walk.read(o) for o in others)


def _programs(turns: int, warps: int, budget: Budget) -> int:
    """As many as run at once, each with as much to do as others."""
    most = max(min(max(budget.resident // warps, 1) * budget.processors, turns // _TURNS), 1)
    return -(-turns // -(-turns // most))


class RowsWriter(NestWriter):
    """Writes what is done in one pass."""

    def __init__(self, summed: Summed, frame: Frame, name: str, wide: bool) -> None:
        super().__init__(frame, summed.whole, name, summed.tiling, wide)
        self.summed = summed
        self.body.names[_PROGRAM] = Text(self._program(), frozenset())

    def _reads_early(self) -> bool:
        return False

    def _grid(self) -> Index:
        return index(self.summed.programs)

    def _outer(self) -> None:
        """Rows are chosen turn by turn."""
        rows = Group("x", self.nest.axes, self.tiling.block("x"), False, self.body.define)
        rows.along = "[:, None]"
        self.body.groups = [rows]

    def _phases(self, first: int = 0, end: int | None = None) -> None:
        body, outside, loop = self.body, self.lines, Lines(2)
        *phases, last = self.nest.phases
        [rows] = body.groups
        row = self._row_group(last)
        self._row_index(row, outside, None)
        self.row, body.groups = last.axes, [rows, row]
        self._read_once(phases)
        block, step = self.tiling.block("x"), self.summed.programs * self.tiling.block("x")
        begin = self._program() if block == 1 else f"{self._program()} * XBLOCK"
        extent = body.space.scalar(rows.extent)
        now: dict[Expr, Text] = {}
        after: dict[Expr, Text] = {}
        ahead = len(self._large()) <= _AHEAD
        if ahead:
            now = self._read_row(rows, begin)
        self.lines = body.outer = body.inner = loop
        if ahead:
            after = self._read_row(rows, f"tl.minimum(xstart + {step}, {extent} - XBLOCK)")
            rows.start = "xstart"
            loop.add(f"xindex = xstart + tl.arange(0, XBLOCK){rows.along}")
            self._drop("x")
            body.memo.update(now)
        else:
            self._read_row(rows, "xstart")
        super()._phases(0, len(phases))
        body.groups = [rows, row]
        for let in last.lets:
            body.names[let.name] = body.value(let.value)
        sums = [body.fresh("sum") for _ in last.stores]
        for name, store in zip(sums, last.stores, strict=True):
            outside.add(f"{name} = tl.zeros([XBLOCK, RBLOCK], tl.float32)")
            loop.add(f"{name} += {body.spread(body.value(store.value), frozenset({'x', 'r'}))}")
        for e, value in now.items():
            loop.add(f"{value.text} = {after[e].text}")
        outside.add(f"for xstart in range({begin}, {extent}, {step}):")
        outside.lines += loop.lines
        self.lines = body.outer = body.inner = outside
        body.groups = [row]
        for name, store in zip(sums, last.stores, strict=True):
            mask = ", mask=rmask" if row.masked else ""
            outside.add(f"tl.store({store.buffer}_ptr + {body.space.index(store.index).tight}, tl.sum({name}, 0)[None, :]{mask})")

    def _read_row(self, rows: Group, start: str) -> dict[Expr, Text]:
        """All that a turn reads of memory, where there are registers for it by the turn before: a program waits for it while it computes,
        and its threads for each other only then."""
        rows.start = start
        self._drop("x")
        self.lines.add(f"xindex = {start} + tl.arange(0, XBLOCK){rows.along}")
        outer = {a.name for a in self.nest.axes}
        return {e: self.body.value(e) for e in self._settled() if e.index.symbols & outer}

    def _settled(self) -> list[Load]:
        loads = dict.fromkeys(e for p in self.nest.phases for e in walk.loads(p))
        return [e for e in loads if e.mask is None and self.body.settled(e)]

    def _large(self) -> list[Load]:
        """What is read of whole rows."""
        axes = {self.nest.axes[0].name, self.summed.sums.axes[0].name}
        return [e for e in self._settled() if axes <= e.index.symbols]

    def _read_once(self, phases: Sequence[Phase]) -> None:
        """What all rows share is read before the first of them."""
        outer = {a.name for a in self.nest.axes}
        for e in dict.fromkeys(e for p in phases if p.axes for e in walk.loads(p)):
            if e.mask is None and not e.index.symbols & outer and self.body.settled(e):
                self.body.value(e)


__all__ = ["RowsWriter", "Summed", "in_one_pass"]
