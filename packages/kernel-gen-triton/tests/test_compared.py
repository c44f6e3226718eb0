"""Values that are chosen of others, and compared with them or taken from them, in half precision: as eager's, however kernels are cut."""

import pytest
import torch

from opmill_graph_ir.loops.cases import Case, axes, cast, op, row_major
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Buffer, Const, Expr, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Store
from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import as_for_gpu, disagreement
from opmill_kernel_gen_triton.kernel import kernel_text

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
BUDGETS = {
    "h200": Budget(),
    "steps": Budget(processors=1, tile=64, longest=8, values=8),
    "split": Budget(processors=1000, tile=64, longest=8, values=8, chunk=8, steps=2),
}


def scaled(x, s):
    return x * s * s


def below_the_kth(x, s):
    y = x * s
    return (y < y.topk(5).values[..., -1:]).sum(-1)


def below_the_kth_of_a_chain(x, s):
    y = x * s
    return y, (y * s < scaled(x, s).topk(5).values[..., -1:]).sum(-1)


def largest(x, s):
    y = x * s + s
    return (y == y.amax(-1, keepdim=True)).sum(-1)


def largest_of_a_chain_that_is_returned(x, s):
    y = x * s
    z = y * y
    return y, (z == z.amax(-1, keepdim=True)).sum(-1)


def largest_of_a_mean(x, s):
    y = x.mean(0, keepdim=True) * s
    z = y * y
    return y, (z == z.amax(-1, keepdim=True)).sum(-1)


def largest_of_shares(x, s):
    y = torch.softmax(x * s, -1)
    z = y * s
    return y, (z == z.amax(-1, keepdim=True)).sum(-1), (z == z.amin(0, keepdim=True)).sum(0)


def largest_and_its_place(x, s):
    y = x * s + 1
    value, place = y.max(-1, keepdim=True)
    return place, (y == value).sum(-1), (y.gather(-1, place) == value).sum(-1)


def place_along_columns(x, s):
    y = scaled(x, s)
    return y.argmax(0), (y.gather(0, y.argmax(0, keepdim=True)) == y.amax(0, keepdim=True)).sum(0)


def at_least_the_third(x, s):
    y = scaled(x, s)
    return (y >= y.sort(-1).values[..., -3:-2]).sum(-1)


def median(x, s):
    y = scaled(x, s)
    return (y == y.median(-1, keepdim=True).values).sum(-1)


def records(x, s):
    y = scaled(x, s)
    return (y == y.cummax(-1).values).sum(-1)


def larger_of_two(x, s):
    y = x * s
    m = torch.maximum(y, y * s)
    return ((y == m) | (y * s == m)).sum(-1)


def largest_size(x, s):
    y = scaled(x, s)
    n = y.abs().amax(-1, keepdim=True)
    return (y.abs() >= n).sum(-1), (y / n).abs() > 1


def from_the_largest(x, s):
    y = scaled(x, s)
    low, high = y.aminmax(dim=-1, keepdim=True)
    return (high - y).sqrt().isnan().any(-1), (y - low).sqrt().isnan().any(-1), ((y - high).exp() == 1).sum(-1)


def in_float32(x, s):
    y = scaled(x, s)
    return (y.float() == y.amax(-1, keepdim=True).float()).sum(-1)


PROGRAMS = [
    below_the_kth, below_the_kth_of_a_chain, largest, largest_of_a_chain_that_is_returned, largest_of_a_mean, largest_of_shares,
    largest_and_its_place, place_along_columns, at_least_the_third, median, records, larger_of_two, largest_size, from_the_largest, in_float32,
]  # fmt: skip


def compiled(program, inputs, budget):
    run, _, _ = as_for_gpu(torch.fx.symbolic_trace(program), inputs, budget)
    return run(*inputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_eager(program, budget, dtype):
    torch.manual_seed(1)
    inputs = [torch.randn(24, 150).to(dtype), (torch.rand(150) + 0.5).to(dtype)]
    want = program(*inputs)
    got = compiled(program, inputs, budget)
    for ours, theirs in zip(got, want if isinstance(want, tuple) else [want], strict=True):
        if not theirs.dtype.is_floating_point:
            assert torch.equal(ours, theirs)


def chosen(x):
    mean = x.mean(0, keepdim=True)
    return mean, (mean * mean).amax(-1)


def told(slope, mean, most):
    where = mean * mean == most
    return slope / where.sum(-1) * where


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_gradients_find_what_another_graph_chose(dtype):
    """What the gradient of a maximum computes again is what the forward had: it was divided by no element at all."""
    for seed in range(20):
        torch.manual_seed(seed)
        mean, most = compiled(chosen, [torch.randn(3, 1).to(dtype)], Budget())
        [slope] = compiled(told, [torch.ones(1, dtype=dtype), mean, most], Budget())
        assert torch.equal(slope, torch.ones_like(slope))


def rounding(dtype, made):
    """A kernel whose result another one must have to the same bits: computed there, or a sum that is there."""
    i, j = axes(i=6), axes(j=16)
    x: Expr = cast(Load("x", row_major((*i, *j)), dtype), "float32")
    phases = (Phase(j, reductions=(Reduction(("total",), "sum", op("mul", x, x), "float32"),)),)
    value = op("add", Ref("total", "float32"), Const(1.0, "float32")) if made else Ref("total", "float32")
    stored = Op("rounded", (cast(value, dtype),), dtype)
    n = index(6)
    buffers = (Buffer("x", dtype, "in", n * 16), Buffer("out", dtype, "out", n))
    return LoopKernel("rounding", buffers, (Nest(i, (*phases, Phase(stores=(Store("out", row_major(i), stored),)))),))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_only_sums_are_contracted(dtype):
    assert not kernel_text(rounding(dtype, True)).contracts
    assert kernel_text(rounding(dtype, False)).contracts
    assert disagreement(Case("rounding", rounding(dtype, True), rtol=8.0)) is None
