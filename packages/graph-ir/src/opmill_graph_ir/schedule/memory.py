"""Where temporaries live: offsets in one arena, by lifetime, and results that take over the memory of an operand that ends there, in the
arena or outside.

Where sizes are symbols, buffers are stacked as the sizes of the captured call suggest; each offset then is the end of the highest of what
lies below, for any sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from opmill_runtime_cache.devices.host import HOST
from opmill_runtime_cache.devices.registry import traits_of

from ..loops.index import Index, floordiv, index
from ..loops.places import same_points
from ..lowered import TensorOutput
from ..overloads import exchanges
from .effects import gives_memory, gives_views
from .steps import ExternStep, KernelStep, Schedule, span

ALIGNMENT = 64
LARGE = 1 << 18
"""Bytes from which on a buffer may be allocated by itself: it takes its pages from the system and gives them back."""
ITEMSIZE = {
    **dict.fromkeys("bool uint8 int8 float8_e4m3fn float8_e5m2".split(), 1),
    **dict.fromkeys("int16 uint16 float16 bfloat16".split(), 2),
    **dict.fromkeys("int32 uint32 float32".split(), 4),
    **dict.fromkeys("int64 uint64 float64 complex64".split(), 8),
    "complex128": 16,
}


@dataclass
class Memory:
    """``offsets``: byte offset of each arena buffer, ``size``: of the arena, both numbers or plan expressions; on ``device``.
    ``definitions``: symbols that these use, in order; ``first``/``last``: steps of first and last use; ``guessed``: the size in the
    captured call. ``homes``: of buffers that take over the memory of one outside of the arena, that one; its last use is the last of all
    that do."""

    offsets: dict[str, int | str] = field(default_factory=dict)
    size: int | str = 0
    guessed: int = 0
    definitions: dict[str, str] = field(default_factory=dict)
    device: str = HOST
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)


def plan_memory(schedule: Schedule, limit: int | None = None) -> Memory:
    """Places every temporary whose size is known when the call begins and that a kernel or an out variant writes; large ones only within
    the first ``limit`` bytes."""
    memory = Memory()
    outputs = {o.buffer for o in schedule.lowered.outputs if isinstance(o, TensorOutput)}
    for step in reversed(schedule.steps):
        if isinstance(step, ExternStep) and step.writes() & outputs and gives_views(step.node):  # what leaves is a view of what it reads
            outputs |= step.reads()
    lasting = {b for s in schedule.steps if isinstance(s, ExternStep) and exchanges(s.node.op) for b in s.reads()}
    early = {name for name, hint in schedule.lowered.symbols.items() if hint is not None}
    placed: list[str] = []
    apart: set[str] = set()
    for k, step in enumerate(schedule.steps):
        for b in step.reads() | step.writes():
            memory.first.setdefault(b, k)
            memory.last[b] = k
        ours = isinstance(step, KernelStep) or bool(step.node.out_variant)
        for b in sorted(step.writes()):
            info = schedule.buffers[b]
            if memory.first[b] != k or info.role != "temporary" or b in outputs | lasting or not span(info).symbols <= early:
                continue
            if ours:
                placed.append(b)
            elif isinstance(step, ExternStep) and gives_memory(step.node):
                apart.add(b)
    for step in reversed(schedule.steps):
        if isinstance(step, ExternStep) and gives_views(step.node):  # what a view shows lives as long as the view
            ends = max((memory.last[b] for b in step.writes()), default=0)
            for b in step.reads():
                memory.last[b] = max(memory.last[b], ends)
    memory.device = _busiest(schedule, placed)
    placed = [b for b in placed if schedule.buffers[b].device == memory.device]
    roots = _in_place(schedule, placed, apart, memory)
    while limit is not None and (above := _above(schedule, _lives(placed, roots, apart, memory), limit)):
        alone = {b for b in placed if roots[b] in above and (b == roots[b] or not _laid_out_alike(schedule, b, roots[b]))}
        placed, apart = [b for b in placed if b not in alone], apart | alone
        roots = _in_place(schedule, placed, apart, memory)
    leaving = _leaving(schedule, roots, apart, memory)
    apart |= set(leaving.values())
    memory.homes = {b: r for b, r in (roots | leaving).items() if r in apart and b != r}
    for b, r in memory.homes.items():
        memory.last[r] = len(schedule.steps) if b in leaving else max(memory.last[r], memory.last[b])
    _assign(schedule, _lives(placed, roots, apart, memory), roots, memory)
    return memory


def _busiest(schedule: Schedule, placed: list[str]) -> str:
    """The device of most temporaries: it has the arena, and what lies elsewhere is allocated one by one."""
    devices = [schedule.buffers[b].device for b in placed]
    return max(sorted(set(devices)), key=devices.count, default=HOST)


def _bytes(schedule: Schedule, buffer: str) -> Index:
    info = schedule.buffers[buffer]
    size = span(info) * ITEMSIZE[info.dtype]
    if (known := size.constant) is not None:
        return index(-(-known // ALIGNMENT) * ALIGNMENT)
    return floordiv(size + (ALIGNMENT - 1), ALIGNMENT) * ALIGNMENT


def guessed_bytes(schedule: Schedule, buffer: str) -> int:
    """Bytes of a buffer in the captured call; 0 where only data tell."""
    size, hints = _bytes(schedule, buffer), {name: hint for name, hint in schedule.lowered.symbols.items() if hint is not None}
    return size.evaluate(hints) if size.symbols <= hints.keys() else 0


def _size(schedule: Schedule, buffer: str, memory: Memory) -> Index:
    """The same, never below zero for any sizes."""
    size = _bytes(schedule, buffer)
    return size if _is_sum(size) else _defined(f"max({size}, 0)", memory)


def _is_sum(value: Index) -> bool:
    """Whether nothing is subtracted in it."""
    parts = (part for atom in value.atoms() if not isinstance(atom, str) for part in (atom.numerator, atom.denominator))
    return all(c >= 0 for _, c in value.terms) and all(map(_is_sum, parts))


def _laid_out_alike(schedule: Schedule, one: str, other: str) -> bool:
    """Whether a tensor of one buffer shows the other, too."""
    a, b = schedule.buffers[one], schedule.buffers[other]
    return (a.dtype, a.sizes, a.strides, a.device) == (b.dtype, b.sizes, b.strides, b.device)


def _in_place(schedule: Schedule, placed: list[str], apart: Set[str], memory: Memory) -> dict[str, str]:
    """Which buffer's memory each of ``placed`` uses: its own, or an operand's that ends in the kernel that writes it, one of ``placed`` or
    ``apart``, which are allocated by themselves."""
    root = {b: b for b in placed}
    form = {b: (ITEMSIZE[schedule.buffers[b].dtype], _bytes(schedule, b)) for b in placed}
    known: dict[tuple[int, str, str], bool] = {}  # by kernel: one is often many steps
    for k, step in enumerate(schedule.steps):
        if type(step) is not KernelStep or len(step.kernel.nests) != 1:
            continue
        names = dict(zip(step.arguments, (p.name for p in step.kernel.buffers), strict=True))
        ends = [b for b in sorted(step.reads()) if (b in root or b in apart) and memory.last[b] == k and memory.first[b] < k]
        ends.sort(key=lambda b: root.get(b, b) in apart)
        for new in (b for b in sorted(step.writes()) if b in root and memory.first[b] == k):
            for old in ends:
                home = root.get(old, old)
                if not (_laid_out_alike(schedule, new, home) if home in apart else form[home] == form[new]):
                    continue
                key = id(step.kernel), names[new], names[old]
                if key not in known:
                    known[key] = same_points(step.kernel, names[new], names[old])
                if known[key]:
                    ends.remove(old)
                    root[new] = home
                    break
    return root


def _leaving(schedule: Schedule, roots: Mapping[str, str], apart: Set[str], memory: Memory) -> dict[str, str]:
    """Results of the program that are written point by point over an operand that ends there, by what then is their memory from the
    beginning: a gradient that is scaled, say, is not one in the arena and one outside."""
    given = Counter(o.buffer for o in schedule.lowered.outputs if isinstance(o, TensorOutput))
    alone = {buffer for buffer, times in given.items() if times == 1}
    members: dict[str, list[str]] = {}
    for b, r in roots.items():
        members.setdefault(r, []).append(b)
    found: dict[str, str] = {}
    for k, step in enumerate(schedule.steps):
        if type(step) is not KernelStep:
            continue
        names = dict(zip(step.arguments, (p.name for p in step.kernel.buffers), strict=True))
        for new in sorted(step.writes() & alone):
            if schedule.buffers[new].role != "temporary" or memory.first[new] != k or not traits_of(schedule.buffers[new].device).host:
                continue
            for old in sorted(step.reads() & roots.keys()):
                home = roots[old]
                if (
                    memory.last[old] == k
                    and memory.first[old] < k
                    and home not in apart
                    and home not in found.values()
                    and all(memory.first[b] < k and memory.last[b] <= k and _laid_out_alike(schedule, new, b) for b in members[home])
                    and same_points(step.kernel, names[new], names[old])
                ):
                    found[new] = home
                    break
    return found


Spans = dict[str, tuple[int, int]]


def _assign(schedule: Schedule, lives: Spans, root: dict[str, str], memory: Memory) -> None:
    at, below = _stack(schedule, lives)
    memory.guessed = max((high for _, high in at.values()), default=0)
    ends = _stacked({r: _size(schedule, r, memory) for r in lives}, below, at, memory)
    memory.offsets = {b: ends[r] for b, r in root.items() if r in lives}


def _above(schedule: Schedule, lives: Spans, limit: int) -> set[str]:
    """Those that end above ``limit`` in an arena where large ones that would take no room."""
    return {r for r, (_, end) in _stack(schedule, lives, limit)[0].items() if end > limit}


def _lives(placed: list[str], root: dict[str, str], apart: Set[str], memory: Memory) -> Spans:
    """First and last step of each memory in the arena, by the buffer that it is called after."""
    lives: Spans = {}
    for b in (b for b in placed if root[b] not in apart):
        r = root[b]
        start, end = lives.get(r, (memory.first[b], memory.last[b]))
        lives[r] = min(start, memory.first[b]), max(end, memory.last[b])
    return lives


def _stack(schedule: Schedule, lives: Spans, limit: int | None = None) -> tuple[Spans, dict[str, set[str]]]:
    """Bytes of each in the captured call, and what lies below it: largest first, each at the lowest offset that is free while it lives.
    Large ones that would end above ``limit`` take no room."""
    guessed = {r: max(guessed_bytes(schedule, r), ALIGNMENT) for r in lives}
    at: Spans = {}
    below: dict[str, set[str]] = {}
    left_out: Spans = {}
    for r in sorted(lives, key=lambda r: (-guessed[r], lives[r], r)):
        start, end = lives[r]
        busy = sorted((at[o], o) for o in at if lives[o][0] <= end and start <= lives[o][1])
        offset = 0
        for (low, high), _ in busy:
            if offset + guessed[r] <= low:
                break
            offset = max(offset, high)
        place = offset, offset + guessed[r]
        if limit is not None and place[1] > limit and guessed[r] >= LARGE:
            left_out[r] = place
            continue
        at[r] = place
        below[r] = {o for (_, high), o in busy if high <= offset}
        for (low, _), o in busy:
            if low >= at[r][1]:
                below[o].add(r)
    return at | left_out, below


def _stacked(
    sizes: Mapping[str, Index], below: Mapping[str, set[str]], at: Mapping[str, tuple[int, int]], memory: Memory
) -> dict[str, int | str]:
    """Offsets by what lies below; fills in the size of the arena and the definitions that both need."""
    if all(size.constant is not None for size in sizes.values()):
        memory.size = max((high for _, high in at.values()), default=0)
        return {r: low for r, (low, _) in at.items()}
    offsets: dict[str, Index] = {}
    for r in sorted(at, key=lambda r: (at[r], r)):
        nearest = below[r] - set().union(*(below[o] for o in below[r]))
        offsets[r] = _highest([offsets[o] + sizes[o] for o in sorted(nearest)], memory)
    covered = set().union(*below.values())
    memory.size = _text(_highest([offsets[r] + sizes[r] for r in sorted(offsets) if r not in covered], memory))
    return {r: _text(offset) for r, offset in offsets.items()}


def _highest(ends: list[Index], memory: Memory) -> Index:
    """The largest of some sizes, as an expression; a new definition where it is not one of them for sure."""
    different = list(dict.fromkeys(ends))
    constants = [c for e in different if (c := e.constant) is not None]
    moving = [e for e in different if e.constant is None]
    if not moving:
        return index(max(constants, default=0))
    if len(moving) == 1 and not constants:
        return moving[0]
    return _defined(f"max({', '.join([*map(str, moving), *([str(max(constants))] if constants else [])])})", memory)


def _defined(text: str, memory: Memory) -> Index:
    """The symbol that stands for a plan expression."""
    name = next((n for n, known in memory.definitions.items() if known == text), f"m{len(memory.definitions)}")
    memory.definitions[name] = text
    return index(name)


def _text(value: Index) -> int | str:
    return value.constant if value.constant is not None else str(value)
