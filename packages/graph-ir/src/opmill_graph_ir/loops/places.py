"""Where two buffers of a kernel may be one piece of memory."""

from __future__ import annotations

from .index import Index
from .ir import Load, LoopKernel
from .walk import expressions


def same_points(kernel: LoopKernel, written: str, read: str) -> bool:
    """Whether each element of ``read`` is read at the point that writes the same element of ``written``, and not after."""
    if len(kernel.nests) != 1:
        return False
    [nest] = kernel.nests
    stores = [(k, p.axes, s.index) for k, p in enumerate(nest.phases) for s in p.stores if s.buffer == written]
    if len(stores) != 1:
        return False
    [(at, axes, target)] = stores
    if {a.name for a in (*nest.axes, *axes)} - target.symbols:
        return False
    return all(phase <= at and found == target and nest.phases[phase].axes == axes for phase, found in _loads(kernel, read))


def _loads(kernel: LoopKernel, buffer: str) -> list[tuple[int, Index]]:
    phases = enumerate(kernel.nests[0].phases)
    return [(k, e.index) for k, phase in phases for e in expressions(phase) if type(e) is Load and e.buffer == buffer]
