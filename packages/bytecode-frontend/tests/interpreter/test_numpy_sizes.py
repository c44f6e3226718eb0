"""Arrays whose sizes change from call to call: a graph for all sizes from the second on, and NumPy's results for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

np = pytest.importorskip("numpy", minversion="2.0")

from test_numpy import ROWS, check_same  # noqa: E402

#: Expressions of x (float64, n by 4), y (float64, n by 4), i (int64, n), t (a tensor, float32, n by 3), q (float32, n by n + 1).
PROGRAMS = """
np.sin(x) + 1
x * y - x.mean(axis=0)
x / len(x)
(x.reshape(x.shape[0] * x.shape[1]) / x.shape[0]).mean()
x.reshape(-1, 2).sum(axis=1)
x.T @ y
q @ q.T + np.eye(q.shape[0])
np.arange(len(x)) * x.sum(axis=1)
np.zeros((len(x), 2)) + np.ones(len(x))[:, None]
np.full(len(x), 3.5) * i
np.identity(len(x)) - np.eye(len(x), len(x) + 1, k=1) @ q.T
np.arange(1, len(x) + 1, 2)
np.where(x > 0, x, 0.0).cumsum(axis=0)[::2]
np.concatenate([x, y]) * 2, np.stack([x, y]).transpose(1, 0, 2).reshape(len(x), -1)
x[1:] - x[:-1]
x[: len(x) // 2], x[len(x) - 1], x[-1]
np.exp(x - x.max(axis=1, keepdims=True))
x.argmax(axis=0), np.sort(x, axis=0), np.median(x, axis=0), x.std(), np.var(x, axis=0)
np.linalg.norm(x, axis=1), np.einsum("ni,nj->ij", x, y)
np.fft.rfft(x, axis=0), np.pad(x, ((1, 2), (0, 0)))
torch.from_numpy(np.tanh(t.numpy()) + 1) * 2
t.numpy().mean(axis=0), t * len(x)
x.shape, x.size, x.nbytes, x.ndim, x.strides, len(x), np.shape(x), np.size(x), np.ndim(x), x + 1
np.squeeze(x[None]), np.expand_dims(x, 1), np.broadcast_to(i, (2, len(i))).sum(axis=0)
np.multiply(x, 2, out=np.empty_like(x)), np.take(x, [0, 1], axis=0), x[i - i]
np.outer(i, i), np.tril(q), np.diagonal(q) * 1, np.trace(q), np.repeat(x, 2, axis=0), np.roll(x, 1, axis=0)
x.astype(np.float32).ravel(), np.clip(x, 0, len(x)), np.asarray([x[0], y[-1]])
""".strip().splitlines()
SIZES = (5, 6, 8, 13)


def arguments(n: int) -> dict[str, Any]:
    random = np.random.RandomState(n)
    return {
        "x": random.randn(n, 4),
        "y": random.randn(n, 4),
        "i": np.arange(n) * 2,
        "t": torch.arange(3.0 * n).view(n, 3),
        "q": random.rand(n, n + 1).astype(np.float32),
    }


def program(text: str, names: Any) -> Any:
    namespace: dict[str, Any] = {"np": np, "torch": torch}
    exec(f"def f({', '.join(names)}):\n    return {text}", namespace)
    return namespace["f"]


def same(got: Any, want: Any) -> None:
    if isinstance(want, (int, torch.Size)):
        assert got == want
        assert type(got) is type(want)
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
    else:
        check_same(got, want)


@pytest.mark.parametrize("text", PROGRAMS)
def test_one_graph_for_all_sizes(text: str) -> None:
    f = program(text, arguments(1))
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = capture(f, backend, fullgraph=True)
    for n in SIZES:
        same(compiled(**arguments(n)), f(**arguments(n)))
    assert len(graphs) == 2


@pytest.mark.parametrize("text", [*ROWS, "x[::-1] * 2", "x[:, ::-1] + 1"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_for_each_size(text: str) -> None:
    """Programs of which some need sizes as constants, or refuse some sizes: each call gives, or raises, what it does plainly."""

    def given(n: int) -> dict[str, Any]:
        return {
            "x": np.arange(4.0 * n).reshape(n, 4) * 0.7,
            "y": np.arange(4 * n, dtype=np.float32).reshape(n, 4),
            "v": np.arange(1.0, 5.0) * n,
            "s": np.random.RandomState(n).rand(n, n) + np.eye(n) * n,
            "i": np.arange(4 * n).reshape(n, 4) - 4,
            "u": np.array([1, 2, 250, 7], np.uint8),
            "b": np.array([True, False, True, False]),
            "z": np.arange(n) * (1 + 2j),
            "t": torch.arange(3.0 * n).view(n, 3),
            "k": np.array([2, 0]),
        }

    f = program(text, given(2))
    compiled = capture(f, "eager")
    for n in (3, 4, 6, 9, 3):
        try:
            want = f(**given(n))
        except (ValueError, IndexError) as error:
            with pytest.raises(type(error)):
                compiled(**given(n))
        else:
            same(compiled(**given(n)), want)
