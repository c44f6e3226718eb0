"""Integers divided by constants, as Python divides."""

import itertools
import math

import torch

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Load, LoopKernel, Nest, Op, Phase, Store
from opmill_kernel_gen_cpp.debug import Runner

DTYPES = {
    "int64": (1, 2, 3, 7, 8, 1 << 40, -2, -5),
    "int32": (1, 2, 3, 8, 1 << 20, -2, -5),
    "int16": (2, 5, 64, -2),
    "int8": (2, 5, 64, -2),
    "uint8": (2, 5, 128),
}


def _values(dtype: str) -> torch.Tensor:
    limits = torch.iinfo(getattr(torch, dtype))
    ends = [limits.min + 1, limits.min + 2, limits.max - 1, limits.max]
    near = [n for n in range(-130, 130) if limits.min < n < limits.max]
    return torch.tensor(ends + near, dtype=getattr(torch, dtype))


def _kernel(dtype: str, name: str, divisor: int, n: int) -> LoopKernel:
    value = Op(name, (Load("x", index("i"), dtype), Const(divisor, dtype)), dtype)
    nest = Nest((Axis("i", index(n)),), (Phase(stores=(Store("out", index("i"), value),)),))
    buffers = (Buffer("x", dtype, "in", index(n)), Buffer("out", dtype, "out", index(n)))
    return LoopKernel(f"{name}_{dtype}_{divisor}".replace("-", "minus"), buffers, (nest,))


def test_divisions_by_constants(store) -> None:
    made = {
        (dtype, name, divisor): _kernel(dtype, name, divisor, len(_values(dtype)))
        for dtype, divisors in DTYPES.items()
        for name, divisor in itertools.product(("floordiv", "mod"), divisors)
    }
    runner = Runner(list(made.values()), store)
    for (dtype, name, divisor), kernel in made.items():
        x = _values(dtype)
        out = torch.empty_like(x)
        assert runner.run(kernel, {"x": x, "out": out}) == 0
        want = [n // divisor if name == "floordiv" else n % divisor for n in x.tolist()]
        assert out.tolist() == want, (dtype, name, divisor)


def _by_itself(dtype: str, name: str, n: int) -> LoopKernel:
    x = Load("x", index("i"), dtype)
    nest = Nest((Axis("i", index(n)),), (Phase(stores=(Store("out", index("i"), Op(name, (x, x), dtype)),)),))
    return LoopKernel(f"{name}_{dtype}_itself", (Buffer("x", dtype, "in", index(n)), Buffer("out", dtype, "out", index(n))), (nest,))


def test_divisions_by_the_same(store) -> None:
    """The compiler finds each lane to be a truth."""
    values = {dtype: _values(dtype) for dtype in DTYPES}
    made = {(d, name): _by_itself(d, name, len(values[d])) for d in DTYPES for name in ("floordiv", "truncdiv", "mod", "fmod")}
    runner = Runner(list(made.values()), store)
    for (dtype, name), kernel in made.items():
        out = torch.empty_like(values[dtype])
        assert runner.run(kernel, {"x": values[dtype], "out": out}) == 0
        assert out.tolist() == [int(name.endswith("div") and x != 0) for x in values[dtype].tolist()], (dtype, name)


def _of_floats(dtype: str, name: str, n: int) -> LoopKernel:
    value = Op(name, (Load("x", index("i"), dtype), Load("y", index("i"), dtype)), dtype)
    nest = Nest((Axis("i", index(n)),), (Phase(stores=(Store("out", index("i"), value),)),))
    buffers = (*(Buffer(b, dtype, "in", index(n)) for b in "xy"), Buffer("out", dtype, "out", index(n)))
    return LoopKernel(f"{name}_{dtype}", buffers, (nest,))


def _divided(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Dividends at and beside multiples of divisors, of few and of many bits, in vectors of one kind and in mixed ones."""
    of = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(512, generator=generator, dtype=of) * torch.exp(torch.randn(512, generator=generator, dtype=of) * 4)
    n = torch.exp(torch.linspace(0, 24 if dtype == "float32" else 50, 512, dtype=of)).floor()
    x = torch.cat([torch.nextafter(n * y, torch.tensor(end, dtype=of)) for end in (-torch.inf, 0.0, torch.inf)] + [n * y, y])
    y = torch.cat([y, y, y, y, n * y])
    special = torch.tensor(
        [0.0, -0.0, 1.0, -1.5, torch.inf, -torch.inf, torch.nan, torch.finfo(of).tiny / 8, torch.finfo(of).max], dtype=of
    )
    pairs = torch.cartesian_prod(special, special)
    return torch.cat([x, pairs[:, 0]]), torch.cat([y, pairs[:, 1]])


def _mod(x: float, y: float) -> float:
    m = math.fmod(x, y) if y and not math.isinf(x) else math.nan
    return m + y if m and (y < 0) != (m < 0) else m


def test_rests_of_floats_are_exact(store) -> None:
    made = {(d, name): _of_floats(d, name, len(_divided(d)[0])) for d in ("float32", "float64") for name in ("fmod", "mod", "floordiv")}
    runner = Runner(list(made.values()), store)
    for (dtype, name), kernel in made.items():
        x, y = _divided(dtype)
        out = torch.empty_like(x)
        assert runner.run(kernel, {"x": x, "y": y, "out": out}) == 0
        if name == "floordiv":
            want = torch.floor_divide(x, y)
        else:
            rest = _mod if name == "mod" else lambda x, y: math.fmod(x, y) if y and not math.isinf(x) else math.nan
            want = torch.tensor([rest(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], dtype=x.dtype)
        assert torch.equal(out.isnan(), want.isnan()), (dtype, name)
        known = ~want.isnan()
        assert torch.equal(out[known], want[known]), (dtype, name)
        assert torch.equal(torch.signbit(out[known]), torch.signbit(want[known])), (dtype, name)
