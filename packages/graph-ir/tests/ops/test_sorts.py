"""Short rows in order through lowering and scheduling, against eager: loops where the tensors are on a GPU, torch's operators elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.loops.ir import LONGEST_SORT, SORTS
from opmill_graph_ir.loops.spec import verify_kernel
from opmill_graph_ir.loops.text import parse, show
from opmill_graph_ir.lowered import Extern, Lowered
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.steps import KernelStep, schedule

TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


def lowered(fn: Callable[..., Any], *tensors: torch.Tensor, device: str = "cuda:0", exact: bool = False) -> Lowered:
    """The loops of ``fn``, told that its tensors are on ``device``."""
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"a{k}") for k in range(len(tensors))]
    graph.output(graph.call_function(lambda *xs: listed(fn(*xs)), tuple(nodes)))
    with torch.no_grad():
        captured = functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), list(tensors))
    captured.metas = {name: replace(meta, device=device) for name, meta in captured.metas.items()}
    return lower(captured, exact=exact)


def listed(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def called(program: Lowered) -> list[str]:
    return [n.op for n in program.nodes if isinstance(n, Extern)]


def values(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(3)).mul(2).round().to(dtype)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_as_eager(dtype: torch.dtype, dim: int) -> None:
    """Equals stay in order, so that positions are those of eager's stable sort; of topk those of equals are anybody's."""
    x = values(dtype, 3, 5, 4).transpose(0, 2)
    programs: list[Callable[..., Any]] = [
        lambda x: x.sort(dim=dim, stable=True),
        lambda x: x.argsort(dim=dim, descending=True, stable=True),
    ]
    programs += [lambda x: x.topk(2, dim)[0], lambda x: x.topk(1, dim, False)[0]] if dtype != torch.bool else []
    for fn in programs:
        program = lowered(fn, x)
        assert not called(program)
        for g, w in zip(run_lowered(program, [x]), listed(fn(x)), strict=True):
            assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
            assert torch.equal(g, w)


def test_positions_are_those_of_the_values() -> None:
    x = values(torch.float32, 6, 20)
    for fn in (lambda x: x.sort(1), lambda x: x.topk(7, 1), lambda x: x.topk(20, 1, largest=False, sorted=False)):
        found, at = run_lowered(lowered(fn, x), [x])
        assert torch.equal(x.gather(1, at), found)


def test_ranks() -> None:
    """Positions are short numbers, though of 64 bits; what was written over them may be any."""
    x = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))

    def changed(x: torch.Tensor) -> torch.Tensor:
        at = x.argsort(1)
        at[:, 0] = 1 << 40
        return at.sort(1)[0]

    for fn in (
        lambda x: x.argsort(1).argsort(1),
        lambda x: x.topk(5)[1].sort(1, True),
        lambda x: x.argsort(0).t().sort(dim=0, stable=True),
    ):
        program = lowered(fn, x)
        assert not called(program)
        for g, w in zip(run_lowered(program, [x]), listed(fn(x)), strict=True):
            assert torch.equal(g, w) and g.dtype == w.dtype
    assert called(lowered(changed, x)) == ["aten::sort"]
    assert called(lowered(lambda x: (x.argsort(1) * (1 << 40)).sort(1), x)) == ["aten::sort"]


@pytest.mark.parametrize(
    ("fn", "op"),
    [
        (lambda x: x.double().sort(), "aten::sort"),
        (lambda x: x.long().sort(stable=True), "aten::sort.stable"),
        (lambda x: x[:, :1].expand(3, LONGEST_SORT + 1).sort(), "aten::sort"),
        (lambda x: x[:1].expand(LONGEST_SORT + 1, 20).topk(3, 0), "aten::topk"),
        (lambda x: x.kthvalue(2), "aten::kthvalue"),
    ],
)
def test_what_stays_an_operator(fn: Callable[..., Any], op: str) -> None:
    assert called(lowered(fn, values(torch.float32, 3, 20))) == [op]


@pytest.mark.parametrize("fn", [lambda x: x.sort(), lambda x: x.sort(stable=True), lambda x: x.topk(3), lambda x: x.argsort()])
def test_processors_sort_with_torch(fn: Callable[..., Any]) -> None:
    assert len(called(lowered(fn, values(torch.float32, 3, 20), device="cpu"))) == 1


def test_eager_s_rounding_allows_for_orders() -> None:
    assert not called(lowered(lambda x: (x * 2).sort(), values(torch.float32, 3, 20), exact=True))


def test_empty_results() -> None:
    for fn in (lambda x: x[:0].sort(), lambda x: x.topk(0)):
        assert {op.partition(".")[0] for op in called(lowered(fn, values(torch.float32, 3, 20)))} <= {"aten::empty_strided", "aten::empty"}


@pytest.mark.parametrize(
    ("fn", "phases"),
    [
        (lambda x: (x.exp() + 1).sort(1), 1),
        (lambda x: (x.sort(1)[0] * 2 + x).tanh(), 1),
        (lambda x: x.softmax(1).topk(3), 3),
        (lambda x: x.sort(1)[0].cumsum(1), 1),
        (lambda x: x.topk(3)[0].sum(1), 3),
    ],
)
def test_what_stands_around_an_order_is_fused(fn: Callable[..., Any], phases: int) -> None:
    made = schedule(lowered(fn, torch.randn(6, 90, generator=torch.Generator().manual_seed(0))))
    assert [type(s) for s in made.steps] == [KernelStep]
    [kernel] = made.kernels()
    verify_kernel(kernel)
    assert parse(show(kernel)) == kernel
    [nest] = kernel.nests
    assert len(nest.phases) == phases and any(s.op in SORTS for p in nest.phases for s in p.scans)


def test_only_the_first_are_stored() -> None:
    [kernel] = schedule(lowered(lambda x: x.topk(3), values(torch.float32, 6, 20))).kernels()
    assert [s.first for n in kernel.nests for p in n.phases for s in p.stores] == [3, 3]
    assert "set.first3 " in show(kernel)


@pytest.mark.parametrize("length", [41, 3000])
def test_long_rows_are_not_brought_beside_short_ones(length: int) -> None:
    """A program holds all of what is in its rows, and puts as much in order."""
    x, y = values(torch.float32, 16, 20), values(torch.float32, 16, length)
    made = schedule(lowered(lambda x, y: (x + y.sum(1, keepdim=True)).sort(1), x, y))
    nests = [n for k in made.kernels() for n in k.nests]
    for kernel in made.kernels():
        verify_kernel(kernel)
    assert [sorted({a.extent.constant for p in n.phases for a in p.axes}) for n in nests if any(p.scans for p in n.phases)] == [[20]]


@pytest.mark.parametrize(("dtype", "n"), [(torch.float32, 512), (torch.int32, 512), (torch.bfloat16, 1024), (torch.uint8, 1024)], ids=str)
def test_many_long_rows_are_torch_s(dtype: torch.dtype, n: int) -> None:
    many, few = values(dtype, 1025, n), values(dtype, 1024, n + 1)
    assert not called(lowered(lambda x: x.sort(stable=True), many)) and not called(lowered(lambda x: x.sort(stable=True), few))
    assert called(lowered(lambda x: x.sort(stable=True), values(dtype, 1025, n + 1))) == ["aten::sort.stable"]
