"""Nests of a kernel that do the same to other buffers, or further on in them, as one function with other pointers.

A loop over time that is written out does the same at each step, and small nests share a kernel: without this, text and the compiler's time
would grow with the number of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from opmill_graph_ir.loops.canonical import BufferUse, canonical
from opmill_graph_ir.loops.index import ONE, index
from opmill_graph_ir.loops.ir import LoopKernel, Nest
from opmill_graph_ir.schedule.offsets import beginnings, moved


@dataclass(frozen=True)
class Alike:
    """``kernel``: the nest by itself, with the same symbols. ``pointers``: for each of its buffers the position of the whole kernel's, and
    how many elements behind its beginning."""

    kernel: LoopKernel
    pointers: tuple[tuple[int, int], ...]


def alike(kernel: LoopKernel, alone: Callable[[Nest], bool]) -> list[Alike | None]:
    """For each nest, what it has in common with another; None where it has nothing. Nests that are ``alone`` are left as they are."""
    if len(kernel.nests) < 2:
        return [None] * len(kernel.nests)
    found = [None if alone(nest) else _by_itself(kernel, nest) for nest in kernel.nests]
    count = Counter(a.kernel for a in found if a is not None)
    return [a if a is not None and count[a.kernel] > 1 else None for a in found]


def _by_itself(kernel: LoopKernel, nest: Nest) -> Alike:
    types = {b.name: b.dtype for b in kernel.buffers}
    positions = {b.name: k for k, b in enumerate(kernel.buffers)}
    made = canonical([nest], lambda name: BufferUse(types[name], ONE), kernel.symbols)
    starts = beginnings(made.kernel)
    own = moved(made.kernel, {b.name: index(-n) for b, n in zip(made.kernel.buffers, starts, strict=True) if n})
    return Alike(own, tuple((positions[name], start) for name, start in zip(made.arguments, starts, strict=True)))
