"""``numerics="eager"``: what stays a loop gives eager's bits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("expecttest", reason="torch's operator database needs it")


sys.path.insert(0, str(Path(__file__).parent))  # what stands beside these tests, whatever import mode pytest runs in

from test_op_db import graph_of, ops_by_name, samples

from opmill_fake_tensors import FakeTensorError
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern, Lowered
from opmill_graph_ir.ops.lower import lower

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LOOPS = (
    "add mul sub div.no_rounding_mode neg abs maximum clamp where eq floor nn.functional.relu amax argmax cat gather masked_fill".split()
)
"""Operators that stay loops in float32."""
OTHERS = (
    "addcmul addcdiv lerp addr linalg.cross linspace nn.functional.interpolate.bilinear nn.functional.interpolate.nearest "
    "nn.functional.grid_sample rsub "
    "nn.functional.mse_loss nn.functional.huber_loss nn.functional.hardswish nn.functional.gelu nn.functional.silu exp sum mean var "
    "softmax cumsum cummax "
    "nn.functional.layer_norm nn.functional.leaky_relu index_add scatter_add index_put pow reciprocal rsqrt remainder fmod floor_divide "
    "round trunc "
    "sign sqrt copysign nan_to_num nn.functional.hardtanh nn.functional.max_pool2d nn.functional.avg_pool2d nn.functional.pad.reflect tril "
    "roll embedding"
).split()


def bits(t: torch.Tensor) -> torch.Tensor:
    """The bits of a tensor, all NaN alike."""
    if not t.dtype.is_floating_point:
        return t
    plain = torch.where(t.isnan(), torch.nan, t).contiguous()
    return plain.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()])


def exactly(op: Any, args: Any, kwargs: Any) -> tuple[list[Any], list[Any], Lowered]:
    gm, tensors = graph_of(op.op, args, kwargs)
    want = gm(*[t.clone() for t in tensors])
    graph = functionalize(gm, tensors)
    program = lower(graph, exact=True)
    return run_lowered(program, [*(t.clone() for t in tensors), *graph.held_tensors]), want, program


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", LOOPS + OTHERS)
def test_bits_of_eager(name: str, dtype: torch.dtype) -> None:
    op = ops_by_name().get(name)
    if op is None or dtype not in op.dtypes:
        pytest.skip("no samples")
    loops = 0
    with torch.no_grad():
        for args, kwargs in samples(op, dtype, 3):
            try:
                got, want, program = exactly(op, args, kwargs)
            except (GraphError, FakeTensorError):
                continue
            loops += any(not isinstance(n, Extern) for n in program.nodes)
            for g, w in zip(got, want, strict=True):
                assert not isinstance(w, torch.Tensor) or torch.equal(bits(g), bits(w))
    assert loops or name not in LOOPS or dtype is not torch.float32


def test_each_operator_rounds_for_itself() -> None:
    """A chain in half precision: eager's bits, which one rounding at the end would not give."""
    x = torch.randn(300, generator=torch.Generator().manual_seed(1)).bfloat16()

    def chain(a: torch.Tensor) -> list[torch.Tensor]:
        return [((a * 3.1 + a) * a - 1) / 7]

    graph = torch.fx.Graph()
    graph.output(graph.call_function(chain, (graph.placeholder("a"),)))
    with torch.no_grad():
        captured = functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), [x])
        program = lower(captured, exact=True)
        assert not any(isinstance(n, Extern) for n in program.nodes)
        [got] = run_lowered(program, [x])
        wide = chain(x.float())[0].bfloat16()
    assert torch.equal(bits(got), bits(chain(x)[0])) and not torch.equal(got, wide)
