"""What is checked before an input changes: places that data tell, and whatever else may raise.

Operators check each element before they write it, and an input is as it was when an error is raised. Where all that is checked is known
before the first input changes, loops that only check stand in front of it, and the input may change where it is: a cache of keys is not
copied for a row of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..loops.index import Index, index
from ..loops.ir import Axis, Check, Expr, IndexValue, Let, Ref
from ..lowered import Read
from .effects import may_raise
from .late import bound_by, needed_by
from .loop import Loop, NodeRewriter, Program, Statement, reads_of, writes_of
from .rewrite import walk


@dataclass(frozen=True)
class Update:
    """``value``, a temporary, starts as a copy of ``target`` (statement ``first``), changes from statement ``begin`` on, and is copied back
    (``last``)."""

    target: str
    value: str
    first: int
    begin: int
    last: int


def check_before(program: Program, updates: Sequence[Update]) -> tuple[list[Update], list[Statement]]:
    """The updates before which all can be checked that is checked later, and what is to stand in front of the first of them: loops that
    check, and those that compute what these read. Loops no longer check what is checked there."""
    found = list(updates)
    raising = [k for k, s in enumerate(program.statements) if s is not None and may_raise(s)]
    while found:
        begin = min(update.begin for update in found)
        late = [k for k in raising if k >= begin]
        needed = [_needed(program, k, begin) for k in late]
        last = max((k for k, numbers in zip(late, needed, strict=True) if numbers is None), default=-1)
        if last < 0:
            return found, _moved(program, late, sorted({n for numbers in needed for n in numbers or ()}))
        found = [update for update in found if update.begin > last]
    return [], []


def _needed(program: Program, number: int, begin: int) -> set[int] | None:
    """The statements from ``begin`` on that compute what statement ``number`` checks; None where these are no loops that may go first."""
    statement = program.statements[number]
    if type(statement) is not Loop:
        return None
    late = {name for s in program.statements[begin:] if s is not None for name in bound_by(s)}
    found: set[int] = set()
    waiting = [(number, {read.buffer for read in walk(*_checked(statement)[1]) if type(read) is Read})]
    while waiting:
        reader, buffers = waiting.pop()
        for k in _writers(program, buffers, begin, reader):
            maker = program.statements[k]
            if type(maker) is not Loop or maker.checks or not _makes_one_temporary(program, k, maker):
                return None
            if late & needed_by(maker, program):
                return None
            if k not in found:
                found.add(k)
                waiting.append((k, reads_of(maker)))
    return None if late & needed_by(statement, program) else found


def _writers(program: Program, buffers: set[str], begin: int, reader: int) -> list[int]:
    return [k for k, s in enumerate(program.statements[begin:reader], begin) if s is not None and not buffers.isdisjoint(writes_of(s))]


def _makes_one_temporary(program: Program, number: int, maker: Loop) -> bool:
    """Whether nobody sees when the loop runs: it gives a temporary its value, all of it, before anybody reads it."""
    [name, *more] = maker.written()
    others = [s for k, s in enumerate(program.statements) if k != number and s is not None and name in writes_of(s)]
    return not more and program.is_temporary(name) and not others and name not in maker.read_buffers()


def _moved(program: Program, late: Sequence[int], makers: Sequence[int]) -> list[Statement]:
    """What is to go first, taken away from where it stands: what checks read, then the checks in their order."""
    moved: list[Statement] = []
    for k in makers:
        moved.append(program.loop(k))
        program.statements[k] = None  # type: ignore[call-overload]
    for k in late:
        loop = program.loop(k)
        moved.append(_checks_alone(loop, program))
        program.statements[k] = replace(loop, checks=())
    return moved


def _checked(loop: Loop) -> tuple[tuple[Let, ...], list[Expr]]:
    """The lets that a loop's checks need, in order, and the expressions of both."""
    conditions = [check.condition for check in loop.checks]
    lets: list[Let] = []
    names = set(_names(conditions))
    for let in reversed(loop.lets):
        if let.name in names:
            lets.insert(0, let)
            names |= set(_names([let.value]))
    return tuple(lets), [*(let.value for let in lets), *conditions]


def _names(expressions: Sequence[Expr]) -> Iterator[str]:
    """Of axes, lets and results that stand in expressions."""
    for part in walk(*expressions):
        if type(part) is Ref:
            yield part.name
        elif type(part) is IndexValue:
            yield from part.index.symbols
        elif type(part) is Read:
            yield from (name for at in part.indices for name in at.symbols)


def _checks_alone(loop: Loop, program: Program) -> Loop:
    """A loop that only checks, over the axes on which that depends, under names of its own."""
    lets, expressions = _checked(loop)
    used = set(_names(expressions))
    axes: list[Axis] = []
    symbols: dict[str, Index] = {}
    for axis in (*loop.axes, *loop.inner):
        if axis.name in used:
            axes.append(program.fresh_axis(axis.extent))
            symbols[axis.name] = index(axes[-1].name)
    names = {let.name: program.fresh_name("v") for let in lets}
    rewriter = NodeRewriter({**symbols, **{old: index(new) for old, new in names.items()}}, names, program.extents)
    made = tuple(Let(names[let.name], rewriter(let.value)) for let in lets)
    checks = tuple(Check(rewriter(check.condition), check.error, check.message) for check in loop.checks)
    return Loop(tuple(axes), (), lets=made, checks=checks, origin=loop.origin, sources=loop.sources)


__all__ = ["Update", "check_before"]
