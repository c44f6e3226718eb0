"""What one program does of nests that read memory along another axis than they write it."""

import pytest

from opmill_graph_ir.loops.cases import axes, row_major
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Load, Nest, Phase, Store
from opmill_kernel_gen_triton.tiling import DEFAULT, choose


def turned(rows: int, short: int, length: int, step: int | None = None) -> Nest:
    """``out[i, j, k] = a[i, k, j]``; with ``step``, from rows that are so far apart."""
    d = axes(i=rows, j=short, k=length)
    step = step or short
    value = Load("a", index("i") * (step * length) + index("j") + index("k") * step, "float16")
    return Nest(d, (Phase(stores=(Store("out", row_major(d), value),)),))


@pytest.mark.parametrize("nest", [turned(1280, 9, 640), turned(64, 2, 4096), turned(1, 15, 100)])
def test_short_rows_are_turned_whole(nest: Nest) -> None:
    tiling = choose(nest, (), DEFAULT)
    assert tiling.outer == (nest.axes[:2], nest.axes[2:])
    assert tiling.block("y") == 16


@pytest.mark.parametrize(
    "nest", [turned(64, 1, 640), turned(64, 9, 640, step=64), turned(64, 9, 8)], ids=["one place", "far apart", "few points"]
)
def test_others_are_one_run_of_points(nest: Nest) -> None:
    tiling = choose(nest, (), DEFAULT)
    assert tiling.outer == (nest.axes,)


def test_long_rows_are_turned_in_squares() -> None:
    nest = turned(4, 512, 640)
    tiling = choose(nest, (), DEFAULT)
    assert tiling.outer == (nest.axes[:2], nest.axes[2:]) and tiling.block("y") == tiling.block("x")
