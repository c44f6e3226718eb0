"""Floats of one byte: every one of them, and every float16 and bfloat16 that becomes one, as torch converts them."""

import pytest
import torch

from opmill_graph_ir.loops.arithmetic import apply
from opmill_graph_ir.loops.float8 import FLOAT8
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Load, LoopKernel, Nest, Op, Phase, Store
from opmill_kernel_gen_triton.debug import run

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]


def _converted(given: torch.Tensor, source: str, to: str) -> torch.Tensor:
    n = index(given.numel())
    store = Store("out", index("i"), Op("cast", (Load("a", index("i"), source),), to))
    kernel = LoopKernel(
        "converted", (Buffer("a", source, "in", n), Buffer("out", to, "out", n)), (Nest((Axis("i", n),), (Phase(stores=(store,)),)),)
    )
    out = torch.zeros(given.numel(), dtype=getattr(torch, to))
    assert run(kernel, {"a": given, "out": out}) == 0
    return out


@pytest.mark.parametrize("name", FLOAT8)
def test_every_number(name: str) -> None:
    given = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    torch.testing.assert_close(_converted(given, name, "float32"), given.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_every_half(name: str, half: str) -> None:
    given = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(getattr(torch, half))
    got, want = _converted(given, half, name), apply("cast", [given], getattr(torch, name))
    assert torch.equal(got.float().isnan(), want.float().isnan())
    there = ~want.float().isnan()
    assert torch.equal(got.view(torch.uint8)[there], want.view(torch.uint8)[there])
