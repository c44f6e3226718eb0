"""Vertical fusion by substitution: a pointwise producer's value takes the place of the reads of its buffer.

A producer is inlined into all its consumers or into none, and only where recomputing is no dearer than storing and loading. Nothing is
moved across a write to what it reads.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..loops.index import Index, index
from ..loops.ir import Check, Const, Expr, Let, Op, Ref
from ..lowered import Extern, Read
from .cost import EXPENSIVE, cost_of
from .loop import Loop, Program, Statement, Write, reads_of, writes_of
from .product import is_product, reads_again
from .rewrite import Rewriter, under_mask

_CHEAP = 8
"""Operations that may be repeated by several consumers, where that costs no additional memory traffic."""
_MOST_ROWS = 4
"""How often a product on a processor computes an element of its operand again."""
_LARGEST = 160
"""Nodes in an expression beyond which it grows no further."""
_DEEPEST = 80
"""Operations one inside the other beyond which an expression is no deeper: walks over it call themselves. Its parts stay in one nest."""


def inline(program: Program) -> None:
    """Inlines until nothing changes, producers before consumers: one pass in program order is enough."""
    known = _Index(program)
    for position, producer in enumerate(program.statements):
        if type(producer) is Loop and (uses := _inlinable(producer, position, known, program)):
            for user in uses:
                consumer = program.loop(user)
                joined = _continued(consumer, producer) if len(uses) == 1 else None
                known.replace(user, joined or substituted(consumer, producer, program))
            known.remove(position)
    program.statements = [s for k, s in enumerate(program.statements) if k not in known.removed]


class _Index:
    """Who reads and who writes each buffer, by position in the program; kept up to date."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.readers: dict[str, set[int]] = defaultdict(set)
        self.writers: dict[str, list[int]] = defaultdict(list)
        self.extern: set[str] = set()
        self.removed: set[int] = set()
        for k, statement in enumerate(program.statements):
            for b in reads_of(statement):
                self.readers[b].add(k)
            for b in writes_of(statement):
                self.writers[b].append(k)
            if type(statement) is Extern:
                self.extern |= reads_of(statement)

    def replace(self, position: int, new: Loop) -> None:
        for b in reads_of(self.program.statements[position]):
            self.readers[b].discard(position)
        self.program.statements[position] = new
        for b in reads_of(new):
            self.readers[b].add(position)

    def remove(self, position: int) -> None:
        statement = self.program.statements[position]
        for b in reads_of(statement):
            self.readers[b].discard(position)
        for b in writes_of(statement):
            self.writers[b].remove(position)
        self.removed.add(position)


def _inlinable(producer: Loop, position: int, index: _Index, program: Program) -> list[int] | None:
    """Positions of the consumers to inline ``producer`` into, or None where it stays."""
    if producer.reductions or producer.scans or len(producer.writes) != 1:
        return None
    [write] = producer.writes
    buffer = write.buffer
    if write.mode != "set" or not program.is_temporary(buffer) or buffer in index.extern or len(index.writers[buffer]) != 1:
        return None
    users = sorted(index.readers[buffer])
    if not users or users[0] <= position or not _covers_buffer(producer, write, program):
        return None
    if any(_must_read(program.statements[u], buffer, program) for u in users):
        return None
    if producer.checks and any(_shows_at_once(program.loop(u), program) for u in users):
        return None
    last = users[-1]
    if any(position < w < last for b in reads_of(producer) for w in index.writers[b]):
        return None
    if any(_would_read_what_it_writes(program.loop(u), producer, write, program) for u in users):
        return None
    return users if _worth(producer, write, users, position, index) else None


def _would_read_what_it_writes(user: Loop, producer: Loop, write: Write, program: Program) -> bool:
    """Whether the user, with the producer in it, would read a buffer at other points than it writes it at, and not in another part."""
    for target in user.writes:
        found = [r for r in producer.reads() if r.buffer == target.buffer]
        here = all(r.indices == target.indices for r in user.reads() if r.buffer == write.buffer)
        if found and not (here and all(r.indices == write.indices for r in found)):
            if not all(any(map(partial(_are_apart, program=program), target.indices, r.indices)) for r in found):
                return True
    return False


def _are_apart(a: Index, b: Index, program: Program) -> bool:
    """Whether two positions are different ones at all points of their loops."""
    first, second = _range_of(a, program), _range_of(b, program)
    return first is not None and second is not None and (first[1] < second[0] or second[1] < first[0])


def _range_of(place: Index, program: Program) -> tuple[int, int] | None:
    """The least and the largest of the values of a position that is a number, or an axis and a number."""
    if (number := place.constant) is not None:
        return number, number
    [name] = place.symbols if len(place.symbols) == 1 else [""]
    extent, offset = program.extents.get(name), (place - index(name)).constant if name else None
    return (offset, offset + extent - 1) if isinstance(extent, int) and offset is not None else None


def _shows_at_once(user: Loop, program: Program) -> bool:
    """Whether a loop writes what others see. On processors all checks are made before: what fails has then written nothing."""
    buffers = [program.buffers[w.buffer] for w in user.writes]
    return any(b.role != "temporary" and not traits_of(b.device).asynchronous for b in buffers)


def _must_read(user: Statement, buffer: str, program: Program) -> bool:
    """Whether a reader is no loop, writes to what it reads, or reads each element many times, from memory."""
    if not isinstance(user, Loop) or any(w.buffer == buffer for w in user.writes):
        return True
    return (is_product(user) and not _computes(user, program)) or (_is_on_gpu(user, program) and reads_again(user, buffer))


def _is_on_gpu(user: Loop, program: Program) -> bool:
    return any(traits_of(program.buffers[w.buffer].device).grid for w in user.writes)


def _computes(user: Loop, program: Program) -> bool:
    """Whether a product may compute its operands."""
    return not user.written().isdisjoint(program.computing)


def _covers_buffer(producer: Loop, write: Write, program: Program) -> bool:
    """Whether the producer's domain is the buffer, one axis a dimension."""
    names = [a.name for a in producer.axes]
    plain = [str(i) for i in write.indices if i.constant is None]
    return plain == names and all(i.constant in (None, 0) for i in write.indices)


def _worth(producer: Loop, write: Write, users: list[int], position: int, index: _Index) -> bool:
    program = index.program
    loops = list(map(program.loop, users))
    uses = [[r for r in loop.reads() if r.buffer == write.buffer] for loop in loops]
    count = sum(len({(r.indices, r.mask) for r in found}) for found in uses)
    if (producer.lets or producer.checks) and any(_is_conditional(r, loop) for loop, found in zip(loops, uses, strict=True) for r in found):
        return False
    if producer.checks and not (count == 1 and _visits_all(uses[0][0], loops[0], producer)):
        return False
    price = cost_of(producer.parts)
    nodes = len(producer.parts)
    numel = max(program.size(producer.axes), 1)
    repeats = max(program.size(loop.axes + loop.inner) / numel for loop in loops)
    if price == 0 and nodes <= 3 and not producer.checks:
        return True
    if (count > 1 and nodes * count > _LARGEST) or any(len(loop.parts) + nodes > 4 * _LARGEST for loop in loops):
        return False
    if nodes > _DEEPEST and _depth(producer) > _DEEPEST:
        return False
    if repeats > 1.01 and _follows_product(producer, position, index):
        return False
    if any(_computes(loop, program) for loop in loops):
        if repeats > _MOST_ROWS and not any(_is_on_gpu(loop, program) for loop in loops):
            return False  # a row that meets every column of a matrix: only the matrix is to be computed
        return count == 1 and price <= 4 * EXPENSIVE and not producer.checks and not producer.lets
    if count == 1:
        return repeats <= 1.01 or price <= _CHEAP or (price < EXPENSIVE and repeats <= 4)
    large = {(r.buffer, r.indices) for r in producer.reads() if program.numel(r.buffer) * 4 > numel}
    return price <= _CHEAP and len(large) <= 1 and repeats <= math.inf


def _is_conditional(read: Read, loop: Loop) -> bool:
    """Whether lets and checks that stand before all others would look where nothing says that there is something: under a mask, or at a
    position that the loop computes itself."""
    return read.mask is not None or any(i.symbols & {let.name for let in loop.lets} for i in read.indices)


def _follows_product(producer: Loop, position: int, index: _Index) -> bool:
    """Whether the producer can be done where a product's sums are at hand, for nothing."""
    before = {w for r in producer.reads() if r.mask is None for w in index.writers[r.buffer] if w < position}
    return any(
        type(s := index.program.statements[w]) is Loop and is_product(s) and [a.extent for a in s.axes] == [a.extent for a in producer.axes]
        for w in before
    )


def _depth(loop: Loop) -> int:
    """Operations one inside the other in the loop's values."""
    found: dict[int, int] = {}  # by identity: the loop holds them
    stack = list(loop.expressions())
    while stack:
        e = stack[-1]
        inner = e.args if type(e) is Op else ()
        if missing := [a for a in inner if id(a) not in found]:
            stack += missing
            continue
        found[id(stack.pop())] = 1 + max([found[id(a)] for a in inner], default=0)
    return max(found.values(), default=0)


def _visits_all(read: Read, consumer: Loop, producer: Loop) -> bool:
    """Whether ``consumer`` reads each element of the producer's buffer: its checks then check all there is to check."""
    extents = {a.name: a.extent for a in consumer.axes + consumer.inner}
    wanted = [a.extent for a in producer.axes]
    plain = [str(i) for i in read.indices if i.constant is None]
    return len(set(plain)) == len(plain) == len(wanted) and all(extents.get(n) == e for n, e in zip(plain, wanted, strict=True))


def substituted(consumer: Loop, producer: Loop, program: Program) -> Loop:
    """``consumer`` with the producer's value in place of reads of its buffer."""
    [write] = producer.writes
    dimensions = [k for k, i in enumerate(write.indices) if i.constant is None]
    lets: list[Let] = []
    checks: list[Check] = []
    done: dict[tuple[Index, ...], Expr] = {}

    def rule(read: Read) -> Expr | None:
        if read.buffer != write.buffer:
            return None
        if read.indices not in done:
            symbols = {a.name: read.indices[k] for a, k in zip(producer.axes, dimensions, strict=True)}
            done[read.indices] = _instance(producer, symbols, lets, checks, program)
        value = done[read.indices]
        if read.mask is None:
            return value
        if type(value) is Const and value == read.other:
            return value
        other = read.other if read.other is not None else Const(0, read.dtype)
        return Op("where", (read.mask, under_mask(value, read.mask, lambda r: _stays_inside(r, program)), other), read.dtype)

    new = consumer.rewritten(Rewriter(rule=rule), consumer.axes, consumer.inner)
    return replace(new, lets=(*lets, *new.lets), checks=(*checks, *new.checks), **_joint(producer, new))


def _continued(consumer: Loop, producer: Loop) -> Loop | None:
    """``consumer``, over the axes of its producer, with the producer's expression as it is: where it reads what it takes point by point,
    and nobody else does (the producer's names would be there twice). None elsewhere. What has grown in a chain is so not built again at
    each of its links."""
    [write] = producer.writes
    found = {r.indices: None for r in consumer.reads() if r.buffer == write.buffer}
    if len(found) != 1 or any(r.mask is not None for r in consumer.reads() if r.buffer == write.buffer):
        return None
    [indices] = found
    names = [str(i) for i, target in zip(indices, write.indices) if target.constant is None]
    own = {a.name: a for a in consumer.axes}
    if len(names) != len(own) or len(producer.axes) != len(own) or set(names) != set(own):
        return None
    if any(own[name].extent != axis.extent for name, axis in zip(names, producer.axes)):
        return None
    axes = dict(zip(names, producer.axes))
    symbols = {name: Index((((axis.name,), 1),)) for name, axis in axes.items()}
    rewriter = Rewriter(symbols, rule=lambda read: write.value if read.buffer == write.buffer else None)
    new = consumer.rewritten(rewriter, tuple(axes[a.name] for a in consumer.axes), consumer.inner)
    return replace(new, lets=(*producer.lets, *new.lets), checks=(*producer.checks, *new.checks), **_joint(producer, new))


def _stays_inside(read: Read, program: Program) -> bool:
    """Whether each index is one of the buffer's, wherever the loop is: what is read there in vain harms nobody, and vectors stay whole."""
    if read.mask is not None:
        return False
    for i, n in zip(read.indices, program.buffers[read.buffer].cells.sizes, strict=True):
        bounds = i.bounds(program.extents)
        if bounds is None or n.constant is None or bounds[0] < 0 or bounds[1] >= n.constant:
            return False
    return True


def _instance(producer: Loop, symbols: Mapping[str, Index], lets: list[Let], checks: list[Check], program: Program) -> Expr:
    """The producer's value at a point, with lets of its own."""
    symbols = dict(symbols)
    names: dict[str, Expr] = {}
    rewriter = Rewriter(symbols, names, None, program.extents)
    for let in producer.lets:
        value = rewriter(let.value)
        fresh = program.fresh_name("v")
        lets.append(Let(fresh, value))
        names[let.name] = Ref(fresh, value.dtype)
        symbols[let.name] = Index((((fresh,), 1),))
        rewriter = Rewriter(symbols, names, None, program.extents)
    checks.extend(Check(rewriter(c.condition), c.error, c.message) for c in producer.checks)
    return rewriter(producer.writes[0].value)


def _joint(producer: Loop, reader: Loop) -> dict[str, Any]:
    """Where a loop comes from that does the work of two."""
    sources = tuple(dict.fromkeys((*producer.sources, *reader.sources)))
    return {"origin": _joined(producer.origin, reader.origin), "sources": sources}


def _joined(first: str, second: str) -> str:
    parts = [p for p in (*first.split("; "), *second.split("; ")) if p]
    return "; ".join(dict.fromkeys(parts))
