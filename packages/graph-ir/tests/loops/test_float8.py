"""Floats of one byte: what their bits mean, and what may be done with them."""

import math

import pytest
import torch

from opmill_graph_ir.loops.arithmetic import apply
from opmill_graph_ir.loops.float8 import FLOAT8
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Load, LoopKernel, Nest, Op, Phase, Store
from opmill_graph_ir.loops.spec import complaints

BITS = torch.arange(256, dtype=torch.uint8)


@pytest.mark.parametrize("name", FLOAT8)
def test_every_code_means_what_torch_says(name: str) -> None:
    for code, number in enumerate(BITS.view(getattr(torch, name)).tolist()):
        mine = FLOAT8[name].decode(code)
        assert repr(mine) == repr(number)
        assert FLOAT8[name].encode(mine) == (0x7F if math.isnan(number) else code)


def test_too_large_stays_at_the_largest_where_there_is_no_infinity() -> None:
    large = torch.tensor([448.0, 463.0, 465.0, 1e9, -1e9, math.inf, -math.inf, math.nan])
    assert apply("cast", [large], torch.float8_e4m3fn).tolist()[:7] == [448.0, 448.0, 448.0, 448.0, -448.0, 448.0, -448.0]
    assert apply("cast", [large], torch.float8_e4m3fn).float().isnan().tolist() == [False] * 7 + [True]
    assert apply("cast", [large * 1000], torch.float8_e5m2).tolist()[3:7] == [math.inf, -math.inf, math.inf, -math.inf]


@pytest.mark.parametrize("name", FLOAT8)
def test_nothing_is_computed_with_them(name: str) -> None:
    def kernel(value: Op) -> LoopKernel:
        n = index(8)
        buffers = (Buffer("a", name, "in", n), Buffer("out", name, "out", n))
        return LoopKernel("k", buffers, (Nest((Axis("i", n),), (Phase(stores=(Store("out", index("i"), value),)),)),))

    a = Load("a", index("i"), name)
    assert list(complaints(kernel(Op("add", (a, a), name)))) == [f"arithmetic add in ['{name}']"]
    assert list(complaints(kernel(Op("cast", (Op("cast", (a,), "float32"),), name)))) == []
