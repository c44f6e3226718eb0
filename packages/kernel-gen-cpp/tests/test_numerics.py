"""Rounding of compiled programs: eager's bits with ``numerics="eager"``, and errors no larger than three times eager's without."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_kernel_gen_cpp.generator import CppKernelGenerator
from opmill_runtime_cache.store import Store

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
UNARY: dict[str, Callable[..., torch.Tensor]] = {
    "neg": torch.neg, "abs": torch.abs, "relu": torch.relu, "floor": torch.floor, "double": lambda x: x * 2.7, "less": lambda x: x - 0.3,
    "third": lambda x: x / 3, "clamp": lambda x: x.clamp(-1.5, 2.5), "sign": torch.sign, "turn": lambda x: x.flip(0), "t": lambda x: x.t().contiguous().t(),
    "float": lambda x: x.float().to(x.dtype), "half": lambda x: x.to(torch.bfloat16).to(x.dtype), "root": lambda x: x.abs().sqrt(),
    "inverse": torch.reciprocal, "tanh": torch.tanh, "sum": lambda x: x.cumsum(0), "norm": lambda x: x.softmax(1),
}  # fmt: skip
BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "max": torch.maximum, "min": torch.minimum,
    "where": lambda x, y: torch.where(x > y, y, x * 2), "scaled": lambda x, y: x + 0.7 * y,
}  # fmt: skip
SMOOTH: dict[str, Callable[..., torch.Tensor]] = {
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "exp": lambda x: (x.clamp(-4, 4)).exp(), "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu, "softmax": lambda x: x.softmax(-1), "norm": lambda x: torch.nn.functional.layer_norm(x, (x.shape[-1],)),
    "sum": lambda x: x.sum(0, keepdim=True) + x, "cumsum": lambda x: x.cumsum(1), "log": lambda x: (x * x + 1).log(),
}  # fmt: skip


def program(seed: int, unary: dict[str, Callable[..., torch.Tensor]]) -> Callable[..., list[torch.Tensor]]:
    """A random chain of operators over two tensors."""
    r = random.Random(seed)
    steps = [(r.choice([*unary, *BINARY]), r.random(), r.random()) for _ in range(r.randint(3, 10))]

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        values = list(inputs)
        for name, a, b in steps:
            x, y = values[int(a * len(values))], values[int(b * len(values))]
            values.append(unary[name](x) if name in unary else BINARY[name](x, y))
        return values[len(inputs) :][-3:]

    return run


def compiled(fn: Callable[..., Any], inputs: list[torch.Tensor], store: Store, numerics: Any) -> list[torch.Tensor]:
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"a{k}") for k in range(len(inputs))]
    graph.output(graph.call_function(fn, tuple(nodes)))
    gm = torch.fx.GraphModule(torch.nn.Module(), graph)
    options = GraphOptions(numerics=numerics, cache=False)
    return list(compile_graph(gm, inputs, options=options, store=store, generators=[CppKernelGenerator()])(*inputs))


def bits(t: torch.Tensor) -> torch.Tensor:
    plain = torch.where(t.isnan(), torch.nan, t).contiguous()
    return plain.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()])


def inputs_of(seed: int, dtype: torch.dtype, special: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(19, 23, generator=generator, dtype=torch.float64) * 2 for _ in range(2)]
    if special:
        for t in tensors:
            odd = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, 6e4, 1e-7])
            t.view(-1)[torch.randint(0, t.numel(), (60,), generator=generator)] = odd[
                torch.randint(0, 8, (60,), generator=generator)
            ].double()
    return [t.to(dtype) for t in tensors]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_bits_of_eager(store: Store, seed: int, dtype: torch.dtype) -> None:
    fn, inputs = program(seed, UNARY), inputs_of(seed, dtype, special=True)
    with torch.no_grad():
        got, want = compiled(fn, inputs, store, "eager"), fn(*inputs)
    for g, w in zip(got, want, strict=True):
        assert torch.equal(bits(g), bits(w)), (g[bits(g) != bits(w)][:5], w[bits(g) != bits(w)][:5])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_errors_by_default(store: Store, seed: int, dtype: torch.dtype) -> None:
    """Against the same program in float64: at most three times eager's own error, or an epsilon of the largest value."""
    smooth = {**SMOOTH, **{n: UNARY[n] for n in ("neg", "abs", "double", "less", "third")}}
    fn, inputs = program(seed, smooth), inputs_of(seed, dtype, special=False)
    with torch.no_grad():
        got, want, exact = compiled(fn, inputs, store, "default"), fn(*inputs), fn(*(t.double() for t in inputs))
    for g, w, e in zip(got, want, exact, strict=True):
        if not e.isfinite().all() or not w.isfinite().all():
            continue
        ours, theirs = ((t.double() - e).abs().max() for t in (g, w))
        assert ours <= 3 * theirs + 2 * torch.finfo(dtype).eps * e.abs().max(), (float(ours), float(theirs))


def test_gelu_far_out(store: Store) -> None:
    """There 1 + erf(x) is a few units of erf's last place: as near as eager in every band, though nothing of it shows in the largest
    value."""
    x = torch.linspace(-6, 6, 120_001)
    [got] = compiled(lambda x: (torch.nn.functional.gelu(x),), [x], store, "default")
    want, exact = torch.nn.functional.gelu(x), torch.nn.functional.gelu(x.double())
    for low in (-6, -5, -4.5, -4, -3, -2, -1, 1, 3):
        band = (x >= low) & (x < low + 1)
        ours, theirs = ((t.double() - exact).abs()[band].max() for t in (got, want))
        assert ours <= 2 * theirs, (low, float(ours), float(theirs))


def test_tanh_is_right_to_its_last_place(store: Store) -> None:
    x = torch.cat(
        [
            torch.linspace(-12, 12, 240_001),
            torch.randn(10_000) * 1e-3,
            torch.tensor([9.02, 20.0, 1e30, torch.inf, -torch.inf, 0.0, -0.0, 1e-45, torch.nan]),
        ]
    )
    [got] = compiled(lambda x: (torch.tanh(x),), [x], store, "default")
    exact = torch.tanh(x.double())
    place = (torch.nextafter(exact.float().abs(), torch.tensor(torch.inf)) - exact.float().abs()).double()
    assert bool((((got.double() - exact).abs() <= place) | exact.isnan()).all())
    assert bool((got[x.abs() > 9.02].abs() == 1).all())
    assert torch.equal(got.isnan(), x.isnan())
    assert torch.equal(got.signbit()[:-1], x.signbit()[:-1])


FAR_OUT: dict[str, Callable[..., torch.Tensor]] = {
    "gelu": torch.nn.functional.gelu,
    "gelu of tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "written out": lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "silu": torch.nn.functional.silu,
    "mish": torch.nn.functional.mish,
    "softplus": torch.nn.functional.softplus,
    "logsigmoid": torch.nn.functional.logsigmoid,
    "tanhshrink": torch.nn.functional.tanhshrink,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
}


@pytest.mark.parametrize("name", FAR_OUT)
def test_gradients_far_out(store: Store, name: str) -> None:
    """Where a function ends flat, its gradient lives from what is missing to the end, times as much as x^3: nothing of tanh's last places
    may be wrong."""
    fn = FAR_OUT[name]
    at = torch.tensor([0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 88, 100, 274, 1000, 1e5, 1e10])
    x = torch.cat([at, -at])

    def gradient(run: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(run(x).sum(), x)[0].double()

    eager, exact = gradient(fn, x), gradient(fn, x.double())
    ours = gradient(lambda x: compiled(lambda x: (fn(x),), [x], store, "default")[0], x)
    known = exact.isfinite() & eager.isfinite()
    assert bool(((ours - exact).abs() <= 4 * (eager - exact).abs() + 2e-7 * exact.abs() + 1e-7)[known].all()), (
        (ours - exact)[known].abs().max()
    )
