"""Every pointwise row on NaN, infinities, signed zeros, denormals and extreme integers, against eager; gradients of activations on them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("expecttest", reason="torch's operator database needs it")
sys.path.insert(0, str(Path(__file__).parent))  # what stands beside these tests, whatever import mode pytest runs in

from test_op_db import ops_by_name
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

NAN, INF = float("nan"), float("inf")
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.5,
    -2.5,
    3.5,
    NAN,
    INF,
    -INF,
    1e-40,
    -1e-40,
    1e-30,
    1e30,
    -1e30,
    88.5,
    -87.5,
    -104.0,
    0.49999997,
    1e10,
    20.5,
    -20.0,
    6.0,
]
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool)
ZEROS = ("fmax", "fmin", "nn.functional.relu", "nn.functional.relu6", "nn.functional.softshrink")
"""Which of two zeros these give is not specified; eager's vectors differ from its tails."""
ELSEWHERE = ("special.", "jiterator", "polygamma", "mvlgamma", "digamma", "igamma", "i0", "lcm", "gcd", "nn.functional.rrelu")
"""Functions with tests of their own, some of which eager computes for minutes; those that end the process on the least integer in eager."""
UFUNCS = {n: o for n, o in ops_by_name().items() if isinstance(o, (UnaryUfuncInfo, BinaryUfuncInfo)) and not n.startswith(ELSEWHERE)}


def values(dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if dtype.is_floating_point:
        return torch.tensor(FLOATS, dtype=torch.float64).to(dtype)
    info = torch.iinfo(dtype)
    some = [info.min, info.min + 1, 0, 1, 2, 3, 7, 63, 64, info.max - 1, info.max, *((-1, -2, -7, -64) if info.min else ())]
    return torch.tensor(sorted(set(some)), dtype=torch.int64).to(dtype)


def off(got: torch.Tensor, want: torch.Tensor, signs: bool) -> torch.Tensor:
    """Where a result is neither eager's nor within 16 epsilons of it (next to a root: two of one)."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.is_complex():
        return off(torch.view_as_real(got), torch.view_as_real(want), signs).any(-1)
    if not want.dtype.is_floating_point:
        return got != want
    kind = torch.finfo(want.dtype)
    close = (got == want) | (want.isfinite() & ((got - want).abs() <= 16 * kind.eps * want.abs() + 2 * kind.eps))
    signed = (want != 0) | (torch.signbit(got) == torch.signbit(want)) | (not signs)
    return ~((close & signed) | (got.isnan() & want.isnan()))


def traced(fn: Callable[..., Any], count: int) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"a{k}") for k in range(count)]
    graph.output(graph.call_function(lambda *xs: [fn(*xs)], tuple(nodes)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("name", sorted(UFUNCS))
def test_rows_on_special_values(name: str) -> None:
    op = UFUNCS[name]
    for dtype in DTYPES:
        if dtype not in op.dtypes:
            continue
        inputs = [values(dtype)]
        if isinstance(op, BinaryUfuncInfo):
            inputs = [t.reshape(-1).clone() for t in torch.meshgrid(inputs[0], inputs[0], indexing="ij")]
            if not dtype.is_floating_point and any(part in name for part in ("div", "remainder", "mod")):
                inputs = [t[inputs[1] != 0] for t in inputs]  # an error, tested elsewhere
        if name in ("fmod", "remainder") and dtype.is_floating_point:
            inputs = [t[inputs[1].abs() > 1e-30] for t in inputs]  # eager's vectors give NaN by denormal divisors
        try:
            want = op.op(*(t.clone() for t in inputs))
        except (RuntimeError, TypeError):
            continue
        if not isinstance(want, torch.Tensor):
            continue
        with torch.no_grad():
            captured = functionalize(traced(op.op, len(inputs)), [t.clone() for t in inputs])
            program = lower(captured)
            if any(isinstance(n, Extern) for n in program.nodes):
                continue
            [got] = run_lowered(program, [*inputs, *captured.held_tensors])
        wrong = off(got, want, name not in ZEROS)
        assert not wrong.any(), (dtype, [t[wrong][:5] for t in inputs], got[wrong][:5], want[wrong][:5])


F = torch.nn.functional
ACTIVATIONS: dict[str, Callable[..., torch.Tensor]] = {
    n: getattr(F, n)
    for n in "relu relu6 elu selu celu silu mish softplus hardswish hardsigmoid hardtanh leaky_relu logsigmoid softshrink hardshrink "
    "softsign".split()
} | {n: getattr(torch, n) for n in "exp log sqrt rsqrt sigmoid sin atan erf log1p expm1 abs reciprocal sinc".split()}


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_gradients_on_special_values(name: str) -> None:
    fn = ACTIVATIONS[name]
    x = (
        values(torch.float32)[:24].repeat(4).requires_grad_()
    )  # whole vectors of eager, of any width: what is left over it computes otherwise
    [want] = torch.autograd.grad(fn(x).sum(), x)
    program = lower(capture_joint(traced(fn, 1), [x]).graph)
    assert not any(isinstance(n, Extern) for n in program.nodes)
    got = run_lowered(program, [x.detach(), torch.ones(96)])[-1]
    wrong = off(got, want, False)
    assert not wrong.any(), (x[wrong], got[wrong], want[wrong])


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e30, 1e37])
def test_deviation_of_numbers_whose_squares_overflow(as_loops: Callable[..., list[Any]], scale: float) -> None:
    x = torch.randn(4, 50, generator=torch.Generator().manual_seed(2)) * scale
    for fn in (lambda x: x.std(-1), lambda x: x.var(0), lambda x: torch.std_mean(x, 1)):
        want = fn(x)
        for g, w in zip(as_loops(fn, x), want if isinstance(want, tuple) else (want,), strict=True):
            torch.testing.assert_close(g, w)


@pytest.mark.parametrize("name", ["add", "sub", "remainder", "fmod"])
def test_numbers_are_rounded_to_half_precision_where_eager_does(as_loops: Callable[..., list[Any]], name: str) -> None:
    x = torch.linspace(-9, 9, 200).bfloat16()
    fn = getattr(torch, name)
    [got] = as_loops(lambda x: fn(x, 0.7), x)
    assert torch.equal(got, fn(x, 0.7))


def test_a_view_that_is_stored_negated(as_loops: Callable[..., list[Any]]) -> None:
    x = torch.tensor([[1.0, -0.0, float("nan")]])
    torch.testing.assert_close(as_loops(lambda x: torch._neg_view(x).t() * 3, x)[0], -x.t() * 3, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_operands_of_half_precision_are_rounded_to_it_first(dtype: torch.dtype, as_loops: Callable[..., list[Any]]) -> None:
    """Where they are compared, or cancel, that decides the result."""
    x = torch.tensor([1.90625, 256.0, 4096.0], dtype=dtype)
    others = [
        torch.tensor(1.9075),
        torch.tensor([1.9075, 257.0, 4097.0]).double().long(),
        torch.tensor(4097),
        torch.tensor(1.9075, dtype=torch.float64),
    ]

    def fn(x: torch.Tensor, *others: torch.Tensor) -> list[torch.Tensor]:
        numbers = [x == 1.9075, x < 1.9075, x == 4097, x >= 257, x - 1.9075]
        return [*numbers, *(f for y in others for f in (x == y, y < x, x - y, torch.remainder(y, x)))]

    for got, want in zip(as_loops(fn, x, *others), fn(x, *others), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("value", [INF, NAN])
@pytest.mark.parametrize("smoothed", [False, True])
def test_an_infinite_point_reaches_only_what_it_is_part_of(mode: str, value: float, smoothed: bool) -> None:
    for place in ((3, 1), (16, 3), (7, 2)):  # none just where a filter ends
        x = torch.arange(68.0).reshape(1, 1, 17, 4)
        x[0, 0, place[0], place[1]] = value

        def fn(a: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(a, size=(5, 5), mode=mode, antialias=smoothed)

        lowered = lower(functionalize(traced(fn, 1), [x]))
        assert not any(isinstance(n, Extern) for n in lowered.nodes)
        assert not off(run_lowered(lowered, [x])[0], fn(x), False).any()


@pytest.mark.parametrize("order", [0, 0.5, 1, 2, 3, INF, -INF, -1])
def test_norms_of_single_elements(order: float, as_loops: Callable[..., list[Any]]) -> None:
    x = torch.tensor([[1e30, -1e-30, NAN, INF, -3.0]])

    def fn(a: torch.Tensor) -> list[torch.Tensor]:
        norm = torch.linalg.vector_norm
        return [norm(a, order, [0]), norm(a[:, :1], order), norm(a[:, 4:], order, [1], keepdim=True), norm(a[:, ::4] / 7, order, [0, 1])]

    for got, want in zip(as_loops(fn, x), fn(x), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)
