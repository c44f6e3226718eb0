"""Order among statements that goes by sizes which only data tell: what uses one comes after the operator that makes it known."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..loops.index import Index
from ..lowered import BufferArg, Extern
from .loop import Loop, Program, Statement, flat, reads_of, writes_of
from .rewrite import walk

_NAME = re.compile(r"[A-Za-z_]\w*")


def bound_by(statement: Statement) -> set[str]:
    """Symbols that the statement makes known."""
    return {symbol for symbol, _, _ in statement.binds} if type(statement) is Extern else set()


def needed_by(statement: Statement, program: Program) -> set[str]:
    """Symbols of such operators that the statement uses, itself or in sizes of its buffers."""
    found: set[str] = set()
    for buffer in reads_of(statement) | writes_of(statement):
        info = program.buffers[buffer]
        found.update(*(n.symbols for n in (*info.sizes, *info.strides)))
    for size in _indices_of(statement):
        found |= size.symbols
    stack = [name for name in found if name in program.symbols]
    roots: set[str] = set()
    while stack:
        name = stack.pop()
        if name in program.definitions:
            stack += _NAME.findall(program.definitions[name])
        elif name in program.symbols and program.symbols[name] is None:
            roots.add(name)
    return roots - bound_by(statement)


def _indices_of(statement: Statement) -> Iterator[Index]:
    if type(statement) is Extern:
        yield from _sizes_among((statement.args, tuple(statement.kwargs.values())))
        return
    assert isinstance(statement, Loop)
    yield from (a.extent for a in (*statement.axes, *statement.inner))
    yield from (i for w in statement.writes for i in w.indices)
    for expr in walk(*statement.expressions()):
        for value in vars(expr).values() if hasattr(expr, "__dict__") else (getattr(expr, name) for name in expr.__dataclass_fields__):
            yield from _sizes_among(value)


def _sizes_among(value: object) -> Iterator[Index]:
    for item in flat(value):
        if type(item) is Index:
            yield item
        elif type(item) is BufferArg:
            yield from _sizes_among((item.sizes or (), item.strides or (), item.offset))
