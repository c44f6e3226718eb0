"""A matrix times a normalised vector is one kernel: each of its programs sums the vector itself.

On a GPU a vector that all programs share comes out of the cache while the matrix comes from memory. A kernel for its sums alone takes as
long as a megabyte or more of the matrix, and everything waits for it: one token of a language model has two of them a layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from opmill_runtime_cache.devices.registry import traits_of

from ..loops.index import Index, index
from ..loops.ir import Axis, Expr, Op, Reduction, Ref
from ..loops.primitives import PRIMITIVES
from ..lowered import Read
from .inline import substituted
from .loop import Loop, Program, reads_of, writes_of
from .product import reads_again
from .rewrite import Rewriter, reads, walk

_LONGEST = 8192
"""Elements of a vector that a program keeps whole."""
_LEAST = 1 << 18
"""Elements of the largest matrix, below which starting a kernel is what counts, and others do it beside it."""
_CHEAP = 16
"""Operations for each element of the vector: a device does some twenty while it reads one of the matrix."""


@dataclass(frozen=True)
class _Vector:
    """What ``last`` makes, and the loops without axes (``sums``, in the order of the program) whose results it takes."""

    last: Loop
    sums: tuple[Loop, ...]

    @property
    def buffer(self) -> str:
        return self.last.writes[0].buffer

    def made(self) -> set[str]:
        return {w.buffer for s in self.sums for w in s.writes}


def sum_where_multiplied(program: Program) -> None:
    """Puts the sums that a vector takes where it is multiplied by matrices, if nobody else reads it."""
    known = _Known(program)
    before: dict[int, list[Loop]] = defaultdict(list)
    gone: set[int] = set()
    for position, loop in enumerate(program.statements):
        if type(loop) is Loop and (vector := known.vector(position, loop)) is not None and (users := known.users(position, vector)):
            done: dict[tuple[Index, ...], dict[str, str]] = {}
            for user in users:
                multiplied = program.loop(user)
                domain = tuple(a.extent for a in multiplied.axes)
                if domain not in done:
                    done[domain] = {}
                    before[user] += [_repeated(s, multiplied.axes, done[domain], program) for s in vector.sums]
                program.statements[user] = _multiplied(multiplied, vector, done[domain], program)
            gone.add(position)
    out = []
    for position, statement in enumerate(program.statements):
        out += [*before[position], *([statement] if position not in gone else [])]
    program.statements = out


class _Known:
    """Who reads and who writes each buffer, by position in the program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.readers: dict[str, list[int]] = defaultdict(list)
        self.writers: dict[str, list[int]] = defaultdict(list)
        for k, statement in enumerate(program.statements):
            for b in reads_of(statement):
                self.readers[b].append(k)
            for b in writes_of(statement):
                self.writers[b].append(k)

    def vector(self, position: int, loop: Loop) -> _Vector | None:
        """What ``loop`` is, where it makes a vector point by point of sums that no loop can take apart from it."""
        program = self.program
        if loop.reductions or loop.scans or loop.lets or loop.checks or len(loop.writes) != 1 or len(loop.axes) != 1:
            return None
        [write], [axis] = loop.writes, loop.axes
        info = program.buffers[write.buffer]
        plain = [i for i in write.indices if i != index(0)] == [index(axis.name)]
        if write.mode != "set" or not plain or not program.is_temporary(write.buffer) or not traits_of(info.device).grid:
            return None
        if not 0 < (axis.extent.constant or 0) <= _LONGEST or len(self.writers[write.buffer]) != 1:
            return None
        sums = self.sums(loop, position)
        if sums is None or not any(s.reductions for s in sums) or _price(loop, sums) > _CHEAP:
            return None
        return _Vector(loop, tuple(sums))

    def sums(self, loop: Loop, position: int) -> list[Loop] | None:
        """The loops without axes whose results a loop takes, and they again; None where one of them cannot be done elsewhere."""
        found: set[int] = set()
        stack = [loop]
        while stack:
            for read in stack.pop().reads():
                if any(i.constant is None for i in read.indices) or not self.program.is_temporary(read.buffer):
                    continue
                places = self.writers[read.buffer]
                made = self.program.statements[places[0]] if len(places) == 1 else None
                if type(made) is not Loop or places[0] >= position or made.scans or made.lets or made.checks or read.mask is not None:
                    return None
                if made.axes or any(w.mode != "set" for w in made.writes):
                    return None
                stack += [made] if places[0] not in found else []
                found.add(places[0])
        return [self.program.loop(k) for k in sorted(found)]

    def users(self, position: int, vector: _Vector) -> list[int]:
        """The products with large matrices that read the vector, if they are all that do, and nothing of it has changed by then."""
        program, users = self.program, self.readers[vector.buffer]
        if not users or not all(self._multiplies(program.statements[u], vector) for u in users):
            return []
        if max(program.size((loop := program.loop(u)).axes + loop.inner) for u in users) < _LEAST:
            return []
        sources = set().union(*(reads_of(s) for s in (*vector.sums, vector.last))) - vector.made()
        first = min(self.writers[b][0] for b in vector.made())
        return [] if any(first <= w <= users[-1] for b in sources for w in self.writers[b]) else users

    def _multiplies(self, user: object, vector: _Vector) -> bool:
        if type(user) is not Loop or len(user.inner) != 1 or user.lets or user.checks or user.scans:
            return False
        axis = user.inner[0]
        found = [r for r in user.reads() if r.buffer == vector.buffer]
        along = all(r.mask is None and [i for i in r.indices if i != index(0)] == [index(axis.name)] for r in found)
        alike = axis.extent == vector.last.axes[0].extent and all([a.extent for a in s.inner] in ([], [axis.extent]) for s in vector.sums)
        known = all(a.extent.constant is not None for a in user.axes + user.inner)
        return along and alike and known and reads_again(user, vector.buffer)


def _price(loop: Loop, sums: Sequence[Loop]) -> int:
    """Operations for each element of the vector; what is of all of it is done once."""
    values = [(w.value, loop.axes) for w in loop.writes] + [(r.value, s.inner) for s in sums for r in s.reductions]
    total = 0
    for value, axes in values:
        names = {a.name for a in axes}
        for e in walk(value):
            if type(e) is Op and any(i.symbols & names for r in reads(e) for i in r.indices):
                total += PRIMITIVES[e.name].cost
    return total


def _repeated(loop: Loop, axes: tuple[Axis, ...], made: dict[str, str], program: Program) -> Loop:
    """A loop without axes at each point of ``axes``. ``made``: what its results are called there, for it and what takes them."""
    own = tuple(program.fresh_axis(a.extent) for a in axes)
    inner = tuple(program.fresh_axis(a.extent) for a in loop.inner)
    symbols = {a.name: index(b.name) for a, b in zip(loop.inner, inner, strict=True)}
    results = {n: program.fresh_name("v") for r in loop.reductions for n in r.names}
    names = {n: Ref(results[n], r.dtype) for r in loop.reductions for n in r.names}
    rewriter = Rewriter(symbols, {}, lambda read: _there(read, made, own), program.extents)
    new = loop.rewritten(rewriter, own, inner)
    named = Rewriter(names=names)
    writes = []
    for w in new.writes:
        model = program.buffers[w.buffer]
        made[w.buffer] = program.fresh_buffer("t", model, tuple(a.extent for a in axes), model.dtype)
        writes.append(replace(w, buffer=made[w.buffer], indices=tuple(index(a.name) for a in own), value=named(w.value)))
    renamed = tuple(Reduction(tuple(results[n] for n in r.names), r.op, r.value, r.dtype) for r in new.reductions)
    return replace(new, writes=tuple(writes), reductions=renamed)


def _there(read: Read, made: dict[str, str], axes: tuple[Axis, ...]) -> Expr | None:
    if read.buffer not in made:
        return None
    return Read(made[read.buffer], tuple(index(a.name) for a in axes), read.dtype)


def _multiplied(user: Loop, vector: _Vector, made: dict[str, str], program: Program) -> Loop:
    """The product, with the vector's values where it read them."""
    here = Rewriter(rule=lambda read: _there(read, made, user.axes))
    return substituted(user, vector.last.rewritten(here, vector.last.axes, ()), program)


__all__ = ["sum_where_multiplied"]
