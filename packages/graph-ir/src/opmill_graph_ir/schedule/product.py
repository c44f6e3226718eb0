"""Sums of products in which each operand is used again at many points: convolutions, products of matrices. Generators write them as
blocked products.

What matters to them is that operands are read from memory as they are (of half precision they may be computed, where a program says so),
and that whatever follows is done point by point."""

from __future__ import annotations

import math

from opmill_runtime_cache.devices.registry import traits_of

from ..loops.ir import HALF, Expr, IndexValue, Op
from ..lowered import Read
from .loop import Loop, Program
from .rewrite import reads, walk

_OFTEN = 1024
"""Points at which an element of one of several vectors is used, from which on it is not computed at each."""


def is_product(loop: Loop) -> bool:
    """Whether the loop is one sum of ``a * b`` where elements of both occur in the sums of several points: where an operand lacks an
    outer axis, or a window moves over it. Along an axis that both lack the same sum is taken again and again."""
    factors = _factors(loop)
    if factors is None or loop.lets or loop.checks:
        return False
    operands = [_as_it_is(a) for a in factors]
    if any(type(a) is not Read and (a.dtype not in HALF or not any(reads(a))) for a in operands):
        return False
    outer, inner = {a.name for a in loop.axes}, {a.name for a in loop.inner}
    named = {s for a in operands for read in reads(a) for i in read.indices for s in i.symbols}
    return outer <= named and all(_recurs(a, outer, inner) for a in operands)


_TILE = 16
"""Rows, columns and terms that units for matrices take at once."""


def is_tiled(loop: Loop, program: Program) -> bool:
    """Whether the loop is a matrix product of float32 values, computed ones too, that is large enough for a device with units for matrices:
    generators give these tiles, for which a nest has no other sums."""
    factors = _factors(loop)
    if factors is None or loop.lets or loop.checks or loop.reductions[0].value.dtype != "float32":
        return False
    if not all(traits_of(program.buffers[w.buffer].device).matrix_units for w in loop.writes):
        return False
    first, second = map(symbols_of, factors)
    rows = [a for a in loop.axes if a.name in first - second]
    columns = [a for a in loop.axes if a.name in second - first]
    every = {a.name for a in loop.inner} <= first & second and {a.name for a in loop.axes} <= first | second
    return every and all(program.size(tuple(axes)) >= _TILE for axes in (rows, columns, loop.inner))


def symbols_of(e: Expr) -> set[str]:
    """Axes, sizes and lets that the places depend on which ``e`` reads, or is."""
    parts = list(walk(e))
    indices = [i for x in parts if isinstance(x, Read) for i in x.indices] + [x.index for x in parts if type(x) is IndexValue]
    return {s for i in indices for s in i.symbols}


def reads_again(loop: Loop, buffer: str) -> bool:
    """Whether the loop is a matrix times a vector, and ``buffer`` the vector: each of its elements is used at every point, or at a thousand
    of them where there are several vectors, and is better read than computed there."""
    factors = _factors(loop)
    if factors is None or not loop.axes:
        return False
    outer = {a.name for a in loop.axes}
    operands = [{s for read in reads(a) for i in read.indices for s in i.symbols} for a in factors]
    extents = {a.name: a.extent.constant or 0 for a in loop.axes}

    def recurs(found: set[str]) -> bool:
        return not found & outer or math.prod(extents[name] for name in outer - found) >= _OFTEN

    return any(
        recurs(found) and others >= outer and any(r.buffer == buffer for r in reads(a))
        for a, found, others in zip(factors, operands, operands[::-1], strict=True)
    )


def _factors(loop: Loop) -> tuple[Expr, ...] | None:
    """Both factors where all that the loop reduces is one sum of products."""
    if len(loop.reductions) != 1 or loop.reductions[0].op != "sum":
        return None
    value = loop.reductions[0].value
    return value.args if type(value) is Op and value.name == "mul" else None


def _as_it_is(e: Expr) -> Expr:
    """An operand before it is widened."""
    return e.args[0] if type(e) is Op and e.name == "cast" else e


def _recurs(operand: Expr, outer: set[str], inner: set[str]) -> bool:
    indices = [i for read in reads(operand) for i in read.indices]
    lacking = outer - {s for i in indices for s in i.symbols}
    return bool(lacking) or any(i.symbols & outer and i.symbols & inner for i in indices)
