"""Parameters and buffers that captured code makes are ones wherever they are seen: behind breaks, in modules, when the call is over."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map

from opmill_bytecode_frontend import capture


class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype)

    def __init__(self, data, scale):
        self.data_, self.scale = data, scale

    def __tensor_flatten__(self):
        return ["data_", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, tensors, meta, size, stride):
        return cls(tensors["data_"], tensors["scale"])

    def __repr__(self):
        return f"Scaled({self.data_}, {self.scale})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            made = Scaled(func(args[0].data_), func(args[0].scale))
            return return_and_correct_aliasing(func, args, kwargs or {}, made)
        return func(*tree_map(lambda t: t.data_ * t.scale if isinstance(t, Scaled) else t, args), **(kwargs or {}))


def scaled(x):
    return Scaled((x * 3).round().to(torch.int8), x.abs().max() / 7)


SOURCES = {
    "plain": lambda x: x * 2,
    "a view": lambda x: (x * 2)[0],
    "integers": lambda x: x.long(),
    "wrapped": scaled,
    "a parameter": lambda x: torch.nn.Parameter(x + 1, requires_grad=False),
}
MAKERS = {
    "Parameter": lambda data: torch.nn.Parameter(data, requires_grad=False),
    "Parameter without gradients": lambda data: torch.nn.Parameter(data, requires_grad=data.is_floating_point()),
    "Buffer": torch.nn.Buffer,
    "Buffer for now": lambda data: torch.nn.Buffer(data, persistent=False),
}


def kinds(value):
    return isinstance(value, torch.nn.Parameter), isinstance(value, torch.nn.Buffer), type(value).__name__, value.requires_grad


def given_back(module, made):
    return made, kinds(made)


def behind_a_break(module, made):
    print("a break")
    return kinds(made), made + 1, made


def into_a_module(module, made):
    module.made = made
    return [name for name, _ in module.named_parameters()], [name for name, _ in module.named_buffers()], list(module.state_dict())


def into_a_module_behind_a_break(module, made):
    print("a break")
    return into_a_module(module, made)


def into_a_new_module(module, made):
    return into_a_module(torch.nn.Module(), made)


def in_the_place_of_a_weight(module, made):
    module.weight = made
    return module.weight is made, kinds(module.weight)


USES = [given_back, behind_a_break, into_a_module, into_a_module_behind_a_break, into_a_new_module, in_the_place_of_a_weight]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("source", SOURCES)
def test_what_is_made(source, maker, use):
    def f(module, x):
        with torch.no_grad():
            made = MAKERS[maker](SOURCES[source](x))
            return use(module, made)

    assert told(capture(f, "eager"), f) == told(f, f)


def told(run, _):
    said = []
    for _ in range(2):
        module = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.ones_(module.weight)
        try:
            found = run(module, torch.arange(4.0).reshape(2, 2))
        except TypeError as error:
            found = str(error)
        last = found[-1] if isinstance(found, tuple) else None
        kept = (kinds(last), sorted(last.__dict__)) if isinstance(last, torch.Tensor) else None
        said.append((str(found), kept, str(module.weight), kinds(module.weight), sorted(module._parameters), sorted(module._buffers)))
    return said


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_given(maker):
    def f(module, made, x):
        module.made = made
        return into_a_module(module, made), x + 1

    def run(g):
        return str([g(torch.nn.Module(), MAKERS[maker](torch.ones(2)), torch.ones(1)) for _ in range(2)])

    assert run(capture(f, "eager")) == run(f)


def test_a_parameter_made_without_gradients_is_used_with_them():
    def f(x):
        with torch.no_grad():
            made = torch.nn.Parameter(x.detach() * 2)
            twice = made * 2
        return made, twice, made * x

    made, twice, product = capture(f, "eager")(torch.ones(2))
    assert type(made) is torch.nn.Parameter and product.requires_grad and not twice.requires_grad
    product.sum().backward()
    assert torch.equal(made.grad, torch.ones(2))


def test_a_state_is_loaded_by_assignment():
    def f(module, x):
        module.load_state_dict(module.state_dict(), assign=True)
        return module(x)

    module = torch.nn.Linear(2, 2)
    result = capture(f, "eager")(module, torch.ones(2))
    result.sum().backward()
    assert torch.equal(module.weight.grad, torch.ones(2, 2))
