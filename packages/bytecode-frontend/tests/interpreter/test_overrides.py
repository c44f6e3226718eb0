"""Tensors of classes with a ``__torch_function__`` of their own are captured whole: what they are told, what they give."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from conftest import same
from opmill_bytecode_frontend import capture

TOLD: list = []


class Plain(torch.Tensor):
    pass


class Telling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        TOLD.append((func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs or {})))
        return super().__torch_function__(func, types, args, kwargs or {})


class Special(Telling):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        TOLD.append("special")
        return super().__torch_function__(func, types, args, kwargs)


class Tenfold(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        return out * 10 if func is torch.add else out


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.sin:
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs)


class Rich(torch.Tensor):
    def __new__(cls, data, scale):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, scale):
        self.scale = scale

    def scaled(self):
        return self * self.scale

    @property
    def half(self):
        return self / 2

    def sum(self, *args):
        return super().sum(*args) + 1


class Meta(torch.nn.Parameter):
    def __new__(cls, data, scale=2):
        made = torch.Tensor._make_subclass(cls, data, True)
        made.scale = scale
        return made

    __torch_function__ = classmethod(torch.Tensor.__torch_function__.__func__)


def ones(cls):
    return torch.arange(4.0).reshape(2, 2).as_subclass(cls)


def operators(x):
    return x + 1, 2 - x, x @ x, -x, x[0], x > 1, x**2, 3 * x, x / 2, x // 2, x == x, ~(x > 0), abs(x)


def functions(x):
    return (
        torch.sin(x),
        F.relu(x),
        F.softmax(x, dim=-1),
        torch.cat([x, x]),
        x.norm(),
        torch.stack((x, x), dim=1),
        F.linear(x, x),
        torch.where(x > 1, x, 0),
    )


def methods(x):
    return x.sum(0), x.view(-1), x.t(), x.max(0), x.split(1), x.to(torch.float64), x.clone(), x.detach(), x.chunk(2)


def looks(x):
    return (
        x.shape,
        x.dtype,
        x.dim(),
        len(x),
        x.T,
        isinstance(x, Plain),
        type(x) is Plain,
        x.is_contiguous(),
        torch.is_tensor(x),
        x.requires_grad,
    )


def mixed(x):
    y = torch.ones(2, 2)
    return y + x, torch.add(y, x), torch.cat([y, x]), y @ x, y * x, torch.mul(other=x, input=y)


def sided(x):
    y = torch.ones(2, 2)
    return x - y, x @ y, x * y, x / y, y / x, x < y, y <= x, x**y


def anew(x):
    return (
        x.new_zeros(2, 2),
        x.new_ones((1, 2)),
        x.new_full((2,), 3),
        x.new_tensor([1.0, 2]),
        x.new_empty(2, 3).shape,
        x.stride(),
        torch.zeros_like(x),
    )


def written(x):
    y = x.add_(1)
    y[0] = 5
    x.mul_(2)
    return y is x, x, y.view(-1)


def made(x):
    plain = x.as_subclass(torch.Tensor)
    again = plain.as_subclass(type(x))
    return plain * 2, again * 2, type(again) is type(x), [row * 2 for row in x]


PROGRAMS = [operators, functions, methods, looks, mixed, sided, anew, written, made]


@pytest.mark.parametrize("cls", [Plain, Telling, Special, Tenfold, Refusing], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_plainly(fn, cls):
    def played(call):
        TOLD.clear()
        x = ones(cls)
        try:
            out = call(x)
        except TypeError as error:
            out = str(error)
        return bare((out, x)), list(TOLD)

    want = played(fn)
    assert same(want, played(capture(fn)))
    if cls is not Refusing and cls is not Tenfold:
        assert same(want, played(capture(fn, fullgraph=True)))


def bare(value):
    """Tensors with their classes beside them."""
    if isinstance(value, torch.Tensor):
        return type(value).__name__, value.detach().as_subclass(torch.Tensor)
    return type(value)(map(bare, value)) if type(value) in (tuple, list) else tuple(map(bare, value)) if isinstance(value, tuple) else value


def test_methods_attributes_and_constructors():
    def f(x, plain):
        made = Rich(plain * 2, 5)
        made.note = "new"
        return x.scaled(), x.half, x.sum(), made.scaled() + made.scale, made

    for scale in (2, 3):
        x = Rich(torch.ones(2), scale)
        want = f(x, torch.ones(2))
        for options in ({}, {"fullgraph": True}):
            got = capture(f, **options)(x, torch.ones(2))
            assert same(bare(want), bare(got)) and (got[4].note, got[4].scale) == ("new", 5)


def test_attributes_that_change_are_seen():
    x, f = Rich(torch.ones(2), 2), capture(lambda x: x.scaled())
    for scale in (2, 7, 2):
        x.scale = scale
        assert f(x).tolist() == [scale, scale]


def test_sizes_that_change_are_not_asked_of_the_class():
    calls = []

    def f(x):
        return x * x.shape[0]

    compiled = capture(f, on_translation=calls.append)
    for size in (2, 3, 5, 7):
        x = torch.arange(float(size)).as_subclass(Telling)
        TOLD.clear()
        want, told = f(x), list(TOLD)
        TOLD.clear()
        assert torch.equal(compiled(x).as_subclass(torch.Tensor), want.as_subclass(torch.Tensor)) and told == TOLD[: len(told)]
    assert len(calls) == 2


def test_sizes_that_are_given_back_are_not_asked_of_the_class():
    def f(x):
        return x.shape[0] * 2, x.numel()

    compiled = capture(f)
    for size in (2, 3, 5, 7):
        x = torch.ones(size, size).as_subclass(Telling)
        played = []
        for call in (f, compiled):
            TOLD.clear()
            played.append((call(x), list(TOLD)))
        assert played[0] == played[1]


def test_a_transform_takes_the_class_away():
    def f(x):
        return torch.func.vmap(lambda row: row * 2 + 1)(x)

    for cls in (Plain, Telling):
        played = []
        for call in (f, capture(f)):
            TOLD.clear()
            played.append((bare(call(ones(cls))), list(TOLD)))
        assert same(*played)


def test_gradients():
    def f(x):
        return (x * x).sum() * 2

    x = torch.ones(3).as_subclass(Plain).requires_grad_()
    capture(f, fullgraph=True)(x).backward()
    assert x.grad.tolist() == [4.0] * 3


def test_parameters():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = Meta(torch.ones(2, 2))

        def forward(self, x):
            return x @ self.weight * self.weight.scale

    layer = Layer()
    compiled = capture(lambda x: layer(x), fullgraph=True)
    for scale in (2, 3):
        layer.weight.scale = scale
        want, got = layer(torch.ones(2, 2)), compiled(torch.ones(2, 2))
        assert same(bare(want), bare(got))
        got.sum().backward()
        assert torch.equal(layer.weight.grad, torch.full((2, 2), 2.0 * scale))
        layer.weight.grad = None
        with torch.no_grad():
            layer.weight.mul_(2)


def test_classes_that_take_operators_apart():
    from torch.testing._internal.two_tensor import TwoTensor

    def f(x):
        return x * 2 + 1

    x = TwoTensor(torch.ones(2), torch.zeros(2))
    out = capture(f, fullgraph=True)(x)
    assert type(out) is TwoTensor and out.a.tolist() == [3.0, 3.0] and out.b.tolist() == [1.0, 1.0]


class Said:
    """No tensor, but says what torch's functions mean."""

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return function.__name__, [arg.inner for arg in args]


QUESTIONS = (
    torch.numel,
    torch.is_floating_point,
    torch.is_complex,
    torch.is_conj,
    torch.is_neg,
    torch.resolve_conj,
    torch.real,
    torch.imag,
)


@pytest.mark.parametrize("function", QUESTIONS, ids=lambda function: function.__name__)
def test_questions_about_what_is_no_tensor(function):
    """Are answered, or refused, as by eager."""

    def asked(x, *given, **named):
        try:
            return x + 1, str(function(*given, **named))
        except TypeError as error:
            return x + 1, str(error)

    captured = capture(asked, "eager")
    x = torch.ones(2, dtype=torch.complex64)
    for given, named in (((Said(x),), {}), ((3,), {}), ((), {}), ((x, x), {}), ((), {"input": x}), ((x,), {}), ((), {"other": x})):
        assert str(captured(x, *given, **named)) == str(asked(x, *given, **named))
