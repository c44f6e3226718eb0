"""Reads that go round, repeat and are looked up, and what is done in bits: compiled programs against eager, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_kernel_gen_cpp.generator import CppKernelGenerator
from opmill_runtime_cache.store import Store

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
AT = torch.randint(0, 40, (3, 70), generator=torch.Generator().manual_seed(2))
PLACES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "roll": lambda x: torch.roll(x, 3, -1), "roll back": lambda x: torch.roll(x, -39, -1), "roll both": lambda x: torch.roll(x, (5, 2), (-1, 0)),
    "roll flat": lambda x: torch.roll(x, 17), "circular": lambda x: F.pad(x[None], (7, 4), mode="circular"),
    "each twice": lambda x: F.interpolate(x[None], scale_factor=2), "each thrice": lambda x: F.interpolate(x[None, None], (3 * x.shape[0], 120)),
    "uneven": lambda x: F.interpolate(x[None], 61), "exact": lambda x: F.interpolate(x[None], 80, mode="nearest-exact"),
    "half": lambda x: F.interpolate(x[None], 20), "runs": lambda x: x[:, :2].repeat_interleave(37, 1), "gathered": lambda x: x.gather(1, AT),
    "rows and columns": lambda x: x[AT % 3, AT], "selected": lambda x: x.index_select(1, AT[0]),
}  # fmt: skip
BITS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "neg": lambda x, y: -x, "abs": lambda x, y: x.abs(), "copysign": torch.copysign, "of one": lambda x, y: torch.copysign(x, y[0, 0]),
    "turned": lambda x, y: -torch.copysign(x.abs(), y),
}  # fmt: skip
ODD = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-45, 1.0, -3.4028235e38, 1.1754944e-38, 2e-38, -2.5, 65504.0]


def run(fn: Callable[..., Any], inputs: list[torch.Tensor], store: Store) -> torch.Tensor:
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"a{k}") for k in range(len(inputs))]
    graph.output([graph.call_function(fn, tuple(nodes))])
    gm = torch.fx.GraphModule(torch.nn.Module(), graph)
    with torch.no_grad():
        compiled = compile_graph(gm, inputs, options=GraphOptions(cache=False), store=store, generators=[CppKernelGenerator()])
        [out] = compiled(*inputs)
    return out


def odd_pairs(dtype: torch.dtype) -> list[torch.Tensor]:
    odd = torch.tensor(ODD, dtype=torch.float64).to(dtype)
    return [odd[:, None].repeat(1, len(ODD)), odd[None].repeat(len(ODD), 1)]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("name", PLACES)
def test_places(name: str, dtype: torch.dtype, store: Store) -> None:
    if not dtype.is_floating_point and PLACES[name](torch.zeros(3, 40)).dim() > 2 and name != "circular" and dtype != torch.uint8:
        pytest.skip("images are of floats or bytes")
    x = (torch.randn(3, 40, generator=torch.Generator().manual_seed(1)) * 9).to(dtype)
    assert torch.equal(run(PLACES[name], [x], store), PLACES[name](x))


@pytest.mark.parametrize("sizes", [(9, 100), (9, 320), (3, 37)], ids=str)
def test_gradients_of_windows(sizes: tuple[int, int], store: Store) -> None:
    x = torch.randn(1, *sizes, generator=torch.Generator().manual_seed(3))
    out = F.adaptive_avg_pool2d(x, (3, sizes[1] // 20 or 1))
    call = torch.ops.aten._adaptive_avg_pool2d_backward
    torch.testing.assert_close(run(call, [out, x], store), call(out, x))
    for size, step in ((16, 8), (5, 3), (3, 7), (6, 6)):
        grad = x[0].unfold(-1, size, step).contiguous()
        back = lambda g, size=size, step=step: torch.ops.aten.unfold_backward(g, sizes, -1, size, step)
        torch.testing.assert_close(run(back, [grad], store), back(grad))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BITS)
def test_signs(name: str, dtype: torch.dtype, store: Store) -> None:
    pair = odd_pairs(dtype)
    found, wanted = run(BITS[name], pair, store), BITS[name](*pair)
    assert torch.equal(found.isnan(), wanted.isnan()) and torch.equal(found.signbit()[~found.isnan()], wanted.signbit()[~found.isnan()])
    assert torch.equal(found.nan_to_num(), wanted.nan_to_num())


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_next_numbers(dtype: torch.dtype, store: Store) -> None:
    pair = odd_pairs(dtype)
    found, wanted = run(torch.nextafter, pair, store), torch.nextafter(*pair)
    assert torch.equal(found.nan_to_num(), wanted.nan_to_num()) and torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found.signbit()[~found.isnan()], wanted.signbit()[~found.isnan()])


def test_exponentials_of_what_is_masked(store: Store) -> None:
    x = torch.cat(
        [torch.linspace(-110, 90, 4001), torch.tensor([-torch.inf, torch.inf, torch.nan, -1e30, 1e30, -0.0, -103.97, -103.98, -1e9])]
    )
    found, exact = run(torch.exp, [x], store), x.double().exp()
    assert torch.equal(found.isnan(), exact.isnan())
    ulp = exact.float().abs().clamp(min=2.0**-126).double() * 2.0**-23
    inside = exact.float().isfinite()
    assert ((found.double() - exact).abs()[inside] <= 1.5 * ulp[inside]).all()
    assert torch.equal(found == torch.inf, exact.float() == torch.inf)
