"""Drops statements whose results nobody reads, and that cannot raise."""

from __future__ import annotations

from dataclasses import replace

from ..lowered import Extern
from .effects import in_order, may_raise
from .loop import Loop, Program, Statement, reads_of, writes_of


def remove_dead(program: Program) -> None:
    """Keeps what outputs need, what is seen from outside, and what may raise; of loops with several results those that are read."""
    needed = set(program.outputs)
    kept: list[Statement] = []
    for statement in reversed(program.statements):
        mutated = any(program.buffers[b].role != "temporary" for b in writes_of(statement))
        unknown = type(statement) is Extern and (statement.mutates or not statement.results or statement.binds or in_order(statement))
        if mutated or unknown or may_raise(statement) or writes_of(statement) & needed:
            kept.append(_trimmed(statement, needed, program))
            needed |= reads_of(statement)
    program.statements = kept[::-1]


def _trimmed(statement: Statement, needed: set[str], program: Program) -> Statement:
    """A loop without the writes of temporaries that nobody reads."""
    if type(statement) is not Loop or len(statement.writes) == 1:
        return statement
    if statement.writes and not any(w.buffer in needed or program.buffers[w.buffer].role != "temporary" for w in statement.writes):
        return replace(statement, writes=statement.writes[:1])  # it checks
    writes = tuple(w for w in statement.writes if w.buffer in needed or program.buffers[w.buffer].role != "temporary")
    return replace(statement, writes=writes)
