"""Sums that do not vary along an axis are taken once, and read along it.

What is summed may turn out to be the same along an axis when all that it is made of stands in its loop: heads of attention or of a state
space that share keys are such an axis, and a program that repeats these for each head has its products computed again for each.
"""

from __future__ import annotations

from dataclasses import replace

from ..loops.index import Index, index
from ..loops.ir import Axis, Ref
from ..lowered import Read
from .inline import inline
from .loop import Loop, Program, Statement, Write
from .product import symbols_of
from .rewrite import Rewriter

_LEAST_WORK = 1 << 14
"""Elements that a loop sums, below which another loop costs as much."""
_LEAST_TERMS = 4
"""Terms of a sum, below which reading it is no quicker than taking it."""


def take_once(program: Program) -> None:
    """Takes axes along which nothing varies out of reductions; those who read the results compute what is left where they read it."""
    out: list[Statement] = []
    for statement in program.statements:
        varied = _varied(statement, program) if type(statement) is Loop else None
        out += [statement] if type(statement) is not Loop or varied is None else _split(statement, varied, program)
    if len(out) > len(program.statements):
        program.statements = out
        inline(program)


def _varied(loop: Loop, program: Program) -> tuple[Axis, ...] | None:
    """The outer axes that the reductions vary along; None where these are all, or it is not worth a loop."""
    if not loop.reductions or loop.lets or loop.checks or loop.scans or any(len(r.names) > 1 for r in loop.reductions):
        return None
    used = set().union(*(symbols_of(r.value) for r in loop.reductions))
    varied = tuple(a for a in loop.axes if a.name in used)
    if len(varied) == len(loop.axes) or program.size(loop.inner) < _LEAST_TERMS or program.size(loop.axes + loop.inner) < _LEAST_WORK:
        return None
    return varied


def _split(loop: Loop, varied: tuple[Axis, ...], program: Program) -> tuple[Loop, Loop]:
    """The reductions, written to memory of their own, and what reads them at each point."""
    sizes = tuple(a.extent for a in varied)
    model = program.buffers[loop.writes[0].buffer]
    results = {r.names[0]: program.fresh_buffer("once", model, sizes, r.dtype) for r in loop.reductions}
    symbols, axes, inner = _renamed(varied, loop.inner, program)
    summed = loop.rewritten(Rewriter(symbols, extents=program.extents), axes, inner)
    fresh = {name: program.fresh_name("v") for name in results}
    at = tuple(index(a.name) for a in axes)
    first = replace(
        summed,
        reductions=tuple(replace(r, names=(fresh[r.names[0]],)) for r in summed.reductions),
        writes=tuple(Write(results[r.names[0]], at, Ref(fresh[r.names[0]], r.dtype)) for r in loop.reductions),
    )
    there = tuple(index(a.name) for a in varied)
    read = {r.names[0]: Read(results[r.names[0]], there, r.dtype) for r in loop.reductions}
    return first, replace(loop, inner=(), reductions=()).rewritten(Rewriter(names=read), loop.axes, ())


def _renamed(
    varied: tuple[Axis, ...], inner: tuple[Axis, ...], program: Program
) -> tuple[dict[str, Index], tuple[Axis, ...], tuple[Axis, ...]]:
    """Axes of the same extents with names of their own, and how the old ones are called."""
    axes = tuple(program.fresh_axis(a.extent) for a in varied)
    terms = tuple(program.fresh_axis(a.extent) for a in inner)
    return {a.name: index(b.name) for a, b in zip((*varied, *inner), (*axes, *terms), strict=True)}, axes, terms
