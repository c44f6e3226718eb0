"""Scans whose results are read from the end alone run backward: gradients of running sums turn what they read and what they give around."""

from __future__ import annotations

from dataclasses import replace

from ..loops.index import Index, index
from ..loops.ir import Expr, Read
from .loop import Loop, Program, loops_of, reads_of
from .rewrite import Rewriter


def turn_scans(program: Program) -> None:
    """Where each read of a scan's result is at ``extent - 1 - axis`` along the scan, the result is kept the other way round: it is then
    made at the points where it is read, and both fuse."""
    for position, loop in enumerate(program.statements):
        if type(loop) is Loop and loop.scans and _turns(loop, program):
            program.statements[position] = _turned(loop, program)
            for k, reader in enumerate(program.statements):
                if type(reader) is Loop and k != position and reads_of(reader) & loop.written():
                    program.statements[k] = _reading(reader, loop, program)


def _turns(loop: Loop, program: Program) -> bool:
    if any(len(s.names) > 1 for s in loop.scans) or not all(map(program.is_temporary, loop.written())):
        return False
    readers = [s for s in program.statements if reads_of(s) & loop.written()]
    if (
        not readers
        or not all(type(r) is Loop for r in readers)
        or sum(bool(s.written() & loop.written()) for s in program.statements if type(s) is Loop) > 1
    ):
        return False
    found = [(r, read) for r in loops_of(readers) for read in r.reads() if read.buffer in loop.written()]
    return bool(found) and all(_from_end(read.indices[_dimension(loop)], r, loop) for r, read in found)


def _dimension(loop: Loop) -> int:
    return loop.writes[0].indices.index(index(loop.inner[0].name))


def _from_end(at: Index, reader: Loop, loop: Loop) -> bool:
    extent = loop.inner[0].extent
    return any(a.extent == extent and at == extent - 1 - index(a.name) for a in (*reader.axes, *reader.inner))


def _turned(loop: Loop, program: Program) -> Loop:
    [axis] = loop.inner
    turn = Rewriter({axis.name: axis.extent - 1 - index(axis.name)}, extents=program.extents)
    new = loop.rewritten(turn, loop.axes, loop.inner)
    writes = tuple(replace(w, indices=old.indices) for w, old in zip(new.writes, loop.writes, strict=True))
    return replace(new, writes=writes, scans=tuple(replace(s, reverse=not s.reverse) for s in new.scans))


def _reading(reader: Loop, loop: Loop, program: Program) -> Loop:
    last, dimension, buffers = loop.inner[0].extent - 1, _dimension(loop), loop.written()

    def rule(read: Read) -> Expr | None:
        if read.buffer not in buffers:
            return None
        at = tuple(last - i if d == dimension else i for d, i in enumerate(read.indices))
        return replace(read, indices=at)

    return reader.rewritten(Rewriter(rule=rule), reader.axes, reader.inner)
