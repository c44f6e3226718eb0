"""What one program does of nests that read memory along another axis than they write it."""

import itertools
import re

import pytest

from opmill_graph_ir.loops.cases import axes, row_major
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Load, Nest, Phase, Store
from opmill_graph_ir.loops.text import parse
from opmill_kernel_gen_triton.kernel import kernel_text
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


SUMS = {
    "along rows": "x[{0}*{3}*{1} + {3}*j + k]",
    "down columns": "x[{2}*{3}*{0} + {2}*k + j]",
    "weighted": "mul(x[{3}*{0} + k], y[{2}*{3}*i + {2}*k + j])",
    "weighted neighbours": "mul(x[{1}*{3}*{0} + {3}*i + k], y[{2}*k + j])",
    "a matrix": "mul(x[k], y[{3}*j + k])",
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("known", itertools.product([False, True], repeat=3), ids=str)
@pytest.mark.parametrize("sums", SUMS)
def test_any_size_may_be_unknown(sums: str, known: tuple[bool, ...], dtype: str) -> None:
    """As with all sizes known, a tiling is found and a text written: programs ran as torch's operators on GPUs where one sort was not."""
    sizes = [str(n) if is_known else name for n, is_known, name in zip((512, 64, 256), known, ("s0", "s1", "s2"), strict=True)]
    rows, columns, depth = sizes
    places = SUMS[sums].format("i", rows, columns, depth)
    value = re.sub(r"\b([xy]\[[^]]*\])", r"cast.float32(\1)", places) if dtype != "float32" else places
    text = f"""kernel k(s0, s1, s2)
  in x: {dtype}[s0*s1*s2*512*64*256]
  in y: {dtype}[s0*s1*s2*512*64*256]
  out z: float32[{rows}*{columns}]
nest i<{rows} j<{columns}
  phase k<{depth}
    sum v: float32 = {value}
  phase
    set z[{columns}*i + j] = v
"""
    assert kernel_text(parse(text), DEFAULT, False).functions
