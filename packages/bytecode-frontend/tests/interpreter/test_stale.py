"""No result of a state that is gone: a scenario with changes between its calls, of a function as it is and of its captured form."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch

from opmill_bytecode_frontend import capture

SCENARIOS: list[Callable[[Any], Any]] = []


def scenario(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    SCENARIOS.append(run)
    return run


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and bool(a == b)


def tensor() -> torch.Tensor:
    return torch.randn(4, generator=torch.Generator().manual_seed(0))


class Patched(torch.nn.Module):
    k = 3

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def helper(self, x):
        return x * 2

    def forward(self, x):
        x = self.helper(self.linear(x)) * self.k
        if hasattr(self, "optional"):
            x = x + self.optional
        other = getattr(self, "other", None)
        return x if other is None else x * other


@scenario
def attributes_of_an_instance_hide_those_of_its_class(compiled):
    module = Patched()
    run = compiled(lambda x: module(x))
    yield run(tensor())
    module.helper = lambda x: x * 100
    yield run(tensor())
    del module.helper
    module.linear.forward = lambda x: x
    yield run(tensor())
    del module.linear.forward
    module.k = 10
    yield run(tensor())
    module.__dict__["forward"] = lambda x: x - 1
    yield run(tensor())


@scenario
def attributes_that_a_module_has_not_yet(compiled):
    module = Patched()
    run = compiled(lambda x: module(x))
    yield run(tensor())
    module.optional = 5
    yield run(tensor())
    module.other = 7.0
    yield run(tensor())
    del module.optional
    module.register_buffer("optional", torch.ones(4))
    yield run(tensor())
    del module.other
    module.register_parameter("other", torch.nn.Parameter(torch.ones(4) * 3))
    yield run(tensor())


@scenario
def names_in_the_dictionary_of_a_module(compiled):
    module = torch.nn.Identity()
    run = compiled(lambda x: (x * len([k for k in module.__dict__ if k.startswith("q_")]), len(vars(module))))
    for name in ("q_1", "r", "q_2"):
        yield run(tensor())
        setattr(module, name, 1)
    yield run(tensor())


class Delegating(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.extra = {"scale": 3.0}

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            extra = self.__dict__.get("extra", {})
            return extra[name] if name in extra else getattr(super().__getattr__("inner"), name)

    def forward(self, x):
        return self.inner(x) * self.scale + self.out_features


@scenario
def attributes_that_getattr_gave(compiled):
    module = Delegating()
    run = compiled(lambda x: module(x))
    yield run(tensor())
    module.extra["scale"] = 4.0
    yield run(tensor())
    module.scale = 5.0
    yield run(tensor())
    del module.scale
    module.inner = torch.nn.Linear(4, 2)
    yield run(tensor())


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_what_changed_since_the_last_call_is_seen(run: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    want = list(run(lambda fn: fn))
    torch.manual_seed(0)
    got = list(run(lambda fn: capture(fn, "eager")))
    assert same(got, want)
