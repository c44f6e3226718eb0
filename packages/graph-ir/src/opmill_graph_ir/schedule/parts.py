"""Parts of a value that are written are written where it is, if nobody needs it as it was.

A graph without side effects writes a part by copying the whole: ``where(3 <= i < 8, new, old)``. Where what is copied stands in memory
anyway (others have read it, or it is memory that nothing was written to yet), the copy is left out, and the loop goes over the part alone.
Circular padding is made so, and what fills an empty tensor slice by slice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..loops.index import Index, index
from ..loops.ir import Axis, Const, Expr, IndexValue, Op
from ..lowered import Extern, Read
from .loop import Loop, Program, loops_of, reads_of, writes_of
from .rewrite import Rewriter, reads
from .updates import alike, renamed

_EMPTY = frozenset(("aten::empty_strided", "aten::empty.memory_format", "aten::new_empty"))


def write_parts(program: Program) -> None:
    """Leaves out such copies, on processors: elsewhere a kernel more costs more than it writes."""
    for position, statement in enumerate(program.statements):
        part = _part_of(statement, program) if type(statement) is Loop else None
        if part is None or not _is_free(part, position, program):
            continue
        program.statements[position] = _narrowed(part, program)
        for k in range(position):
            before = program.statements[k]
            if part.base in reads_of(before) | writes_of(before):
                program.statements[k] = renamed(before, part.base, part.target)


@dataclass(frozen=True)
class _Part:
    """``loop`` gives ``target`` the elements ``new`` where ``inside`` holds, that is ``within`` these bounds, and those of ``base``
    elsewhere."""

    loop: Loop
    target: str
    base: str
    new: Expr
    inside: tuple[Expr, ...]
    within: dict[str, tuple[int, int]]
    between: Loop | None = None
    """What made a part of the part, which nobody reads any more."""


def _part_of(loop: Loop, program: Program) -> _Part | None:
    if loop.inner or loop.lets or loop.checks or loop.scans or len(loop.writes) != 1:
        return None
    [write] = loop.writes
    info, choice = program.buffers[write.buffer], _choice(write.value)
    if write.mode != "set" or info.role != "temporary" or traits_of(info.device).asynchronous or choice is None:
        return None
    condition, new, old = choice
    extents = {a.name: a.extent.constant for a in loop.axes}
    within = _bounds(condition, extents)
    if within is None or type(old) is not Read or old.indices != write.indices or old.mask is not None:
        return None
    inside: tuple[Expr, ...] = (condition,)
    between = None
    if (inner := _nested(new, old, extents, program)) is not None:
        between, more, new = inner
        found = _bounds(more, extents)
        if found is None:
            return None
        inside, within = (condition, more), _both(within, found)
    if not program.is_temporary(old.buffer) or not alike(info, program.buffers[old.buffer]):
        return None
    if any(low >= high for low, high in within.values()) or old.buffer in {r.buffer for r in reads(new)}:
        return None
    return _Part(loop, write.buffer, old.buffer, new, inside, within, between)


def _choice(value: Expr) -> tuple[Expr, Expr, Expr] | None:
    """The arguments of ``where``."""
    if type(value) is not Op or value.name != "where":
        return None
    condition, new, old = value.args
    return condition, new, old


def _bounds(condition: Expr, extents: dict[str, int | None]) -> dict[str, tuple[int, int]] | None:
    """The first point and the one behind the last of each axis where the condition holds; None where it asks for something else."""
    if type(condition) is not Op:
        return None
    if condition.name == "logical_and":
        a, b = (_bounds(arg, extents) for arg in condition.args)
        return None if a is None or b is None else _both(a, b)
    if condition.name not in ("ge", "lt"):
        return None
    place, limit = condition.args
    if type(place) is not IndexValue or type(limit) is not Const:
        return None
    for axis, extent in extents.items():
        offset = (place.index - index(axis)).constant
        if offset is not None and extent is not None:
            at = int(limit.value) - offset
            return {axis: (max(at, 0), extent) if condition.name == "ge" else (0, min(at, extent))}
    return None


def _both(a: dict[str, tuple[int, int]], b: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    joined = dict(a)
    for axis, (low, high) in b.items():
        first, last = joined.get(axis, (low, high))
        joined[axis] = max(low, first), min(high, last)
    return joined


def _nested(new: Expr, old: Read, extents: dict[str, int | None], program: Program) -> tuple[Loop, Expr, Expr] | None:
    """Where ``new`` reads what is itself a part of the same memory with other elements in some places: what made it, where these are, and
    they."""
    if type(new) is not Read or not program.is_temporary(new.buffer):
        return None
    uses = [s for s in program.statements if new.buffer in reads_of(s) | writes_of(s)]
    makers = [s for s in loops_of(uses) if new.buffer in writes_of(s)]
    if len(uses) != 2 or len(makers) != 1:
        return None
    [maker] = makers
    if maker.inner or maker.lets or maker.checks or maker.scans or len(maker.writes) != 1 or maker.writes[0].mode != "set":
        return None
    [write] = maker.writes
    choice, names = _choice(write.value), [str(i) for i in write.indices]
    if choice is None or {a.name for a in maker.axes} != {n for n in names if not n.isdigit()}:
        return None
    moved = Rewriter({n: i for n, i in zip(names, new.indices, strict=True) if not n.isdigit()}, extents=program.extents)
    condition, inner = moved(choice[0]), moved(choice[1])
    outer: Expr = moved(choice[2])
    same = type(outer) is Read and (outer.buffer, outer.indices, outer.mask) == (old.buffer, old.indices, None)
    return (maker, condition, inner) if same else None


def _is_free(part: _Part, position: int, program: Program) -> bool:
    """Whether the base stands in memory by itself before ``position``, and nobody needs it from there on."""
    base, target = part.base, part.target
    before, behind = program.statements[:position], program.statements[position + 1 :]
    if part.between is not None:
        since = before[before.index(part.between) + 1 :]
        if any(not writes_of(s).isdisjoint({base, *(r.buffer for r in reads(part.new))}) for s in since):
            return False  # what was made of the old contents is not made of the new ones
    if any(base in reads_of(s) | writes_of(s) for s in behind) or any(target in reads_of(s) | writes_of(s) for s in before):
        return False
    writers = [s for s in before if base in writes_of(s)]
    if any(type(s) is Extern and s.out_variant is None and s.op not in _EMPTY for s in writers):
        return False  # it may be memory of something else
    if len(writers) == 1 and type(writers[0]) is Loop:  # else it is computed where it is copied, and is never in memory
        return any(base in reads_of(s) for s in before if s is not part.between)
    return bool(writers)


def _narrowed(part: _Part, program: Program) -> Loop:
    """The loop over the part alone."""
    place: dict[str, Index] = {}
    axes: list[Axis] = []
    for axis in part.loop.axes:
        low, high = part.within.get(axis.name, (0, None))
        if high is None:
            axes.append(axis)
            continue
        if high - low > 1:
            axes.append(program.fresh_axis(index(high - low)))
        place[axis.name] = index(axes[-1].name) + low if high - low > 1 else index(low)
    unmasked = Rewriter(rule=lambda read: replace(read, mask=None, other=None) if read.mask in part.inside else None)
    [write] = part.loop.writes
    loop = replace(part.loop, writes=(replace(write, value=unmasked(part.new)),))
    moved: Any = Rewriter(place, extents=program.extents)
    return loop.rewritten(moved, tuple(axes), ())


__all__ = ["write_parts"]
