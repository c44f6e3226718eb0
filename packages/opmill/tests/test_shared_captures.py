"""Which callables one capture serves, and how long that lives."""

import functools
import gc
import weakref

import pytest
import torch

import opmill


class Called:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return torch.sin(x) * self.factor

    def method(self, x):
        return torch.cos(x) * self.factor


class Slots:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return torch.sin(x) - self.factor


def shifted(k, x):
    return torch.cos(x) + k


KINDS = {
    "objects that are called": Called,
    "with slots": Slots,
    "methods": lambda k: Called(k).method,
    "partials": lambda k: functools.partial(shifted, k),
    "modules": lambda k: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()),
}


def captures(callables, drop):
    """How many it takes to call all, with each compiled before its call, and dropped after it."""
    opmill.reset()
    opmill.reset_counters()
    kept, x = [], torch.randn(4)
    for call in callables:
        compiled = opmill.compile(call, backend="eager")
        torch.testing.assert_close(compiled(x), call(x))
        if not drop:
            kept.append(compiled)
    return opmill.counters()["captures"]


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_what_is_of_one_kind_shares(make) -> None:
    assert captures([make(k) for k in range(12)], drop=False) <= 3  # the second and third learn that a number differs


@pytest.mark.parametrize(
    "make", [make for kind, make in KINDS.items() if kind != "with slots"], ids=[k for k in KINDS if k != "with slots"]
)
def test_what_is_compiled_again_finds_what_it_had(make) -> None:
    one = make(3)
    assert captures([one] * 5, drop=True) == 1


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_nothing_is_kept_alive(make) -> None:
    made = [make(k) for k in range(7)]
    owners = [getattr(call, "__self__", call) for call in made]
    captures(made, drop=True)
    alive = [weakref.ref(owner) for owner in owners if not isinstance(owner, Slots)]
    del made, owners
    gc.collect()
    assert not any(reference() for reference in alive)


def test_partials_of_other_functions_do_not_share() -> None:
    opmill.reset()
    opmill.reset_counters()
    x = torch.randn(4)
    compiled = [opmill.compile(functools.partial(function, 2.0), backend="eager") for function in (torch.mul, torch.add, shifted)]
    assert [c(x).tolist() for c in compiled] == [(x * 2).tolist(), (x + 2).tolist(), shifted(2.0, x).tolist()]
    assert opmill.counters()["recompiles"] == 0


def test_reset_forgets_what_was_kept() -> None:
    module, x = torch.nn.Linear(4, 4), torch.randn(4)
    opmill.compile(module, backend="eager")(x)
    opmill.reset()
    opmill.reset_counters()
    opmill.compile(module, backend="eager")(x)
    assert opmill.counters()["captures"] == 1
