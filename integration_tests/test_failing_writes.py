"""Programs that write to what they are given and fail half-way leave what eager leaves, and say what it says."""

import pytest
import torch
from torch import library

import opmill

N = 70
NOT_POSITIVE = -torch.eye(3)


def before_an_operator(x, y, z):
    x.add_(1)
    return torch.linalg.cholesky(NOT_POSITIVE.to(x.dtype))


def around_an_operator(x, y, z):
    x.add_(1)
    r = torch.linalg.cholesky(NOT_POSITIVE.to(x.dtype))
    x.add_(r.sum())
    return r


def that_is_handled(x, y, z):
    x.add_(1)
    try:
        return torch.linalg.cholesky(NOT_POSITIVE.to(x.dtype))
    except RuntimeError:
        return x.mul_(5)


def in_one_loop(x, y, z):
    return x.add_(z[y])


def behind_a_check(x, y, z):
    r = z[y]
    x.add_(1)
    return r


def before_a_check(x, y, z):
    x.add_(1)
    return z[y]


def around_a_check(x, y, z):
    x[2:].add_(1)
    r = torch.gather(z, 0, y)
    x.mul_(2)
    return r


def of_classes(x, y, z):
    x.add_(1)
    return torch.nn.functional.one_hot(y, N)


def asserted(x, y, z):
    x.add_(1)
    torch._assert_async((y < N).all())
    return x.add_(1)


def at_positions(x, y, z):
    z.mul_(2)
    x[y] = z
    return x


def added_at_positions(x, y, z):
    x[y] += z
    z.add_(1)


def of_a_view(x, y, z):
    v = x[1:]
    v.zero_()
    v.add_(z[y][1:])
    return v


FUNCTIONS = [before_an_operator, around_an_operator, that_is_handled, in_one_loop, behind_a_check, before_a_check, around_a_check]
FUNCTIONS += [of_classes, asserted, at_positions, added_at_positions, of_a_view]


def outcome(call, size, known):
    x, y, z = torch.zeros(size), torch.arange(size) % N, torch.arange(1.0, size + 1)
    if known:
        try:
            call(x, y, z)
        except RuntimeError:
            pass
        x, z = torch.zeros(size), torch.arange(1.0, size + 1)
    y[size // 2 + 3] = size + 7
    try:
        result = call(x, y, z)
    except Exception as exc:
        return x.tolist(), z.tolist(), type(exc), str(exc)
    return x.tolist(), z.tolist(), result.tolist()


@pytest.mark.parametrize("known", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("size", [N, 20000])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_left(function, size, known):
    if function is at_positions and size > N:
        pytest.skip("eager's threads write up to different places")
    assert outcome(opmill.compile(function), size, known) == outcome(function, size, known)


@pytest.fixture
def operators():
    """One that writes, and ones whose fake kernels promise something else."""
    with library._scoped_library("opmill_failing", "DEF") as made:
        made.define("grow(Tensor(a!) x) -> Tensor")
        made.define("other(Tensor x) -> Tensor")

        def grow(x):
            x.add_(1)
            return torch.zeros(3)

        made.impl("grow", grow, "CPU")
        made.impl("other", lambda x: torch.zeros(7), "CPU")
        for name in ("grow", "other"):
            library.register_fake(f"opmill_failing::{name}", lambda x: x.new_empty(3), lib=made)
        yield torch.ops.opmill_failing


def test_nothing_is_written_twice(operators):
    def f(x, y):
        operators.grow(x)
        return operators.other(y) + 1

    call = opmill.compile(f)
    x = torch.zeros(3)
    for _ in range(2):
        x.zero_()
        with pytest.raises(Exception, match="RC056.*hint: mend that kernel"):
            call(x, torch.ones(3))
        assert x.tolist() == [1.0] * 3


def test_what_is_written_last_is_written_once(operators):
    def f(x, y):
        x.add_(1)
        return operators.other(y) + 1

    x = torch.zeros(3)
    with pytest.warns(UserWarning, match="GI032"):
        assert opmill.compile(f)(x, torch.ones(3)).shape == (7,)
    assert x.tolist() == [1.0] * 3


@pytest.mark.parametrize("written", [False, True])
def test_with_gradients(written):
    def f(x, y, buffer):
        buffer.add_(1)
        r = x * 2
        if written:
            buffer.add_(r.detach())
        return r[y]

    def left(call):
        x, buffer = torch.ones(4, requires_grad=True), torch.zeros(4)
        with pytest.raises(IndexError) as raised:
            call(x, torch.tensor([1, 9]), buffer)
        return buffer.tolist(), str(raised.value)

    assert left(opmill.compile(f)) == left(f)


def test_writes_that_torch_refuses_once_they_are_done():
    """Those to tensors of inference mode, outside of it."""
    for call in (opmill.compile(torch.Tensor.add_), opmill.compile(lambda x, n: x.add_(n))):
        with torch.inference_mode():
            x = torch.zeros(3)
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            call(x, 1)
        assert x.tolist() == [1.0] * 3
