"""One nest of a loop kernel as one Triton function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import SORTS, Axis, Buffer, Expr, IndexValue, Let, Load, Nest, Op, Phase, Ref, Store

from . import walk
from .dots.write import place_tiles, write_loop
from .emit import helpers, reductions, scans, sorts
from .emit.body import VECTOR, Body, Lines
from .emit.space import Dims, Group, Text, product, tiles
from .emit.types import ARCH, PROGRAMMATIC, TYPES
from .tiling import Tiling

_AHEAD = 6
"""Loads that are made before they are needed."""
HEADER = (
    "import triton\nimport triton.language as tl\nfrom triton.language.extra.cuda import gdc_launch_dependents, gdc_wait, libdevice\n\n\n"
)
WAIT = (f"if {ARCH} >= {PROGRAMMATIC}:", "    gdc_wait()", "    gdc_launch_dependents()")
"""The next kernel may be started once every program of this one has begun, but not before what precedes this one is done: what a kernel
reads before it waits (``Frame.early``) must have been written by then."""

GUARD = ("    if tl.load(error_ptr) != 0:  # a check has failed: what it protects must not be touched", "        return")


@dataclass(frozen=True)
class Param:
    """A parameter of a function. ``kind``: ``buffer`` (a pointer to ``buffer``), ``size`` (``name`` of a symbol), ``error`` (pointer to the
    int32 error word) or ``check`` (int32: what a failing check number 0 writes into it). ``type``: Triton's, ``""`` where it is the index
    type."""

    kind: str
    name: str
    type: str
    buffer: str = ""


@dataclass(frozen=True)
class Function:
    """Triton text that defines ``name``; ``constants`` are its compile-time parameters, ``grid`` the number of programs."""

    name: str
    text: str
    params: tuple[Param, ...]
    constants: tuple[tuple[str, int], ...]
    grid: Index
    warps: int
    wide: bool
    stages: int = 1


@dataclass(frozen=True)
class Frame:
    """What a nest shares with its kernel: all ``buffers``, the size ``symbols``, the number of checks before it. ``precise``: sums
    of products are those of float32; ``quick``: functions need be right only to what half precision shows. ``early``: buffers that may be
    read before the kernel waits for the one before it. ``rounds``: values are rounded wherever eager rounds them."""

    buffers: tuple[Buffer, ...]
    symbols: tuple[str, ...]
    first_check: int = 0
    precise: bool = False
    quick: bool = False
    early: frozenset[str] = frozenset()
    rounds: bool = False


class NestWriter:
    """Writes one nest under ``name``. With ``wide``, indices are 64 bits. With ``members`` (of a ``Pack``), the frame's buffers stand for
    those of each member in turn."""

    def __init__(self, frame: Frame, nest: Nest, name: str, tiling: Tiling, wide: bool, members: tuple[tuple[str, ...], ...] = ()) -> None:
        self.frame, self.nest, self.name, self.tiling, self.wide, self.members = frame, nest, name, tiling, wide, members
        self.lines = Lines(1)
        self.check_number = frame.first_check
        self.rank = 2 if any(p.axes for p in nest.phases) or len(tiling.outer) == 2 else 1
        names = {s: Text(s, frozenset(), True) for s in frame.symbols}
        values = walk.values_of(nest)
        self.body = Body(self.rank, self.lines, walk.written(nest), {}, names, values, frame.precise, frame.quick, rounds=frame.rounds)
        self.body.wide = walk.wide(nest)
        self.body.numels = {b.name: b.numel for b in frame.buffers}
        self.programs = 0
        self.row: tuple[Axis, ...] | None = None
        self.waited = True
        self.carried: list[scans.Carried] = []
        self.overwritten: frozenset[Store] = frozenset()

    def write(self) -> Function:
        checked = any(p.checks for p in self.nest.phases)
        guarded = checked or walk.indirect(self.nest)
        self.waited = guarded or not self._reads_early()
        if self.waited:
            self._wait()
        if guarded:
            self.lines.lines += GUARD
        self._choose_member()
        self._outer()
        if self.tiling.turns > 1:
            self._take_turns()
        else:
            self._phases()
        params = self._params(guarded, checked)
        constants = (*((f"{n.upper()}BLOCK", size) for n, size in self.tiling.blocks), (ARCH, 0))
        signature = ", ".join([*(p.name for p in params), *(f"{n}: tl.constexpr" for n, _ in constants)])
        code = "\n".join(self.lines.lines) or "    pass"
        text = f"{HEADER}{helpers.texts(self.body.needs)}@triton.jit\ndef {self.name}({signature}):\n{self._comments()}{code}\n"
        return Function(self.name, text, params, constants, self._grid(), self.tiling.warps, self.wide, self.tiling.stages)

    def _phases(self, first: int = 0, end: int | None = None) -> None:
        for k, phase in list(enumerate(self.nest.phases))[first:end]:
            if k == 0 and self.tiling.dot is not None:
                self._product()
                continue
            self._barrier(k)
            whole = not self.tiling.looped and len({p.axes for p in self.nest.phases if p.axes}) == 1
            self.overwritten = _overwritten(self.nest, k) if whole else frozenset()
            self._phase(phase)

    def _take_turns(self) -> None:
        """Tiles one after the other. Rows that belong to one of them are read before the first is summed; what all share is summed once."""
        shared = walk.shared(self.nest)
        body, first, groups = self.body, self.nest.phases[shared], list(self.body.groups)
        read: list[dict[Expr, Text]] = []
        row = self._row_group(first)
        self._row_index(row, self.lines, None)
        own = [e for e in dict.fromkeys(walk.loads(first)) if e.index.symbols & {a.name for a in self.nest.axes}]
        self.row, body.groups = first.axes, [*groups, row]
        for turn in range(self.tiling.turns):
            self._begin_turn(turn)
            read.append({e: body.value(e) for e in own})
        if not self.waited:
            self._wait()
        beside = [e for p in self.nest.phases[shared + 1 :] for e in dict.fromkeys(walk.loads(p)) if e.mask is None and body.settled(e)]
        for turn, values in enumerate(read):
            self._begin_turn(turn)
            values.update((e, body.value(e)) for e in beside)
        body.groups = [*groups, row]
        for e in dict.fromkeys(walk.loads(first)) if shared else ():
            if e not in own:  # no load passes the sum of what is shared
                body.value(e)
        self._phases(end=shared)
        for turn, values in enumerate(read):
            self._begin_turn(turn)
            body.memo.update(values)
            body.groups = [*groups, row]
            self._phases(shared)

    def _begin_turn(self, turn: int) -> None:
        [group] = [g for g in self.body.groups if g.name == "x"]
        group.start = f"({self._program()} * {self.tiling.turns} + {turn}) * XBLOCK"
        self._drop("x")
        self.lines.add(f"xindex = {group.start} + tl.arange(0, XBLOCK)[:, None]")

    # ---- what stands around the phases ---------------------------------------------------------------------------------

    def _comments(self) -> str:
        used = walk.read(self.nest) | walk.written(self.nest)
        lines = [f"# {self.nest.origin}"] if self.nest.origin else []
        sizes = " x ".join(str(a.extent) for a in self.nest.axes) or "1"
        inner = dict.fromkeys(" x ".join(str(a.extent) for a in p.axes) for p in self.nest.phases if p.axes)
        lines.append(f"# {sizes} points" + (f", each over {', '.join(inner)}" if inner else ""))
        for b in self.frame.buffers:
            if b.name in used:
                lines.append(f"# {b.name}: {b.role} {b.dtype}[{b.numel}]{'  ' + b.origin if b.origin else ''}")
        return "".join(f"    {line}\n" for line in lines)

    def _params(self, guarded: bool, checked: bool) -> tuple[Param, ...]:
        used = walk.read(self.nest) | walk.written(self.nest)
        out = [
            Param("buffer", name, TYPES[b.dtype].pointer, buffer)
            for k, b in enumerate(self.frame.buffers) if b.name in used
            for name, buffer in self._pointers(k)
        ]  # fmt: skip
        mentioned = {n for a in self.nest.axes for n in a.extent.symbols}.union(*(walk.names_in(p) for p in self.nest.phases))
        out += [Param("size", s, "") for s in self.frame.symbols if s in mentioned]
        out += [Param("error", "error_ptr", "*i32")] if guarded else []
        out += [Param("check", "check_base", "i32")] if checked else []
        return tuple(out)

    def _grid(self) -> Index:
        total = index(1) if self.tiling.dot is None else product(self.tiling.dot.batch)
        for axes, (_, block) in zip(self.tiling.outer, self.tiling.blocks, strict=False):
            total = total * tiles(product(axes), block * self.tiling.turns)
        return total * max(len(self.members), 1)

    def _pointers(self, number: int) -> list[tuple[str, str]]:
        """Parameters for a buffer of the frame, and the buffers they point to: one for each member, if these have different ones."""
        name = self.frame.buffers[number].name
        own = [m[number] for m in self.members] or [name]
        return [(f"{name}_ptr", own[0])] if len(set(own)) == 1 else [(f"{name}_ptr_{k}", buffer) for k, buffer in enumerate(own)]

    def _choose_member(self) -> None:
        if not self.members:
            return
        count = self._grid().constant
        assert count is not None
        self.programs = count // len(self.members)
        self.lines.add(f"member = tl.program_id(0) // {self.programs}")
        shared = [(b.name, self._pointers(k)) for k, b in enumerate(self.frame.buffers)]
        apart = [(f"{name}_ptr", pointers) for name, pointers in shared if len(pointers) > 1]
        self.lines.lines += [f"    {name} = {pointers[0][0]}" for name, pointers in apart]
        for k in range(1, len(self.members)):
            self.lines.add(f"if member == {k}:")
            self.lines.lines += [f"        {name} = {pointers[k][0]}" for name, pointers in apart]

    def _outer(self) -> None:
        groups = []
        for axes, name in zip(self.tiling.outer, ("x",) if len(self.tiling.outer) == 1 else ("y", "x"), strict=True):
            extent, block = product(axes), self.tiling.block(name)
            masked = extent.constant is None or extent.constant % block != 0
            groups.append(Group(name, axes, block, masked, self.body.define))
        self.body.groups = groups
        pid = self._program()
        if self.tiling.dot is not None:
            places = place_tiles(self.body, self.lines, self.tiling.dot, dict(self.tiling.blocks), pid)
        elif len(groups) == 2:
            self.lines.add(f"xtiles = {self.body.space.scalar(tiles(groups[1].extent, groups[1].block))}")
            places = [f"({pid} // xtiles)", f"({pid} % xtiles)"]
        else:
            places = [pid]
        for k, (group, place) in enumerate(zip(groups, places, strict=True)):
            if not group.axes:
                continue
            group.along = "" if self.rank == 1 else "[None, :]" if k == 1 else "[:, None]"
            group.start = f"{place} * {group.name.upper()}BLOCK"
            if self.tiling.turns == 1:
                self.lines.add(f"{group.variable} = {group.start} + tl.arange(0, {group.name.upper()}BLOCK){group.along}")
            if group.masked:
                self.lines.add(f"{group.name}mask = {group.variable} < {self.body.space.scalar(group.extent)}")

    def _program(self) -> str:
        """The program's number, among those of its member."""
        pid = f"(tl.program_id(0) % {self.programs})" if self.members else "tl.program_id(0)"
        return f"{pid}.to(tl.int64)" if self.wide else pid

    def _barrier(self, number: int) -> None:
        """Threads of a program see each other's stores of earlier phases, and do not overwrite what others have yet to read."""
        before, phase = self.nest.phases[:number], self.nest.phases[number]
        stored = {s.buffer for p in before for s in p.stores}
        read = {e.buffer for p in before for e in walk.loads(p)}
        if stored & {e.buffer for e in walk.loads(phase)} or (stored | read) & {s.buffer for s in phase.stores}:
            self.lines.add("tl.debug_barrier()")

    def _streamed(self, phase: Phase) -> frozenset[str]:
        """Buffers of large nests that this phase, the last one, reads once and nobody again."""
        axes = {a.name for a in (*self.nest.axes, *phase.axes)}
        if not self.tiling.looped or len(self.nest.phases) < 2 or phase is not self.nest.phases[-1]:
            return frozenset()
        found = {e.buffer: e for e in walk.loads(phase)}
        times = [e.buffer for e in dict.fromkeys(walk.loads(phase))]
        return frozenset(b for b, e in found.items() if times.count(b) == 1 and axes <= e.index.symbols)

    # ---- phases --------------------------------------------------------------------------------------------------------

    def _phase(self, phase: Phase) -> None:
        body = self.body
        body.stream = self._streamed(phase)
        guards = list(body.guards)
        if not phase.axes:
            body.groups = [g for g in body.groups if g.name != "r"]
            self._statements(phase, [], "", frozenset(g.name for g in body.groups))
            return
        group = self._row_group(phase)
        body.groups = [*(g for g in body.groups if g.name != "r"), group]
        every = frozenset({"x", "r"})
        if self.tiling.looped:
            self._loop(phase, group, every)
        else:
            if self.row != phase.axes:
                self._drop("r")
                self._row_index(group, self.lines, None)
                if not self.waited:
                    self._early(phase)
                if self.row is None:
                    self._ahead(phase)
            self.row = phase.axes
            self._statements(phase, None, body.space.scalar(group.extent), every)
        body.guards = guards

    def _product(self) -> None:
        """The phase of a matrix product."""
        dot = self.tiling.dot
        assert dot is not None
        found = write_loop(self.body, self.lines, dot, self.body.groups, self.tiling.block("r"), self.tiling.stages, self.wide)
        self.body.names[dot.result] = found

    def _wait(self) -> None:
        for line in WAIT:
            self.lines.add(line)

    def _reads_early(self) -> bool:
        """Whether the nest begins with a row that is kept whole, and reads some such row early."""
        return self.tiling.dot is None and not self.tiling.looped and bool(self._early_loads(self.nest.phases[0]))

    def _early_loads(self, first: Phase) -> list[Load]:
        """Of ``first``, and of later phases over the same rows."""
        found = (e for p in self.nest.phases if p.axes == first.axes for e in walk.loads(p) if self._comes_early(e, p))
        return list(dict.fromkeys(found))

    def _comes_early(self, e: Load, phase: Phase) -> bool:
        """Places follow from the program's number alone. Rows that all programs read come from the cache as quickly afterwards."""
        outer, inner = {a.name for a in self.nest.axes}, {a.name for a in phase.axes}
        plain = e.mask is None and e.index.symbols <= outer | inner | set(self.frame.symbols)
        return plain and e.buffer in self.frame.early and bool(e.index.symbols & outer) and bool(e.index.symbols & inner)

    def _early(self, first: Phase) -> None:
        """Reads what may be read before the kernel waits, and waits."""
        for e in self._early_loads(first)[:_AHEAD]:
            self.body.value(e)
        self._wait()
        self.waited = True

    def _ahead(self, first: Phase) -> None:
        """Reads what later phases need before the first reduction: threads wait for each other there, and loads do not pass that. Only what
        is of each row and of half precision: weights are in the cache, and wider values take registers that more rows at once need
        (measured)."""
        body, groups, found = self.body, self.body.groups, 0
        shared = walk.shared(self.nest)  # then what all rows share is all that there is beside the row
        outer = {a.name for a in self.nest.axes}
        known = outer.union(self.frame.symbols)
        for phase in self.nest.phases[self.nest.phases.index(first) + 1 :] if first.reductions else ():
            if not phase.axes or product(phase.axes) != product(first.axes) or any(p.checks for p in self.nest.phases):
                continue
            body.groups = [*(g for g in groups if g.name != "r"), self._row_group(phase)]
            inner = {a.name for a in phase.axes}
            for e in dict.fromkeys(walk.loads(phase)):
                plain = e.mask is None and e.index.symbols <= known | inner
                wanted = self.tiling.ahead > 1 or (TYPES[e.dtype].size <= 2 and (e.index.symbols & outer or shared))
                if plain and wanted and e.index.symbols & inner and body.settled(e) and found < _AHEAD:
                    found += 1
                    body.value(e)
            for choice in (e for e in walk.expressions(phase) if self.tiling.ahead and type(e) is Op and e.name == "where"):
                body.read_ahead(choice)
        body.groups = groups

    def _row_group(self, phase: Phase) -> Group:
        extent, block = product(phase.axes), self.tiling.block("r")
        masked = extent.constant is None or (extent.constant % block != 0 if self.tiling.looped else extent.constant != block)
        for g in self.body.groups:
            if g.name == "r" and self.row == phase.axes:
                return g
        group = Group("r", phase.axes, block, masked, self._define_inner)
        if masked and extent.constant is not None and extent.constant % VECTOR:
            end = extent.constant + -extent.constant % (VECTOR // 2)
            self.body.groups, groups = [*(g for g in self.body.groups if g.name != "r"), group], self.body.groups
            group.reach = end if any(self.body.reaches(e, group, end) for e in walk.loads(phase)) else 0
            self.body.groups = groups
        return group

    def _define_inner(self, name: str, text: str) -> str:
        self.body.inner.add(f"{name} = {text}")
        return name

    def _row_index(self, group: Group, lines: Lines, start: str | None) -> None:
        span = f"tl.arange(0, RBLOCK){'.to(tl.int64)' if self.wide else ''}[None, :]"
        group.start, group.along = start or "0", "[None, :]"
        lines.add(f"rindex = {start + ' + ' if start else ''}{span}")
        if group.masked:
            lines.add(f"rmask = rindex < {self.body.space.scalar(group.extent)}")
        if group.reach:
            lines.add(f"rreach = rindex < {group.reach}")

    def _drop(self, dim: str) -> None:
        """Forgets what was computed along ``dim``: another row or tile is other places, also where its text is the same."""
        self.body.memo = {e: v for e, v in self.body.memo.items() if dim not in v.dims}
        self.lines.same = {text: v for text, v in self.lines.same.items() if dim not in v.dims}

    def _loop(self, phase: Phase, group: Group, every: Dims) -> None:
        body, loop = self.body, Lines(2)
        self._drop("r")
        accumulators = [reductions.declare(body, r, self.wide) for r in phase.reductions]
        self.carried = [scans.declare(body, s, self.wide) for s in phase.scans]
        extent = body.space.scalar(group.extent)
        body.inner = loop
        if phase.scans and phase.scans[0].reverse:
            loop.add(f"rstart = ({extent} + RBLOCK - 1) // RBLOCK * RBLOCK - RBLOCK - rback")
        if phase.scans:
            loop.add(f"rfirst = {'rback' if phase.scans[0].reverse else 'rstart'} == 0")
        self._row_index(group, loop, "rstart")
        self._statements(phase, accumulators, extent, every)
        body.inner = body.outer
        counter = "rback" if phase.scans and phase.scans[0].reverse else "rstart"
        self.lines.add(f"for {counter} in range(0, {extent}, RBLOCK):")
        self.lines.lines += loop.lines
        self._drop("r")
        self.row = None
        self.carried = []
        for acc in accumulators:
            reductions.finish(body, acc, self.wide, extent)

    def _statements(self, phase: Phase, accumulators: list[reductions.Accumulator] | None, extent: str, every: Dims) -> None:
        """Lets, checks, reductions, stores; lets that no check needs come after the checks, which may protect what they read."""
        body = self.body
        pending = {let.name: let for let in phase.lets}
        for check in phase.checks:
            for let in _needed(check.condition, pending):
                body.names[let.name] = body.value(let.value)
                del pending[let.name]
            body.check(check.condition, self.check_number, every)
            self.check_number += 1
        for let in pending.values():
            body.names[let.name] = body.value(let.value)
            body.lets[let.name] = let.value
        if accumulators is None:
            for r in phase.reductions:
                reductions.whole(body, r, "rindex", self.wide, extent)
        else:
            for acc in accumulators:
                reductions.update(body, acc, "rindex")
        for carried in self.carried if self.tiling.looped else [scans.Carried(s, ()) for s in phase.scans]:
            if carried.scan.op in SORTS:
                sorts.step(body, carried.scan, phase, self.wide)
            else:
                scans.step(body, carried, self.wide, f"({extent} - 1)")
        body.stores(phase.stores, every, self.overwritten)


def _needed(condition: Expr, lets: Mapping[str, Let]) -> list[Let]:
    """Of ``lets`` (in order), those that a condition needs."""
    found: set[str] = set()
    stack = [condition]
    while stack:
        for e in walk.inside(stack.pop()):
            names = {e.name} if type(e) is Ref else e.index.symbols if type(e) is Load or type(e) is IndexValue else set()
            for name in names & lets.keys() - found:
                found.add(name)
                stack.append(lets[name].value)
    return [let for name, let in lets.items() if name in found]


def _overwritten(nest: Nest, number: int) -> frozenset[Store]:
    """Stores of a phase that a later phase does again at the same places, where what reads in between can take the value."""
    phase, found = nest.phases[number], set()
    if not phase.axes or any(p.checks for p in nest.phases[number:]):
        return frozenset()
    values = walk.values_of(nest)
    for s in phase.stores:
        if s.first is not None or s.index.symbols & values or sum(t.buffer == s.buffer for t in phase.stores) > 1:
            continue
        places = {e.index for p in nest.phases for e in walk.loads(p) if e.buffer == s.buffer}
        again = any(
            t.buffer == s.buffer and t.index == s.index for p in nest.phases[number + 1 :] if p.axes == phase.axes for t in p.stores
        )
        writes = [t for p in nest.phases for t in p.stores if t.buffer == s.buffer]
        if again and places <= {s.index} and all(t.mode == "set" and t.first is None and t.index == s.index for t in writes):
            users = [p for p in nest.phases[number + 1 :] if any(e.buffer == s.buffer for e in walk.loads(p))]
            if all(p.axes == phase.axes for p in users) and not any(e.mask for p in users for e in walk.loads(p)):
                found.add(s)
    return frozenset(found)
