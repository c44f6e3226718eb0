"""Where temporaries live: offsets in one arena, by lifetime, and results that take over the memory of an operand that ends there."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..loops.index import Index
from ..loops.ir import Load, LoopKernel
from ..lowered import TensorOutput
from .rewrite import walk
from .shape import expressions
from .steps import KernelStep, Schedule, span

ALIGNMENT = 64
ITEMSIZE = {
    **dict.fromkeys("bool uint8 int8 float8_e4m3fn float8_e5m2".split(), 1),
    **dict.fromkeys("int16 uint16 float16 bfloat16".split(), 2),
    **dict.fromkeys("int32 uint32 float32".split(), 4),
    **dict.fromkeys("int64 uint64 float64 complex64".split(), 8),
    "complex128": 16,
}


@dataclass
class Memory:
    """``offsets``: byte offset of each arena buffer; ``size``: of the arena; ``first``/``last``: steps of first and last use."""

    offsets: dict[str, int] = field(default_factory=dict)
    size: int = 0
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)


def plan_memory(schedule: Schedule) -> Memory:
    """Places every temporary of known size that a kernel or an out variant writes."""
    memory = Memory()
    outputs = {o.buffer for o in schedule.lowered.outputs if isinstance(o, TensorOutput)}
    placed: list[str] = []
    for k, step in enumerate(schedule.steps):
        for b in step.reads() | step.writes():
            memory.first.setdefault(b, k)
            memory.last[b] = k
        ours = isinstance(step, KernelStep) or bool(step.node.out_variant)
        for b in sorted(step.writes()):
            info = schedule.buffers[b]
            if ours and memory.first[b] == k and info.role == "temporary" and b not in outputs and span(info).constant is not None:
                placed.append(b)
    roots = _in_place(schedule, placed, memory)
    _assign(schedule, placed, roots, memory)
    return memory


def _bytes(schedule: Schedule, buffer: str) -> int:
    info = schedule.buffers[buffer]
    return -(-(span(info).constant or 0) * ITEMSIZE[info.dtype] // ALIGNMENT) * ALIGNMENT


def _in_place(schedule: Schedule, placed: list[str], memory: Memory) -> dict[str, str]:
    """Which buffer's memory each arena buffer uses: its own, or an operand's that ends in the kernel that writes it."""
    arena = set(placed)
    root = {b: b for b in placed}
    for k, step in enumerate(schedule.steps):
        if type(step) is not KernelStep:
            continue
        ends = [b for b in sorted(step.reads()) if b in arena and memory.last[b] == k and memory.first[b] < k]
        starts = [b for b in sorted(step.writes()) if b in arena and memory.first[b] == k]
        for new in starts:
            old = next((b for b in ends if _may_share(step, new, b, schedule)), None)
            if old is not None:
                ends.remove(old)
                root[new] = root[old]
    return root


def _may_share(step: KernelStep, new: str, old: str, schedule: Schedule) -> bool:
    a, b = schedule.buffers[new], schedule.buffers[old]
    if ITEMSIZE[a.dtype] != ITEMSIZE[b.dtype] or _bytes(schedule, new) != _bytes(schedule, old):
        return False
    names = dict(zip(step.arguments, (p.name for p in step.kernel.buffers), strict=True))
    return same_points(step.kernel, names[new], names[old])


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
    [nest] = kernel.nests
    return [(k, e.index) for k, p in enumerate(nest.phases) for e in walk(*expressions(p)) if type(e) is Load and e.buffer == buffer]


def _assign(schedule: Schedule, placed: list[str], root: dict[str, str], memory: Memory) -> None:
    """Largest first, each at the lowest offset that is free while it lives."""
    lives: dict[str, tuple[int, int]] = {}
    for b in placed:
        r = root[b]
        start, end = lives.get(r, (memory.first[b], memory.last[b]))
        lives[r] = min(start, memory.first[b]), max(end, memory.last[b])
    at: dict[str, tuple[int, int]] = {}
    for r in sorted(lives, key=lambda r: (-_bytes(schedule, r), lives[r], r)):
        size = max(_bytes(schedule, r), ALIGNMENT)
        start, end = lives[r]
        busy = sorted(at[o] for o in at if lives[o][0] <= end and start <= lives[o][1])
        offset = 0
        for low, high in busy:
            if offset + size <= low:
                break
            offset = max(offset, high)
        at[r] = offset, offset + size
        memory.size = max(memory.size, offset + size)
    for b in placed:
        memory.offsets[b] = at[root[b]][0]
