"""Programs on floats of one byte: quantised weights and activations, moved about and converted, as eager has them to the bit."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import opmill
from opmill.explain import explanation_of

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"))]


def _quantised(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / torch.finfo(dtype).max
    return (x / scale).to(dtype), scale


PROGRAMS: dict[str, Callable[..., object]] = {
    "to": lambda x, q: (x.to(q.dtype), (x * 1e4).to(q.dtype), q.float(), q.to(torch.bfloat16), q.double(), q.to(torch.int32), q.bool()),
    "from others": lambda x, q: (x.double().to(q.dtype), x.half().to(q.dtype), (x * 3).to(torch.int64).to(q.dtype), (x > 0).to(q.dtype)),
    "quantised rows": lambda x, q: _quantised(x, q.dtype),
    "round trip": lambda x, q: (x.to(q.dtype).float() - x).abs().sum(-1),
    "weights": lambda x, q: F.linear(x, q.to(torch.float32) * 0.5, None).relu(),
    "joined": lambda x, q: (torch.cat([q, x.to(q.dtype)]), torch.stack([q, q.flip(0)], 1)),
    "padded": lambda x, q: (F.pad(q, (1, 2)), F.pad(q, (1, -1), value=3.3)),
    "chosen": lambda x, q: torch.where(x > 0, q, q.flip(0)),
    "views": lambda x, q: (q.t(), q[1:, ::2].contiguous(), q.reshape(-1, 2).clone(), q.unfold(1, 3, 2).clone(), q.expand(2, 4, 6).clone()),
    "gathered": lambda x, q: (q[torch.tensor([2, -1])], q.index_select(1, torch.tensor([0, 5])), F.embedding(torch.tensor([1, 3]), q)),
    "made": lambda x, q: (torch.full((3, 2), 2.7, dtype=q.dtype), torch.zeros_like(q), q.new_ones(4)),
    "bits": lambda x, q: (q.view(torch.uint8) + 1, q.view(torch.uint8).view(q.dtype).float()),
    "compared": lambda x, q: (q == q.flip(0), q.isnan(), q == 1.0),
    "written": lambda x, q: _written(x, q),
    "repeated": lambda x, q: (q.repeat(2, 3), torch.tile(q, (2, 1)), q.permute(1, 0).contiguous()),
}


def _written(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    cache = torch.zeros(8, 6, dtype=q.dtype)
    cache[2:6] = x
    cache[:2].copy_(q[:2])
    cache[7].fill_(0.3)
    cache[torch.tensor([6, 0])] = x[:2].to(q.dtype)
    return cache


def _same(got: object, want: object) -> None:
    if isinstance(want, tuple):
        assert isinstance(got, tuple) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            _same(g, w)
        return
    assert isinstance(got, torch.Tensor) and isinstance(want, torch.Tensor)
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    if want.itemsize == 1 and want.is_floating_point():
        torch.testing.assert_close(got.float(), want.float(), rtol=0, atol=0, equal_nan=True)
    else:
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str, dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    x, q = torch.randn(4, 6) * 3, torch.randn(4, 6).to(dtype)
    x[0, 0], x[1, 1], x[2, 2] = float("nan"), float("inf"), -0.0
    x, q, program = x.to(device), q.to(device), PROGRAMS[name]
    with torch.device(device):
        _same(opmill.compile(program, fullgraph=True)(x.clone(), q.clone()), program(x.clone(), q.clone()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_every_half_and_every_code(half: torch.dtype, dtype: torch.dtype, device: str) -> None:
    def both(x: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.to(dtype), q.to(half), q.float()

    x = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(half).to(device)
    q = torch.arange(256, dtype=torch.uint8).view(dtype).to(device)
    _same(opmill.compile(both)(x, q), both(x, q))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_gradients_are_rounded_as_in_eager(dtype: torch.dtype, device: str) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (F.linear(x.to(dtype).to(x.dtype), w.to(dtype).to(w.dtype)) ** 2).mean()

    torch.manual_seed(0)
    tensors = [torch.randn(5, 8, device=device), torch.randn(3, 8, device=device)]
    eager, ours = ([t.clone().requires_grad_() for t in tensors] for _ in range(2))
    want, got = loss(*eager), opmill.compile(loss, fullgraph=True)(*ours)
    want.backward()
    got.backward()
    torch.testing.assert_close(got, want)
    for g, w in zip(ours, eager, strict=True):
        torch.testing.assert_close(g.grad, w.grad)


def test_what_eager_refuses_is_refused() -> None:
    q = torch.ones(4).to(torch.float8_e4m3fn)
    for wrong in (lambda q: q + q, lambda q: q.relu(), lambda q: torch.cat([q, q.to(torch.float8_e5m2)])):
        with pytest.raises((RuntimeError, NotImplementedError)):
            wrong(q)
        with pytest.raises((RuntimeError, NotImplementedError)):
            opmill.compile(wrong)(q)


@pytest.mark.parametrize("device", DEVICES)
def test_conversions_are_loops_of_the_program(device: str) -> None:
    def dequantised(x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (q.to(torch.float32) * scale + x).relu().to(torch.float8_e4m3fn)

    x, q, scale = (t.to(device) for t in (torch.randn(64, 64), torch.randn(64, 64).to(torch.float8_e4m3fn), torch.rand(64, 1)))
    compiled = opmill.compile(dequantised)
    _same(compiled(x, q, scale), dequantised(x, q, scale))
    told = explanation_of(compiled)
    assert [(g.report.kernels, g.report.calls) for g in told.graphs] == [(1, 0)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8, *FLOAT8], ids=str)
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.new_full((2,), 1e9),
        lambda x: torch.full_like(x, -1e9),
        lambda x: x.clone().fill_(1e9),
        lambda x: F.pad(x, (1, 1), value=1e9),
        lambda x: x.masked_fill(x.float() > 0, -1e9),
        lambda x: x.index_fill(0, torch.tensor([0]), 1e9),
        lambda x: x.scatter(0, torch.tensor([0]), 1e9),
        lambda x: x.clamp(max=1e9),
        lambda x: x + 1e9,
        lambda x: x > 1e9,
        lambda x: x.to(torch.complex64) * 1e9,
        lambda x: torch.renorm(x.to(torch.complex64)[:, None], 2, 0, 1000),
    ],
)
def test_numbers_that_do_not_fit_are_refused_as_in_eager(program: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> None:
    x = torch.ones(3).to(dtype)
    try:
        want = program(x)
    except (RuntimeError, NotImplementedError):
        with pytest.raises((RuntimeError, NotImplementedError)):
            opmill.compile(program)(x)
    else:
        _same(opmill.compile(program)(x), want)
