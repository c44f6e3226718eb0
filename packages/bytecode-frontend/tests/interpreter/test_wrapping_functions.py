"""Functions that have the names of others, as ``functools.wraps`` gives them, do what their own code says."""

from __future__ import annotations

import copy
import functools
import math
import operator

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from opmill_bytecode_frontend import capture


def doubled(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.is_quantized:  # which has no product
            return result
        return [each * 2 for each in result] if isinstance(result, (list, tuple)) else result * 2

    return inner


CALLS = {
    "torch.sin": lambda f, x: f(x),
    "torch.matmul": lambda f, x: f(x, x),
    "torch.stack": lambda f, x: f([x, x]),
    "torch.full": lambda f, x: f((2,), 3.0) + x,
    "torch.arange": lambda f, x: f(3.0) + x[0],
    "torch.where": lambda f, x: f(x > 1, x, 0.0),
    "torch.linspace": lambda f, x: f(0.0, 1.0, 2) + x,
    "torch.logspace": lambda f, x: f(0.0, 1.0, 2) + x,
    "torch.scalar_tensor": lambda f, x: f(2.0) + x,
    "torch.rsub": lambda f, x: f(x, x + 1),
    "torch.add": lambda f, x: f(x, x, alpha=2.0),
    "torch.quantize_per_tensor": lambda f, x: f(x, 0.5, 0, torch.qint8).dequantize(),
    "torch.tensor": lambda f, x: f([1.0, 2.0]) + x,
    "torch.as_tensor": lambda f, x: f([1.0, 2.0]) + x,
    "torch.is_tensor": lambda f, x: x * f(x),
    "torch.numel": lambda f, x: x * f(x),
    "torch._foreach_add": lambda f, x: f([x], 1.0)[0],
    "torch.einsum": lambda f, x: f("i,i->i", x, x),
    "torch.norm": lambda f, x: f(x, dim=0),
    "torch.split": lambda f, x: f(x, 1),
    "torch.maximum": lambda f, x: f(x, x + 1),
    "torch.linalg.vector_norm": lambda f, x: f(x),
    "torch.special.expit": lambda f, x: f(x),
    "torch.fft.fft": lambda f, x: f(x),
    "F.relu": lambda f, x: f(x),
    "F.gelu": lambda f, x: f(x),
    "F.softmax": lambda f, x: f(x, 0),
    "F.dropout": lambda f, x: f(x, 0.0),
    "F.linear": lambda f, x: f(x[None], x[None]),
    "F.interpolate": lambda f, x: f(x[None, None], scale_factor=2.0),
    "F.mse_loss": lambda f, x: f(x, x * 2),
    "F.max_pool1d": lambda f, x: f(x[None], 2),
    "F.one_hot": lambda f, x: f(x.long(), 3),
    "math.sqrt": lambda f, x: x * f(4.0),
    "copy.deepcopy": lambda f, x: f(x),
    "copy.copy": lambda f, x: f(x),
    "functools.reduce": lambda f, x: f(operator.add, [x, x]),
    "operator.add": lambda f, x: f(x, x),
    "np.sum": lambda f, x: x + f(np.arange(3)),
    "torch.Tensor.add": lambda f, x: f(x, x),
}


def named(name):
    found = {"F": F, "torch": torch, "math": math, "copy": copy, "functools": functools, "operator": operator, "np": np}
    return functools.reduce(getattr, name.split(".")[1:], found[name.split(".")[0]])


def same(got, want):
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", CALLS)
def test_wrappers(name):
    wrapped, x = doubled(named(name)), torch.arange(2.0) + 1

    def f(x):
        return CALLS[name](wrapped, x)

    same(capture(f, "eager")(x), f(x))


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith(("torch.", "F.")) and "Tensor" not in name])
def test_wrappers_in_the_place_of_what_they_wrap(name, monkeypatch):
    first, _, last = name.rpartition(".")
    owner, x = named(first), torch.arange(2.0) + 1
    monkeypatch.setattr(owner, last, doubled(named(name)))
    replaced = named(name)

    def f(x):
        return CALLS[name](replaced, x)

    want = f(x)
    compiled = capture(f, "eager")
    got = compiled(x)
    monkeypatch.undo()
    same(got, want)


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith(("torch.", "F."))])
def test_wrappers_of_torch(name):
    """``torch.no_grad()`` as a decorator gives the names of what it wraps, too."""
    wrapped, x = torch.no_grad()(named(name)), (torch.arange(2.0) + 1).requires_grad_()

    def f(x):
        found = CALLS[name](wrapped, x)
        return [each.requires_grad for each in (found if isinstance(found, (list, tuple)) else [found])]

    assert capture(f, "eager")(x) == f(x)


def test_wrappers_of_methods_and_of_marked_functions():
    class Doubling(torch.nn.Linear):
        @functools.wraps(torch.nn.Linear.forward)
        def forward(self, x):
            return super().forward(x) * 2

    module, x = Doubling(2, 2), torch.ones(2)
    allowed = torch.compiler.allow_in_graph(doubled(torch.sin))
    of_compiled = doubled(torch.compile(lambda x: x * 3, backend="eager"))

    def f(x):
        return module(x), allowed(x), of_compiled(x)

    same(capture(f, "eager")(x), f(x))
