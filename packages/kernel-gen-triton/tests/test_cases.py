"""The shared table of kernels against the reference interpreter: as generated, in loops, split over programs, with 64-bit indices."""

import zlib

import pytest
import torch

from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops import ir
from opmill_graph_ir.loops.cases import Case, axes, cases, op
from opmill_graph_ir.loops.index import index
from opmill_kernel_gen_triton.debug import disagreement, run
from opmill_kernel_gen_triton.generator import TritonKernelGenerator
from opmill_kernel_gen_triton.kernel import kernel_text
from opmill_kernel_gen_triton.tiling import Budget

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
COMBINING = "combine_"
"""Stores that combine with what is there: the GPU has them for additions only."""
CASES = {c.name: c for c in cases() if not c.name.startswith(COMBINING)}
ROWS = {n: c for n, c in CASES.items() if any(p.axes for x in c.kernel.nests for p in x.phases)}
LOOPS = Budget(processors=1, tile=64, longest=8, values=8)
"""Rows do not fit: every reduction is a loop."""
SPLITS = Budget(processors=1000, tile=64, longest=8, values=8, chunk=8, steps=2)
"""Machines are large: every reduction is split."""
BIG = {"softmax_64x700", "layernorm_64x700"}


def _sample(table: dict[str, Case], of: int) -> list[Case]:
    """One case of ``of``, and all that are not of a family of many."""
    few = ("gather", "scatter", "softmax_5", "layernorm_5", "two_", "padded", "in_place", "transposed", "division", "broadcast")
    chosen = [c for n, c in table.items() if zlib.crc32(n.encode()) % of == 0 or n.startswith(few)]
    return [c for c in chosen if c.name not in BIG and "_rows_" not in c.name]


def test_claims_everything() -> None:
    generator = TritonKernelGenerator(90)
    refused = {c.name: r for c in CASES.values() if (r := generator.claims(c.kernel, GeneratorOptions("cuda:0"))) is not None}
    assert refused == {}


@pytest.mark.parametrize("name", ["symbolic_product_columns_3_21", "softmax_5x33", "layernorm_5x33"])
def test_text_follows_from_the_kernel_alone(name: str) -> None:
    first = kernel_text(CASES[name].kernel, LOOPS)
    assert all(kernel_text(CASES[name].kernel, LOOPS) == first for _ in range(40))


@pytest.mark.parametrize("case", _sample(CASES, 3), ids=lambda c: c.name)
def test_agrees_with_reference(case: Case) -> None:
    assert disagreement(case) is None


@pytest.mark.parametrize("case", _sample(ROWS, 4), ids=lambda c: c.name)
@pytest.mark.parametrize("budget", [LOOPS, SPLITS], ids=["loops", "splits"])
def test_rows_in_other_ways(case: Case, budget: Budget) -> None:
    assert disagreement(case, seed=1, budget=budget) is None


@pytest.mark.parametrize(
    "name", ["symbolic_plain_map_3_21", "softmax_5x33", "gather", "transposed_33x70", "argmax_row_float32", "welford_full_float32"]
)
@pytest.mark.parametrize("budget", [Budget(), SPLITS], ids=["plain", "splits"])
def test_wide_indices(name: str, budget: Budget) -> None:
    assert disagreement(CASES[name], wide=True, budget=budget) is None


def picked(rows: int, columns: int) -> ir.LoopKernel:
    """The sum of ``x[r, t[r]]``, with a check of each ``t[r]``."""
    r = axes(j=rows)
    lets = (ir.Let("t", ir.Load("t", index("j"), "int64")),)
    check = ir.Check(op("lt", ir.Ref("t", "int64"), ir.Const(columns, "int64")), "IndexError", "out of bounds")
    total = ir.Reduction(("s",), "sum", ir.Load("x", index("j") * columns + index("t"), "float32"), "float32")
    store = ir.Store("out", index(0), ir.Ref("s", "float32"))
    phases = (ir.Phase(r, lets=lets, checks=(check,), reductions=(total,)), ir.Phase(stores=(store,)))
    inputs = (ir.Buffer("x", "float32", "in", index(rows * columns)), ir.Buffer("t", "int64", "in", index(rows)))
    return ir.LoopKernel("picked", (*inputs, ir.Buffer("out", "float32", "out", index(1))), (ir.Nest((), phases, "picked"),))


@pytest.mark.parametrize("rows, launches", [(1024, 2), (1021, 1)])
def test_rows_with_checks_are_split(rows: int, launches: int) -> None:
    budget = Budget(chunk=128, steps=4, longest=64, values=64, tile=64)
    kernel = picked(rows, 8)
    assert len(kernel_text(kernel, budget).functions) == launches
    x, t, out = torch.randn(rows * 8), torch.randint(0, 8, (rows,)), torch.zeros(1)
    assert run(kernel, {"x": x, "t": t, "out": out}, budget=budget) == 0
    torch.testing.assert_close(out[0], x.view(rows, 8)[torch.arange(rows), t].sum())
    t[rows // 2] = 8
    assert run(kernel, {"x": x, "t": t, "out": out}, budget=budget) == 1


@pytest.mark.slow
@pytest.mark.parametrize("budget", [Budget(), LOOPS, SPLITS], ids=["plain", "loops", "splits"])
def test_whole_table(budget: Budget) -> None:
    table = CASES if budget == Budget() else ROWS
    assert [d for c in table.values() if (d := disagreement(c, seed=2, budget=budget)) is not None] == []
