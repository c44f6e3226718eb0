"""One nest of a loop kernel as a C++ function over a range of its outer points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from opmill_graph_ir.loops.index import ONE, ZERO, Index
from opmill_graph_ir.loops.ir import Axis, IndexValue, LoopKernel, Nest, Phase, Reduction

from . import walk
from .emit import memory, reductions, scans
from .emit.block import Block
from .emit.body import Body, Value, VectorAxis
from .emit.byte_products import is_of_bytes, write_sums
from .emit.convert import Vectors
from .emit.index_text import UNKNOWN, index_text
from .emit.interleave import store_together, together
from .emit.needs import Needs
from .emit.types import TYPES
from .passes.row_blocking import block_rows
from .passes.segments import Segment, segments
from .passes.simplify import simplified
from .passes.statistics import two_passes
from .target import Target
from .vectorize import TILE, Choice, choose

_SPAN = 8192
"""Points of a vector axis handed out together when it is split for threads."""
_RUN = 256
"""Additions in a row before a partial sum is put aside: keeps the rounding error of long sums as small as eager's."""


_SQUARED = 24
"""Work of a point up to which a tile is written as squares: as many copies of it as a vector has lanes."""

Accumulators = dict[tuple[int, int], reductions.Accumulator]
"""By (reduction of the phase, copy of the loop)."""


@dataclass(frozen=True)
class Written:
    """``text`` defines function ``name`` over ``count`` outer points (C++ text), ``work`` (about operations) in all."""

    name: str
    text: str
    count: str
    work: Index


@dataclass(frozen=True)
class _Loop:
    """``count`` iterations (text, and number if known) of ``variable``."""

    variable: str
    count: str
    known: int | None
    axis: str | None = None


class NestWriter:
    """Writes one nest. ``first_check`` is the number of checks in the nests before it."""

    def __init__(self, kernel: LoopKernel, nest: Nest, name: str, first_check: int, needs: Needs, target: Target) -> None:
        self.kernel, self.name, self.needs, self.target = kernel, name, needs, target
        nest = block_rows(nest)
        self.extents = walk.bounds_of(nest, dict.fromkeys(kernel.symbols, UNKNOWN))
        self.ranges = {n: (0, e if n in kernel.symbols else max(e - 1, 0)) for n, e in self.extents.items()}
        nest = two_passes(nest, self.extents)
        self.nest = replace(nest, phases=simplified(nest.phases, self.ranges))
        self.phases = self.nest.phases
        self.of_bytes = is_of_bytes(self.nest)
        self.choice: Choice = Choice(None) if self.of_bytes else choose(self.nest, self.extents, target)
        self.first_check = first_check

    def write(self) -> Written:
        root = Block()
        self.body = Body(root, self.needs, self.target, self.extents, walk.written(self.nest))
        self._parameters(root)
        loops = self._outer_loops()
        shared, rest = self._split(loops)
        block = self._open_shared(root, shared)
        opened = [block]
        for loop in rest:
            block = self._open(block, loop)
            opened.append(block)
        self.body.block = block
        if self.choice.outer is None:
            self._points([0])
        elif self.choice.tiled is not None:
            self._tile(self.choice.outer, self.choice.tiled)
        else:
            self._vector_loop(self.choice.outer, self.choice.unroll, self._points)
        for b in reversed(opened):
            if b is not root:
                b.close()
        lines = "\n".join("  " + line for line in root.lines)
        head = f"// {self.nest.origin}\n" if self.nest.origin else ""
        text = f"{head}static long {self.name}(void* const* p, const long* s, long from, long to) {{\n{lines}\n  return 0;\n}}"
        count = " * ".join(loop.count for loop in shared) or "1"
        return Written(self.name, text, count, self._work())

    def _vectors(self) -> Vectors:
        """The vectors of a nest that has some."""
        assert self.choice.vectors is not None
        return self.choice.vectors

    def _work(self) -> Index:
        total = ZERO
        for phase in self.nest.phases:
            total += prod((a.extent for a in (*self.nest.axes, *phase.axes)), start=ONE) * max(4, walk.op_cost(phase))
        return total

    def _parameters(self, root: Block) -> None:
        used = {s.buffer for p in self.nest.phases for s in p.stores}
        used |= {e.buffer for p in self.nest.phases for e in walk.expressions(p) if hasattr(e, "buffer")}
        stored = walk.written(self.nest)
        for k, b in enumerate(self.kernel.buffers):
            if b.name in used:
                const = "" if b.name in stored else "const "
                comment = f"  // {b.origin}" if b.origin else ""
                root.add(f"{const}{TYPES[b.dtype].c}* const p_{b.name} = ({const}{TYPES[b.dtype].c}*)p[{k}];{comment}")
        for k, symbol in enumerate(self.kernel.symbols):
            root.add(f"const long s_{symbol} = s[{k}];")
            self.body.bind_axis(symbol, f"s_{symbol}", root)

    # ---- outer loops -------------------------------------------------------------------------------------------------

    def _text(self, i: Index) -> str:
        return index_text(i, self.body.names, self.extents, self.needs)

    def _loop(self, axis: Axis) -> _Loop:
        count = self._text(axis.extent)
        return _Loop(f"i_{axis.name}", f"({count})" if " " in count else count, axis.extent.constant, axis.name)

    def _outer_loops(self) -> list[_Loop]:
        """Loops around the vector loop, outermost first. Tiles of an axis are a loop of their own."""
        vector_axis = self.choice.outer
        loops = [self._loop(a) for a in self.nest.axes if a.name not in (vector_axis, self.choice.tiled)]
        axes = {a.name: a for a in self.nest.axes}
        self.spans: dict[str, int] = {}
        if self.choice.tiled is not None and vector_axis is not None:
            self.spans = {self.choice.tiled: TILE, vector_axis: 128}
        elif vector_axis is not None:
            known = 1.0
            for loop in loops:
                known *= self.extents[loop.axis or ""]
            wide = self.extents[vector_axis]
            if known < 64 and wide > 1024:
                step = self.choice.unroll * self._vectors().lanes
                smallest = step if any(p.axes for p in self.nest.phases) else 1024
                self.spans = {vector_axis: min(max(-(-wide // 64 // step) * step, smallest), _SPAN)}
        if any(p.axes for p in self.nest.phases) and vector_axis is not None and not self.spans:
            step = self.choice.unroll * self._vectors().lanes
            if self.extents[vector_axis] > step:
                self.spans = {vector_axis: step}
        for name, span in self.spans.items():
            e = axes[name].extent
            known_count = None if e.constant is None else -(-e.constant // span)
            loops.append(_Loop(f"b_{name}", f"(({self._text(e)} + {span - 1}) / {span})", known_count))
        return loops

    def _split(self, loops: list[_Loop]) -> tuple[list[_Loop], list[_Loop]]:
        """Leading loops that are shared among threads, as many as give enough pieces; the others are ordinary loops inside."""
        pieces, n = 1, 0
        while n < len(loops) and pieces < 64:
            known = loops[n].known
            pieces *= 4 if known is None else known
            n += 1
        return loops[:n], loops[n:]

    def _open_shared(self, root: Block, loops: list[_Loop]) -> Block:
        block = root.nested("for (long at = from; at < to; ++at)")
        if len(loops) == 1:
            block.add(f"const long {loops[0].variable} = at;")
        elif loops:
            block.add("long left = at;")
            for loop in reversed(loops[1:]):
                block.add(f"const long {loop.variable} = left % {loop.count};")
                block.add(f"left /= {loop.count};")
            block.add(f"const long {loops[0].variable} = left;")
        for loop in loops:
            if loop.axis is not None:
                self.body.bind_axis(loop.axis, loop.variable, block)
        return block

    def _open(self, block: Block, loop: _Loop) -> Block:
        begin, end = self._range(loop.axis or "", loop.count)
        inner = block.nested(f"for (long {loop.variable} = {begin}; {loop.variable} < {end}; ++{loop.variable})")
        if loop.axis is not None:
            self.body.bind_axis(loop.axis, loop.variable, inner)
        else:
            inner.header = f"for (long {loop.variable} = 0; {loop.variable} < {loop.count}; ++{loop.variable})"
        return inner

    def _range(self, axis: str, count: str) -> tuple[str, str]:
        """Where a loop over an axis begins and ends, within its tile if it has one."""
        span = self.spans.get(axis)
        if span is None:
            return "0", count
        extent = next((a.extent.constant for a in self.nest.axes if a.name == axis), None)
        if extent is not None and extent % span == 0:
            return f"b_{axis} * {span}", f"(b_{axis} + 1) * {span}"
        return f"b_{axis} * {span}", f"(b_{axis} * {span} + {span} < {count} ? b_{axis} * {span} + {span} : {count})"

    # ---- tiles -------------------------------------------------------------------------------------------------------

    def _tile(self, axis: str, rows: str) -> None:
        """Runs all points of one tile: squares of as many rows as a vector has lanes, then what is left of columns and rows."""
        block, body, lanes = self.body.block, self.body, self._vectors().lanes
        if sum(map(walk.op_cost, self.phases)) > _SQUARED:
            self._rows_of_tile(axis, rows)
            return
        extents = {a.name: a.extent for a in self.nest.axes}
        v, r = f"i_{axis}", f"i_{rows}"
        (first, last), (top, bottom) = self._range(axis, self._text(extents[axis])), self._range(rows, self._text(extents[rows]))
        columns = block.nested(f"for (long {v} = {first}; {v} + {lanes} <= {last}; {v} += {lanes})")
        inner = columns.nested(f"for (long {r} = {top}; {r} + {lanes} <= {bottom}; {r} += {lanes})")
        outer_lanes, body.lanes, body.rows, body.block = body.lanes, VectorAxis(axis, self._vectors()), rows, inner
        body.bind_axis(axis, v, columns)
        body.homes[rows] = inner
        self._points(list(range(lanes)))
        inner.close()
        columns.close()
        body.lanes, body.rows, body.copy, body.block = outer_lanes, None, 0, block
        known = [extents[a].constant for a in (axis, rows)]
        if not all(n is not None and n % lanes == 0 for n in known):
            self._rows_of_tile(
                axis,
                rows,
                f"({r} < {top} + ({bottom} - ({top})) / {lanes} * {lanes} ? {first} + ({last} - ({first})) / {lanes} * {lanes} : {first})",
            )

    def _rows_of_tile(self, axis: str, rows: str, start: str = "") -> None:
        block, body = self.body.block, self.body
        top, bottom = self._range(rows, self._text(next(a.extent for a in self.nest.axes if a.name == rows)))
        body.block = block.nested(f"for (long i_{rows} = {top}; i_{rows} < {bottom}; ++i_{rows})")
        body.bind_axis(rows, f"i_{rows}", body.block)
        inner = body.block
        self._vector_loop(axis, 1, self._points, start)
        inner.close()
        body.block = block

    # ---- the vector loop ---------------------------------------------------------------------------------------------

    def _vector_loop(self, axis: str, copies: int, emit: Callable[[list[int]], None], start: str = "") -> None:
        """Runs ``emit`` (given the copies to write) inside loops over ``axis``: whole vectors, then what is left; apart for each segment.
        ``start``: where to begin, if not at the first point."""
        block, body = self.body.block, self.body
        owner = next(a for a in (*self.nest.axes, *(a for p in self.nest.phases for a in p.axes)) if a.name == axis)
        begin, end = self._range(axis, self._text(owner.extent))
        begin = start or begin
        extent, span, variable = owner.extent.constant, self.spans.get(axis), f"i_{axis}"
        block.add(f"long {variable} = {begin};" if not self._declared(block, variable) else f"{variable} = {begin};")
        parts = [Segment(0, UNKNOWN, self.phases)]
        if extent is not None and span is None:
            parts = segments(self.phases, axis, extent, self._vectors().lanes, self.ranges)
        everywhere = self.phases
        for part in parts:
            self.phases = part.phases
            if len(parts) > 1:
                self._segment(axis, str(part.end), part.end - part.begin, part.end - part.begin, copies, emit)
            else:
                self._segment(axis, end, extent, span or extent, copies, emit)
        self.phases = everywhere
        body.block = block
        body.names.pop(axis, None)
        body.homes.pop(axis, None)

    def _segment(self, axis: str, end: str, extent: int | None, span: int | None, copies: int, emit: Callable[[list[int]], None]) -> None:
        lanes, variable, block, body = self._vectors().lanes, f"i_{axis}", self.body.block, self.body
        step = lanes * copies
        whole = extent is not None and span is not None and extent % step == 0 and span % step == 0
        rest_is_whole = extent is not None and span is not None and extent % lanes == 0 and span % lanes == 0
        if extent is None or extent >= step:
            inner = block.nested(f"for (; {variable} + {step} <= {end}; {variable} += {step})")
            self._vector_copies(inner, axis, variable, copies, None, emit)
        if not whole:
            left = extent % step if extent is not None and span == extent else None
            short_rest = left is not None and left < lanes
            inner = block.nested("" if short_rest else f"for (; {variable} < {end}; {variable} += {lanes})")
            part = None
            if not rest_is_whole:
                part = self._part(inner, str(left) if short_rest else f"{end} - {variable} < {lanes} ? (int)({end} - {variable}) : {lanes}")
            self._vector_copies(inner, axis, variable, 1, part, emit)
        body.block = block

    def _part(self, block: Block, count: str) -> tuple[str, str]:
        """The number of lanes in use, as it is known or by name, and the name of their mask."""
        n, m = count if count.isdigit() else self.body.fresh("n"), self.body.fresh("m")
        short, lanes = self._vectors().mask_short(), self._vectors().lanes
        if n != count:
            block.add(f"const int {n} = {count};")
        block.add(f"const {self.needs.vector(short, lanes)} {m} = {memory.iota(self.needs, short, lanes)} < {n};")
        return n, m

    def _declared(self, block: Block, variable: str) -> bool:
        key = ("declared", variable)
        known = key in block.memo
        block.memo[key] = True
        return known

    def _vector_copies(
        self, inner: Block, axis: str, variable: str, copies: int, part: tuple[str, str] | None, emit: Callable[[list[int]], None]
    ) -> None:
        body = self.body
        outer_lanes = body.lanes
        body.lanes = VectorAxis(axis, self._vectors(), part)
        body.block = inner
        body.homes[axis] = inner
        self._axis_texts = (axis, variable, self._vectors().lanes)
        emit(list(range(copies)))
        inner.close()
        body.lanes = outer_lanes
        body.copy = 0

    def _select(self, copy: int) -> None:
        """Lets the body write copy ``copy`` of the unrolled vector loop."""
        self.body.copy = copy
        if self.body.rows is not None:
            self.body.names[self.body.rows] = f"(i_{self.body.rows} + {copy})" if copy else f"i_{self.body.rows}"
        elif self.body.lanes is not None:
            axis, variable, lanes = self._axis_texts
            self.body.names[axis] = f"({variable} + {copy * lanes})" if copy else variable

    # ---- phases ------------------------------------------------------------------------------------------------------

    def _points(self, copies: list[int]) -> None:
        """All phases at one outer point (of each copy)."""
        number = self.first_check
        self.body.results.clear()
        for k, phase in enumerate(self.phases):
            self.body.define(phase.lets)
            if phase.axes and self.of_bytes:
                write_sums(self.body, phase)
            elif phase.axes:
                (self._scan_phase if phase.scans else self._inner_phase)(k, phase, number, copies)
                for let in phase.lets:
                    self.body.lets.pop(let.name, None)
            else:
                later = frozenset().union(*(walk.names_in(p) for p in self.phases[k + 1 :]))
                settled: dict[
                    tuple[str, int], tuple[Value, Block]
                ] = {}  # for later phases: a copy would take those of the first one for its own
                for c in copies:
                    self._select(c)
                    self._checks(phase, number)
                    settled |= {(let.name, c): self.body.settled(let.name) for let in phase.lets if let.name in later}
                    self._stores(phase)
                self.body.results |= settled
            number += len(phase.checks)
        for phase in self.nest.phases:
            for let in phase.lets:
                self.body.lets.pop(let.name, None)

    def _checks(self, phase: Phase, number: int) -> None:
        for n, check in enumerate(phase.checks):
            self.body.check(check, number + n + 1)

    def _stores(self, phase: Phase) -> None:
        for store in phase.stores:  # all values are computed before the first is stored
            self.body.value(store.value)
        for group in together(self.body, phase.stores):
            if len(group) == 1:
                self.body.store(group[0])
            else:
                store_together(self.body, group)
        if phase.stores:
            self.body.forget_volatile()

    def _inner_phase(self, k: int, phase: Phase, number: int, copies: list[int]) -> None:
        """Loops over inner axes, the vector axis innermost where the phase has one of its own."""
        body, point = self.body, self.body.block
        own = self.choice.inner.get(k)
        axes = [a for a in phase.axes if a.name != own]
        position = Index(())
        for a in phase.axes:
            position = position * a.extent + a.name
        saved = body.lanes
        if own is not None:
            body.lanes = VectorAxis(own, self._vectors())
            copies = list(range(self._inner_unroll(phase, own)))
        totals = {(n, c): self._declare(c, r) for n, r in enumerate(phase.reductions) for c in copies}
        blocks = []
        run, length = self._runs(phase, axes, own)
        partial = dict(totals)
        for a in axes:
            if a.name == run:
                self.spans[a.name] = length
                blocks.append(body.block.nested(f"for (long b_{a.name} = 0; b_{a.name} * {length} < {self._text(a.extent)}; ++b_{a.name})"))
                body.block = blocks[-1]
                partial = {key: self._declare(key[1], acc.reduction) for key, acc in totals.items()}
            begin, end = self._range(a.name, self._text(a.extent))
            blocks.append(body.block.nested(f"for (long i_{a.name} = {begin}; i_{a.name} < {end}; ++i_{a.name})"))
            body.block = blocks[-1]
            body.bind_axis(a.name, f"i_{a.name}", blocks[-1])

        def emit(these: list[int]) -> None:
            here = self.phases[k]  # in the segment that is being written
            body.define(here.lets)
            for c in these:
                self._select(c)
                self._checks(here, number)
                for n, r in enumerate(here.reductions):
                    where = self._position(position) if r.op.startswith("arg") else ""
                    reductions.update(body, replace(partial[n, c], reduction=r), where)
                self._stores(here)

        span_block: Block | None = None
        if own is not None:
            if run == own:
                self.spans[own] = length
                extent = self._text(next(a for a in phase.axes if a.name == own).extent)
                span_block = body.block.nested(f"for (long b_{own} = 0; b_{own} * {length} < {extent}; ++b_{own})")
                body.block = span_block
                partial.update({key: self._declare(key[1], acc.reduction) for key, acc in totals.items()})
            body.lanes = None
            self._vector_loop(own, len(copies), emit)
            body.lanes = VectorAxis(own, self._vectors())
            if span_block is not None:
                self._merge(totals, partial)
                span_block.close()
        else:
            emit(copies)
        for b in reversed(blocks):
            body.block = b
            if b.header.startswith("for (long b_"):
                self._merge(totals, partial)
            b.close()
        body.block = point
        for a in phase.axes:
            self.spans.pop(a.name, None)
            body.homes.pop(a.name, None)
        self._finish(phase, totals, copies, own)
        body.lanes = saved
        if saved is not None:
            self._axis_texts = (saved.axis, f"i_{saved.axis}", saved.vectors.lanes)

    def _scan_phase(self, k: int, phase: Phase, number: int, copies: list[int]) -> None:
        """Goes along the axis in order: point by point, copies of the vector loop around it side by side, or a vector of points at a
        time."""
        body, point = self.body, self.body.block
        if (own := self.choice.inner.get(k)) is not None:
            self._scan_vectors(k, own, number)
            return
        phase = self.phases[k]
        [axis] = phase.axes
        variable, last = f"i_{axis.name}", f"{self._text(axis.extent)} - 1"
        back = phase.scans[0].reverse
        running = {}
        for c in copies:
            self._select(c)
            running[c] = [scans.declare(body, s) for s in phase.scans]
        header = (
            f"long {variable} = {last}; {variable} >= 0; --{variable}"
            if back
            else f"long {variable} = 0; {variable} <= {last}; ++{variable}"
        )
        body.block = point.nested(f"for ({header})")
        body.bind_axis(axis.name, variable, body.block)
        for c in copies:
            self._select(c)
            self._checks(phase, number)
            for each in running[c]:
                scans.step(body, each, variable, f"({last})" if back else "0")
            self._stores(phase)
        body.block.close()
        body.block = point
        body.homes.pop(axis.name, None)
        body.names.pop(axis.name, None)
        self._forget_scans(phase)

    def _scan_vectors(self, k: int, own: str, number: int) -> None:
        body, point, saved = self.body, self.body.block, self.body.lanes
        body.lanes = None
        phase = self.phases[k]
        running = [scans.declare(body, s) for s in phase.scans]
        first = f"({self._text(phase.axes[0].extent)} - 1)" if phase.scans[0].reverse else "0"

        def emit(_: list[int]) -> None:
            phase = self.phases[k]  # in the segment that is being written
            body.define(phase.lets)
            self._select(0)
            self._checks(phase, number)
            for each, scan in zip(running, phase.scans, strict=True):
                scans.step_lanes(body, replace(each, scan=scan), f"i_{own}", first)
            self._stores(phase)

        (self._vector_loop_back if running[0].scan.reverse else self._vector_loop)(own, 1, emit)
        body.block, body.lanes = point, saved
        self._forget_scans(self.phases[k])

    def _vector_loop_back(self, axis: str, copies: int, emit: Callable[[list[int]], None]) -> None:
        """The vector loop from the end: the part that is left over first."""
        block, body, lanes, variable = self.body.block, self.body, self._vectors().lanes, f"i_{axis}"
        extent = next(a.extent for p in self.phases for a in p.axes if a.name == axis)
        count = self._text(extent)
        left = None if extent.constant is None else extent.constant % lanes
        block.add(
            f"long {variable} = ({count}) / {lanes} * {lanes};"
            if not self._declared(block, variable)
            else f"{variable} = ({count}) / {lanes} * {lanes};"
        )
        if left != 0:
            inner = block.nested(f"if ({variable} < {count})")
            self._vector_copies(
                inner, axis, variable, 1, self._part(inner, f"(int)({count} - {variable})" if left is None else str(left)), emit
            )
        inner = block.nested(f"for ({variable} -= {lanes}; {variable} >= 0; {variable} -= {lanes})")
        self._vector_copies(inner, axis, variable, 1, None, emit)
        body.block = block
        body.names.pop(axis, None)
        body.homes.pop(axis, None)

    def _forget_scans(self, phase: Phase) -> None:
        """Results of scans are seen in their phase alone."""
        for key in [key for key in self.body.results if any(key[0] in s.names for s in phase.scans)]:
            del self.body.results[key]

    def _declare(self, copy: int, r: Reduction) -> reductions.Accumulator:
        self.body.copy = copy
        return reductions.declare(self.body, r)

    def _merge(self, totals: Accumulators, partial: Accumulators) -> None:
        for key, acc in totals.items():
            if partial[key] is not acc:
                reductions.merge(self.body, acc, partial[key])

    def _finish(self, phase: Phase, totals: Accumulators, copies: list[int], own: str | None) -> None:
        body = self.body
        for n in range(len(phase.reductions)):
            if own is None:
                for c in copies:
                    body.copy = c
                    reductions.publish(body, totals[n, c])
                continue
            for c in copies[1:]:
                reductions.merge(body, totals[n, 0], totals[n, c])
            body.copy = 0
            reductions.publish(body, reductions.across_lanes(body, totals[n, 0]))

    def _position(self, position: Index) -> str:
        """The position in the inner space, as a value of the width that argmax keeps."""
        vectors = self.body.lanes.vectors if self.body.lanes else None
        expr = IndexValue(position, reductions.position_type(vectors))
        return self.body.wide(expr) if vectors else self.body.value(expr).text

    def _inner_unroll(self, phase: Phase, own: str) -> int:
        if not phase.reductions or walk.op_cost(phase) > 12 or phase.stores:
            return 1
        return 4 if self.extents[own] >= 8 * self._vectors().lanes else 1

    def _runs(self, phase: Phase, axes: list[Axis], own: str | None) -> tuple[str | None, int]:
        """The innermost inner axis by whose end sums are long enough to be done in runs, and how far along it one run goes."""
        if not any(r.op in ("sum", "welford") and TYPES[r.dtype].kind == "float" for r in phase.reductions):
            return None, 0
        inside = 1  # additions at a point of the axis
        if own is not None:
            step = self._vectors().lanes * self._inner_unroll(phase, own)
            if (inside := max(self.extents[own] // step, 1)) > 2 * _RUN:
                return own, step * _RUN
        for axis in reversed(axes):
            steps = self.extents[axis.name]
            if steps > 1 and steps * inside > 2 * _RUN:
                return axis.name, max(_RUN // inside, 1)
            inside *= steps
        return None, 0


def write_nest(kernel: LoopKernel, nest: Nest, name: str, first_check: int, needs: Needs, target: Target) -> Written:
    """The function of one nest. ``first_check``: the number of its first check in the kernel."""
    return NestWriter(kernel, nest, name, first_check, needs, target).write()
