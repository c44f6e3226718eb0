"""Common subexpressions between statements: a loop that computes what an earlier one did is dropped.

Lowering makes such loops of different operators (the statistics of a norm used twice, equal masks); equal operators went before.
"""

from __future__ import annotations

from dataclasses import replace

from ..loops.index import Index, index
from ..loops.ir import Expr, Ref
from ..lowered import BufferArg, BufferInfo, Extern, Read
from .loop import Loop, Program, Statement, Write, reads_of, writes_of
from .rewrite import Rewriter


def remove_common(program: Program) -> None:
    """Keeps the first of equal loops; where a later one writes an output, the first writes that instead."""
    writers: dict[str, int] = {}
    for each in program.statements:
        for b in writes_of(each):
            writers[b] = writers.get(b, 0) + 1
    written = set(writers)
    pure = {b for b, n in writers.items() if n == 1 and program.buffers[b].role == "temporary"}
    seen: dict[object, int] = {}
    renamed: dict[str, str] = {}
    kept: list[Statement | None] = []
    for statement in program.statements:
        s = _with_names(statement, renamed)
        key = _key(s, program, pure, written) if type(s) is Loop else None
        first = kept[seen[key]] if key is not None and key in seen else None
        if type(s) is not Loop or type(first) is not Loop:
            if key is not None:
                seen[key] = len(kept)
            kept.append(s)
            continue
        for old, new in zip(first.writes, s.writes, strict=True):
            if new.buffer not in program.outputs:
                renamed[new.buffer] = old.buffer
            elif old.buffer not in program.outputs:
                renamed = {k: new.buffer if v == old.buffer else v for k, v in renamed.items()} | {old.buffer: new.buffer}
                kept = [_with_names(k, {old.buffer: new.buffer}, writes=True) for k in kept]
            else:
                kept.append(_copy(old.buffer, new.buffer, program))
    program.statements = [k for k in kept if k is not None]


def _copy(source: str, target: str, program: Program) -> Loop:
    info = program.buffers[target]
    info = info.cells
    axes = tuple(program.fresh_axis(s) for s in info.sizes if s.constant != 1)
    names = iter(axes)
    at = tuple(index(0) if s.constant == 1 else index(next(names).name) for s in info.sizes)
    return Loop(axes, (Write(target, at, Read(source, at, info.dtype)),))


def _key(loop: Loop, program: Program, pure: set[str], written: set[str]) -> object | None:
    """Equal for loops that compute equal values into buffers of equal layout; None for those that must stay."""
    if loop.checks or not loop.written() <= pure or not all(b in pure or b not in written for b in reads_of(loop)):
        return None
    symbols: dict[str, Index] = {}
    refs: dict[str, Expr] = {}
    for k, axis in enumerate((*loop.axes, *loop.inner)):
        symbols[axis.name] = index(f"a{k}")
    for k, let in enumerate(loop.lets):
        symbols[let.name], refs[let.name] = index(f"l{k}"), Ref(f"l{k}", let.value.dtype)
    for k, r in enumerate(loop.reductions):
        for position, name in enumerate(r.names):
            refs[name] = Ref(f"r{k}.{position}", "int64" if position and r.op.startswith("arg") else r.dtype)
    for k, s in enumerate(loop.scans):
        for position, name in enumerate(s.names):
            refs[name] = Ref(f"s{k}.{position}", "int64" if position else s.dtype)
    named = loop.rewritten(Rewriter(symbols, refs), (), ())
    layouts = tuple(_layout(program.buffers[w.buffer]) for w in loop.writes)
    values = tuple((w.indices, w.value, w.mode, w.first) for w in named.writes)
    reductions = tuple((r.op, r.value, r.dtype) for r in named.reductions)
    scans = tuple((s.op, s.values, s.dtype, s.reverse) for s in named.scans)
    extents = tuple(a.extent for a in loop.axes), tuple(a.extent for a in loop.inner)
    return extents, layouts, values, reductions, scans, tuple(let.value for let in named.lets)


def _layout(info: BufferInfo) -> tuple[object, ...]:
    return info.dtype, info.sizes, info.strides, info.device


def _with_names(s: Statement | None, names: dict[str, str], writes: bool = False) -> Statement | None:
    """The statement reading (and, with ``writes``, writing) buffers by their new names."""
    if not names or s is None or not (reads_of(s) | (writes_of(s) if writes else set())) & names.keys():
        return s
    if isinstance(s, Extern):
        return replace(s, args=tuple(_args(a, names) for a in s.args), kwargs={k: _args(v, names) for k, v in s.kwargs.items()})
    rewriter = Rewriter(rule=lambda r: replace(r, buffer=names[r.buffer]) if r.buffer in names else None)
    new = s.rewritten(rewriter, s.axes, s.inner)
    if writes:
        new = replace(new, writes=tuple(replace(w, buffer=names.get(w.buffer, w.buffer)) for w in new.writes))
    return new


def _args(value: object, names: dict[str, str]) -> object:
    if type(value) is BufferArg:
        return replace(value, buffer=names.get(value.buffer, value.buffer))
    if type(value) is tuple or type(value) is list:
        return tuple(_args(v, names) for v in value)
    return value
