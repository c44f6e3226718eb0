"""NaN, infinities, signed zeros and extreme integers in what the generator writes itself (not libdevice), against torch eager."""

import math

import pytest
import torch

from opmill_graph_ir.loops.arithmetic import apply, torch_dtype
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Scan, Store
from opmill_graph_ir.loops.primitives import PRIMITIVES
from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import run

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, math.nan, math.inf, -math.inf, 1e30, -1e30, 100.0]
OWN = "max min fmax fmin floordiv mod eq ne lt le gt ge neg abs sign isnan isinf signbit reciprocal".split()


def _compare(name: str, a: torch.Tensor, b: torch.Tensor, dtype: str) -> None:
    result = "bool" if PRIMITIVES[name].result == "bool" else dtype
    n, arity = a.numel(), PRIMITIVES[name].arity
    value = Op(name, tuple(Load(x, index("i"), dtype) for x in "ab"[:arity]), result)
    buffers = (*(Buffer(x, dtype, "in", index(n)) for x in "ab"[:arity]), Buffer("out", result, "out", index(n)))
    kernel = LoopKernel(name, buffers, (Nest((Axis("i", index(n)),), (Phase(stores=(Store("out", index("i"), value),)),)),))
    out = torch.zeros(n, dtype=torch_dtype(result))
    assert run(kernel, {"a": a, "b": b, "out": out}) == 0
    want = apply(name, [a, b][:arity], torch_dtype(result))
    torch.testing.assert_close(out, want, rtol=0, atol=0, equal_nan=True)
    if name in ("neg", "abs", "sign", "reciprocal"):
        assert torch.equal(torch.signbit(out)[~out.isnan()], torch.signbit(want)[~out.isnan()])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OWN)
def test_floats_like_eager(name: str, dtype: str) -> None:
    a = torch.tensor(FLOATS, dtype=torch_dtype(dtype))
    _compare(name, a.repeat_interleave(len(FLOATS)), a.repeat(len(FLOATS)), dtype)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
@pytest.mark.parametrize("name", ["floordiv", "mod", "truncdiv", "fmod", "max", "bitnot", "shl", "shr", "sign"])
def test_integers_like_eager(name: str, dtype: str) -> None:
    info = torch.iinfo(torch_dtype(dtype))
    values = sorted({info.min, info.min + 1, 0, 1, 2, 7, info.max} | ({-1, -7} if info.min else set()))
    a = torch.tensor(values, dtype=torch_dtype(dtype))
    b = torch.tensor([1, 2, 3, 7] if name in ("shl", "shr") or not info.min else [1, 2, 7, -2, -7], dtype=a.dtype)
    _compare(name, a.repeat_interleave(b.numel()), b.repeat(a.numel()), dtype)


@pytest.mark.parametrize("name", ["max", "min", "sum", "argmax", "argmin"])
@pytest.mark.parametrize("n", [1, 5, 23])
def test_reductions_of_special_values(name: str, n: int) -> None:
    names = ("r", "q") if name.startswith("arg") else ("r",)
    r = Reduction(names, name, Load("a", index("i") * n + "j", "float32"), "float32")
    outs = [Buffer("out", "float32", "out", index(3))] + ([Buffer("at", "int64", "out", index(3))] if len(names) == 2 else [])
    stores = tuple(Store(b.name, index("i"), Ref(x, b.dtype)) for b, x in zip(outs, names, strict=True))
    phases = (Phase((Axis("j", index(n)),), reductions=(r,)), Phase(stores=stores))
    kernel = LoopKernel(name, (Buffer("a", "float32", "in", index(3 * n)), *outs), (Nest((Axis("i", index(3)),), phases),))
    for special in (math.nan, math.inf, -math.inf):
        a = torch.randn(3, n, generator=torch.Generator().manual_seed(n))
        a[1, n // 2] = a[1, n - 1] = special
        a[2, :] = special
        out, at = torch.zeros(3), torch.zeros(3, dtype=torch.int64)
        run(kernel, {"a": a.reshape(-1), "out": out, "at": at})
        want = {"max": a.amax(1), "argmax": a.amax(1), "min": a.amin(1), "argmin": a.amin(1), "sum": a.sum(1)}[name]
        torch.testing.assert_close(out, want, equal_nan=True, rtol=1e-4, atol=1e-6)
        if name.startswith("arg"):
            assert torch.equal(at, getattr(a, name)(1))


@pytest.mark.parametrize("budget", [Budget(), Budget(processors=1, tile=4, longest=2, values=2)], ids=["whole", "loops"])
@pytest.mark.parametrize("n", [4, 8])
def test_sums_of_negative_zeros_are_zero(n: int, budget: Budget) -> None:
    row = (Axis("j", index(n)),)
    value = Load("a", index("i") * n + "j", "float32")
    summed = (
        Phase(row, reductions=(Reduction(("r",), "sum", value, "float32"),)),
        Phase(stores=(Store("out", index("i"), Ref("r", "float32")),)),
    )
    scanned = (
        Phase(row, scans=(Scan(("r",), "sum", (value,), "float32"),), stores=(Store("out", index("i") * n + "j", Ref("r", "float32")),)),
    )
    for phases, out in ((summed, torch.ones(3)), (scanned, torch.ones(3 * n))):
        buffers = (Buffer("a", "float32", "in", index(3 * n)), Buffer("out", "float32", "out", index(out.numel())))
        kernel = LoopKernel("zeros", buffers, (Nest((Axis("i", index(3)),), phases),))
        assert run(kernel, {"a": torch.full((3 * n,), -0.0), "out": out}, budget=budget) == 0
        assert torch.equal(out, torch.zeros_like(out)) and not torch.signbit(out).any()


@pytest.mark.parametrize("inside", [True, False])
def test_a_masked_load_at_one_place(inside: bool) -> None:
    condition = Op("lt", (Const(0, "int64"), Const(int(inside), "int64")), "bool")
    value = Load("a", index(0), "float32", condition, Const(7.0, "float32"))
    kernel = LoopKernel(
        "place",
        (Buffer("a", "float32", "in", index(1)), Buffer("out", "float32", "out", index(5))),
        (Nest((Axis("i", index(5)),), (Phase(stores=(Store("out", index("i"), value),)),)),),
    )
    out = torch.zeros(5)
    assert run(kernel, {"a": torch.tensor([2.0]), "out": out}) == 0
    assert torch.equal(out, torch.full((5,), 2.0 if inside else 7.0))


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_powers_of_integers_wrap_as_eager_s(dtype: str) -> None:
    base = torch.tensor([0, 1, 2, 3, 7, 10, 255, 3], dtype=torch.int64).to(torch_dtype(dtype))
    exponent = torch.tensor([0, 1, 2, 5, 63, 64, 100, 127], dtype=torch.int64).to(torch_dtype(dtype))
    _compare("pow", base.repeat_interleave(8), exponent.repeat(8), dtype)
