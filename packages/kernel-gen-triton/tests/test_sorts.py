"""Rows in order: every bit pattern of short types, special values, any sizes, and whole plans, against eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops import ir
from opmill_graph_ir.loops.cases import Case, cases
from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.spec import verify_kernel
from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import as_for_gpu, disagreement, run
from opmill_kernel_gen_triton.generator import TritonKernelGenerator
from opmill_kernel_gen_triton.kernel import kernel_text
from opmill_runtime_cache.plan.model import Call

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
TYPES = "float32 bfloat16 float16 int32 int16 int8 uint8 bool".split()
SMALL = Budget(processors=1, tile=64, longest=8, values=8)
WORD = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def in_order(op: str, dtype: str, rows: Index | int, n: int, first: int | None = None) -> ir.LoopKernel:
    """Rows of ``a``, or the first of each, as values ``v`` and positions ``p``."""
    at, to = index("i") * n + "j", index("i") * (first or n) + "j"
    stores = tuple(ir.Store(b, to, ir.Ref(r, d), first=first) for b, r, d in (("v", "r", dtype), ("p", "q", "int64")))
    phase = ir.Phase((ir.Axis("j", index(n)),), scans=(ir.Scan(("r", "q"), op, (ir.Load("a", at, dtype),), dtype),), stores=stores)
    outs = (ir.Buffer(s.buffer, s.value.dtype, "out", index(rows) * (first or n)) for s in stores)
    nest = ir.Nest((ir.Axis("i", index(rows)),), (phase,))
    return ir.LoopKernel("order", (ir.Buffer("a", dtype, "in", index(rows) * n), *outs), (nest,), tuple(index(rows).symbols))


def agrees(op: str, a: torch.Tensor, first: int | None = None, **how: Any) -> bool:
    """Whether the rows of ``a`` come out as from eager, bit for bit but for what is in a NaN."""
    rows, n = a.shape
    kernel = in_order(op, str(a.dtype).removeprefix("torch."), rows, n, first)
    verify_kernel(kernel)
    given = {
        "a": a.reshape(-1).clone(),
        "v": torch.zeros(rows * (first or n), dtype=a.dtype),
        "p": torch.zeros(rows * (first or n), dtype=torch.int64),
    }
    assert run(kernel, given, **how) == 0
    want, at = (t[:, :first].reshape(-1) for t in a.sort(dim=1, descending=op == "descending", stable=True))
    same = given["v"].view(WORD[a.itemsize]) == want.view(WORD[a.itemsize])
    return torch.equal(given["p"], at) and bool((same | ((given["v"] != given["v"]) & (want != want))).all())


@pytest.mark.parametrize("case", [c for c in cases() if c.name.startswith("sort_")], ids=lambda c: c.name)
@pytest.mark.parametrize("budget", [Budget(), SMALL], ids=["plain", "small"])
def test_the_shared_table(case: Case, budget: Budget) -> None:
    assert disagreement(case, seed=3, budget=budget, wide=budget is SMALL) is None


@pytest.mark.parametrize(("dtype", "op"), [("bfloat16", "descending"), ("float16", "ascending"), ("int16", "descending")])
def test_every_pattern_of_16_bits(dtype: str, op: str) -> None:
    order = torch.randperm(1 << 16, generator=torch.Generator().manual_seed(0))
    assert agrees(op, (order - (1 << 15)).to(torch.int16).view(getattr(torch, dtype)).view(-1, 1024))


@pytest.mark.parametrize("op", ir.SORTS)
@pytest.mark.parametrize("first", [None, 1, 3, 11])
def test_special_floats(op: str, first: int | None) -> None:
    values = [0.0, -0.0, 1.0, -1.0, math.nan, -math.nan, math.inf, -math.inf, 1e-45, -1e-45, 3.4e38, -3.4e38, 2.5, 0.0, -0.0, math.nan]
    a = torch.tensor(values)
    g = torch.Generator().manual_seed(1)
    assert agrees(op, torch.stack([a[torch.randperm(16, generator=g)] for _ in range(20)]), first)
    for value in values:
        assert agrees(op, torch.full((2, 13), value), first)


@pytest.mark.parametrize("op", ir.SORTS)
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_ends_of_integers(dtype: str, op: str) -> None:
    info = torch.iinfo(getattr(torch, dtype))
    assert agrees(op, torch.tensor([[info.min, info.max, 0, info.max, info.min, 1, info.max - 1]] * 3, dtype=getattr(torch, dtype)))


@settings(max_examples=60, deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_rows(data: st.DataObject) -> None:
    dtype = getattr(torch, data.draw(st.sampled_from(TYPES)))
    rows, n = data.draw(st.integers(1, 9)), data.draw(st.one_of(st.integers(2, 40), st.integers(2, 300)))
    values = data.draw(st.sampled_from((2, 5, 1000)))
    first = data.draw(st.one_of(st.none(), st.integers(1, n - 1)))
    a = torch.randint(
        0 if dtype == torch.uint8 else -values, values, (rows, n), generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    )
    a = a.to(dtype) if not dtype.is_floating_point else (a / 2).to(dtype)
    assert agrees(
        data.draw(st.sampled_from(ir.SORTS)), a, first, wide=data.draw(st.booleans()), budget=data.draw(st.sampled_from((Budget(), SMALL)))
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_nothing_from_beyond_the_row_gets_into_a_recurrence(reverse: bool) -> None:
    """The places that a tile has there hold no numbers once it is in order."""
    kernel = in_order("ascending", "float32", 3, 5)
    at, factor = index("i") * 5 + "j", ir.Load("v", index("i") * 5 + "j", "float32")
    recurrence = ir.Scan(("s",), "affine", (ir.Op("tanh", (factor,), "float32"), factor), "float32", reverse)
    phase = ir.Phase((ir.Axis("j", index(5)),), scans=(recurrence,), stores=(ir.Store("w", at, ir.Ref("s", "float32")),))
    [nest] = kernel.nests
    both = replace(
        kernel, nests=(replace(nest, phases=(*nest.phases, phase)),), buffers=(*kernel.buffers, ir.Buffer("w", "float32", "out", index(15)))
    )
    verify_kernel(both)
    assert disagreement(Case("recurrence", both)) is None


def test_as_many_rows_as_there_are() -> None:
    kernel = in_order("ascending", "float32", index("s0"), 21)
    verify_kernel(kernel)
    for rows in (1, 5, 70):
        a = torch.randn(rows, 21, generator=torch.Generator().manual_seed(rows))
        given = {"a": a.reshape(-1), "v": torch.zeros(rows * 21), "p": torch.zeros(rows * 21, dtype=torch.int64)}
        assert run(kernel, given, (rows,)) == 0
        assert torch.equal(given["v"].view(rows, 21), a.sort(1)[0])


def test_few_of_many_are_chosen_without_ordering_the_rest() -> None:
    texts = {k: kernel_text(in_order("descending", "bfloat16", 64, 128, k)).functions[0][0].text for k in (None, 1, 8, 64, 65)}
    assert {k: ("tl.topk" in t, "tl.sort" in t) for k, t in texts.items()} == {
        None: (False, True),
        1: (True, False),
        8: (True, False),
        64: (True, False),
        65: (False, True),
    }


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_wide_types_are_refused(dtype: str) -> None:
    refused = TritonKernelGenerator(90).claims(in_order("ascending", dtype, 4, 8), GeneratorOptions("cuda:0"))
    assert refused == f"rows of {dtype} in order"


@pytest.mark.parametrize("n", [ir.LONGEST_SORT, ir.LONGEST_SORT + 1])
def test_what_is_too_long_is_illegal(n: int) -> None:
    if n <= ir.LONGEST_SORT:
        verify_kernel(in_order("ascending", "float32", 4, n))
    else:
        with pytest.raises(GraphError, match="GI040"):
            verify_kernel(in_order("ascending", "float32", 4, n))


# ---- whole plans ---------------------------------------------------------------------------------------------------


def planned(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[list[str], int]:
    """The operators that the plan calls, and the number of its kernels; its results are eager's."""

    def listed(*tensors: torch.Tensor) -> list[torch.Tensor]:
        result = function(*tensors)
        return list(result) if isinstance(result, (list, tuple)) else [result]

    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"a{k}") for k in range(len(inputs))]
    graph.output(graph.call_function(listed, tuple(nodes)))
    with torch.no_grad():
        compiled, plan, _ = as_for_gpu(torch.fx.GraphModule(torch.nn.Module(), graph), list(inputs))
        got, want = compiled(*inputs), listed(*inputs)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
        torch.testing.assert_close(g, w, equal_nan=True)
    return [s.op for s in plan.steps if type(s) is Call], sum(type(s).__name__ == "Launch" for s in plan.steps)


def routed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights of the chosen experts."""
    chosen, where = x.softmax(-1).topk(4)
    return chosen / chosen.sum(-1, keepdim=True), where


def nucleus(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The likely ones that are together as likely as wanted."""
    p, where = x.softmax(-1).sort(descending=True)
    return torch.where(p.cumsum(-1) - p < 0.7, p, 0.0), where


def scattered(x: torch.Tensor) -> torch.Tensor:
    """What a gradient does."""
    values, where = x.sort(1)
    return torch.zeros_like(x).scatter(1, where, values)


ONE_KERNEL: dict[str, Callable[..., Any]] = {
    "sort": lambda x: x.sort(),
    "down the first dimension": lambda x: x.sort(0, True),
    "stable": lambda x: x.round().sort(stable=True, dim=0, descending=True),
    "values alone": lambda x: x.sort(1).values,
    "argsort": lambda x: x.argsort(-1, True),
    "stable argsort": lambda x: x.round().argsort(dim=0, stable=True),
    "msort": lambda x: x.msort(),
    "topk": lambda x: x.topk(5),
    "least": lambda x: x.topk(5, dim=0, largest=False),
    "all of topk": lambda x: x.topk(33),
    "in any order": lambda x: x.topk(2, sorted=False),
    "computed": lambda x: ((x * 2 + 1).tanh()).sort(1),
    "read by others": lambda x: (x.sort(1)[0] * 2 + x).relu(),
    "summed": lambda x: (x.sort(1)[0] + x).relu().sum(1),
    "ranks": lambda x: x.argsort(1).argsort(1),
    "gathered": lambda x: x.cos().gather(1, x.argsort(1)),
    "routed": routed,
    "routed in half precision": lambda x: routed(x.bfloat16()),
    "nucleus": nucleus,
    "turned": lambda x: x.t().sort(0),
    "beside means": lambda x: (x.sum(1), x.sort(1)[0], x.mean(1)),
    "from the end": lambda x: x.sort(1)[0].flip(1),
    "repeated": lambda x: x[:, None].expand(6, 3, 33).sort(2),
    "number": lambda x: x[0, 0].sort(0),
    "number's topk": lambda x: x[0, 0].topk(1),
    "one column": lambda x: x[:, :1].sort(1),
    "one row": lambda x: x[0].sort(),
    "truths": lambda x: (x > 0).sort(stable=True),
    "bytes": lambda x: (x * 2).to(torch.int8).sort(dim=1, stable=True, descending=True),
    "scattered back": scattered,
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel_for_what_is_around(name: str) -> None:
    x = torch.randn(6, 33, generator=torch.Generator().manual_seed(0))
    called, kernels = planned(ONE_KERNEL[name], x)  # small nests that follow each other are launched as one
    assert (called, kernels) == ([], 1)


@pytest.mark.parametrize(
    ("function", "called"),
    [
        (lambda x: x.sort(), []),
        (lambda x: x.double().sort(), ["aten::sort"]),
        (lambda x: x.long().topk(3), ["aten::topk"]),
        (lambda x: x.repeat(1, 63)[:, :2049].sort(), ["aten::sort"]),
        (lambda x: x.repeat(1, 63)[:, :2048].sort(stable=True), []),
        (lambda x: x[:0].sort(), ["aten::empty_strided"] * 2),
        (lambda x: x.topk(0), ["aten::empty_strided"] * 2),
    ],
)
def test_where_operators_stay(function: Callable[..., Any], called: list[str]) -> None:
    assert planned(function, torch.randn(6, 33, generator=torch.Generator().manual_seed(0)))[0] == called


def test_longer_rows_are_kernels_of_their_own() -> None:
    x, y = (torch.randn(6, n, generator=torch.Generator().manual_seed(n)) for n in (33, 5000))
    assert planned(lambda x, y: x.sort(1)[0] + y.sum(1, keepdim=True), x, y) == ([], 2)
    assert planned(lambda x, y: x.sort(1)[0] + y[:, :40].sum(1, keepdim=True), x, y) == ([], 1)


def test_layouts() -> None:
    x = torch.randn(3, 17, 5, generator=torch.Generator().manual_seed(0))
    for y in (x, x.transpose(0, 2), x.permute(1, 2, 0), x[:, ::2], x[..., 1:4]):
        for dim in (0, 1, 2):
            assert planned(lambda t, dim=dim: (*t.sort(dim), *t.topk(2, dim)), y)[0] == []
