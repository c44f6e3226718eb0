"""How much of a nest one program does: block sizes and warps from a count of memory accesses. No measuring here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from opmill_graph_ir.loops.index import Index
from opmill_graph_ir.loops.ir import Axis, Load, Nest, Op, Phase

from . import walk
from .budget import DEFAULT as DEFAULT
from .budget import Budget as Budget
from .dots.match import Dot, dot_of
from .dots.shape import clipped, shape_of
from .emit.primitives import ROWS, long
from .emit.types import TYPES

UNKNOWN = 8192
"""The value assumed for a size known only at run time."""


COLUMNS = 64
"""Columns that a program takes where there are many."""
_HALF_COLUMNS = ((4, 16), (2, 16), (1, 8))
"""Half precision down columns, of up to one load a point, of more, and of many or Welford's sums, which take registers: tiles of this many
``Budget.tile``, and half of the elements a lane."""
_SHORT = 2048
"""Rows below which columns of half precision are not split over programs: a second launch takes as long as their few steps."""
_HEAVY = 12
"""Values of a point down columns, beyond which a lane holds fewer elements."""
_MANY = 8
"""Values of a point, beyond which few of them are kept."""
_LONGEST = 8192
"""Instructions of a program, beyond which it does fewer elements a thread: a hundred sines for each of eight took the compiler 90
seconds."""
_STEP, _RESIDENT = 512, 64
"""Elements of a row that a warp takes at once where programs are few, and warps that a multiprocessor holds."""
_LONG_ROWS = 8
"""Programs for a row, from which on it does not matter that the last one has less to do."""
_SECTOR = 32
"""Bytes that memory moves at least."""
_FEWEST = 16
"""Neighbours whose halves fill a sector."""
_SIDES = 16, 128
"""Of a tile whose shorter axis lies side by side in one of the two memories, as the places of a window do: [1280, 1280, 3, 3] of half
precision with channels last is written from what a program has read once; a point at a time it was read nine times, from the cache."""
_WINDOW = 32
"""Elements of a row that is short beside the rows, as those of pooling are."""

_TURNS = 2
"""Rows that a program multiplies by a vector: the second is read while the first is summed."""
_TURNS_OF_SUMS = 4
"""The same of all matrices together, where the vector is summed first: what it is made of comes from the cache for every program. One H100,
a norm of float32 and 32,000 rows of 2,048: 60 us with one, where reading the matrix takes 40."""
_ACROSS = 32768
"""Elements that a program has of a matrix that lies along its columns, where one row meets it: what is under way at once. Of one H100's
tokens of GPT-2 medium, microseconds by columns and elements: 847 with 16 and 32,768, 1,005 with 8,192, 1,165 with 32 and 16,384, 2,053
with 64 and 8,192; 882 with torch's products."""
_WAVES = 8
"""Rows for each multiprocessor, from which on that leaves enough programs."""
_LONG_DEPTH = 1024
"""Elements of such rows, at least."""

_SHORT_ROWS = 256
"""Elements of rows of which a program takes more where nothing but their sums is stored: a device begins some 800 programs a microsecond,
and one with 2 KiB to read is done before the next."""


@dataclass(frozen=True)
class Tiling:
    """``outer``: the axes behind each outer dimension, slowest first (one group: ``x``; two: ``y``, ``x``; none where the nest is one
    point). ``blocks`` by dimension. ``looped``: the row is walked in steps of ``blocks["r"]``, else it fits. ``programs``: an estimate.
    ``ahead``: as in ``Budget``. ``apart``: rows that are few may be split over several programs. ``dot``: the product that the nest begins
    with, whose depth is walked with loads ``stages`` steps ahead. ``turns``: so many tiles a program, one after the other; what only one of
    them reads is read for all of them first."""

    outer: tuple[tuple[Axis, ...], ...]
    blocks: tuple[tuple[str, int], ...]
    looped: bool
    warps: int
    programs: int
    ahead: int = 0
    apart: bool = True
    dot: Dot | None = None
    stages: int = 1
    turns: int = 1

    def block(self, name: str) -> int:
        return dict(self.blocks)[name]


def power_above(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def even(n: int) -> int:
    """The largest power of two that divides ``n``."""
    return n & -n


def power_below(n: int) -> int:
    """The largest power of two that is at most ``n``, and at least one."""
    return 1 << (max(n, 1).bit_length() - 1)


def choose(nest: Nest, symbols: Iterable[str], budget: Budget) -> Tiling:
    """The tiling of a nest."""
    sizes = dict.fromkeys(symbols, UNKNOWN)
    if (dot := dot_of(nest, sizes)) is not None:
        return _product(dot, sizes, budget)
    inner = [p for p in nest.phases if p.axes]
    found = _short(nest, _rows(nest, inner, sizes, budget) if inner else _pointwise(nest, sizes, budget), sizes)
    warps = found.warps << budget.shift if budget.shift > 0 else found.warps >> -budget.shift
    return replace(found, warps=min(max(warps, 1), 32), ahead=budget.ahead) if budget.shift or budget.ahead else found


def _product(dot: Dot, sizes: dict[str, int], budget: Budget) -> Tiling:
    """Rows by columns, for each point of the batch."""
    shape = clipped(budget.dot, dot, sizes) if budget.dot is not None else shape_of(dot, sizes, budget.processors)
    blocks = (("y", shape.rows), ("x", shape.columns), ("r", shape.depth))
    programs = (
        walk.points(dot.batch, sizes)
        * _tiles(walk.points(dot.rows, sizes), shape.rows)
        * _tiles(walk.points(dot.columns, sizes), shape.columns)
    )
    return Tiling((dot.rows, dot.columns), blocks, True, shape.warps, programs, apart=False, dot=dot, stages=shape.stages)


def _short(nest: Nest, tiling: Tiling, sizes: dict[str, int]) -> Tiling:
    """With as few elements a thread as keep the program short: all that is done to one of them is written out for each."""
    long, blocks = _instructions(nest), dict(tiling.blocks)
    free = [name for name in ("r", "x", "y") if name in blocks and (name != "r" or tiling.looped)]
    while math.prod(blocks.values()) > 32 * tiling.warps and long * math.prod(blocks.values()) > _LONGEST * 32 * tiling.warps:
        widest = max(free, key=lambda name: blocks[name], default="")
        if not widest or blocks[widest] < 2:
            break
        blocks[widest] //= 2
    if blocks == dict(tiling.blocks):
        return tiling
    programs = math.prod(_tiles(walk.points(axes, sizes), blocks[name]) for axes, name in zip(tiling.outer, blocks, strict=False))
    return replace(tiling, blocks=tuple(blocks.items()), programs=programs)


def _instructions(nest: Nest) -> int:
    """Of one element, roughly."""
    found = {e for p in nest.phases for e in walk.expressions(p) if type(e) is Op and e.name in ROWS}
    return sum(long(e.name) * (4 if e.dtype == "float64" and long(e.name) > 1 else 1) for e in found)


def _pointwise(nest: Nest, sizes: dict[str, int], budget: Budget) -> Tiling:
    total = walk.points(nest.axes, sizes)
    split = _transposed(nest, sizes)
    if split is not None:
        groups = (nest.axes[:split], nest.axes[split:])
        side = power_below(math.isqrt(2 * budget.tile if _widest(nest) <= 2 else budget.tile // 2))
        blocks = [
            ("y", min(side, power_above(walk.points(groups[0], sizes)))),
            ("x", min(side, power_above(walk.points(groups[1], sizes)))),
        ]
        programs = _tiles(walk.points(groups[0], sizes), blocks[0][1]) * _tiles(walk.points(groups[1], sizes), blocks[1][1])
        turned = any(_unit(i, nest.axes[-1].name) for p in nest.phases for i in walk.accesses(p))  # some memory is along each of the two
        return Tiling(groups, tuple(blocks), False, _warps(blocks[0][1] * blocks[1][1], None if turned else nest), programs)
    if (cut := _side_by_side(nest)) is not None:
        groups, (y, x) = (nest.axes[:cut], nest.axes[cut:]), _SIDES
        x = min(x * 2 // _widest(nest) if _widest(nest) > 2 else x, power_above(walk.points(groups[1], sizes)))
        programs = _tiles(walk.points(groups[0], sizes), y) * _tiles(walk.points(groups[1], sizes), x)
        return Tiling(groups, (("y", y), ("x", x)), False, _warps(y * x), programs)
    if (shared := _shared(nest, budget)) is not None:
        return shared
    largest = budget.tile if _widest(nest) <= 2 else budget.tile // 2
    block = min(largest, max(128, power_below(total // (4 * budget.processors)))) if total > 1 else 1
    block = min(block, power_above(total))
    return Tiling((nest.axes,), (("x", block),), False, _warps(block, nest), _tiles(total, block))


def _shared(nest: Nest, budget: Budget) -> Tiling | None:
    """Several rows at once, where what is read varies only along rows or only from row to row: a thread reads it once for all of them."""
    if any(a.extent.constant is None for a in nest.axes):
        return None
    names = [a.name for a in nest.axes]
    found: Counter[int] = Counter()
    for used in {e.index.symbols & set(names) for p in nest.phases for e in walk.loads(p)}:
        places = [names.index(n) for n in used]
        found.update({min(places), max(places) + 1} - {0, len(names)} if places else ())
    for cut, _ in found.most_common():
        groups = nest.axes[:cut], nest.axes[cut:]
        rows, length = (walk.points(axes, {}) for axes in groups)
        elements = budget.tile if _widest(nest) <= 2 else budget.tile // 2
        if length >= _LONG_ROWS * elements and even(length) < 64:  # a part of one row: what is its own is read once a program
            return Tiling(groups, (("y", 1), ("x", elements)), False, _warps(elements, nest), rows * _tiles(length, elements))
        x = min(even(length), elements // 2)
        y = elements // x
        while y >= 2 and _tiles(rows, y) * (length // x) < 4 * budget.processors:
            y //= 2
        if x >= 64 and y >= 2:
            return Tiling(groups, (("y", y), ("x", x)), False, max(1, x * y // 512), _tiles(rows, y) * (length // x))
    return None


def _rows(nest: Nest, inner: list[Phase], sizes: dict[str, int], budget: Budget) -> Tiling:
    rows = walk.points(nest.axes, sizes)
    length = max(walk.points(p.axes, sizes) for p in inner)
    known = all(a.extent.constant is not None for p in inner for a in p.axes)
    whole = power_above(length)
    live = 2 + len({e for p in inner for e in walk.loads(p) if e.index.symbols & {a.name for a in p.axes}})
    if walk.sorts(nest):
        return _whole(nest, inner, rows, whole, budget)
    turns = _turns(nest) if rows >= _WAVES * budget.processors and whole <= min(budget.longest, budget.values // 4) else 1
    if turns > 1 and rows % turns == 0:
        return Tiling((nest.axes,), (("x", 1), ("r", whole)), False, min(max(whole // 512, 1), 8), rows // turns, turns=turns)
    if _along_rows(nest, inner):
        values = budget.values if live <= _MANY else budget.values // 2  # much else is read again then, from the cache as the row itself
        looped = not known or whole * live > values or whole > budget.longest
        r = budget.tile if looped else whole
        x = max(1, min(budget.tile // 2 // r, power_below(rows // (2 * budget.processors)))) if not looped else 1
        x = min(x, power_above(rows))
        sums = not looped and r <= _SHORT_ROWS and not any(p.stores for p in inner)
        while sums and 2 * x * r <= 4 * budget.tile and rows >= 2 * x * 16 * budget.processors:
            x *= 2
        lane = budget.lane if live <= 4 else budget.lane // 2
        many = rows >= 32 * budget.processors and x * r >= 2048
        warps = x * r * _widest(nest) // (32 * lane) if many else _warps(x * r, nest)
        warps = min(power_below(warps), 16) if r < 16384 else 32
        if looped and live > _MANY and _widest(nest) <= 2:
            warps = max(1, warps // 2)  # 32 elements a thread: what is at hand for each pays for it
        elif looped and known and rows >= budget.processors and (more := _few_at_once(inner, length, budget)):
            warps, r = more, _STEP * more
            r = r if 4 * _tiles(length, r) * r <= 5 * length else r // 2  # no step that is mostly beyond the row
    elif known and length <= _WINDOW and rows >= 64 * budget.processors:
        # A window: its few elements one after the other, each for many neighbours at once.
        looped, r = True, 1
        x = min(budget.tile // 2, max(128, power_below(rows // (4 * budget.processors))))
        warps = _warps(x)
    else:
        looped = not known or whole > 32
        half = _widest(nest) <= 2
        if known and _is_weighted(nest, inner) and 32 <= length <= 2 * budget.tile // 16 and (x := _beside(nest, rows, budget)):
            return Tiling((nest.axes,), (("x", x), ("r", whole)), False, 8, rows // x)
        if known and half and (x := _columns_of_matrix(nest, budget)):
            r = min(_ACROSS // x, whole)
            return Tiling((nest.axes,), (("x", x), ("r", r)), r < length, max(x * r // 1024, 1), _tiles(rows, x), apart=False)
        stored = any(p.stores for p in inner)
        if stored and half and known and looped:  # whole sectors are written, and what is computed for each point takes registers
            x = min(COLUMNS, power_above(rows))
            r = min(budget.tile // x, whole)
            return Tiling((nest.axes,), (("x", x), ("r", r)), r < length, max(x * r // 512, 1), _tiles(rows, x))
        if half and known and looped and (narrow := _narrow(rows, length, live, budget)):
            x, r = narrow, min(2 * budget.tile // narrow, whole)
            return Tiling((nest.axes,), (("x", x), ("r", r)), r < length, max(x * r // 512, 1), _tiles(rows, x), apart=False)
        x = min(64 if rows >= 64 * budget.processors or half else 32, power_above(rows))
        if rows < COLUMNS * budget.processors and not half:  # parts of columns that are put together
            x = min(x, max(8, power_below(rows // budget.processors)))
        heavy = live > _HEAVY or any(r.op == "welford" for p in inner for r in p.reductions)
        if heavy and half:
            x = min(x, COLUMNS // 2)
        factor, lane = (1, 8) if not half else _HALF_COLUMNS[2 if heavy else live > 3]
        r = min(factor * budget.tile // x, whole) if looped else whole
        if looped and known and length % r and length >= 8 * r and even(length) >= 16:
            r = min(r, even(length))  # no step sticks out
        looped = looped and (not known or r < length)
        warps = min(max(1, x * r // (32 * (2 * lane if half else lane))), 8)
    return Tiling((nest.axes,), (("x", x), ("r", max(r, 1))), looped, max(warps, 1), _tiles(rows, x))


@dataclass(frozen=True)
class _RowTimesMatrices:
    """What a nest reads whose points, along ``axis``, multiply and add up along ``depth``: ``matrices`` are those of ``loads`` that a point
    has for itself, behind phases that all points share. ``sums``: how many there are."""

    axis: Axis
    depth: Axis
    shared: Sequence[Phase]
    loads: Sequence[Load]
    matrices: Sequence[Load]
    sums: int


def _row_times_matrices(nest: Nest) -> _RowTimesMatrices | None:
    shared = nest.phases[: walk.shared(nest)]
    first, *others = nest.phases[len(shared) :] or nest.phases
    if len(nest.axes) != 1 or len(first.axes) != 1 or any(p.axes or p.checks for p in others) or first.checks or first.scans:
        return None
    axis, depth = nest.axes[0], first.axes[0]
    loads = list(dict.fromkeys(walk.loads(first)))
    matrices = [e for e in loads if axis.name in e.index.symbols]
    plain = all(e.mask is None and e.index.symbols <= {axis.name, depth.name} for e in loads)
    if {r.op for r in first.reductions} != {"sum"} or not plain or len(loads) == len(matrices):
        return None
    return _RowTimesMatrices(axis, depth, shared, loads, matrices, len(first.reductions))


def _turns(nest: Nest) -> int:
    """How many rows a program takes, if rows of half precision or of bytes that lie along memory are multiplied by one that all share, and
    summed: reading the matrix (or two) is all there is to it. One H200, microseconds with one row a program, and with two in turn: 2,048
    rows of 2,048 3.9 and 2.9, 2,048 of 8,192 9.7 and 8.9, 32,000 of 2,048 40.6 and 30.7 (the memory's limit is 30.5)."""
    if (found := _row_times_matrices(nest)) is None:
        return 1
    axis, inner, shared = found.axis, found.depth, found.shared
    if not all(p.axes in ((), (inner,)) for p in shared) or (inner.extent.constant or 0) < _LONG_DEPTH or axis.extent.constant is None:
        return 1
    loads, matrices = found.loads, found.matrices
    halves = all(_unit(e.index, inner.name) and (TYPES[e.dtype].size <= 2 or (shared and e not in matrices)) for e in loads)
    if not halves or len(matrices) != found.sums:
        return 1
    share = 2 // max((TYPES[e.dtype].size for e in matrices), default=2)  # so that as much is under way
    return share * _TURNS_OF_SUMS // len(matrices) if shared and matrices else share * _TURNS if len(matrices) == 1 else share


def _columns_of_matrix(nest: Nest, budget: Budget) -> int:
    """How many columns of a matrix a program multiplies by a vector that all share, if the matrix lies along its columns: whole sectors,
    and so few that most multiprocessors have some; 0 where nothing is multiplied so."""
    if (found := _row_times_matrices(nest)) is None or not found.matrices:
        return 0
    lying = (_unit(e.index, found.axis.name) and found.depth.name in e.index.symbols and TYPES[e.dtype].size <= 2 for e in found.matrices)
    if not all(lying):
        return 0
    columns = found.axis.extent.constant or 1
    return 2 * _FEWEST if columns >= 2 * _FEWEST * budget.processors else _FEWEST


def _beside(nest: Nest, rows: int, budget: Budget) -> int:
    """How many neighbours a program sums with the weights that they share: whole sectors of half precision, and as many as leave every
    second multiprocessor a program; 0 where rows are none of these."""
    length = nest.axes[-1].extent.constant or 1
    fits = (x for x in (4 * _FEWEST, 2 * _FEWEST, _FEWEST) if length % x == 0 and (x == _FEWEST or 2 * rows >= x * budget.processors))
    return next(fits, 0)


def _is_weighted(nest: Nest, inner: list[Phase]) -> bool:
    """Whether rows are summed with weights, as attention sums values: a program keeps so many rows as are summed at once, and waits for
    memory once."""
    axes = {a.name for a in nest.axes}
    if len(inner) != 1 or [r.op for r in inner[0].reductions] != ["sum"] or len(nest.axes) < 2 or inner[0].checks:
        return False
    loads = list(dict.fromkeys(walk.loads(inner[0])))
    plain = all(e.mask is None and e.index.symbols & axes for e in loads)
    return len(loads) == 2 and plain and any(nest.axes[-1].name not in e.index.symbols for e in loads)


def _few_at_once(inner: list[Phase], length: int, budget: Budget) -> int:
    """Warps of a program whose rows are read again, so many that the cache keeps most of what all programs that run at once read; 0 where
    it cannot, or where loads are of two bytes, for which threads are what is short."""
    passes = Counter(buffer for p in inner for buffer in {e.buffer for e in walk.loads(p)})
    again = {
        e.buffer: TYPES[e.dtype].size
        for p in inner
        for e in walk.loads(p)
        if passes[e.buffer] > 1 and e.index.symbols & {a.name for a in p.axes}
    }
    if not again or (min(again.values()) < 4 and even(length) < 8):
        return 0
    under_way = length * sum(again.values()) * budget.processors * _RESIDENT
    return 16 if under_way <= 16 * budget.cached else 32 if under_way <= 2 * 32 * budget.cached else 0


def _whole(nest: Nest, inner: list[Phase], rows: int, r: int, budget: Budget) -> Tiling:
    """Rows that are put in order: few at a time, and few elements a lane, for every step of the order is written out for each of them. Down
    columns there are enough side by side for loads of a sector."""
    x = max(1, min(budget.tile // 2 // r, power_below(rows // (2 * budget.processors))))
    if not _along_rows(nest, inner):
        x = max(x, min(_SECTOR // _widest(nest), max(4 * budget.tile // r, 1)))
    x = min(x, power_above(rows))
    return Tiling((nest.axes,), (("x", x), ("r", r)), False, _warps(x * r), _tiles(rows, x), apart=False)


def _narrow(rows: int, length: int, live: int, budget: Budget) -> int:
    """How many columns a program takes that are short enough for one launch, where there are enough programs then; 0 where not."""
    if length > _SHORT:
        return 0
    thirds = 1 if live <= 3 else 2  # of the multiprocessors that should have a program
    return next((x for x in (16, 8) if 3 * rows >= x * thirds * budget.processors), 0)


def _warps(elements: int, nest: Nest | None = None) -> int:
    """Eight elements a lane, or sixteen of half precision: two loads of 16 bytes under way hide what one does not."""
    lane = 16 if nest is not None and elements >= 2048 and _widest(nest) <= 2 else 8
    return max(1, min(16, elements // (32 * lane)))


def _tiles(n: int, block: int) -> int:
    return -(-n // block)


def _widest(nest: Nest) -> int:
    """Bytes of the largest element among those that a nest moves most of."""
    return max((TYPES[dtype].size for dtype in walk.moved(nest)), default=4)


def rounds(nest: Nest) -> bool:
    """Whether what the nest moves is half precision: float32 is then only what it computes in."""
    kinds = {TYPES[dtype].kind for dtype in walk.moved(nest)}
    return "half" in kinds and "float" not in kinds


def _unit(i: Index, axis: str) -> bool | None:
    """Whether an access steps by one element along ``axis``; None where it does not depend on it."""
    if axis not in i.symbols:
        return None
    stride = i.stride_of(axis)
    return stride is not None and stride.constant == 1


def _transposed(nest: Nest, sizes: dict[str, int]) -> int | None:
    """Where to cut the axes in two dimensions, because some access is contiguous along another axis than the last."""
    if len(nest.axes) < 2 or nest.axes[-1].extent.evaluate(sizes) < 16:
        return None
    last = nest.axes[-1].name
    for phase in nest.phases:
        for i in walk.accesses(phase):
            if _unit(i, last) is not False:
                continue
            for k, axis in enumerate(nest.axes[:-1]):
                if _unit(i, axis.name) and axis.extent.evaluate(sizes) >= 16:
                    return k + 1
    return None


def _side_by_side(nest: Nest) -> int | None:
    """Where to cut the axes, because some access has the points of a short axis side by side for each point of the last axis, which
    another access is contiguous along."""
    if len(nest.axes) < 2:
        return None
    *outer, last = nest.axes
    reads = {i for p in nest.phases for i in walk.accesses(p)}
    if (last.extent.constant or UNKNOWN) < 2 * _SIDES[0] or not any(_unit(i, last.name) for i in reads):
        return None
    short = outer[-1]
    length = short.extent.constant or UNKNOWN
    turned = (i for i in reads if _unit(i, short.name) and last.name in i.symbols)
    beside = any((stride := i.stride_of(last.name)) is not None and stride.constant == length for i in turned)
    return len(outer) if beside and 1 < length < _SIDES[0] else None


def _along_rows(nest: Nest, inner: list[Phase]) -> bool:
    """Whether memory is contiguous along the inner axes rather than the outer ones."""
    if not nest.axes:
        return True
    outer = {a.name for a in nest.axes}
    found: dict[int, int] = {}
    for phase in inner:
        axes = {a.name for a in phase.axes}
        extents = {a.name: a.extent.constant or UNKNOWN for a in (*nest.axes, *phase.axes)}
        for i in walk.accesses(phase):
            along = any(_unit(i, name) for name in axes)
            across = not along and bool(i.symbols & axes) and any(_unit(i, name) for name in outer)
            touched = math.prod(n for name, n in extents.items() if name in i.symbols)
            found[touched] = found.get(touched, 0) + along - across
    # What all rows share stays in the cache, however it is read: those that touch most decide, the others where these do not.
    most = max(found, default=0)
    return (sum(n for touched, n in found.items() if 2 * touched > most) or sum(found.values())) >= 0
