"""Products of a few rows with a large matrix on processors are loops where libraries would lay the matrix out anew."""

import pytest
import torch

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.planning.few_rows import few_rows

F = torch.nn.functional


def _found(rows: int, dtype: torch.dtype, columns: int = 600, bias: bool = False, turned: bool = False) -> int:
    """How many products of ``rows`` rows with a matrix of 512 are loops. ``turned``: the matrix lies along its columns."""
    x, w = torch.zeros(rows, 512, dtype=dtype), torch.zeros(columns, 512, dtype=dtype)
    if turned:
        w = torch.zeros(512, columns, dtype=dtype).t()
    inputs = [x, w, torch.zeros(columns, dtype=dtype)]
    with torch.no_grad():
        return len(few_rows(functionalize(torch.fx.symbolic_trace(lambda x, w, b: F.linear(x, w, b if bias else None)), inputs)))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, (1, 3, 12)), (torch.float16, (1, 2, 16, 32)), (torch.bfloat16, (1, 5))])
def test_which_are_loops(dtype: torch.dtype, rows: tuple[int, ...], bias: bool) -> None:
    assert [_found(n, dtype, bias=bias) for n in rows] == [1] * len(rows)


@pytest.mark.parametrize(
    ("dtype", "rows"), [(torch.float32, (13, 64)), (torch.float16, (33,)), (torch.bfloat16, (6, 32)), (torch.float64, (4,))]
)
def test_which_are_calls(dtype: torch.dtype, rows: tuple[int, ...]) -> None:
    assert [_found(n, dtype) for n in rows] == [0] * len(rows)


def test_small_matrices_and_those_that_lie_along_columns_are_calls() -> None:
    assert _found(4, torch.float32, columns=100) == 0
    assert _found(4, torch.float32, turned=True) == 0


@pytest.mark.parametrize(
    ("dtype", "rows"),
    [
        (torch.float32, 2),
        (torch.float32, 7),
        (torch.float16, 1),
        (torch.float16, 11),
        (torch.float16, 24),
        (torch.bfloat16, 1),
        (torch.bfloat16, 5),
    ],
)
def test_against_float64(dtype: torch.dtype, rows: int) -> None:
    source = torch.Generator().manual_seed(rows)
    x, w, b = (torch.randn(n, generator=source).to(dtype) for n in ((rows, 512), (600, 512), (600,)))
    module = torch.fx.symbolic_trace(lambda x, w, b: (F.gelu(F.linear(x, w, b)),))
    with torch.no_grad():
        [made] = compile_graph(module, [x, w, b], options=GraphOptions(cache=False))(x, w, b)
    exact = F.gelu(F.linear(x.double(), w.double(), b.double()))
    error, eager = ((got.double() - exact).abs().max() for got in (made, F.gelu(F.linear(x, w, b))))
    assert error <= 3 * eager + 1e-6


def _linear_of_bytes(x: torch.Tensor, w: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A layer as it is quantised: of a row its largest element is 127."""
    scale = x.float().abs().amax(-1, keepdim=True) / 127
    rows = (x.float() / scale).round().clamp(-128, 127).to(torch.int8)
    sums = torch._int_mm(rows, w)
    return sums, ((sums.float() * scale).to(x.dtype).float() * scales).to(x.dtype)


def _bytes(rows: int, depth: int, columns: int, turned: bool) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(rows)
    w = torch.randint(-128, 128, (columns, depth), generator=source).to(torch.int8)
    w[0], w[1] = -128, 127
    w = w.t().contiguous() if turned else w.t()
    x, scales = torch.randn(rows, depth, generator=source).bfloat16(), torch.rand(columns, generator=source)
    x[0] = x[0, 0]  # a row of 127, or its opposite
    return [x, w, scales]


@pytest.mark.parametrize("turned", [False, True])
def test_which_of_bytes_are_loops(turned: bool) -> None:
    found = []
    for rows in range(1, 15):
        module = torch.fx.symbolic_trace(lambda x, w: torch._int_mm(x, w))
        x, w, _ = _bytes(rows, 512, 600, turned)
        found.append(len(few_rows(functionalize(module, [x.to(torch.int8), w]))))
    assert found == ([0] * 14 if turned else [1] * 8 + [0] * 6)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("depth", "columns"), [(512, 600), (515, 511)])
@pytest.mark.parametrize("rows", range(1, 13))
def test_of_bytes_as_eager(rows: int, depth: int, columns: int, turned: bool) -> None:
    inputs = _bytes(rows, depth, columns, turned)
    with torch.no_grad():
        got = compile_graph(torch.fx.symbolic_trace(_linear_of_bytes), inputs, options=GraphOptions(cache=False))(*inputs)
        want = _linear_of_bytes(*inputs)
    assert [torch.equal(a, b) for a, b in zip(got, want, strict=True)] == [True, True]
    assert got[0].dtype == torch.int32 and [t.stride() for t in got] == [t.stride() for t in want]
