"""Chains of many operators: the more is done to an element, the fewer a thread takes, or compiling takes minutes."""

import pytest
import torch

from opmill_graph_ir.loops.cases import Case
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Expr, Let, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Store
from opmill_kernel_gen_triton.budget import DEFAULT
from opmill_kernel_gen_triton.debug import disagreement
from opmill_kernel_gen_triton.tiling import choose

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
ROWS = 4


def _chain(name: str, count: int, summed: bool, length: int = 20000) -> LoopKernel:
    place = index("i") * length + "j"
    value: Expr = Load("a", place, "float32")
    lets = []
    for k in range(count):
        lets.append(Let(f"v{k}", Op(name, (Op("add", (value, Load("a", place, "float32")), "float32"),), "float32")))
        value = Ref(f"v{k}", "float32")
    i, j = (Axis("i", index(ROWS)),), (Axis("j", index(length)),)
    if summed:
        phases = (
            Phase(j, lets=tuple(lets), reductions=(Reduction(("r",), "max", value, "float32"),)),
            Phase(stores=(Store("out", index("i"), Ref("r", "float32")),)),
        )
        nest, size = Nest(i, phases), ROWS
    else:
        nest, size = Nest((*i, *j), (Phase(lets=tuple(lets), stores=(Store("out", place, value),)),)), ROWS * length
    return LoopKernel("chain", (Buffer("a", "float32", "in", index(ROWS * length)), Buffer("out", "float32", "out", index(size))), (nest,))


@pytest.mark.parametrize("summed", [False, True])
def test_few_elements_a_thread(summed: bool) -> None:
    def elements(count: int) -> float:
        tiling = choose(_chain("sin", count, summed).nests[0], (), DEFAULT)
        return torch.tensor([size for _, size in tiling.blocks]).prod().item() / (32 * tiling.warps)

    assert elements(100) <= 1 < elements(3)


@pytest.mark.parametrize("summed", [False, True])
def test_right(summed: bool) -> None:
    assert disagreement(Case("chain", _chain("tanh", 120, summed, 300), rtol=4096.0)) is None
