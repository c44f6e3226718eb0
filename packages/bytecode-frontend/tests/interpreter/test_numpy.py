"""NumPy in captured code: a table of programs, each captured whole, with NumPy's results, dtypes, strides, numbers and views."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.errors import Unsupported

np = pytest.importorskip("numpy", minversion="2.0")

#: One program a line: an expression of x (float64, 3 by 4), y (float32, 3 by 4), v (float64, 4), s (a matrix, 3 by 3, well conditioned), i
#: (int64, 3 by 4),
#: u (uint8, 4), b (bool, 4), z (complex128, 4), t (a tensor, float32, 2 by 3), k (positions, int64, 2).
PROGRAMS = """
np.sin(x) + 1
x * 2 - y / 3
x + i
i * 2 + u
u + 300.5
u * 2
i / 2
x // 2.5
x % 1.5
-x
abs(-i)
x ** 2
x > 1
(x > 1) & (x < 5)
~b
b | (v > 2)
i & 3
x == y
np.maximum(x, 3)
np.minimum(x, y)
np.exp(-x) / (1 + np.exp(-x))
np.tanh(v) * np.cosh(v)
np.log1p(x) + np.sqrt(x) + np.sqrt(i)
np.arctan2(x, y)
np.hypot(x, y)
np.isnan(x / x)
np.floor(x) + np.ceil(x * 1.3) + np.rint(x * 0.7)
np.sign(x - 3)
np.clip(x, 1, 5)
x.clip(2, None)
np.where(x > 3, x, -1)
np.where(b, v, u)
np.abs(z)
z * np.conj(z)
z.real + z.imag
np.logical_and(x > 1, y < 5)
np.add(x, 1, out=np.zeros((3, 4)))
np.square(x) + np.reciprocal(x + 1)
np.deg2rad(v)
np.copysign(x, -1)
x.sum()
x.sum(axis=0)
np.sum(y, axis=(0, 1), keepdims=True)
np.sum(i), i.sum(dtype=np.float32)
b.sum()
np.mean(x, axis=1)
y.mean()
i.mean(axis=0)
np.var(x, axis=0, ddof=1)
np.std(y)
x.max(axis=1) - x.min()
np.ptp(x, axis=0)
x.argmax(), np.argmin(x, axis=1)
np.any(x > 5, axis=0), (x > -1).all()
np.cumsum(x, axis=1)
np.cumprod(v)
np.cumsum(i)
np.prod(x + 1, axis=0)
np.median(x, axis=1)
np.median(v)
np.average(x, axis=0)
np.nansum(x / x), np.nanmean(x)
np.count_nonzero(x > 2, axis=0)
np.diff(x, axis=1)
np.gradient(v)
np.trapezoid(v)
x.reshape(4, 3)
x.reshape(-1)
x.T
x.T.reshape(2, 6)
np.transpose(x, (1, 0)).copy()
np.ravel(x.T)
x.flatten()
x[None, :, ::2]
x[1]
x[1, 2]
x[-1, 1:3]
x[..., 0]
x[::-1] * 2
x[:, ::-2] + 1
x[k]
x[:, k]
x[[0, 2]]
v[k] + v[-k]
np.squeeze(x[:, :1])
np.expand_dims(x, 1)
np.swapaxes(x, 0, 1) * 1
np.moveaxis(x[None], 0, 2)
np.concatenate([x, y])
np.concatenate([x, i], axis=None)
np.stack([v, u], axis=1)
np.vstack([x, v])
np.hstack([x, x])
np.column_stack([v, v * 2])
np.split(x, 2, axis=1)
np.array_split(v, 3)
np.tile(v, 2)
np.repeat(v, 2)
np.repeat(x, 3, axis=1)
np.roll(x, 1, axis=0)
np.flip(x) + 0
np.pad(v, 2)
np.tril(s) + np.triu(s, 1)
np.diag(v)
np.diag(s) * 1
np.trace(s)
np.outer(v, u)
np.kron(v, np.ones(2))
np.meshgrid(v, v)
np.take(v, k)
np.take_along_axis(x, np.array([[0], [1], [2]]), 1)
np.sort(x[:, ::-1].copy(), axis=1)
np.searchsorted(v, 1.5)
np.broadcast_to(v, (3, 4)) + x
np.zeros_like(x) + np.ones_like(y) + np.full_like(i, 3)
np.arange(4) * v
np.linspace(0, 1, 4) + v
np.eye(3) @ s
np.array([[1, 2], [3, 4]]) * 1.5
np.array([v[0], v[1], 2.0])
np.asarray(x) + np.array(x)
x.astype(np.float32)
x.astype(int) + i.astype(np.int32)
i.astype(bool)
v @ v
x @ x.T
x.dot(v)
np.dot(i, i.T)
np.inner(x, y)
np.vdot(v, v)
np.matmul(x[None], x.T)
np.tensordot(x, y, axes=([1], [1]))
np.einsum('ij,kj->ik', x, y)
np.linalg.inv(s)
np.linalg.det(s)
np.linalg.solve(s, x)
np.linalg.norm(x)
np.linalg.norm(x, axis=1)
np.linalg.cholesky(s @ s.T)
np.linalg.matrix_power(s, 3)
np.linalg.eigvalsh(s + s.T)
np.fft.fft(v)
np.fft.ifft(np.fft.fft(x, axis=0), axis=0)
np.fft.rfft(v)
np.fft.irfft(np.fft.rfft(v))
np.fft.fft2(x)
np.fft.fftshift(v) + 0
np.cov(x)
np.corrcoef(x)
np.polyval([1.0, 2.0, 3.0], v)
np.vander(v, 3)
np.cross(x[:, :3], x[:, 1:])
np.interp(0.5, [0.0, 1.0], [2.0, 4.0]) * v
np.round(x * 1.2345, 2)
np.nan_to_num(x / 0.0)
np.float32(2) * y + np.float64(1)
x.shape[0] * x.ndim + x.size * x
np.sum([v, v], axis=0)
(x - x.mean(axis=0)) / x.std(axis=0)
np.exp(x - x.max(axis=1, keepdims=True)) / np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)
np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
[row.sum() for row in x]
torch.from_numpy(np.sin(t.numpy()) + 1) * 2
torch.from_numpy(x) + torch.tensor(v)
torch.as_tensor(y * 2).sum()
np.asarray(t) * 2
t.numpy().mean(axis=0), t + 1
(lambda a: (a.__iadd__(1), a))(x.copy())[1]
"""
ROWS = [line for line in PROGRAMS.strip().splitlines()]


def arguments() -> dict[str, Any]:
    random = np.random.RandomState(0)
    return {
        "x": np.arange(12.0).reshape(3, 4) * 0.7,
        "y": np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::-1].copy(),
        "v": np.array([0.5, 1.0, 2.0, 3.5]),
        "s": random.rand(3, 3) + np.eye(3) * 3,
        "i": np.arange(12).reshape(3, 4) - 4,
        "u": np.array([1, 2, 250, 7], np.uint8),
        "b": np.array([True, False, True, False]),
        "z": np.array([1 + 2j, 3.0, -1j, 2 - 2j]),
        "t": torch.arange(6.0).view(2, 3),
        "k": np.array([2, 0]),
    }


def check_same(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            check_same(g, w)
    elif isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want)
    else:
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if isinstance(want, np.ndarray) and want.size > 1:
            assert [s for s, n in zip(got.strides, got.shape, strict=True) if n > 1] == [
                s for s, n in zip(want.strides, want.shape, strict=True) if n > 1
            ]
        np.testing.assert_allclose(got, want, rtol=1e-5 if want.dtype.itemsize <= 4 else 1e-9, atol=1e-6)


def program(text: str) -> Any:
    namespace: dict[str, Any] = {"np": np, "torch": torch}
    exec(f"def f({', '.join(arguments())}):\n    return {text}", namespace)
    return namespace["f"]


@pytest.mark.parametrize("text", ROWS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_program(text: str) -> None:
    f = program(text)
    want = f(**arguments())
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = capture(f, backend, fullgraph=True)
    given = arguments()
    for _ in range(2):
        check_same(compiled(**given), want)
    assert len(graphs) == 1
    for name, value in arguments().items():  # what the program does not write stays
        check_same(given[name], value)


# ---- arrays and their memory ---------------------------------------------------------------------------------------------


def whole(function: Any) -> tuple[Any, list[Any]]:
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    return capture(function, backend, fullgraph=True), graphs


def test_views_share_memory() -> None:
    compiled, _ = whole(lambda a, t: (a, a[1:], a.T, a.reshape(-1), torch.from_numpy(a), t.numpy(), t.numpy()[0]))
    a, t = np.zeros((2, 3)), torch.zeros(2, 2)
    same, rows, turned, flat, tensor, array, row = compiled(a, t)
    assert same is a
    a[1, 0] = 5
    t[0, 1] = 7
    assert rows[0, 0] == turned[0, 1] == flat[3] == tensor[1, 0] == 5
    assert array[0, 1] == row[1] == 7
    assert all(each.flags.writeable for each in (rows, turned, flat, array, row))


def test_copies_do_not() -> None:
    compiled, _ = whole(lambda a: (a.copy(), a + 0, np.array(a), a.flatten(), torch.tensor(a), a[[0, 1]]))
    a = np.zeros((2, 3))
    made = compiled(a)
    a[:] = 1
    assert not any(np.asarray(each).any() for each in made)


def test_arguments_are_written() -> None:
    def program(a: Any, t: Any) -> Any:
        a += 1
        a[0] = 9
        a[:, 1] *= 2
        np.add(a, 1, out=a)
        b = t.numpy()
        b -= 3
        return t * 2

    for function in (program, whole(program)[0]):
        a, t = np.arange(6.0).reshape(2, 3), torch.zeros(3)
        assert function(a, t).tolist() == [-6.0] * 3
        assert a.tolist() == [[10.0, 19.0, 10.0], [5.0, 11.0, 7.0]]
        assert t.tolist() == [-3.0] * 3


def test_arguments_that_overlap() -> None:
    def program(a: Any, b: Any) -> Any:
        a += 1
        return b * 2

    a = np.zeros(4)
    compiled = capture(program, "eager")
    for given in ((a, np.zeros(3)), (a, a[1:]), (a, a)):
        a[:] = 0
        want = program(*(each.copy() if each is not a else a for each in given)) if given[1] is not a and given[1].base is None else None
        a[:] = 0
        got = compiled(*given)
        assert got.tolist() == ([2.0] * len(got) if want is None else want.tolist())


TABLE = [np.array([1.0, 2.0])]
GLOBAL = np.array([1.0, 2.0])


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = np.array([2.0, 3.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.from_numpy(self.scale + TABLE[0] * GLOBAL)


def test_arrays_that_are_kept() -> None:
    global GLOBAL
    module = Scaled()
    compiled, graphs = whole(lambda m, x: m(x))
    x = torch.ones(2)
    for change in (
        lambda: None,
        lambda: module.scale.__iadd__(1),
        lambda: setattr(module, "scale", np.array([7.0, 8.0])),
        lambda: TABLE[0].fill(4),
    ):
        change()
        assert torch.equal(compiled(module, x), module(x))
    GLOBAL = np.array([5.0, 5.0])
    assert torch.equal(compiled(module, x), module(x))
    assert len(graphs) == 1
    GLOBAL = np.array([[5.0], [6.0]])
    assert torch.equal(compiled(module, x), module(x))
    GLOBAL = np.array([1.0, 2.0])


def test_other_layouts_are_other_graphs() -> None:
    compiled, graphs = whole(lambda a: a * 2)
    a = np.arange(12.0).reshape(3, 4)
    for given in (a, a.T, a.astype(np.float32), a[:, ::2], a[:2], np.asfortranarray(a)):
        check_same(compiled(given), given * 2)
    assert len(graphs) == 6


@pytest.mark.parametrize(
    "text",
    [
        "x[x > 3]", "np.nonzero(x)", "np.unique(i)", "i // 2", "i % 3", "i ** 2", "np.random.rand(2) + v[:2]", "x.astype(np.uint16)", "np.sort(x)[::-1]",
        "np.argsort(v)", "np.linalg.svd(s)", "np.vectorize(float)(v)", "x.tolist()", "float(x.sum())", "np.allclose(x, x)", "x.view(np.int64)",
        "np.broadcast_to(v, (2, 4))", "np.histogram(x)", "v > 'a'", "np.percentile(x, 30)", "x[::-1]", "np.linalg.inv(x)", "x.reshape(5, 5)", "u + 300",
        "np.add(x, y[:, :2])", "x @ x", "np.concatenate([x, v])", "x.sum(axis=5)", "i << 3", "divmod(x, 2)", "x.flat[2]", ("np.select([x > "
            "1], [x])"), "len(x) + x[0, 0]",
        "t + t.numpy()", "np.array_equal(x, y)", "x.item(3)", "np.ma.masked_array(v)", "np.matrix(s) * 2", "np.sin(np.flip(x))", "np.dot(z, z)", "np.exp(z)",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore::PendingDeprecationWarning", "ignore::opmill_bytecode_frontend.errors.CaptureWarning"
)
def test_with_breaks(text: str) -> None:
    """Where there is no program of torch NumPy itself runs, and raises what it raises."""
    f = program(text)
    compiled = capture(f, "eager")
    for _ in range(2):
        np.random.seed(0)
        try:
            want = f(**arguments())
        except Exception as error:
            with pytest.raises(type(error)) as caught:
                compiled(**arguments())
            assert str(caught.value) == str(error)
        else:
            np.random.seed(0)
            got = compiled(**arguments())
            assert str(got) == str(want)
            assert type(got) is type(want)


def test_decisions_on_numbers() -> None:
    def program(a: Any) -> Any:
        return a * 2 if a.sum() > 3 else a - 1

    compiled = capture(program, "eager")
    for a in (np.zeros(3), np.ones(3) * 2, np.zeros(3)):
        check_same(compiled(a), program(a))


def test_floating_point_errors_that_raise() -> None:
    compiled = capture(lambda a: 1 / a, "eager")
    for _ in range(2):
        with np.errstate(all="ignore"):
            assert np.isinf(compiled(np.zeros(2))).all()
        with np.errstate(all="raise"), pytest.raises(FloatingPointError):
            compiled(np.zeros(2))


def test_arrays_that_tensors_cannot_hold() -> None:
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    compiled = capture(lambda a: a * 2, "eager")
    for given in (read_only, np.arange(3.0)[::-1], np.array(["a"], object), np.arange(3, dtype=">f8"), np.arange(3, dtype=np.uint16)):
        check = given * 2
        got = compiled(given)
        assert got.tolist() == check.tolist()
        assert got.dtype == check.dtype


def test_tensors_that_require_grad() -> None:
    with pytest.raises(RuntimeError, match="requires grad"):
        capture(lambda t: t.numpy() + 1, "eager")(torch.ones(2, requires_grad=True))
    with pytest.raises(Unsupported):
        capture(lambda t: t.numpy() + 1, "eager", fullgraph=True)(torch.ones(2, requires_grad=True))
