"""What programs may use: apart from tiling, so that knowing a generator does not mean importing it."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class DotShape:
    """How much of a matrix product a program does: ``rows`` by ``columns`` results, ``depth`` at a time, with loads ``stages`` steps ahead.
    Powers of two."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


@dataclass(frozen=True)
class AttentionShape:
    """A program has ``rows`` rows and walks over the others ``steps`` at a time, with loads ``stages`` steps ahead. Powers of two.
    ``ahead``: gradients multiply for the next step while this one's exponentials are computed."""

    rows: int
    steps: int
    warps: int
    stages: int
    ahead: bool = False


_SMALL_DOTS = (DotShape(64, 64, 64, 4, 3), DotShape(64, 64, 32, 4, 2))


@dataclass(frozen=True)
class Budget:
    """What programs may use. ``processors``: multiprocessors that should have work. ``tile``: elements of a tile that is one of many;
    ``longest``: elements of a row kept whole; ``values``: of all such rows together (registers). ``chunk``: elements that a program should
    at least reduce before rows are split, and ``steps`` down columns. ``lane``: bytes of a row that a thread takes where there are many
    rows. ``shift``: warps are doubled so many times (halved, if negative). ``ahead``: 1, what two
    sides of a choice read at different places is read before the first reduction, too; 2, everything is. ``dot``: the tile of products, if
    not the one that their sizes suggest; ``attention``: the same of attention. ``cached``: bytes of rows under way that the device's cache
    keeps until they are read again. ``resident``: warps of a multiprocessor that go over rows and down columns in one pass, 0 for passes
    of their own. Part of every kernel's key."""

    processors: int = 132
    tile: int = 2048
    longest: int = 16384
    values: int = 49152
    chunk: int = 1024
    steps: int = 64
    lane: int = 64
    shift: int = 0
    ahead: int = 0
    dot: DotShape | None = None
    attention: AttentionShape | None = None
    cached: int = 44 << 20
    resident: int = 16


def smaller(budget: Budget) -> Budget:
    """For kernels that took more shared memory than there is: half of everything that a program holds."""
    dot = _SMALL_DOTS[budget.dot is not None]
    return replace(
        budget, tile=max(budget.tile // 2, 64), longest=max(budget.longest // 2, 64), values=max(budget.values // 2, 64), dot=dot
    )


DEFAULT = Budget()
