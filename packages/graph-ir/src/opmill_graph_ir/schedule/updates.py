"""Inputs that are changed in part are changed where they are.

A graph without side effects changes a cache by copying it, writing to the copy, and copying that back at its end: for one token of a
decoder all of every cache, twice. Where nobody reads what the input held before, the copy is the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..lowered import BufferArg, BufferInfo, Extern, Read
from .checks_before import Update, check_before
from .loop import Loop, Program, Statement, reads_of, writes_of
from .rewrite import Rewriter


def update_in_place(program: Program) -> None:
    """Leaves out the copies of inputs that are written back, where the order of the program stays right. On processors inputs are as they
    were when an error is raised: what is checked is checked before, or the copies stay."""
    copies = [k for k, s in enumerate(program.statements) if _copy_of(s, program) is not None]
    for number in copies:
        if (step := _next_version(program, number)) is not None:
            _merge(program, step)
    found = [update for last in copies if (update := _update(program, last)) is not None]
    moved: list[Statement] = []
    if any(not traits_of(b.device).asynchronous for b in program.buffers.values()):
        found, moved = check_before(program, found)
    if moved:
        begin = min(update.begin for update in found)
        program.statements[begin:begin] = moved
        found = [replace(u, first=_behind(u.first, begin, moved), last=_behind(u.last, begin, moved)) for u in found]
    for update in found:
        _merge(program, update)
    program.statements = [s for s in program.statements if s is not None]


def _behind(number: int, begin: int, moved: list[Statement]) -> int:
    return number + len(moved) if number >= begin else number


def _next_version(program: Program, number: int) -> Update | None:
    """A copy of a temporary that is changed further, while nobody needs the temporary any more: both are one."""
    copied = _copy_of(program.statements[number], program)
    if copied is None:
        return None
    target, value = copied
    ours, theirs = program.buffers[value], program.buffers[target]
    used = {name: [k for k, s in enumerate(program.statements) if s and name in reads_of(s) | writes_of(s)] for name in copied}
    written = [k for k, s in enumerate(program.statements) if s and target in writes_of(s)]
    if not (program.is_temporary(value) and program.is_temporary(target)) or not alike(ours, theirs) or len(written) < 2:
        return None
    if any(isinstance(s, Extern) and value in s.results and s.out_variant is None for s in program.statements):
        return None  # it may be memory of something else, and is where the operator says
    return Update(target, value, number, number, number) if max(used[value]) == number == min(used[target]) else None


def alike(a: BufferInfo, b: BufferInfo) -> bool:
    """Whether two buffers have the same type and layout on one device."""
    return (a.dtype, a.sizes, a.strides, a.device) == (b.dtype, b.sizes, b.strides, b.device)


def _update(program: Program, last: int) -> Update | None:
    """The update that ends with statement ``last``; None where the copy is needed."""
    copied = _copy_of(program.statements[last], program)
    if copied is None:
        return None
    target, value = copied
    ours, theirs = program.buffers[value], program.buffers[target]
    if theirs.role not in ("input", "held") or not program.is_temporary(value) or not alike(ours, theirs):
        return None
    statements = [(k, s) for k, s in enumerate(program.statements) if s is not None]
    writers = [k for k, s in statements if value in writes_of(s)]
    if not writers or _copy_of(program.statements[writers[0]], program) != (value, target):
        return None
    if target in program.outputs or any(target in writes_of(s) for k, s in statements if k != last):
        return None
    first, *changes = writers
    begin = min(changes, default=last)
    if any(target in reads_of(s) for k, s in statements if k != first and k >= begin):
        return None  # what the input held before is read later than it changes
    if any(value in reads_of(s) or value in writes_of(s) for k, s in statements if k > last or k < first):
        return None
    return Update(target, value, first, begin, last)


def _copy_of(statement: Statement | None, program: Program) -> tuple[str, str] | None:
    """(target, source) of a statement that copies a whole buffer, and does nothing else."""
    if not isinstance(statement, Loop) or statement.inner or statement.lets or statement.checks or len(statement.writes) != 1:
        return None
    [write] = statement.writes
    read = write.value
    if (
        write.mode != "set"
        or not isinstance(read, Read)
        or read.mask is not None
        or read.indices != write.indices
        or read.buffer == write.buffer
    ):
        return None
    names = [str(i) for i in write.indices if i.constant is None]
    whole = names == [a.name for a in statement.axes] and all(i.constant in (None, 0) for i in write.indices)
    sizes = [n for n in program.buffers[write.buffer].cells.sizes if n.constant != 1]
    return (write.buffer, read.buffer) if whole and [a.extent for a in statement.axes] == sizes else None


def _merge(program: Program, update: Update) -> None:
    """``value`` under the name of ``target``."""
    statements: list[Any] = program.statements
    statements[update.first] = statements[update.last] = None
    for k, statement in enumerate(statements):
        if statement is not None and update.value in reads_of(statement) | writes_of(statement):
            statements[k] = renamed(statement, update.value, update.target)


def renamed(statement: Statement, old: str, new: str) -> Statement:
    """The statement with buffer ``new`` wherever it has ``old``."""
    if isinstance(statement, Extern):
        return _extern(statement, old, new)
    moved = Rewriter(rule=lambda read: replace(read, buffer=new) if read.buffer == old else None)
    loop = statement.rewritten(moved, statement.axes, statement.inner)
    return replace(loop, writes=tuple(replace(w, buffer=new) if w.buffer == old else w for w in loop.writes))


def _extern(node: Extern, old: str, new: str) -> Extern:
    def moved(value: Any) -> Any:
        if isinstance(value, BufferArg):
            return replace(value, buffer=new) if value.buffer == old else value
        return tuple(map(moved, value)) if isinstance(value, tuple) else value

    named: Callable[[str], str] = lambda name: new if name == old else name
    return replace(
        node,
        args=moved(node.args),
        kwargs={k: moved(v) for k, v in node.kwargs.items()},
        results=tuple(name if name is None else named(name) for name in node.results),
        mutates=tuple(map(named, node.mutates)),
        binds=tuple((symbol, buffer if buffer is None else named(buffer), at) for symbol, buffer, at in node.binds),
    )


__all__ = ["alike", "renamed", "update_in_place"]
