"""Products with matrices that are computed of smaller ones: which are loops, and that they are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.planning.dequantized import MOST_ROWS, MOST_TILED, dequantized

F = torch.nn.functional


def weights(dtype: torch.dtype = torch.int8) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    whole = torch.randint(-127, 128, (24, 32), generator=source)
    return whole.to(dtype), torch.rand(24, 1, generator=source)


def graph(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    with torch.no_grad():
        return functionalize(torch.fx.symbolic_trace(function), list(inputs))


LOOPS: dict[str, Callable[..., Any]] = {
    "scaled": lambda x, q, s: (F.linear(x, q.to(x.dtype) * s),),
    "with a bias": lambda x, q, s: (F.linear(x, q.to(x.dtype) * s, s.view(-1)),),
    "by the matrix as it lies": lambda x, q, s: (x @ (q.to(x.dtype) * s).t(),),
}
CALLS: dict[str, Callable[..., Any]] = {
    "a matrix that is there": lambda x, q, s: (F.linear(x, q.float() * s), F.linear(x, x)),
    "one that is returned, too": lambda x, q, s: ((w := q.to(x.dtype) * s) + 0, w, F.linear(x, w)),
    "one with two readers": lambda x, q, s: ((w := q.to(x.dtype) * s).sum(), F.linear(x, w)),
    "one of two large ones": lambda x, q, s: (F.linear(x, q.to(x.dtype) * torch.ones(24, 32)),),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
@pytest.mark.parametrize("name", LOOPS)
def test_few_rows_meet_a_matrix_of_bytes(name: str, dtype: torch.dtype) -> None:
    assert len(dequantized(graph(LOOPS[name], torch.randn(MOST_ROWS, 32), *weights(dtype)))) == 1


@pytest.mark.parametrize("name", CALLS)
def test_other_products_are_calls(name: str) -> None:
    wanted = 1 if name == "a matrix that is there" else 0
    assert len(dequantized(graph(CALLS[name], torch.randn(2, 32), *weights()))) == wanted


def test_many_rows_are_worth_writing_the_matrix_out() -> None:
    assert not dequantized(graph(LOOPS["scaled"], torch.randn(MOST_ROWS + 1, 32), *weights()))


@pytest.mark.parametrize("dtype, wanted", [(torch.bfloat16, [0, 1, 1, 0]), (torch.float32, [0, 0, 0, 0])])
def test_units_for_matrices_multiply_more_rows_of_half_precision(dtype: torch.dtype, wanted: list[int]) -> None:
    found = []
    for rows in (1, 2, MOST_TILED, MOST_TILED + 1):
        made = graph(lambda x, q, s: (F.linear(x, q.to(x.dtype)) * s.view(-1),), torch.randn(rows, 32).to(dtype), *weights())
        made.metas = {name: replace(meta, device="cuda:0") for name, meta in made.metas.items()}
        found.append(len(dequantized(made)))
    assert found == wanted, "one row is a loop anyway"


@pytest.mark.parametrize("rows", [1, 3, MOST_ROWS, 9])
@pytest.mark.parametrize("name", [*LOOPS, *CALLS])
def test_against_float64(name: str, rows: int) -> None:
    from opmill_graph_ir.backend import GraphOptions, compile_graph

    function, x = {**LOOPS, **CALLS}[name], F.silu(torch.randn(rows, 32, generator=torch.Generator().manual_seed(1)))
    q, s = weights()
    with torch.no_grad():
        module = torch.fx.symbolic_trace(function)
        compiled = compile_graph(module, [x, q, s], options=GraphOptions(cache=False))
        for got, exact in zip(compiled(x, q, s), module(x.double(), q, s.double()) if name in LOOPS else module(x, q, s), strict=True):
            torch.testing.assert_close(got.double(), exact.double(), rtol=1e-4, atol=1e-3)


def test_what_meets_every_row_of_the_matrix_is_computed_once() -> None:
    from opmill_graph_ir.compiling import scheduled

    made = graph(lambda x, q, s: (F.linear(F.silu(x) * x, q.to(x.dtype) * s),), torch.randn(1, 32), *weights())
    program = scheduled(made, products=dequantized(made))[1]
    nests = [nest for kernel, _ in program.wanted() for nest in kernel.nests]
    [product] = [repr(nest) for nest in nests if any(phase.reductions for phase in nest.phases)]
    assert "int8" in product and "'exp'" not in product and sum("'exp'" in repr(nest) for nest in nests) == 1
