"""Sums and variances down columns: right however many launches they take, and as few as their length needs."""

import pytest

from opmill_graph_ir.loops.cases import Case, axes, cast
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Buffer, Load, LoopKernel, Nest, Phase, Reduction, Ref, Store
from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import disagreement
from opmill_kernel_gen_triton.kernel import kernel_text

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]


def down(rows: int, columns: int, dtype: str, op: str = "sum") -> LoopKernel:
    """``op`` of each column of ``x[rows, columns]``."""
    x = cast(Load("x", index("j") * columns + "i", dtype), "float32")
    names = ("m", "q") if op == "welford" else ("s",)
    stores = tuple(Store(f"out_{n}", index("i"), Ref(n, "float32")) for n in names)
    phases = (Phase(axes(j=rows), reductions=(Reduction(names, op, x, "float32"),)), Phase(stores=stores))
    out = tuple(Buffer(f"out_{n}", "float32", "out", index(columns)) for n in names)
    return LoopKernel("down", (Buffer("x", dtype, "in", index(rows * columns)), *out), (Nest(axes(i=columns), phases, "down"),))


@pytest.mark.parametrize(
    "rows, columns, dtype, op, launches",
    [
        (1024, 768, "bfloat16", "sum", 1),
        (1568, 2048, "bfloat16", "welford", 1),
        (1568, 256, "bfloat16", "sum", 2),  # too few columns for as many programs as there are multiprocessors
        (8192, 768, "bfloat16", "sum", 2),
        (1024, 768, "float32", "sum", 2),
    ],
)
def test_short_columns_of_half_precision_are_one_launch(rows: int, columns: int, dtype: str, op: str, launches: int) -> None:
    assert len(kernel_text(down(rows, columns, dtype, op)).functions) == launches


@pytest.mark.parametrize("op", ["sum", "welford"])
@pytest.mark.parametrize("rows, columns", [(100, 40), (257, 48), (64, 33)])
@pytest.mark.parametrize("processors", [2, 1000], ids=["whole", "split"])
def test_right_in_either_way(rows: int, columns: int, op: str, processors: int) -> None:
    budget = Budget(processors=processors, tile=128, chunk=16, steps=4)
    assert disagreement(Case("down", down(rows, columns, "bfloat16", op), rtol=64.0), budget=budget) is None
