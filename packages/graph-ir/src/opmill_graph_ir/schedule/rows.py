"""What a graph keeps for itself lies in rows where rows are summed.

Eager's elementwise operators give results that lie as their first operand does: behind a convolution whose result is turned (patches of
images, frames of sound) all of a transformer's stream is kept turned, and each norm walks down columns. Nobody outside sees how such a
tensor lies; it is laid in rows if more of what is done with it then goes along memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ..dense import contiguous
from ..loops.index import Index, index
from ..lowered import BufferInfo
from .loop import Loop, Program, loops_of

Access = tuple[Loop, tuple[Index, ...], bool]
"""A loop, the positions of a buffer that it uses, and whether it writes there."""


def lay_in_rows(program: Program) -> None:
    """Changes strides of temporaries, in the order in which these are written."""
    written = [write.buffer for loop in loops_of(program.statements) for write in loop.writes]
    turned = [name for name in dict.fromkeys(written) if _may_be_laid(program.buffers[name], program)]
    used = _accesses(program) if turned else {}
    for name in turned:
        info = program.buffers[name]
        laid = replace(info, strides=tuple(map(index, contiguous(_numbers(info)))))
        if _gain(info, laid, used[name], program) > 0:
            program.buffers[name] = laid


def _accesses(program: Program) -> dict[str, list[Access]]:
    found: dict[str, list[Access]] = defaultdict(list)
    for loop in loops_of(program.statements):
        for read in loop.reads():
            found[read.buffer].append((loop, tuple(read.indices), False))
        for write in loop.writes:
            found[write.buffer].append((loop, tuple(write.indices), True))
    return found


def _numbers(info: BufferInfo) -> tuple[int, ...]:
    return tuple(n.constant or 0 for n in info.sizes)


def _may_be_laid(info: BufferInfo, program: Program) -> bool:
    """Whether it is a tensor without gaps, its dimensions in another order than rows have, and nobody is promised that order."""
    if info.fixed or info.opaque or not program.is_temporary(info.name) or any(not n.constant for n in info.sizes):
        return False
    sizes = _numbers(info)
    long = [(s.constant, n) for s, n in zip(info.strides, sizes, strict=True) if n > 1]
    rows = [s for s, n in zip(contiguous(sizes), sizes, strict=True) if n > 1]
    if any(s is None for s, _ in long) or [s for s, _ in long] == rows:
        return False
    step = 1
    for stride, n in sorted((s or 0, n) for s, n in long):
        if stride != step:
            return False
        step *= n
    return True


def _gain(info: BufferInfo, laid: BufferInfo, accesses: list[Access], program: Program) -> int:
    """How many more uses go along memory if the tensor lies in rows."""
    gain = 0
    for access in accesses:
        wanted = _wanted(info, access, program)
        gain += (_unit(laid, access[1]) in wanted) - (_unit(info, access[1]) in wanted)
    return gain


def _wanted(info: BufferInfo, access: Access, program: Program) -> set[str | None]:
    """The axes of which one should go along memory: of a sum of rows, and those along which the loop uses other tensors of this size."""
    loop, indices, writes = access
    if not loop.inner or writes:
        return set(_others(info, loop, program)) - {None}
    inner = {a.name for a in loop.inner}
    return {*inner} if sum(not inner.isdisjoint(i.symbols) for i in indices) == 1 else set()


def _others(info: BufferInfo, loop: Loop, program: Program) -> Iterator[str | None]:
    """The axes along which the loop uses other tensors as large that lie as they must, or in rows."""
    size = _count(info)
    uses = [*((r.buffer, r.indices) for r in loop.reads()), *((w.buffer, w.indices) for w in loop.writes)]
    for name, indices in uses:
        other = program.buffers[name]
        if name != info.name and not _may_be_laid(other, program) and _count(other) >= size:
            yield _unit(other.cells if len(indices) > len(other.sizes) else other, tuple(indices))


def _count(info: BufferInfo) -> int:
    return math.prod(n.constant or 1 for n in info.sizes)


def _unit(info: BufferInfo, indices: tuple[Index, ...]) -> str | None:
    """The axis along which the use goes from one element to the next."""
    for stride, at in zip(info.strides, indices, strict=True):
        if stride.constant == 1 and at.symbols:
            return next((name for name in sorted(at.symbols) if (step := at.stride_of(name)) is not None and step.constant == 1), None)
    return None
