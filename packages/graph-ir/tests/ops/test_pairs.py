"""Complex values: computed as pairs in loops, put together where torch or the caller wants them whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.planning.key import graph_key

X, Y = torch.randn(2, 3, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)), torch.randn(4, dtype=torch.complex64)
R, PAIRS = torch.randn(3, 4), torch.randn(3, 8)
IDS = torch.tensor([2, 0])
HUGE = torch.tensor(
    [complex(1e30, -1e30), complex(1e-30, 1e30), complex(float("inf"), 1), complex(-0.0, 0.0), complex(2, 0), complex(0, 3)],
    dtype=torch.complex64,
)


def rotated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Rotary embeddings as they are often written."""
    return torch.view_as_real(torch.view_as_complex(x.reshape(3, 4, 2)) * y).flatten(-2)


LOOPS: dict[str, tuple[Callable[..., Any], ...]] = {
    "arithmetic": (lambda x, y: [x * y, x + 2j * y, x - 1.5, 2 / (x + 3), x / y, 1j - x, x * 3, x.square()], X, Y),
    "reals beside": (lambda x, r: [x * r, r - x, torch.add(x, r, alpha=2j), x == r, x != x], X, R),
    "doubles": (lambda x, y: [x * y.to(torch.complex128), x.to(torch.complex128).conj()], X, Y),
    "functions": (lambda x: [x.exp(), x.sin(), x.cos(), x.sinh(), x.cosh(), x.log(), x.abs(), x.angle(), x.sgn(), x.isnan()], X),
    "parts": (lambda x, y: [x.real * 1, (x * y).imag * 2, torch.view_as_real(x * y), torch.view_as_real(x) * 2, x.conj().imag + 1], X, Y),
    "rotary": (rotated, PAIRS, Y),
    "made": (
        lambda r: [
            torch.polar(r.abs(), r),
            torch.complex(r, -r),
            torch.zeros(3, dtype=torch.complex64) + r[:, 0],
            torch.full_like(r, 2) * 1j,
        ],
        R,
    ),
    "views": (
        lambda x: [
            x.permute(2, 0, 1)[1:, :, ::2] * 1j,
            x.reshape(6, 4).t(),
            x.unsqueeze(0).expand(2, 2, 3, 4),
            x.unbind(1)[1] + 1,
            (x * 2).transpose(0, 1),
        ],
        X,
    ),
    "moves": (
        lambda x: [
            torch.cat([x, x * 2], 1),
            torch.stack([x, x.conj()], -1),
            x.flip(0),
            x.roll(1, 2),
            x.tril(),
            torch.constant_pad_nd(x, (1, 0), 2 - 1j),
        ],
        X,
    ),
    "sums": (lambda x: [x.sum(), x.sum(1), x.mean((0, 2), keepdim=True), x.cumsum(2), (x * x.conj()).real.sum(-1)], X),
    "truths": (lambda r, x: [(r * 1j).to(torch.bool), (r * 1j).bool() * x[0, :3], (x * 0).bool(), (x * 2).real.to(torch.int64)], R, X),
    "choices": (lambda x: [torch.where(x.real > 0, x, 0), x.masked_fill(x.imag > 0, 3j)], X),
    "indices": (lambda x, i: [x.index_select(1, i), x[:, i], x[i % 2, i]], X, IDS),
    "great and small": (lambda x: [x / x.flip(0), x * 2, 1 / (x + 1), x * x[4]], HUGE),
    "alone": (lambda x, y: [(x[0, 0, 0] * y[1]).abs(), x[0, 0, 0] * 2], X, Y),
}


@pytest.mark.parametrize("name", LOOPS)
def test_as_loops(name: str, as_loops: Callable[..., list[Any]]) -> None:
    fn, *tensors = LOOPS[name]
    expected = fn(*tensors)
    for g, e in zip(as_loops(fn, *tensors), expected if isinstance(expected, list) else [expected], strict=True):
        torch.testing.assert_close(g, e, rtol=2e-5, atol=1e-5, equal_nan=True)
        assert all(n == 1 or a == b for n, a, b in zip(e.shape, g.stride(), e.stride(), strict=True))


def captured(fn: Callable[..., Any], *tensors: torch.Tensor) -> Any:
    graph = torch.fx.Graph()
    nodes = tuple(graph.placeholder(f"a{k}") for k in range(len(tensors)))
    graph.output(graph.call_function(lambda *xs: list(fn(*xs)), nodes))
    with torch.no_grad():
        return lower(functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), tensors))


def test_what_torch_is_called_for_is_whole() -> None:
    fn = lambda x, y: [(x * 2) @ (x.mH + 1) * 1j, torch.fft.fft(x * y).abs(), torch.tanh(x).real, x[1:].t() @ x[1:]]  # noqa: E731
    x = X[0].clone()
    program = captured(fn, x, Y)
    assert sorted(n.op for n in program.nodes if isinstance(n, Extern)) == ["aten::_fft_c2c", "aten::mm", "aten::mm", "aten::tanh"]
    solved = captured(lambda a, b: [torch.linalg.solve_triangular(a.mH, b * 2, upper=True)], x[:3, :3], x[:3])
    assert [n.op for n in solved.nodes if isinstance(n, Extern)] == ["aten::_conj", "aten::linalg_solve_triangular"], (
        "it lays its result out by the mark"
    )
    torch.testing.assert_close(
        run_lowered(solved, [x[:3, :3], x[:3]])[0], torch.linalg.solve_triangular(x[:3, :3].mH, x[:3] * 2, upper=True)
    )
    for g, e in zip(run_lowered(program, [x.clone(), Y]), fn(x, Y), strict=True):
        torch.testing.assert_close(g, e)


def test_parts_of_several_types_are_put_together_by_torch() -> None:
    fn = lambda x, i: [torch.cat([i, x * 2]), torch.stack([x.real > 0, x]), torch.cat([x, x.to(torch.complex128)])]  # noqa: E731
    x, ids = X[0].clone(), torch.arange(12).reshape(3, 4)
    for g, e in zip(run_lowered(captured(fn, x, ids), [x.clone(), ids]), fn(x, ids), strict=True):
        torch.testing.assert_close(g, e)


def test_written_inputs() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        x.mul_(y)
        y[1:].zero_()
        return [x + y]

    ours, theirs = [X[0].clone(), Y.clone()], [X[0].clone(), Y.clone()]
    got, want = run_lowered(captured(fn, *ours), ours), fn(*theirs)
    for g, e in zip([*got, *ours], [*want, *theirs], strict=True):
        torch.testing.assert_close(g, e)


def test_what_comes_in_conjugated_is_left_to_eager() -> None:
    """Torch notes on the tensor that its memory holds the conjugates, which loops would not see."""
    with pytest.raises(GraphError, match="GI018"):
        captured(lambda x: [x * 2], X.conj())


def test_plans_of_conjugated_fakes_are_others() -> None:
    def key(x: torch.Tensor) -> object:
        sizes = Sizes()
        return graph_key(torch.fx.symbolic_trace(lambda x: x * 2), [FakeContext(sizes).from_tensor(x, {0: None})], GraphOptions(), [])

    assert key(X) == key(X.clone()) is not None
    assert key(X) != key(X.conj())
