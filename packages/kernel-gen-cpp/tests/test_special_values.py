"""Primitives on NaN, infinities, signed zeros, denormals and extreme integers, against torch eager; and accuracy of own functions."""

import math

import pytest
import torch

from opmill_graph_ir.loops.arithmetic import apply, torch_dtype
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Scan, Store
from opmill_graph_ir.loops.primitives import PRIMITIVES
from opmill_kernel_gen_cpp.claim import refusal
from opmill_kernel_gen_cpp.debug import Runner

NAN, INF = math.nan, math.inf
FLOAT_VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, NAN, INF, -INF, 1e-40, -1e-40, 1e30, -1e30, 88.5, -87.5, 100.0, 0.49999997, 1e10]
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
COUNT = 23  # two vectors and a tail


def _values(dtype: str) -> list:
    if dtype == "bool":
        return [False, True]
    if dtype in INTEGERS:
        info = torch.iinfo(getattr(torch, dtype))
        return sorted({info.min, info.min + 1, 0, 1, 2, 7, info.max - 1, info.max} | ({-1, -2, -7} if info.min else set()))
    return FLOAT_VALUES


def _pairs(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    values = _values(dtype)
    a = torch.tensor(values, dtype=getattr(torch, dtype))
    return a.repeat_interleave(len(values)).contiguous(), a.repeat(len(values)).contiguous()


def _kernel(name: str, dtype: str, arity: int, n: int, result: str) -> LoopKernel:
    args = tuple(Load(x, index("i"), dtype) for x in "ab"[:arity])
    value = Op(name, args, result)
    buffers = [Buffer(x, dtype, "in", index(n)) for x in "ab"[:arity]]
    store = Store("out", index("i"), value)
    return LoopKernel(
        f"{name}_{dtype}", (*buffers, Buffer("out", result, "out", index(n))), (Nest((Axis("i", index(n)),), (Phase(stores=(store,)),)),)
    )


# Undefined in C and left to the hardware by torch, or a matter of the library's accuracy at its borders.
_SKIP_INT = {"floordiv", "truncdiv", "mod", "fmod", "pow"}
_SKIP = {"fma", "where", "cast", "bitcast", "erfinv", "digamma", "lgamma", "nextafter"}


def _table() -> dict[str, tuple[LoopKernel, torch.Tensor]]:
    out = {}
    for name, row in PRIMITIVES.items():
        for dtype in ("float32", "float64", *INTEGERS, "bool"):
            result = "bool" if row.result == "bool" else dtype
            if name in _SKIP or (dtype not in ("float32", "float64") and name in _SKIP_INT):
                continue
            if dtype not in ("float32", "float64") and (row.floats_only or name in ("abs", "neg", "shl", "shr", "sign")):
                continue
            if dtype == "bool" and name in ("isnan", "isinf", "signbit"):
                continue
            a, b = _pairs(dtype)
            if name in ("fmod", "mod"):  # eager's vectors give NaN by denormal divisors
                b[(b.abs() < 1e-30) & (b != 0)] = 3.0
            kernel = _kernel(name, dtype, row.arity, a.numel(), result)
            if refusal(kernel) is None:
                args = [a, b][: row.arity]
                out[kernel.name] = (kernel, apply(name, args, torch_dtype(result)))
    return out


TABLE = _table()


@pytest.fixture(scope="module")
def runner(store) -> Runner:
    return Runner([k for k, _ in TABLE.values()] + [ACCURACY[n] for n in ACCURACY] + [*REDUCERS.values(), *SCANNERS.values()], store)


def _agrees(name: str, got: torch.Tensor, want: torch.Tensor) -> bool:
    if not got.dtype.is_floating_point:
        return torch.equal(got, want)
    eps = torch.finfo(got.dtype).eps
    close = (got == want) | (got.isnan() & want.isnan()) | ((got - want).abs() <= 16 * eps * want.abs() + torch.finfo(got.dtype).tiny)
    signs = torch.equal(torch.signbit(got[(want == 0) & (got == 0)]), torch.signbit(want[(want == 0) & (got == 0)]))
    loose = name.split("_")[0] in (
        "max",
        "min",
        "fmax",
        "fmin",
        "mod",
        "floordiv",
        "erfc",
    )  # which zero is unspecified, eager's lanes differ
    return bool(close.all()) and (signs or loose)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_like_eager(runner: Runner, name: str) -> None:
    kernel, want = TABLE[name]
    a, b = _pairs(kernel.buffers[0].dtype)
    if name.split("_")[0] in ("fmod", "mod"):
        b[(b.abs() < 1e-30) & (b != 0)] = 3.0
    out = torch.zeros_like(want)
    runner.run(kernel, {"a": a, "b": b, "out": out})
    wrong = (out != want) & ~(out.isnan() & want.isnan())
    assert _agrees(name, out, want), (a[wrong][:6], b[wrong][:6], out[wrong][:6], want[wrong][:6])


_BOUNDS = {"exp": 1.5, "sigmoid": 3.0, "tanh": 6.0, "erf": 2.0, "log": 1.1, "sin": 1.1, "cos": 1.1, "tan": 2.5, "atan": 1.5, "erfc": 4.0}
_BOUNDS |= {"expm1": 1.5, "log1p": 1.5}
ACCURACY = {f: _kernel(f, "float32", 1, 200_003, "float32") for f in _BOUNDS}
_RANGES = {
    "log": [(1e-45, 1e-37), (1e-3, 3), (1e-3, 1e3), (1e30, 3e38)],
    "log1p": [(-0.99, 100)],
    "exp": [(-87, 88)],
    "sigmoid": [(-87, 87)],
    "expm1": [(-80, 80)],
    "erfc": [(-9, 1), (1, 9)],
    **dict.fromkeys(["sin", "cos", "tan"], [(-9, 9), (-3000, 3000), (-7e4, 7e4), (-1e20, 1e20)]),
}
_CASES = [(name, *bounds) for name in sorted(ACCURACY) for bounds in _RANGES.get(name, [(-9, 9)])]


@pytest.mark.parametrize(("name", "low", "high"), _CASES)
def test_accuracy_in_ulp(runner: Runner, name: str, low: float, high: float) -> None:
    a = torch.linspace(low, high, 200_003, dtype=torch.float64).float()
    out = torch.empty_like(a)
    runner.run(ACCURACY[name], {"a": a, "out": out})
    exact = getattr(torch, name)(a.double())
    ulp = torch.exp2(torch.floor(torch.log2(exact.abs().clamp_min(2.0**-126)))) * 2.0**-23
    assert float(((out.double() - exact).abs() / ulp).max()) <= _BOUNDS[name]


def _reducer(name: str, n: int) -> LoopKernel:
    names = ("r", "q") if name.startswith("arg") else ("r",)
    r = Reduction(names, name, Load("a", index("i") * n + "j", "float32"), "float32")
    outs = [Buffer("out", "float32", "out", index(3))] + ([Buffer("at", "int64", "out", index(3))] if len(names) == 2 else [])
    stores = tuple(Store(b.name, index("i"), Ref(x, b.dtype)) for b, x in zip(outs, names, strict=True))
    phases = (Phase((Axis("j", index(n)),), reductions=(r,)), Phase(stores=stores))
    return LoopKernel(f"{name}{n}", (Buffer("a", "float32", "in", index(3 * n)), *outs), (Nest((Axis("i", index(3)),), phases),))


REDUCERS = {
    f"{name}{n}": _reducer(name, n)
    for name in ("max", "min", "sum", "prod", "argmax", "argmin")
    for n in (1, 5, 8, 23, 200)
    if name != "prod" or n < 9  # products of many underflow, in an order of their own
}


@pytest.mark.parametrize("name", sorted(REDUCERS))
def test_reductions_of_special_values(runner: Runner, name: str) -> None:
    kernel = REDUCERS[name]
    n = kernel.buffers[0].numel.constant // 3
    for special in (NAN, INF, -INF, -0.0):
        for place in {0, n // 2, n - 1}:
            a = torch.randn(3, n, generator=torch.Generator().manual_seed(n))
            a[1, place] = a[1, n - 1] = special
            a[2, :] = special
            out, at = torch.zeros(3), torch.zeros(3, dtype=torch.int64)
            runner.run(kernel, {"a": a.reshape(-1), "out": out, "at": at})
            short = name.rstrip("0123456789")
            want = {"max": a.amax(1), "min": a.amin(1), "sum": a.sum(1), "prod": a.prod(1), "argmax": a.amax(1), "argmin": a.amin(1)}[short]
            torch.testing.assert_close(out, want, equal_nan=True, rtol=1e-4, atol=1e-6)
            if short.startswith("arg"):
                assert torch.equal(at, getattr(a, short)(1))


SCANS = ("sum", "prod", "logaddexp", "argmax", "argmin")
EAGER = {"sum": torch.cumsum, "prod": torch.cumprod, "logaddexp": torch.logcumsumexp, "argmax": torch.cummax, "argmin": torch.cummin}


def _scanner(name: str, n: int, along_rows: bool) -> LoopKernel:
    """Ten scans of ``n`` points, next to each other or one after the other."""
    at = index("i") * n + "j" if along_rows else index("j") * 10 + "i"
    names = ("r", "q") if name.startswith("arg") else ("r",)
    outs = [Buffer("out", "float32", "out", index(10 * n))] + ([Buffer("at", "int64", "out", index(10 * n))] if len(names) == 2 else [])
    stores = tuple(Store(b.name, at, Ref(x, b.dtype)) for b, x in zip(outs, names, strict=True))
    phase = Phase((Axis("j", index(n)),), stores=stores, scans=(Scan(names, name, (Load("a", at, "float32"),), "float32"),))
    return LoopKernel(f"scan_{name}{n}", (Buffer("a", "float32", "in", index(10 * n)), *outs), (Nest((Axis("i", index(10)),), (phase,)),))


SCANNERS = {(name, n, rows): _scanner(name, n, rows) for name in SCANS for n in (2, 8, 21) for rows in (True, False)}


@pytest.mark.parametrize("key", sorted(SCANNERS), ids=str)
def test_scans_of_special_values(runner: Runner, key: tuple[str, int, bool]) -> None:
    name, n, rows = key
    generator = torch.Generator().manual_seed(n)
    for special in (NAN, INF, -INF, -0.0):
        a = torch.randint(-2, 3, (10, n), generator=generator).float()  # equal values are many
        a[1, 0] = a[2, n // 2] = a[3, n - 1] = a[4, 0] = a[4, n - 1] = special
        a[5, :] = special
        memory = (a if rows else a.t()).contiguous()
        out, at = torch.zeros_like(memory), torch.zeros(memory.shape, dtype=torch.int64)
        runner.run(SCANNERS[key], {"a": memory, "out": out, "at": at})
        want = EAGER[name](a, -1)
        values, places = want if name.startswith("arg") else (want, None)
        torch.testing.assert_close(out if rows else out.t(), values, equal_nan=True, rtol=1e-5, atol=1e-6)
        assert places is None or torch.equal(at if rows else at.t(), places)


def test_constants_are_exact(store) -> None:
    values = [0.1, -0.0, NAN, INF, -INF, 1e-45, 3.4028235e38, 1e39, 2**-149, 0.7071067811865476]
    stores = tuple(Store("out", index(k), Const(v, "float32")) for k, v in enumerate(values))
    wide = tuple(Store("wide", index(k), Const(v, "float64")) for k, v in enumerate(values))
    ints = tuple(Store("ints", index(k), Const(v, "int64")) for k, v in enumerate([-(2**63), 2**63 - 1, 2**31]))
    buffers = (
        Buffer("out", "float32", "out", index(10)),
        Buffer("wide", "float64", "out", index(10)),
        Buffer("ints", "int64", "out", index(3)),
    )
    kernel = LoopKernel("constants", buffers, (Nest((), (Phase(stores=stores + wide + ints),)),))
    got = {"out": torch.zeros(10), "wide": torch.zeros(10, dtype=torch.float64), "ints": torch.zeros(3, dtype=torch.int64)}
    Runner([kernel], store).run(kernel, got)
    want = torch.tensor(values, dtype=torch.float64)
    assert torch.equal(got["wide"].view(torch.int64)[3:], want.view(torch.int64)[3:])
    assert torch.equal(got["out"].nan_to_num(7.0), want.float().nan_to_num(7.0))
    assert bool(torch.signbit(got["out"][1]))
    assert got["ints"].tolist() == [-(2**63), 2**63 - 1, 2**31]


def test_no_trap_on_integer_division_by_zero(store) -> None:
    kernels = [_kernel(n, d, 2, COUNT, d) for n in ("floordiv", "truncdiv", "mod", "fmod") for d in ("int32", "int64", "int8")]
    runner = Runner(kernels, store)
    for k in kernels:
        dtype = getattr(torch, k.buffers[0].dtype)
        least = torch.iinfo(dtype).min
        a, b = torch.full((COUNT,), least, dtype=dtype), torch.tensor([0, -1, 3] * 8, dtype=dtype)[:COUNT].clone()
        out = torch.zeros(COUNT, dtype=dtype)
        assert runner.run(k, {"a": a, "b": b, "out": out}) == 0
        third = {"floordiv": least // 3, "truncdiv": -(-least // 3), "mod": least % 3, "fmod": -(-least % 3)}[k.name.split("_")[0]]
        assert out[2].item() == third


@pytest.mark.parametrize("name", ["neg", "abs"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_negative_constants_can_be_negated(store, dtype, name) -> None:
    value = Const(-1.5 if dtype.startswith("float") else -3, dtype)
    stores = (Store("out", index("i"), Op(name, (value,), dtype)),)
    kernel = LoopKernel("negate", (Buffer("out", dtype, "out", index(9)),), (Nest((Axis("i", index(9)),), (Phase(stores=stores),)),))
    out = {"out": torch.zeros(9, dtype=getattr(torch, dtype))}
    assert Runner([kernel], store).run(kernel, out) == 0
    assert out["out"].tolist() == [-value.value] * 9
