"""Modules whose hooks are others at each call, as programs put them that look into a network, or change it, while it runs: known by what they
are made of, and seen where they are others."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from alike import outcome, same
from torch import nn
from torch.utils.hooks import RemovableHandle

from opmill_bytecode_frontend.entry.capture import capture


class Block(nn.Module):
    """One in which the graph ends."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        y = self.inner(x) * scale
        if y.sum().item() > 1e9:
            return y * 0
        return y.relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(Block(), nn.Linear(4, 4), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)  # type: ignore[no-any-return]


class Keeper:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, module: nn.Module, given: Any, made: Any) -> None:
        self.kept.append(made.detach())


@contextlib.contextmanager
def hooked(module: nn.Module, hook: Any) -> Iterator[RemovableHandle]:
    handle = module.register_forward_hook(hook)
    try:
        yield handle
    finally:
        handle.remove()


def features(net: Net, x: torch.Tensor, k: int) -> Any:
    found: dict[str, Any] = {}
    handles = [m.register_forward_hook(lambda m, i, o, name=name: found.update({name: o})) for name, m in net.body.named_children()]
    try:
        y = net(x)
    finally:
        for handle in handles:
            handle.remove()
    return y, found


def kept_by_methods(net: Net, x: torch.Tensor, k: int) -> Any:
    keeper = Keeper()
    handles = [net.body[0].register_forward_hook(keeper.keep), net.body[2].inner.register_forward_hook(keeper.keep)]  # type: ignore[union-attr, operator]
    y = net(x)
    for handle in handles:
        handle.remove()
    return y, keeper.kept, net(x)


def in_a_block(net: Net, x: torch.Tensor, k: int) -> Any:
    out: list[Any] = []
    with hooked(net.body[1], lambda m, i, o: out.append(o)):
        y = net(x)
    return y, out


def patched(net: Net, x: torch.Tensor, k: int) -> Any:
    clean, kept = net(x), {}
    handle = net.body[1].register_forward_hook(lambda m, i, o: kept.update(out=o))
    net(x.flip(0))
    handle.remove()
    handle = net.body[1].register_forward_hook(lambda m, i, o: kept["out"])
    other = net(x)
    handle.remove()
    return clean - other


def scaled(net: Net, x: torch.Tensor, k: int) -> Any:
    by = float(x.mean().item())
    handle = net.body[1].register_forward_pre_hook(lambda m, given: (given[0] * by,))
    y = net(x)
    handle.remove()
    return y


def of_another_code(net: Net, x: torch.Tensor, k: int) -> Any:
    if k % 3:
        handle = net.body[0].register_forward_hook(lambda m, i, o: o + 1)
    else:
        handle = net.body[0].register_forward_hook(lambda m, i, o: o * 2)
    y = net(x)
    handle.remove()
    return y


def as_many_as_calls(net: Net, x: torch.Tensor, k: int) -> Any:
    handles = [net.body[j % 3].register_forward_hook(lambda m, i, o, j=j: o + j) for j in range(k % 4)]
    y = net(x)
    for handle in handles:
        handle.remove()
    return y


def called_in_other_ways(net: Net, x: torch.Tensor, k: int) -> Any:
    how = [{}, {"with_kwargs": True}, {"always_call": True}, {"prepend": True}][k % 4]
    steady = net.body[0].register_forward_hook(lambda m, i, o: o * 3)
    handle = net.body[0].register_forward_hook(lambda m, *given: given[-1] + len(given), **how)
    y = net(x)
    handle.remove()
    z = net(x)
    steady.remove()
    return y, z


PROGRAMS = [features, kept_by_methods, in_a_block, patched, scaled, of_another_code, as_many_as_calls, called_in_other_ways]

OUTSIDE: dict[str, Callable[[Net, int], list[RemovableHandle]]] = {
    "none": lambda net, k: [],
    "now and then": lambda net, k: [net.body[1].register_forward_hook(lambda m, i, o: o - 1)] if k in (4, 5, 9) else [],
    "another each time": lambda net, k: [net.body[0].register_forward_hook(lambda m, i, o: o - k)],
    "one more each time": lambda net, k: [net.body[1].register_forward_hook(lambda m, i, o: o - 1) for _ in range(k)],
    "of other kinds": lambda net, k: [
        net.body[k % 3].register_forward_pre_hook(lambda m, i: (i[0] + 1,))
        if k % 2
        else net.body[2].register_forward_hook(lambda m, i, o: o * k)
    ],
    "of the backward": lambda net, k: [net.body[1].register_full_backward_hook(lambda m, i, o: None)] if k in (3, 6) else [],
}


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_they_do_is_what_eager_does(program: Callable[..., Any], outside: str) -> None:
    torch.manual_seed(0)
    net = Net()
    compiled = capture(program, "eager")  # type: ignore[arg-type]
    for k in range(10):
        given = []
        for each in (program, compiled):
            handles = OUTSIDE[outside](net, k)
            given.append(outcome(each, net, torch.full((3, 4), k / 3.0 - 1), k))
            for handle in handles:
                handle.remove()
            assert not any(hooks for m in net.modules() for name, hooks in vars(m).items() if name.endswith("_hooks"))
        assert same(*given), (k, given)


@pytest.mark.parametrize("program", [features, kept_by_methods, in_a_block, patched, scaled])
def test_they_are_no_reason_to_compile_again(program: Callable[..., Any]) -> None:
    net, made, counts = Net(), [], []
    compiled = capture(program, "eager", on_translation=made.append)  # type: ignore[arg-type]
    for k in range(10):
        compiled(net, torch.full((3, 4), k / 3.0 - 1), 0)
        counts.append(len(made))
    assert counts[4] == counts[-1], counts


@pytest.mark.parametrize("seed", range(12))
def test_any_hooks_put_from_outside(seed: int) -> None:
    """Any number of hooks of a few codes, each with numbers of its own, on any of the modules."""
    chosen = random.Random(seed)

    def put(net: Net, choices: list[tuple[int, int, int]]) -> list[RemovableHandle]:
        makers: list[Callable[[nn.Module, int], RemovableHandle]] = [
            lambda m, j: m.register_forward_hook(lambda m, i, o: o + j),
            lambda m, j: m.register_forward_hook(lambda m, i, o, by=j: o * by, prepend=True),
            lambda m, j: m.register_forward_hook(lambda m, i, kw, o: o - len(kw) - j, with_kwargs=True),
            lambda m, j: m.register_forward_pre_hook(lambda m, i: (i[0] + j, *i[1:])),
            lambda m, j: m.register_forward_hook(lambda m, i, o: None, always_call=bool(j % 2)),
        ]
        modules = [m for m in net.modules() if not list(m.children())] + [net, net.body]
        return [makers[a](modules[b % len(modules)], j) for a, b, j in choices]

    torch.manual_seed(seed)
    net = Net()
    compiled = capture(Net.forward, "eager")
    called = capture(lambda net, x: net(x) + net.body[1](x), "eager")
    for k in range(12):
        choices = [
            (chosen.randrange(5), chosen.choice([0, 0, 1, 2, 5]), chosen.randrange(3)) for _ in range(chosen.choice([0, 1, 1, 2, 3]))
        ]
        x = torch.full((3, 4), k / 3.0 - 1)
        handles = put(net, choices)
        try:
            assert same(outcome(compiled, net, x), outcome(Net.forward, net, x)), (k, choices)
            assert same(outcome(called, net, x), outcome(lambda net, x: net(x) + net.body[1](x), net, x)), (k, choices)
        finally:
            for handle in handles:
                handle.remove()
