"""Rows that are read more than once and are too long to be kept: so few programs run at once that the cache still has them."""

import pytest

from opmill_graph_ir.loops.cases import Case, axes, cast, op, row_major
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Buffer, Expr, Load, LoopKernel, Nest, Phase, Reduction, Ref, Store
from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import disagreement
from opmill_kernel_gen_triton.kernel import kernel_text
from opmill_kernel_gen_triton.tiling import DEFAULT

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]


def scaled(rows: int, length: int, dtype: str) -> LoopKernel:
    """Rows divided by their largest element."""
    i, j = axes(i=rows), axes(j=length)
    where = row_major((*i, *j))
    x: Expr = Load("x", where, dtype)
    x = x if dtype == "float32" else cast(x, "float32")
    value = op("div", x, Ref("top", "float32"))
    phases = (
        Phase(j, reductions=(Reduction(("top",), "max", op("abs", x), "float32"),)),
        Phase(j, stores=(Store("out", where, value if dtype == "float32" else cast(value, dtype)),)),
    )
    n = index(rows * length)
    return LoopKernel("scaled", (Buffer("x", dtype, "in", n), Buffer("out", dtype, "out", n)), (Nest(i, phases),))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [17_000, 20_000, 32_768, 65_536, 80_000, 1_000_000])
def test_few_at_once(length: int, dtype: str) -> None:
    [[function, *_]] = kernel_text(scaled(8192, length, dtype)).functions
    row = length * (4 if dtype == "float32" else 2)
    at_once = DEFAULT.processors * 64 // function.warps
    least = 2 * DEFAULT.processors  # of the largest programs
    assert at_once * row <= 2 * DEFAULT.cached or least * row > 2 * DEFAULT.cached
    assert function.grid.constant == 8192
    steps = -(-length // dict(function.constants)["RBLOCK"])
    assert steps * dict(function.constants)["RBLOCK"] <= 1.25 * length or function.warps < 16


def test_loads_of_two_bytes_have_many_threads() -> None:
    [[odd, *_]], [[even, *_]] = (kernel_text(scaled(8192, n, "bfloat16")).functions for n in (32_769, 32_768))
    assert odd.warps < even.warps


@pytest.mark.parametrize("length", [140, 160])
def test_right(length: int) -> None:
    budget = Budget(processors=1, tile=64, longest=8, values=8)
    assert disagreement(Case("scaled", scaled(3, length, "float32")), budget=budget) is None
    assert kernel_text(scaled(3, length, "float32"), budget).functions[0][0].warps == 16
