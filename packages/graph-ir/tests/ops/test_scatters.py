"""Writes at positions that repeat, and looking values up, against eager."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

import opmill_graph_ir.ops as families
from opmill_graph_ir.errors import GraphError

Run = Callable[..., list[Any]]
FLOATS, INTEGERS = (torch.float32, torch.float64), (torch.int64, torch.int32)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def numbers(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    return torch.randn(sizes, dtype=dtype) if dtype.is_floating_point else torch.randint(-4, 5, sizes, dtype=dtype)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bfloat16], ids=str)
def test_scatter_reduce(as_loops: Run, dtype: torch.dtype, reduce: str, include_self: bool) -> None:
    x, source, ids = numbers(dtype, 4, 5), numbers(dtype, 6, 5), torch.randint(0, 4, (6, 5))
    if dtype.is_floating_point and reduce in ("amax", "amin"):
        source[0, 0] = float("nan")

    def fn(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(0, i, s, reduce, include_self=include_self)

    loose = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(as_loops(fn, x, ids, source)[0], fn(x, ids, source), equal_nan=True, **loose)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(as_loops: Run, reduce: str) -> None:
    x, source, ids = numbers(torch.float32, 4, 5), numbers(torch.float32, 4, 7), torch.tensor([0, 4, 4, 2, 0, 0, 4])
    torch.testing.assert_close(
        as_loops(lambda x, i, s: x.index_reduce(1, i, s, reduce), x, ids, source)[0], x.index_reduce(1, ids, source, reduce)
    )


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
def test_bisection(as_loops: Run, dtype: torch.dtype, right: bool) -> None:
    for n in (1, 2, 3, 7, 8, 9):
        edges, x = numbers(dtype, n).sort()[0], torch.cat([numbers(dtype, 30), numbers(dtype, n)])
        x[: min(n, 3)] = edges[: min(n, 3)]
        assert torch.equal(as_loops(lambda x, e: torch.bucketize(x, e, right=right), x, edges)[0], torch.bucketize(x, edges, right=right))
    rows, values = numbers(dtype, 3, 6), numbers(dtype, 3, 4)
    order = rows.argsort()
    want = torch.searchsorted(rows, values, right=right, sorter=order)
    assert torch.equal(as_loops(lambda r, v, o: torch.searchsorted(r, v, right=right, sorter=o), rows, values, order)[0], want)


def test_nan_is_the_largest_when_searched(as_loops: Run) -> None:
    edges, x = torch.tensor([0.0, 1.0, float("nan")]), torch.tensor([float("nan"), 2.0, 1.0, float("-inf")])
    assert torch.equal(as_loops(torch.bucketize, x, edges)[0], torch.bucketize(x, edges))


def test_positions_outside_are_errors(as_loops: Run) -> None:
    with pytest.raises(IndexError):
        as_loops(torch.take, torch.ones(3), torch.tensor([3]))
    with pytest.raises(RuntimeError):
        as_loops(lambda x, i: x.scatter_reduce(0, i, x, "amax"), torch.ones(3), torch.tensor([0, 1, 5]))
    with pytest.raises(GraphError, match="negative integer powers"):  # while it is captured, before anything is written
        as_loops(lambda x: x**-1, torch.arange(3))
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        as_loops(torch.nn.functional.binary_cross_entropy, torch.tensor([0.5, 1.5]), torch.ones(2))


@pytest.mark.parametrize("ids", ["0 1", "0 2", "1", "0 1 2"])
def test_writes_where_indices_have_gaps(as_loops: Run, ids: str) -> None:
    x = numbers(torch.float32, 3, 4, 5)
    at = [torch.tensor([[0], [2]]) if str(d) in ids.split() else None for d in range(3)]
    source = torch.tensor(7.0)

    def fn(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.index_put(x, at, s)

    assert torch.equal(as_loops(fn, x, source)[0], fn(x, source))


def test_every_operator_has_one_row() -> None:
    seen: dict[str, str] = {}
    for info in pkgutil.iter_modules(families.__path__):
        for name in getattr(importlib.import_module(f"{families.__name__}.{info.name}"), "ROWS", {}):
            assert seen.setdefault(name, info.name) == info.name, f"{name} is in {seen[name]} and in {info.name}"


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_products_of_vectors(as_loops: Run, dtype: torch.dtype) -> None:
    a, b = numbers(dtype, 4, 3), numbers(dtype, 1, 3)
    torch.testing.assert_close(as_loops(torch.linalg.cross, a, b)[0], torch.linalg.cross(a, b))
    torch.testing.assert_close(as_loops(lambda a, b: a[0].dot(b[0]), a, b)[0], a[0].dot(b[0]))


def test_one_value_under_a_mask(as_loops: Run) -> None:
    x = torch.randn(3, 4, 5)
    for first, mask in ((0, x[:, :, 0] > 0), (1, x[0, :, 0] > 0)):
        at = [None] * first + [mask]
        for accumulate in (False, True):
            want = torch.ops.aten.index_put(x, at, torch.tensor(2.5), accumulate)
            got = as_loops(
                lambda x, m, f=first, a=accumulate: torch.ops.aten.index_put(x, [None] * f + [m], torch.full((), 2.5), a), x, mask
            )
            assert torch.equal(got[0], want)
