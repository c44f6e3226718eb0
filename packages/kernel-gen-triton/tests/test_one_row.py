"""One row times matrices of half precision, along their sums and across them, with a norm before and an activation behind: against float64."""

import pytest
import torch
import torch.nn.functional as F

from opmill_kernel_gen_triton.debug import as_for_gpu
from opmill_runtime_cache.plan.model import Call, Launch

pytestmark = pytest.mark.triton


def run(function, inputs):
    with torch.no_grad():
        call, plan, _ = as_for_gpu(torch.fx.symbolic_trace(function), inputs)
        got = call(*inputs)
    return (got if isinstance(got, (tuple, list)) else [got]), plan


def close(got, function, inputs):
    exact, eager = (function(*(t.to(dtype) for t in inputs)) for dtype in (torch.float64, inputs[0].dtype))
    exact, eager = ([f] if isinstance(f, torch.Tensor) else f for f in (exact, eager))
    for mine, theirs, true in zip(got, eager, exact, strict=True):
        assert (mine.double() - true).abs().max() <= 1.5 * (theirs.double() - true).abs().max() + 1e-2


@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
@pytest.mark.parametrize(("columns", "depth"), [(96, 320), (48, 129), (16, 64), (300, 256), (32, 2100)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_layouts(columns: int, depth: int, across: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    w = torch.randn(*((depth, columns) if across else (columns, depth)), dtype=dtype) / depth**0.5
    inputs = [torch.randn(1, depth, dtype=dtype), w, torch.randn(columns, dtype=dtype), torch.rand(depth, dtype=dtype)]

    def step(x, w, b, g):
        y = F.layer_norm(x, (depth,), g)
        return F.gelu(torch.addmm(b, y, w) if across else F.linear(y, w, b)) + 1

    got, plan = run(step, inputs)
    close(got, step, inputs)
    assert not [s for s in plan.steps if isinstance(s, Call)]


def test_projections_of_one_vector_are_one_launch_where_queries_are_normalised_first() -> None:
    """As Qwen 3 does it: the norm of the queries stands between their projection and that of the keys."""
    torch.manual_seed(0)
    width, head = 512, 64

    def norm(x, w):
        return x * torch.rsqrt((x.float() ** 2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w

    def projected(x, g, wq, wk, wv, qn, kn):
        y = norm(x, g)
        q = norm(F.linear(y, wq).view(1, -1, head), qn)
        k = norm(F.linear(y, wk).view(1, -1, head), kn)
        return q, k, F.linear(y, wv).view(1, -1, head)

    shapes = [(1, width), (width,), (1024, width), (128, width), (128, width), (head,), (head,)]
    inputs = [torch.randn(s).bfloat16() / (width**0.5 if len(s) == 2 and s[0] > 1 else 1) for s in shapes]
    got, plan = run(projected, inputs)
    close(got, projected, inputs)
    assert len([s for s in plan.steps if isinstance(s, Launch)]) == 2 and not [s for s in plan.steps if isinstance(s, Call)]
