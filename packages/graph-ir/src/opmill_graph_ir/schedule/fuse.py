"""Groups loops into nests that share outer axes.

The one rule of legality: a loop may join a nest when everything it reads of what the nest writes, it reads at the nest's own outer
point. Reductions over inner axes are then complete before they are read, so softmax, normalisations with their residual sums, and
plain chains of pointwise loops with several results are all the same case.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from opmill_fake_tensors.optional import all_known
from opmill_runtime_cache.devices.registry import traits_of

from ..loops.index import Index, index
from ..loops.ir import LONGEST_SORT, Axis
from ..lowered import Extern
from ..overloads import exchanges
from .effects import gives_views, in_order, may_raise
from .late import bound_by, needed_by
from .loop import Loop, Program, Statement, loops_of, reads_of, writes_of
from .product import is_product, is_tiled, reads_again
from .rewrite import Rewriter

_MIN_PARALLEL = 8
"""Outer points that a large nest keeps, for threads to share."""
_MANY = 1 << 15
"""Outer points that fill a device with a grid of programs."""
_SHORT_ROW = 16
"""Points of a row, below which it makes no difference how few."""
_SMALL = 16384
"""Points below which a nest needs no parallelism."""
_CROWDED = 96
"""Places that a nest reads and sums that it takes, from which on it takes no more members where a kernel is a grid of programs: compilers
of these relate each to all others. 64 steps of a recurrence with four each took 24 s, where several kernels of at most 24 take 4 s each."""


@dataclass
class Group:
    """Loops over common outer ``axes``; the other axes of a member are its own. Externs stand alone (``axes`` None)."""

    number: int
    axes: tuple[Axis, ...] | None
    members: list[Statement]
    position: int
    before: int = 0
    """Bits of the groups that must run earlier, transitively."""
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    places: set[object] = field(default_factory=set)
    """What it reads of others, by buffer and place, and the sums that it takes."""

    def add(self, statement: Statement, position: int) -> None:
        self.members.append(statement)
        if type(statement) is Loop:
            self.places |= self.new_places(statement)
        self.reads |= reads_of(statement)
        self.writes |= writes_of(statement)
        self.position = max(self.position, position)

    def new_places(self, loop: Loop) -> set[object]:
        found: set[object] = {(r.buffer, r.indices) for r in loop.reads() if r.buffer not in self.writes}
        return (found | {loop.writes} if loop.inner else found) - self.places

    @property
    def loops(self) -> list[Loop]:
        return loops_of(self.members)

    def work(self, program: Program) -> int:
        return max((program.size(m.axes + m.inner) for m in self.loops), default=0)


def fuse(program: Program) -> list[Group]:
    """The program as groups in an order that is right."""
    fuser = _Fuser(program)
    for position, statement in enumerate(program.statements):
        fuser.place(statement, position)
    fuser.join_siblings()
    return fuser.ordered()


class _Fuser:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.groups: list[Group] = []
        self.alive: list[bool] = []
        self.last_write: dict[str, int] = {}
        self.last_in_order: int | None = None
        self.readers: dict[str, set[int]] = defaultdict(set)
        self.bound: dict[str, int] = {}
        """Size symbols that only data tell, and the operators that make them known."""
        self.written_back: set[str] = set()
        """Inputs that are written point by point in a nest which computes what they are given."""
        self.shown = {b for s in program.statements if type(s) is Extern and _reads_on(s) for b in reads_of(s)}
        """Buffers that are read on when the operators that were given them are over: through views, or by exchanges till the wait."""
        self.raising: set[int] = set()
        """Groups that raise for some contents of what they read."""

    def place(self, statement: Statement, position: int) -> None:
        written_back = type(statement) is Loop and self._writes_back(statement)
        loop = statement if type(statement) is Loop and (written_back or not self._mutates(statement)) else None
        if loop is not None:
            self._join_vector_products(loop)
        if loop is not None and written_back:
            self._join_what_is_read(loop)
        needs = self._predecessors(statement)
        target = None if loop is None else self._joined(loop, needs, position, written_back)
        if target is not None and written_back:
            self.written_back |= writes_of(statement)
        if target is None:
            target = len(self.groups)
            axes = statement.axes if type(statement) is Loop else None
            group = Group(target, axes, [], position, self._closure(needs))
            group.add(statement, position)
            self.groups.append(group)
            self.alive.append(True)
        if in_order(statement):
            self.last_in_order = target
        if may_raise(statement):
            self.raising.add(target)
        self.bound.update(dict.fromkeys(bound_by(statement), target))
        for b in reads_of(statement):
            self.readers[b].add(target)
        for b in writes_of(statement):
            self.last_write[b] = target
            self.readers[b] = {target}

    def _mutates(self, loop: Loop) -> bool:
        """Whether the loop writes what others may have read, or writes other than point by point."""
        return any(
            w.mode != "set" or w.buffer in self.last_write or self.program.buffers[w.buffer].role != "temporary" or not _plain(w.indices)
            for w in loop.writes
        )

    def _writes_back(self, loop: Loop) -> bool:
        """Whether the loop gives inputs, point by point and once, what the program computes: state of an optimizer, which the rest of its
        step reads."""
        buffers = [self.program.buffers[w.buffer] for w in loop.writes]
        at = {w.buffer: w.indices for w in loop.writes}
        return (
            not loop.inner
            and not loop.checks
            and all(b.role in ("input", "held") for b in buffers)
            and at.keys().isdisjoint(self.last_write.keys() | self.shown)
            and all(w.mode == "set" and _plain(w.indices) for w in loop.writes)
            and all(r.indices == at.get(r.buffer, r.indices) for r in loop.reads())
        )

    def _predecessors(self, statement: Statement) -> set[int]:
        needs = {self.last_write[b] for b in reads_of(statement) if b in self.last_write}
        for b in writes_of(statement):
            needs |= self.readers[b]
            if b in self.last_write:
                needs.add(self.last_write[b])
        if in_order(statement) and self.last_in_order is not None:
            needs.add(self.last_in_order)
        if self.bound:
            needs |= {self.bound[name] for name in needed_by(statement, self.program) if name in self.bound}
        if any(self.program.buffers[b].role != "temporary" for b in writes_of(statement)):
            # when all that is demanded of sizes and values was checked
            needs |= self.raising.union(self.bound.values())
        return needs

    def _closure(self, needs: set[int]) -> int:
        bits = 0
        for n in needs:
            bits |= (1 << n) | self.groups[n].before
        return bits

    def _candidates(self, loop: Loop) -> set[int]:
        found = {self.last_write[b] for b in loop.read_buffers() if b in self.last_write}
        return {n for n in found if self.groups[n].axes is not None and not self._is_closed(self.groups[n])}

    def _join_vector_products(self, loop: Loop) -> None:
        """What ``loop`` reads of several matrices times the same vector is computed beside each other, where a kernel is a grid of
        programs: each of these products waits for the vector, and none fills the device while it begins and ends."""
        found = sorted(n for n in self._candidates(loop) if self.alive[n])
        for first, second in itertools.pairwise(found):
            if not loop.inner and self._vectors(first) & self._vectors(second) and self._joins(first, second, related=True):
                return

    def _join_what_is_read(self, loop: Loop) -> None:
        """Nests that ``loop``, which writes back, reads and that read one buffer become one, which it may join: both moments of an
        optimizer, of the gradient."""
        for first, second in itertools.combinations(sorted(n for n in self._candidates(loop) if self.alive[n]), 2):
            if self.alive[first] and self.alive[second]:
                self._joins(first, second, related=False)

    def _joins(self, first: int, second: int, *, related: bool) -> bool:
        """Makes two groups one, where it can, while statements are still placed."""
        both = [self.groups[first], self.groups[second]]
        if any(not self.written_back.isdisjoint(g.writes) for g in both) and (
            both[0].axes is None or any(m.inner or m.checks or m.scans or len(m.axes) != len(both[0].axes) for g in both for m in g.loops)
        ):
            return False
        self._merge(self.groups[first], self.groups[second], related=related)
        for gone, into in ((first, second), (second, first)):
            if not self.alive[gone]:
                self._stands_for(into, gone)
                return True
        return False

    def _stands_for(self, into: int, gone: int) -> None:
        """What comes later and waits for the group ``gone`` waits for the one that has its members."""
        group = self.groups[gone]
        self.last_write.update((b, into) for b in group.writes if self.last_write[b] == gone)
        for b in group.reads | group.writes:
            self.readers[b] = {into if n == gone else n for n in self.readers[b]}
        self.bound.update((name, into) for name, n in self.bound.items() if n == gone)
        self.raising = {into if n == gone else n for n in self.raising}
        self.last_in_order = into if self.last_in_order == gone else self.last_in_order

    def _vectors(self, number: int) -> set[str]:
        """What a group of nothing but products with a vector on a device with a grid takes as that."""
        members = self.groups[number].loops
        found = [{b for b in m.read_buffers() if reads_again(m, b)} for m in members if m.reductions]
        return set.intersection(*found) if found and _is_on_grid(members, self.program) else set()

    def _is_closed(self, group: Group) -> bool:
        return any(
            w.mode != "set"
            or (self.program.buffers[w.buffer].role != "temporary" and w.buffer not in self.written_back)
            or not _plain(w.indices)
            for m in group.members
            if isinstance(m, Loop)
            for w in m.writes
        )

    def _joined(self, loop: Loop, needs: set[int], position: int, written_back: bool) -> int | None:
        """The number of the group that takes the loop: the last of those that it reads which can."""
        found = sorted(self._candidates(loop), reverse=True)
        if written_back:
            decided = self.raising.union(self.bound.values())
            found = [n for n in found if n not in decided and not _has_product(self.groups[n], self.program)]
        return next((n for n in found if self._join(self.groups[n], loop, needs, position)), None)

    def _join(self, group: Group, loop: Loop, needs: set[int], position: int) -> bool:
        """The loop becomes a member, where it can. Nothing in a nest reads what that has written back, and what it reads before is of the
        point that is written."""
        if may_raise(loop) and not self.written_back.isdisjoint(group.writes):
            return False
        if not self.written_back.isdisjoint(group.writes & loop.read_buffers()):
            return False
        others = needs - {group.number}
        if any(self.groups[n].before >> group.number & 1 for n in others):
            return False
        matched = None if _multiplies(loop, self.program) else _match(group, loop, self.program)
        if matched is None or not _keeps_product(group, matched, self.program) or not _worthwhile(group, matched, loop, self.program):
            return False
        outer, renamed = matched
        if _is_crowded(group, renamed, self.program):
            return False
        if not _can_sort(outer, [*group.members, renamed]) or not _at_one_point(group, outer, renamed, self.program):
            return False
        group.axes = outer
        group.add(renamed, position)
        self._extend(group, self._closure(others))
        return True

    def _extend(self, group: Group, bits: int) -> None:
        group.before |= bits
        for other in self.groups:
            if other.before >> group.number & 1:
                other.before |= group.before

    def join_siblings(self) -> None:
        """Groups over equal domains that read the same large buffers and do not depend on each other run as one."""
        by_read: dict[str, list[int]] = defaultdict(list)
        for g in self.groups:
            if g.axes and not self._is_closed(g) and self.written_back.isdisjoint(g.writes):
                for b in g.reads - g.writes:
                    by_read[b].append(g.number)
        for numbers in by_read.values():
            for first, second in itertools.pairwise(numbers):
                if self.alive[first] and self.alive[second] and first != second:
                    self._merge(self.groups[first], self.groups[second])

    def _merge(self, first: Group, second: Group, *, related: bool = False) -> None:
        """``related``: it is known that they belong together."""
        if first.before >> second.number & 1 or second.before >> first.number & 1:
            return
        if _has_product(first, self.program) or _has_product(second, self.program):
            return
        symbols = _same_domain(first, second) or _outer_domain(first, second)
        if symbols is None:
            if _outer_domain(second, first) is not None:
                self._merge(second, first, related=related)
            return
        work = max(first.work(self.program), second.work(self.program))
        if work > _SMALL and self.program.size(first.axes or ()) < _MIN_PARALLEL:
            return
        moved = [_renamed(m, symbols, first.axes or (), self.program) for m in second.loops]
        if not (related or _share_a_read(first, moved, self.program)) or not _can_sort(first.axes or (), [*first.members, *moved]):
            return
        for m in moved:
            first.add(m, second.position)
        self.alive[second.number] = False
        first.before |= second.before
        for other in self.groups:
            if other.before >> second.number & 1 or other.before >> first.number & 1:
                other.before |= first.before | (1 << first.number)

    def ordered(self) -> list[Group]:
        """Groups that remain, each after what it needs; otherwise by the place of their last member. One whose turn comes too early waits:
        were what it needs brought forward, all that is left behind would keep its operands for longer."""
        done = sum(1 << n for n, alive in enumerate(self.alive) if not alive)
        out: list[Group] = []
        waiting: list[Group] = []
        for group in sorted((g for g in self.groups if self.alive[g.number]), key=lambda g: g.position):
            waiting.append(group)
            while (ready := next((g for g in waiting if not g.before & ~done), None)) is not None:
                waiting.remove(ready)
                out.append(ready)
                done |= 1 << ready.number
        return out


def _plain(indices: tuple[Index, ...]) -> bool:
    """Whether each index is one axis, all different, or zero."""
    names = [str(i) for i in indices if i.constant is None]
    return all(_axis_name(i) is not None for i in indices if i.constant is None) and len(set(names)) == len(names)


def _axis_name(i: Index) -> str | None:
    if len(i.terms) == 1 and i.terms[0][1] == 1 and len(i.terms[0][0]) == 1 and isinstance(i.terms[0][0][0], str):
        return i.terms[0][0][0]
    return None


def _match(group: Group, loop: Loop, program: Program) -> tuple[tuple[Axis, ...], Loop] | None:
    """The outer axes that the nest has once ``loop`` joins, and the loop in their names; None where it cannot join."""
    outer = {a.name: a for a in group.axes or ()}
    own = {a.name: a for a in loop.axes}
    produced = {w.buffer: w.indices for m in group.loops for w in m.writes}
    mapping: dict[str, str] = {}
    first = True
    for read in loop.reads():
        if read.buffer not in produced:
            continue
        pairs = {}
        for written, at in zip(produced[read.buffer], read.indices, strict=True):
            o, c = _axis_name(written), _axis_name(at)
            if o in outer and c in own and outer[o].extent == own[c].extent:
                pairs[o] = c
        mapping = pairs if first else {o: c for o, c in mapping.items() if pairs.get(o) == c}
        first = False
    if first or len(set(mapping.values())) != len(mapping):
        return None
    if loop.inner and set(mapping.values()) != own.keys():
        return None
    if len(mapping) < len(outer) and any(m.inner for m in group.loops):
        return None
    symbols = {c: index(o) for o, c in mapping.items()}
    axes = tuple(a for a in group.axes or () if a.name in mapping)
    return axes, _renamed(loop, symbols, axes, program)


def _reads_on(node: Extern) -> bool:
    return gives_views(node) or exchanges(node.op) or bool(node.bodies)


def _at_one_point(group: Group, outer: tuple[Axis, ...], loop: Loop, program: Program) -> bool:
    """Whether what a nest writes to inputs, all of it reads at the point that is written, and before: it goes through its points once, and
    does all for one of them."""
    members = [*group.loops, loop]
    written = {w.buffer: w.indices for m in members for w in m.writes if program.buffers[w.buffer].role != "temporary"}
    if not written:
        return True
    once = outer == group.axes and all(m.axes == outer and not (m.inner or m.checks or m.scans) for m in members)
    return once and all(r.indices == written.get(r.buffer, r.indices) for m in members for r in m.reads())


def _renamed(loop: Loop, symbols: dict[str, Index], outer: tuple[Axis, ...], program: Program) -> Loop:
    """The loop with outer axes named as in the nest, and standing first."""
    own = tuple(a for a in loop.axes if a.name not in symbols)
    taken = {str(s) for s in symbols.values()}
    new = loop.rewritten(Rewriter(symbols, extents=program.extents), loop.axes, loop.inner)
    return replace(new, axes=tuple(a for a in outer if a.name in taken) + own)


def _multiplies(loop: Loop, program: Program) -> bool:
    return is_product(loop) or is_tiled(loop, program)


def _has_product(group: Group, program: Program) -> bool:
    return any(_multiplies(loop, program) for loop in group.loops)


def _keeps_product(group: Group, matched: tuple[tuple[Axis, ...], Loop], program: Program) -> bool:
    """What joins a product is done point by point, and raises nothing: no generator takes products apart that do."""
    outer, loop = matched
    return not _has_product(group, program) or (not loop.inner and not loop.checks and loop.axes == outer == group.axes)


def _can_sort(outer: tuple[Axis, ...], members: Iterable[Statement]) -> bool:
    """Whether the rows of all members can be kept whole, where one of them puts rows in order; and in about as much room, since it works on
    all of that."""
    loops = loops_of(members)
    ordered = [n for m in loops if m.sorts and (n := m.inner[0].extent.constant) is not None]
    if not ordered:
        return True
    names = {a.name for a in outer}
    rows = [[a.extent.constant for a in (*m.axes, *m.inner) if a.name not in names] for m in loops]
    room = min(2 * max(min(ordered), _SHORT_ROW), LONGEST_SORT)
    return all((known := all_known(row)) is not None and math.prod(known) <= room for row in rows)


def _worthwhile(group: Group, matched: tuple[tuple[Axis, ...], Loop], loop: Loop, program: Program) -> bool:
    """Fusing must leave enough outer points for the threads, and repeat nothing."""
    outer, renamed = matched
    points = program.size(outer)
    work = max(group.work(program), program.size(loop.axes + loop.inner))
    if work <= _SMALL:
        return True
    return points >= _MIN_PARALLEL and not _is_spread_thin(group, outer, renamed, program)


def _is_on_grid(loops: Iterable[Loop], program: Program) -> bool:
    """Whether all that loops write is on a device whose kernels are grids of programs."""
    return all(traits_of(program.buffers[w.buffer].device).grid for loop in loops for w in loop.writes)


def _is_crowded(group: Group, loop: Loop, program: Program) -> bool:
    """Whether a kernel of a grid of programs would be so long that compiling it takes longer than all others."""
    return _is_on_grid([loop], program) and len(group.places) >= _CROWDED and bool(group.new_places(loop))


def _is_spread_thin(group: Group, outer: tuple[Axis, ...], loop: Loop, program: Program) -> bool:
    """Whether a grid of programs would have few points for it, where each element is computed by itself: memory has room for what one
    leaves to the next, and a program that walks along images reads a channel here and there."""
    if not _is_on_grid([loop], program) or program.size(outer) >= _MANY or any(m.inner or m.scans for m in (*group.loops, loop)):
        return False
    if outer != group.axes:
        return True
    names = {a.name for a in outer}
    own = any(a.name not in names for a in loop.axes)
    return own and any(_lies_along(w.buffer, w.indices, names, program) for w in loop.writes)


def _lies_along(buffer: str, indices: tuple[Index, ...], names: set[str], program: Program) -> bool:
    """Whether neighbours in memory are neighbours along one of the axes."""
    strides = zip(indices, program.buffers[buffer].strides, strict=True)
    return any(_axis_name(at) in names for at, stride in strides if stride.constant == 1)


def _same_domain(first: Group, second: Group) -> dict[str, Index] | None:
    """The second group's axes in terms of the first's, where both have the same outer domain."""
    ours, theirs = first.axes or (), second.axes or ()
    if [a.extent for a in ours] != [a.extent for a in theirs]:
        return None
    return {b.name: index(a.name) for a, b in zip(ours, theirs, strict=True)}


def _outer_domain(first: Group, second: Group) -> dict[str, Index] | None:
    """The same where the first has reductions and the second, pointwise, adds axes of its own: from what both read."""
    members = [*first.loops, *second.loops]
    if any(m.inner or m.axes != second.axes for m in second.loops) or not any(m.reductions for m in members):
        return None
    outer = {a.name: a.extent for a in first.axes or ()}
    own = {a.name: a.extent for a in second.axes or ()}
    theirs = {r.buffer: r.indices for m in second.loops for r in m.reads()}
    for m in first.loops:
        for read in m.reads():
            pairs = [(_axis_name(a), _axis_name(b)) for a, b in zip(read.indices, theirs.get(read.buffer, ()), strict=False)]
            found = {c: index(o) for o, c in pairs if o in outer and c in own and outer[o] == own[c]}
            if len(found) == len(outer):
                return found
    return None


def _share_a_read(first: Group, members: list[Loop], program: Program) -> bool:
    """Whether both read some buffer of the size of the domain, at least in part at the same point."""
    size = program.size(first.axes or ())
    ours = {(r.buffer, r.indices) for m in first.loops for r in m.reads()}
    theirs = {(r.buffer, r.indices) for m in members for r in m.reads()}
    if any(program.numel(b) * 2 >= size for b, _ in ours & theirs):
        return True
    common = {b for b, _ in ours} & {b for b, _ in theirs}
    reduced = any(m.reductions for m in first.loops) and any(m.reductions for m in members)
    return (reduced and any(program.numel(b) * 2 >= size for b in common)) or _go_over_one(first, members, common, program)


def _go_over_one(first: Group, members: list[Loop], common: set[str], program: Program) -> bool:
    """Whether ``members`` do something else point by point with what the nest goes over, on a device where that comes from memory: what a
    backward computes again of the input of an activation whose gradient is summed for a bias."""
    whole = max(program.size(m.axes + m.inner) for m in members)
    large = {b for b in common if 2 * program.numel(b) >= whole and traits_of(program.buffers[b].device).grid}
    return whole > _SMALL and any(r.buffer in large for m in first.loops if m.axes + m.inner != first.axes for r in m.reads())
