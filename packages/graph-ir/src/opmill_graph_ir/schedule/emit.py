"""A group of loops as a nest of loop IR, still under the program's buffer names.

Members are laid out in phases: one may share a phase with what it reads at the same inner point (the value is then a let) and otherwise
comes in a later one. What a later phase needs of an inner value is computed again where that is cheap, else kept in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from ..loops.index import Index, floordiv, index, mod
from ..loops.ir import Axis, Check, Const, Expr, IndexValue, Let, Load, Nest, Op, Phase, Reduction, Ref, Scan, Store
from ..lowered import Read
from .cost import EXPENSIVE, cost
from .fuse import Group
from .loop import Loop, Program, Statement, Write, writes_of
from .rewrite import Rewriter, reads, walk

_RECOMPUTE_READS = 3
"""Buffers that a value which is computed again may read, ..."""
_RECOMPUTE_POINTS = 4
"""... and at how many places in all: one that reads more of them is sooner loaded."""


@dataclass
class _Draft:
    """A phase being filled. ``values``: what it produced at its own point, by buffer."""

    axes: tuple[Axis, ...]
    lets: list[Let] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)

    def takes(self, member: Loop) -> bool:
        """Whether a member over the same axes may be done here. Lets come before checks, and may not touch what these protect; both come
        before scans, which stand without reductions and go in one direction along one axis."""
        if self.checks or (member.checks and self.lets):
            return False
        if self.scans and (member.lets or member.checks or member.reductions):
            return False
        if member.scans and (self.reductions or len(self.axes) != 1):
            return False
        return not (member.scans and any(s.reverse != member.scans[0].reverse for s in self.scans))


@dataclass(frozen=True)
class _Produced:
    """A buffer written in the nest: by the draft number ``phase``, as ``write``; ``ref`` is the value at its point."""

    phase: int
    write: Write
    ref: Expr
    outer: bool
    axes: tuple[Axis, ...]


def emit_nest(group: Group, needed: set[str], changed: Collection[str], program: Program) -> Nest:
    """``needed``: buffers that are read outside the group. Others are stored only where a later phase has to load them. ``changed``: those
    that are changed in place."""
    return _Emitter(group, needed, changed, program).nest()


class _Emitter:
    def __init__(self, group: Group, needed: set[str], changed: Collection[str], program: Program) -> None:
        self.group, self.needed, self.changed, self.program = group, needed, changed, program
        self.outer = _checked_axes(group, program)
        self.outer_names = {a.name for a in self.outer}
        self.drafts: list[_Draft] = []
        self.produced: dict[str, _Produced] = {}
        self.kept: set[str] = set()

    def nest(self) -> Nest:
        for member in self.group.loops:
            self._add(member)
        phases = tuple(
            Phase(
                d.axes,
                tuple(d.lets),
                tuple(d.checks),
                tuple(d.reductions),
                tuple(s for s in d.stores if self._is_stored(s)),
                tuple(d.scans),
            )
            for d in self.drafts
        )
        origins = dict.fromkeys(o for m in self.group.members for o in m.origin.split("; ") if o)
        return Nest(self.outer, tuple(p for p in phases if p != Phase(p.axes)), "; ".join(origins))

    def _is_stored(self, store: Store) -> bool:
        return store.buffer in self.needed or store.buffer in self.kept

    def _add(self, member: Loop) -> None:
        own = tuple(a for a in member.axes if a.name not in self.outer_names)
        axes = member.inner or own
        after = 0
        if axes and member.checks:
            member, after = self._hoisted(member)
        phase, symbols = self._place(member, axes, after)
        draft = self.drafts[phase]
        member = member.rewritten(Rewriter(symbols, extents=self.program.extents), member.axes, member.inner)
        resolve = Rewriter(rule=lambda read: self._resolve(read, phase))
        draft.lets.extend(Let(let.name, resolve(let.value)) for let in member.lets)
        draft.checks.extend(Check(resolve(c.condition), c.error, c.message) for c in member.checks)
        if member.checks and not axes:
            phase = self._append(())  # what the checks protect comes after them
        for scan in member.scans:
            draft.scans.append(replace(scan, values=tuple(map(resolve, scan.values))))
        if member.reductions:
            draft.reductions.extend(Reduction(r.names, r.op, resolve(r.value), r.dtype) for r in member.reductions)
            phase = self._outer_phase(phase + 1)
            resolve = Rewriter(rule=lambda read: self._resolve(read, phase))
        for write in member.writes:
            self._write(write, phase, resolve, not (own or member.scans))

    def _write(self, write: Write, phase: int, resolve: Rewriter, outer: bool) -> None:
        draft = self.drafts[phase]
        value = resolve(write.value)
        target = self._offset(write.buffer, write.indices)
        if write.mode != "set" or self.program.buffers[write.buffer].role != "temporary":
            draft.stores.append(Store(write.buffer, target, value, write.mode, write.first))
            self.kept.add(write.buffer)
            return
        if type(value) is not Ref and not draft.checks and not draft.scans:
            name = self.program.fresh_name("v")
            draft.lets.append(Let(name, value))
            value = Ref(name, value.dtype)
        draft.stores.append(Store(write.buffer, target, value, write.mode, write.first))
        self.produced[write.buffer] = _Produced(phase, write, value, outer, draft.axes)

    def _offset(self, buffer: str, indices: Iterable[Index]) -> Index:
        total = index(0)
        for i, stride in zip(indices, self.program.buffers[buffer].cells.strides, strict=True):
            total = total + i * stride
        return total

    # ---- phases ------------------------------------------------------------------------------------------------------------

    def _place(self, member: Loop, axes: tuple[Axis, ...], after: int) -> tuple[int, dict[str, Index]]:
        """The phase (``after`` or later) for a member that loops over ``axes``, and how its axes are called there."""
        found = [(self.produced[r.buffer], r) for r in member.reads() if r.buffer in self.produced]
        earliest = max((p.phase for p, _ in found), default=0)
        earliest = max(earliest, after)
        for k in range(earliest, len(self.drafts)):
            draft = self.drafts[k]
            if bool(draft.axes) != bool(axes) or not draft.takes(member):
                continue
            symbols = _renamed(axes, draft.axes)
            if symbols is not None and all(self._visible(p, r, k, symbols) for p, r in found):
                return k, symbols
        return self._append(axes), {}

    def _append(self, axes: tuple[Axis, ...]) -> int:
        self.drafts.append(_Draft(axes))
        return len(self.drafts) - 1

    def _hoisted(self, member: Loop) -> tuple[Loop, int]:
        """Moves lets and checks that depend on the outer point alone into a phase of their own; the rest comes after it."""
        moved: set[str] = set(self.outer_names)
        lets, checks = [], []
        for let in member.lets:
            if _names(let.value) <= moved and not self._reads_nest(let.value):
                lets.append(let)
                moved.add(let.name)
        for check in member.checks:
            if _names(check.condition) <= moved and not self._reads_nest(check.condition):
                checks.append(check)
        if not checks:
            return member, 0
        resolve = Rewriter(rule=lambda read: self._load(read))
        first = self.drafts[self._append(())]
        first.lets.extend(Let(let.name, resolve(let.value)) for let in lets)
        first.checks.extend(Check(resolve(c.condition), c.error, c.message) for c in checks)
        rest = tuple(let for let in member.lets if let not in lets), tuple(c for c in member.checks if c not in checks)
        return replace(member, lets=rest[0], checks=rest[1]), len(self.drafts)

    def _reads_nest(self, value: Expr) -> bool:
        return any(r.buffer in self.produced for r in reads(value))

    def _visible(self, produced: _Produced, read: Read, phase: int, symbols: dict[str, Index]) -> bool:
        """Whether a value of this nest can be read in ``phase``: from an earlier phase always, in its own at the same point."""
        if produced.phase < phase:
            return True
        at = tuple(i.substitute(symbols, self.program.extents) for i in read.indices)
        return produced.phase == phase and read.mask is None and at == produced.write.indices

    def _outer_phase(self, earliest: int) -> int:
        for k in range(earliest, len(self.drafts)):
            if not self.drafts[k].axes and not self.drafts[k].checks:
                return k
        return self._append(())

    # ---- reads -------------------------------------------------------------------------------------------------------------

    def _resolve(self, read: Read, phase: int) -> Expr:
        produced = self.produced.get(read.buffer)
        if produced is None:
            return self._load(read)
        if read.indices == produced.write.indices and (produced.outer or produced.phase == phase):
            return produced.ref if read.mask is None else Op("where", (read.mask, produced.ref, _other(read)), read.dtype)
        outside = read.buffer in self.needed or read.buffer in self.kept
        if not outside and read.mask is None and (again := self._again(produced, read, phase)) is not None:
            return again
        self.kept.add(read.buffer)
        return self._load(read)

    def _again(self, produced: _Produced, read: Read, phase: int) -> Expr | None:
        """The value computed anew at the point that is read, where that is cheap together with what is computed anew for it: steps of a
        stencil, each reading five points of the one before, would else be computed 5 ** n times. Of what is changed in place it would be
        another."""
        value = produced.write.value
        if read.buffer in self.changed or any(r.buffer in self.changed for r in reads(value)):
            return None
        names = {a.name for a in produced.axes}
        points = {(r.buffer, r.indices) for r in reads(value)}
        if produced.outer or cost(value) >= EXPENSIVE or len(points) > _RECOMPUTE_POINTS:
            return None
        if len({buffer for buffer, _ in points}) > _RECOMPUTE_READS:
            return None
        symbols: dict[str, Index] = {}
        for written, at in zip(produced.write.indices, read.indices, strict=True):
            if str(written) in names:
                symbols[str(written)] = at
            elif written != at:
                return None
        if symbols.keys() != names or _uses_lets(value):
            return None
        inner = Rewriter(symbols, extents=self.program.extents)(value)
        found = Rewriter(rule=lambda r: self._resolve(r, phase))(inner)
        return found if cost(found) < EXPENSIVE else None

    def _load(self, read: Read) -> Load:
        mask = read.mask
        return Load(read.buffer, self._offset(read.buffer, read.indices), read.dtype, mask, read.other)


def _renamed(axes: tuple[Axis, ...], there: tuple[Axis, ...]) -> dict[str, Index] | None:
    """The axes of a member in terms of those of a phase that goes through as many points in the same order: one for one, or one that the
    other has in several parts (rows of a batch, say, seen as one long list of rows). None where there is no such way."""
    if [a.extent for a in axes] == [a.extent for a in there]:
        return {a.name: index(b.name) for a, b in zip(axes, there, strict=True)}
    if len(axes) == 1 and _points(there) == axes[0].extent:
        return {axes[0].name: _row_major(there)}
    if len(there) == 1 and _points(axes) == there[0].extent:
        found, rest = {}, index(there[0].name)
        for axis in reversed(axes[1:]):
            found[axis.name] = mod(rest, axis.extent)
            rest = floordiv(rest, axis.extent)
        return {axes[0].name: rest, **found}
    return None


def _points(axes: Iterable[Axis]) -> Index:
    total = index(1)
    for axis in axes:
        total = total * axis.extent
    return total


def _row_major(axes: Iterable[Axis]) -> Index:
    total = index(0)
    for axis in axes:
        total = total * axis.extent + axis.name
    return total


def _other(read: Read) -> Const:
    """What a masked read gives where memory is not touched."""
    if read.other is not None:
        return read.other
    return Const(False if read.dtype == "bool" else 0.0 if read.dtype.startswith(("float", "bfloat")) else 0, read.dtype)


def _uses_lets(value: Expr) -> bool:
    """Whether the value needs names that live in its own phase alone."""
    return any(type(e) is Ref for e in walk(value)) or any(n.startswith("v") for n in _names(value))


def _names(value: Expr) -> set[str]:
    """Axes, symbols, lets and reduction results that a value depends on."""
    found: set[str] = set()
    for e in walk(value):
        if type(e) is Ref:
            found.add(e.name)
        elif type(e) is Read:
            found.update(*(i.symbols for i in e.indices))
        elif type(e) is IndexValue:
            found |= e.index.symbols
    return found


def _checked_axes(group: Group, program: Program) -> tuple[Axis, ...]:
    """The outer axes; in a pointwise group with checks only those that the checks depend on, so that each is made once. Where memory lies
    along such an axis, going along it counts for more than checks that are made again."""
    members = [m for m in group.members if type(m) is Loop]
    checked = [m for m in members if m.checks]
    outer = group.axes or ()
    if not checked or any(m.inner or m.axes != outer for m in members):
        return outer
    used: set[str] = set()
    for m in checked:
        used |= {n for let in m.lets for n in _names(let.value)} | {n for c in m.checks for n in _names(c.condition)}
    if not used.isdisjoint(name for m in checked for name in _lying_along(m, program)):
        return outer
    return tuple(a for a in outer if a.name in used)


def _lying_along(member: Loop, program: Program) -> set[str]:
    """The axes whose points are neighbours in what a loop writes: where data decide its places, in what it reads for them."""
    found: set[str] = set()
    axes = {a.name for a in member.axes}
    for write in member.writes:
        places = [(write.buffer, write.indices)]
        if not all(i.symbols <= axes for i in write.indices):
            places = [(r.buffer, r.indices) for r in reads(write.value)]
        for buffer, indices in places:
            strides = program.buffers[buffer].cells.strides
            found |= {str(i) for i, stride in zip(indices, strides, strict=True) if stride.constant == 1 and str(i) in axes}
    return found


def changed_in_place(program: Program) -> set[str]:
    """Buffers that are written once as a whole, and by other statements too. (Parts that are put together are written once each.)"""
    writers: dict[str, list[Statement]] = {}
    for s in program.statements:
        for buffer in writes_of(s) if s is not None else ():
            writers.setdefault(buffer, []).append(s)
    return {b for b, found in writers.items() if len(found) > 1 and any(_is_whole(s, b, program) for s in found)}


def _is_whole(statement: Statement, buffer: str, program: Program) -> bool:
    """Whether a statement writes all of a buffer."""
    if type(statement) is not Loop:
        return True
    points = index(1)
    for size in program.buffers[buffer].cells.sizes:
        points = points * size
    return _points((*statement.axes, *statement.inner) if statement.scans else statement.axes) == points


def outside_reads(groups: list[Group], program: Program) -> list[set[str]]:
    """For each group, the buffers that it writes and others read (or that are seen outside the program)."""
    readers: dict[str, set[int]] = {}
    for k, group in enumerate(groups):
        for b in group.reads:
            readers.setdefault(b, set()).add(k)
    return [{b for b in group.writes if not program.is_temporary(b) or readers.get(b, set()) - {k}} for k, group in enumerate(groups)]
