"""Matrices that stay and are multiplied by many rows: kept packed by the executor, or laid in rows; against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import Parameter
from torch.nn import functional as F

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes
from opmill_graph_ir.backend import CompiledGraph, compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.graph import Meta
from opmill_graph_ir.capture.text import looks, parse_looks
from opmill_graph_ir.freezing import packing
from opmill_graph_ir.freezing.rewrite import freeze
from opmill_graph_ir.freezing.weights import held_inputs
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.plan.model import TensorInput

pytestmark = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="torch was built without MKL")

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linear": lambda x, w, b: F.linear(x, w, b),
    "with what follows": lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2,
    "without a bias": lambda x, w, b: x @ w.t(),
    "its own transpose": lambda x, w, b: torch.mm(x, w[: w.shape[1]]),
    "made of weights": lambda x, w, b: F.linear(x, w * 2 + 1, b),
    "of two": lambda x, w, b: F.linear(x, w, b).tanh() + F.linear(x, w.flip(0), b),
    "a part": lambda x, w, b: F.linear(x, w[16:], b[16:]),
    "of three dimensions": lambda x, w, b: F.linear(x[None], w, b),
}


def compiled(function: Callable[..., Any], inputs: list[Any], **options: Any) -> CompiledGraph:
    with torch.no_grad():
        module = torch.fx.symbolic_trace(lambda x, w, b: (function(x, w, b),))
        return compile_graph(module, inputs, options=GraphOptions(freeze=True, verify=True, cache=False, **options), generators=())


def inputs_of(rows: int, depth: int = 160, columns: int = 176) -> list[Any]:
    torch.manual_seed(rows)
    return [torch.randn(rows, depth), Parameter(torch.randn(columns, depth) / depth**0.5), Parameter(torch.randn(columns))]


def held(run: CompiledGraph) -> list[TensorInput]:
    return [i for i in run.plan.inputs if isinstance(i, TensorInput) and i.held and len(i.spec.sizes) == 2]


def check(function: Callable[..., Any], run: CompiledGraph, inputs: list[Any]) -> None:
    with torch.no_grad():
        found, eager, exact = run(*inputs)[0], function(*inputs), function(*(t.double() for t in inputs))
    assert found.shape == eager.shape and found.stride() == eager.stride() and found.dtype == eager.dtype
    assert (found - exact).abs().max() <= 4 * (eager - exact).abs().max() + 1e-6 * exact.abs().max()


@pytest.mark.skipif(not packing.packs_matrices(), reason="this MKL reads no packed matrices")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("rows", [packing._FEWEST_ROWS, 100])
def test_the_executor_is_told_of_matrices_that_it_may_pack(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_LEAST_PACKED", 160 * 160)
    function, inputs = FUNCTIONS[name], inputs_of(rows)
    run = compiled(function, inputs)
    assert held(run) and all(item.multiplied == rows for item in held(run)), "and nothing is laid out anew"
    for _ in range(2):
        check(function, run, inputs)
    with torch.no_grad():
        inputs[1].mul_(-3)
        check(function, run, inputs)
        inputs[1] = Parameter(inputs[1] + 1)
        check(function, run, inputs)
    assert run.thaw() == 1
    check(function, run, inputs)


@pytest.mark.skipif(not packing.packs_matrices(), reason="this MKL reads no packed matrices")
@pytest.mark.parametrize(("function", "wanted"), [(F.linear, "addmm"), (lambda x, w, b: F.linear(x, w, b).tanh() * 2, "mm")])
def test_loops_add_biases_to_products_with_packed_matrices(function: Callable[..., Any], wanted: str) -> None:
    inputs = inputs_of(100, 512, 512)
    with torch.no_grad():
        module = torch.fx.symbolic_trace(lambda x, w, b: (function(x, w, b),))
        made = freeze(functionalize(module, inputs), held_inputs(module, inputs))
    assert made is not None
    assert [n.op for n in lower(made.graph).nodes if isinstance(n, Extern)] == [f"aten::{wanted}"]
    assert "aten::addmm" in [n.op for n in lower(made.graph, exact=True).nodes if isinstance(n, Extern)]


@pytest.mark.parametrize("rows", [packing._FEWEST_ROWS - 1, 100])
@pytest.mark.parametrize("columns", [1000, 1024])
def test_matrices_lie_in_rows_otherwise_with_a_gap_where_rows_would_share_places(
    rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "packs_matrices", lambda: rows < packing._FEWEST_ROWS)
    inputs = inputs_of(rows, 160, columns)
    run = compiled(F.linear, inputs)
    width = 1040 if columns == 1024 else columns
    assert [(i.spec.sizes, i.spec.strides, i.multiplied) for i in held(run)] == [((160, width), (width, 1), 0)]
    check(F.linear, run, inputs)
    with torch.no_grad():
        inputs[1].zero_()
    check(F.linear, run, inputs)


def test_one_matrix_is_packed_for_one_number_of_rows() -> None:
    def function(x: Any, w: Any, b: Any) -> Any:
        return F.linear(x, w, b).sum() + F.linear(x[:50], w, b)

    inputs = inputs_of(100, 512, 512)
    run = compiled(function, inputs)
    counts = sorted(item.multiplied for item in held(run))
    assert counts == ([0, 100] if packing.packs_matrices() else [0])
    check(function, run, inputs)


@pytest.mark.parametrize("columns", [1000, 1024])
def test_numbers_of_rows_that_depend_on_the_call(columns: int) -> None:
    sizes, (x, w, b) = Sizes(), inputs_of(48, 512, columns)
    run = compiled(F.linear, [FakeContext(sizes).from_tensor(x, {0: sizes.new(48)}), w, b])
    assert [item.multiplied for item in held(run)] == [0]
    for rows in (48, 3, 100):
        check(F.linear, run, [torch.randn(rows, 512), w, b])


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("opaque", [False, True])
def test_texts_of_graphs_say_so(device: str, opaque: bool) -> None:
    meta = Meta("float32", (2, 3), (1, 2), device, opaque, 40)
    assert "multiplied 40" in looks(meta) and parse_looks(looks(meta)) == meta
