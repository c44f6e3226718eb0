"""Rows and columns of products that are done together: the sums are right, and what is shared is read once."""

import pytest
import torch

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Let, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Store
from opmill_kernel_gen_cpp.debug import Runner
from opmill_kernel_gen_cpp.passes.row_blocking import MOST, block_rows

SHAPES = [(m, n, k) for m in (1, 2, 3, 5, 8, 11, 16, 31, 32, 40) for n, k in ((1, 33), (7, 5), (66, 70), (64, 600))]


def _product(m: int, n: int, k: int, dtype: str) -> LoopKernel:
    """``out = relu(a @ b.T) * a's first column``, ``b`` of ``dtype``."""
    row, column, depth = (Axis(name, index(size)) for name, size in (("m", m), ("n", n), ("k", k)))
    b = Load("b", index("n") * k + "k", dtype)
    term = Op("mul", (Load("a", index("m") * k + "k", "float32"), Op("cast", (b,), "float32") if dtype != "float32" else b), "float32")
    summed = Phase((depth,), reductions=(Reduction(("total",), "sum", term, "float32"),))
    positive = Let("positive", Op("max", (Ref("total", "float32"), Const(0.0, "float32")), "float32"))
    scaled = Op("mul", (Ref("positive", "float32"), Load("a", index("m") * k, "float32")), "float32")
    stored = Phase(lets=(positive,), stores=(Store("out", index("m") * n + "n", scaled),))
    buffers = (
        Buffer("a", "float32", "in", index(m * k)),
        Buffer("b", dtype, "in", index(n * k)),
        Buffer("out", "float32", "out", index(m * n)),
    )
    return LoopKernel(f"product_{m}_{n}_{k}_{dtype}", buffers, (Nest((row, column), (summed, stored)),))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_products_agree(store, dtype: str) -> None:
    kernels = {shape: _product(*shape, dtype) for shape in SHAPES}
    runner = Runner(list(kernels.values()), store)
    for (m, n, k), kernel in kernels.items():
        generator = torch.Generator().manual_seed(m)
        a = torch.randn(m, k, generator=generator)
        b = torch.randint(-9, 9, (n, k), generator=generator).to(getattr(torch, dtype))
        out = torch.empty(m, n)
        assert runner.run(kernel, {"a": a, "b": b, "out": out}) == 0
        want = (a.double() @ b.double().T).relu() * a[:, :1].double()
        torch.testing.assert_close(out.double(), want, rtol=1e-4, atol=1e-3)


def _reads(nest: Nest) -> int:
    """How many elements of ``b`` a point of the loops reads."""
    return len({x for p in nest.phases for r in p.reductions for e in r.value.args for x in (e, *getattr(e, "args", ())) if _is_b(x)})


def _is_b(e: object) -> bool:
    return isinstance(e, Load) and e.buffer == "b"


def test_a_matrix_is_read_once_for_a_few_rows() -> None:
    for m, together, columns in ((1, 1, 1), (2, 2, 4), (3, 3, 4), (8, 8, 2), (16, 8, 2), (31, 1, 1), (40, 1, 1)):
        [nest] = _product(m, 64, 600, "float32").nests
        made = block_rows(nest)
        assert len(made.phases[0].reductions) == together * columns, m
        assert _reads(made) == columns, m
        assert together <= MOST


def test_what_a_nest_writes_it_does_not_read_for_other_rows() -> None:
    kernel = _product(4, 64, 600, "float32")
    [nest] = kernel.nests
    last = nest.phases[-1]
    own = Nest(
        nest.axes, (*nest.phases[:-1], Phase(last.axes, last.lets, stores=(Store("a", index("m") * 600 + "n", last.stores[0].value),)))
    )
    assert block_rows(own) == own
