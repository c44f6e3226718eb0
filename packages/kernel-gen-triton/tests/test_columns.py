"""Sums and variances down columns: right however many launches they take, and as few as their length needs."""

from dataclasses import replace

import pytest

from opmill_graph_ir.loops.cases import Case, axes, cast
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Buffer, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Store
from opmill_graph_ir.schedule.rewrite import Rewriter
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


def norm_gradients(rows: int, columns: int) -> LoopKernel:
    """Sums down columns of what is read along rows, too, from two numbers a row: the gradients of a norm's weight and bias."""
    at = index("j") * columns + "i"
    g, x = cast(Load("g", at, "bfloat16"), "float32"), Load("x", at, "float32")
    centered = Op("mul", (Op("sub", (x, Load("m", index("j"), "float32")), "float32"), Load("r", index("j"), "float32")), "float32")
    sums = Reduction(("w",), "sum", Op("mul", (g, centered), "float32"), "float32"), Reduction(("b",), "sum", g, "float32")
    stores = tuple(Store(f"out_{n}", index("i"), Ref(n, "float32")) for n in "wb")
    inputs = [("g", "bfloat16", rows * columns), ("x", "float32", rows * columns), ("m", "float32", rows), ("r", "float32", rows)]
    buffers = [Buffer(n, d, "in", index(k)) for n, d, k in inputs] + [Buffer(f"out_{n}", "float32", "out", index(columns)) for n in "wb"]
    return LoopKernel(
        "norm", tuple(buffers), (Nest(axes(i=columns), (Phase(axes(j=rows), reductions=sums), Phase(stores=stores)), "norm"),)
    )


def test_what_most_accesses_touch_decides_over_rows_or_columns() -> None:
    """Two numbers a row, read along it, are nothing beside two matrices that are not."""
    first, second = (forms[0] for forms in kernel_text(norm_gradients(8192, 768)).functions)
    assert dict(first.constants)["XBLOCK"] >= 32, "neighbouring threads read neighbouring columns"
    assert first.grid.constant >= 2 * 132 and second.name.endswith("_1")


def test_gradients_of_a_norm_are_right() -> None:
    budget = Budget(processors=8, tile=128, chunk=16, steps=4)
    for rows, columns in ((64, 40), (96, 33)):
        assert disagreement(Case("norm", norm_gradients(rows, columns), rtol=64.0), budget=budget) is None


@pytest.mark.parametrize("rows, stored_first", [(96, True), (97, False)], ids=["even chunks", "a rest"])
def test_parts_of_columns_are_stored_while_they_are_added(rows: int, stored_first: bool) -> None:
    """One pass over memory, where each point belongs to exactly one part: also where what is read is overwritten."""
    kernel = down(rows, 40, "float32")
    [nest] = kernel.nests
    [phase, end] = nest.phases
    at = index("j") * 40 + "i"
    doubled = Op("add", (Load("x", at, "float32"), Load("x", at, "float32")), "float32")
    phase = replace(phase, stores=(Store("y", at, doubled), Store("x", at, Op("neg", (doubled,), "float32"))))
    buffers = (Buffer("x", "float32", "inout", index(rows * 40)), Buffer("y", "float32", "out", index(rows * 40)), *kernel.buffers[1:])
    kernel = replace(kernel, buffers=buffers, nests=(replace(nest, phases=(phase, end)),))
    budget = Budget(processors=8, tile=128, chunk=16, steps=4)
    first, _ = (f for [f] in kernel_text(kernel, budget).functions)
    assert ("y" in {p.buffer for p in first.params}) == stored_first
    assert disagreement(Case("down", kernel, rtol=64.0), budget=budget) is None


def padded_rows(length: int, stride: int, numel: int) -> LoopKernel:
    """The largest of each row and the sum from there, of rows that begin every ``stride`` elements."""
    x = cast(Load("x", index("i") * stride + "j", "bfloat16"), "float32")
    shifted = Op("exp", (Op("sub", (x, Ref("m", "float32")), "float32"),), "float32")
    phases = (
        Phase(axes(j=length), reductions=(Reduction(("m",), "max", x, "float32"),)),
        Phase(axes(k=length), reductions=(Reduction(("s",), "sum", substituted(shifted), "float32"),)),
        Phase(stores=(Store("out", index("i"), Ref("s", "float32")),)),
    )
    buffers = (Buffer("x", "bfloat16", "in", index(numel)), Buffer("out", "float32", "out", index(3)))
    return LoopKernel("rows", buffers, (Nest(axes(i=3), phases, "rows"),))


def substituted(e):
    return Rewriter({"j": index("k")})(e)


@pytest.mark.parametrize("longest", [16384, 32], ids=["whole", "in steps"])
@pytest.mark.parametrize(
    "length, stride, numel, reaches",
    [(57, 64, 192, True), (57, 58, 174, False), (57, 64, 185, False), (57, 64, 191, False), (64, 64, 192, False), (60, 64, 192, True)],
)
def test_rows_are_read_in_whole_vectors_where_memory_goes_on(length: int, stride: int, numel: int, reaches: bool, longest: int) -> None:
    budget = Budget(longest=longest, tile=32)
    kernel = padded_rows(length, stride, numel)
    assert ("rreach" in kernel_text(kernel, budget).functions[0][0].text) == reaches
    assert disagreement(Case("rows", kernel, rtol=64.0), budget=budget) is None
