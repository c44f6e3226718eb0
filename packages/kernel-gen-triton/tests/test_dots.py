"""Matrix products as kernels of their own: what they are fused with, what they are right to, what is left to torch."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.text import parse
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.planning import products
from opmill_kernel_gen_triton.budget import DEFAULT, smaller
from opmill_kernel_gen_triton.debug import InterpretedKernels, as_for_gpu, disagreement
from opmill_kernel_gen_triton.dots.match import dot_of
from opmill_kernel_gen_triton.dots.shape import OF_FLOATS, SHAPES
from opmill_kernel_gen_triton.kernel import kernel_text
from opmill_runtime_cache.plan.model import Call, Launch, Plan

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
F = torch.nn.functional
MEASURED = GraphOptions(verify=True, cache=False, measure=True)


@pytest.fixture(autouse=True)
def _fewer_steps_are_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for a clock on a device."""
    monkeypatch.setattr(InterpretedKernels, "seconds", lambda *_: [], raising=False)
    monkeypatch.setattr(products.Clock, "__call__", lambda self, steps, program: float(len(steps)))


def compiled(fn: Callable[..., Any], inputs: list[torch.Tensor], options: GraphOptions = MEASURED) -> tuple[Any, Plan]:
    with torch.no_grad():
        run, plan, _ = as_for_gpu(torch.fx.symbolic_trace(fn), inputs, options=options)
        return run(*inputs), plan


def compare(fn: Callable[..., Any], inputs: list[torch.Tensor]) -> Plan:
    """The results are at most three times as far from float64 as eager's."""
    results, plan = compiled(fn, inputs)
    eager, exact = fn(*inputs), fn(*(x.double() for x in inputs))
    for got, want, right in zip(results, eager, exact, strict=True):
        assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
        assert (got - right).abs().max() <= 3 * (want - right).abs().max() + torch.finfo(got.dtype).eps * right.abs().max()
    return plan


def steps(plan: Plan) -> tuple[int, list[str]]:
    """How many kernels are launched, and what is called."""
    return sum(type(s) is Launch for s in plan.steps), [s.op for s in plan.steps if type(s) is Call]


def half(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes).bfloat16()


EPILOGUES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "gelu": lambda y, r: F.gelu(y),
    "residual": lambda y, r: y + r,
    "gate": lambda y, r: F.silu(y) * r,
    "wide": lambda y, r: y.float() * 2 - r,
    "turned": lambda y, r: (y.relu() - 1).transpose(-1, -2),
    "mask": lambda y, r: torch.where(r > 0, y, -1.0),
    "two": lambda y, r: y.sigmoid() * y.tanh(),
}


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_products_with_what_follows_are_one_kernel(data: Any) -> None:
    m, n, k = (data.draw(st.sampled_from([2, 7, 16, 33, 40])) for _ in range(3))
    k, batch = max(k, 16), data.draw(st.sampled_from([0, 1, 3]))
    lead = (batch,) if batch else ()
    torch.manual_seed(data.draw(st.integers(0, 99)))
    x = half(*lead, k, m).transpose(-1, -2) if data.draw(st.booleans()) else half(*lead, m, k)
    w = half(*lead, n, k).transpose(-1, -2) if data.draw(st.booleans()) else half(*lead, k, n)
    biased, name = data.draw(st.booleans()), data.draw(st.sampled_from(sorted(EPILOGUES)))
    kind = torch.baddbmm if batch else torch.addmm

    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> list[torch.Tensor]:
        y = kind(b, x, w) if biased else x @ w
        return [EPILOGUES[name](y, r)]

    assert steps(compare(fn, [x, w, half(n), half(*lead, m, n)])) == (1, [])


def test_what_a_product_reads_may_be_computed_in_it() -> None:
    def fn(x, g, u, d, r):
        return [F.linear(F.silu(F.linear(x, g)) * F.linear(x, u), d) + r]

    torch.manual_seed(0)
    inputs = [half(20, 32), half(48, 32), half(48, 32), half(32, 48), half(20, 32)]
    assert steps(compare(fn, inputs))[0] == 2 and len(steps(compare(fn, inputs))[1]) == 1


def test_what_saves_no_step_stays_with_torch() -> None:
    def fn(x, w):
        y = x @ w
        return [y, F.softmax(y, -1)]

    launches, calls = steps(compare(fn, [half(32, 32), half(32, 32)]))
    assert (launches, calls) == (1, ["aten::mm.out"])


@pytest.mark.parametrize("options", [replace(MEASURED, measure=False), replace(MEASURED, numerics="eager")])
def test_nothing_is_chosen_unasked(options: GraphOptions) -> None:
    x, w = half(32, 32), half(32, 32)
    assert steps(compiled(lambda x, w: [(x @ w).relu()], [x, w], options)[1])[1]


def test_float32_stays_with_torch() -> None:
    x, w = torch.randn(32, 32), torch.randn(32, 32)
    assert steps(compiled(lambda x, w: [(x @ w).relu()], [x, w])[1])[1] == ["aten::mm.out"]


PRODUCTS = {c.name: c for c in cases() if c.name.startswith("product_")}


@pytest.mark.parametrize("name", [n for n in PRODUCTS if "float32" in n or "symbolic" in n])
@pytest.mark.parametrize("precise", [False, True])
def test_products_of_float32_are_tiles_too(name: str, precise: bool) -> None:
    case = PRODUCTS[name]
    [[(*_, narrow), *_]] = [kernel_text(case.kernel, DEFAULT, precise).functions]
    assert "tl.dot(" in narrow.text
    assert (f'input_precision="{"ieee" if precise else "tf32x3"}"' in narrow.text) is ("float32" in name)
    assert disagreement(case) is None and disagreement(case, wide=True) is None


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        *((s, ("product_ragged_bfloat16_turned", "product_batched_float16_plain")) for s in SHAPES),
        *((s, ("product_ragged_float32_plain", "product_innermost_batch_float32")) for s in OF_FLOATS),
    ],
    ids=str,
)
def test_every_shape_is_right(shape, names) -> None:
    assert [disagreement(PRODUCTS[name], budget=replace(DEFAULT, dot=shape)) for name in names] == [None, None]


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "tiled"),
    [
        (64, 64, 64, True),
        (16, 16, 16, True),
        (8, 64, 64, False),  # half of the rows would be filled up
        (64, 8, 64, False),
        (64, 64, 8, False),
        (64, 64, 100_000, False),  # terms are split over programs
        (1024, 1024, 100_000, True),
    ],
)
def test_sums_of_products_of_float32_are_tiles_where_these_are_full_and_many(rows: int, columns: int, depth: int, tiled: bool) -> None:
    [nest] = parse(f"""kernel k()
  in a: float32[{rows * depth}]
  in b: float32[{columns * depth}]
  out y: float32[{rows * columns}]
nest i<{rows} j<{columns}
  phase k<{depth}
    sum s: float32 = mul(a[{depth}*i + k], exp(b[{depth}*j + k]))
  phase
    set y[{columns}*i + j] = s
""").nests
    assert (dot_of(nest, {}) is not None) is tiled


def test_nan_and_infinity_beyond_the_edge_reach_nothing() -> None:
    x, w = torch.full((40, 64), math.nan).bfloat16(), torch.full((64, 64), math.inf).bfloat16()
    x[:17, :20], w[:20, :33] = 1, 2
    compared = compare(lambda x, w: [(x[:17, :20] @ w[:20, :33]).relu()], [x, w])
    assert steps(compared)[0] == 1


def test_less_memory_is_a_smaller_tile() -> None:
    kernel = next(c.kernel for c in cases() if c.name == "product_whole_bfloat16_plain")
    first, second = smaller(DEFAULT), smaller(smaller(DEFAULT))
    texts = {kernel_text(kernel, budget).functions for budget in (DEFAULT, first, second)}
    assert len(texts) == 3 and smaller(second).dot == second.dot
