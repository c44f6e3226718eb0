"""What torch keeps beside the values of tensors: whether they require grad, who watches operators, whose programs call compiled ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import opmill

WEIGHT = torch.ones(3, requires_grad=True)


def turned_on(x):
    x.requires_grad_(True)
    return (x * 2).sum()


def turned_off(x):
    x.requires_grad_(False)
    return x * 2


def detached(x):
    x.detach_()
    return x * 2


def nothing_else(x):
    x.requires_grad_()


def a_leaf_of_its_own(x):
    y = x.detach().clone().requires_grad_()
    return y, (y * 2).sum()


def made_so(x):
    y = torch.zeros(3, requires_grad=True)
    return y + x


def seen_through_results(x):
    y = x.detach().clone().requires_grad_()
    return (y * 3).sum()


def differentiated_inside(x):
    y = (x * 2).detach().requires_grad_()
    z = (y**2).sum()
    (g,) = torch.autograd.grad(z, y)
    return g * x, y.detach()


def penalty(x):
    y = x.detach().clone().requires_grad_()
    (g,) = torch.autograd.grad((y * WEIGHT).sum(), y, create_graph=True)
    return g.pow(2).sum()


def joined_by_a_write(x):
    y = x * 1
    y.add_(WEIGHT)
    return y


def as_before(x):
    return x.requires_grad_(x.requires_grad) + 1


def state(t: Any) -> Any:
    return (t.requires_grad, t.is_leaf) if isinstance(t, torch.Tensor) else type(t)


def gradient(found: Any) -> Any:
    """Of a parameter, through the last result."""
    last = found[-1] if isinstance(found, tuple) else found
    if not isinstance(last, torch.Tensor) or not last.requires_grad:
        return None
    return torch.autograd.grad(last.sum(), WEIGHT, allow_unused=True)[0]


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    "fn",
    [
        turned_on, turned_off, detached, nothing_else, a_leaf_of_its_own, made_so, seen_through_results, differentiated_inside, penalty, joined_by_a_write,
        as_before,
    ],
    ids=lambda fn: fn.__name__,
)  # fmt: skip
def test_what_requires_grad_afterwards(fn, required):
    compiled = opmill.compile(fn)
    for _ in range(2):
        rows = []
        for run in (fn, compiled):
            x = torch.arange(3.0).requires_grad_(required)
            found = run(x)
            rows.append([*map(state, found if isinstance(found, tuple) else (found,)), state(x), gradient(found)])
        *states, mine = rows[1]
        assert states == rows[0][:-1]
        assert (mine is None and rows[0][-1] is None) or torch.equal(mine, rows[0][-1])


def itself(table):
    table.mul_(WEIGHT)


def a_row(table):
    table[0] = WEIGHT
    return table.sum()


def an_element_of_a_view(table):
    table.view(-1)[1:2].add_(WEIGHT.sum())
    return WEIGHT * 2


def a_part_after_a_part(table):
    first = table[1]
    first.copy_(WEIGHT)
    return first * 2


def twice_the_first(table):
    table.t()[0] = 2
    table[0].copy_(WEIGHT).mul_(3)


@pytest.mark.parametrize("fn", [itself, a_row, an_element_of_a_view, a_part_after_a_part, twice_the_first], ids=lambda fn: fn.__name__)
def test_gradients_of_what_was_written_into_an_argument(fn):
    rows = []
    for run in (fn, opmill.compile(fn, fullgraph=True)):
        table = torch.ones(2, 3)
        run(table)
        rows.append(torch.autograd.grad((table * torch.arange(6.0).view(2, 3)).sum(), WEIGHT)[0])
    assert torch.equal(*rows)


def test_modes_that_watch_operators_see_them():
    class Counting(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counting.seen += 1
            return func(*args, **(kwargs or {}))

    compiled = opmill.compile(lambda x: torch.sin(x) @ x)
    x = torch.ones(4, 4)
    for _ in range(2):
        with Counting(), FlopCounterMode(display=False) as flops:
            inside = compiled(x)
        assert flops.get_total_flops() == 128
        torch.testing.assert_close(compiled(x), inside)
    assert Counting.seen >= 4


def test_a_module_of_export():
    torch.manual_seed(0)
    program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), (torch.ones(2, 4),))
    module, x = program.module(), torch.randn(2, 4)
    compiled = opmill.compile(module)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), module(x))


def test_scripted_modules_inside():
    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))

        def forward(self, x):
            return self.inner(x * 2) + 1

    module, x = Outer(), torch.randn(2, 4)
    compiled = opmill.compile(module)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), module(x))


@torch.compiler.disable
def aside(x):
    return x


def behind_a_block(w):
    with torch.no_grad():
        s = aside(w * 2)
    return w * s


def within_blocks(w):
    with torch.no_grad():
        s = aside(w * 2)
        t = s + 1
    with torch.inference_mode():
        u = aside(w @ t) * 2
    return w * t, u, w * 3


def by_switches(w):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    y = aside(w * 2)
    torch.set_grad_enabled(before)
    with torch.set_grad_enabled(True):
        z = w * y
        with torch.no_grad():
            scale = aside(z.abs().max()) * 2
        z = z / scale
    return z, z * y, scale


def raised_through(w):
    try:
        with torch.no_grad():
            y = aside(w * 2)
            raise ValueError
    except ValueError:
        return w * 3, y


def in_a_loop(w):
    for _ in range(3):
        with torch.no_grad():
            y = aside(w * 2)
        w = w * y
    return (w,)


def in_turns(w):
    def parts():
        with torch.no_grad():
            yield aside(w * 2)
        yield w * 3

    return list(parts())


def outside_of_inference_mode(w):
    with torch.inference_mode(False):
        return ((w * 3).sum(),)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("fn", [behind_a_block, within_blocks, by_switches, raised_through, in_a_loop, in_turns, outside_of_inference_mode])
def test_gradients_by_the_mode_that_the_program_chose(fn, mode):
    """Also where a graph begins in another mode: one behind a break in a block does."""

    def outcome(call):
        w = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        with mode():
            found = call(w)
            modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        found = found if isinstance(found, (list, tuple)) else [found]
        differentiable = [t.sum() for t in found if t.requires_grad]
        gradient = torch.autograd.grad(sum(differentiable), w)[0].tolist() if differentiable else None
        return modes, gradient, [(t.requires_grad, t.is_leaf, t.is_inference(), t.detach().clone().tolist()) for t in found]

    compiled = opmill.compile(fn)
    wanted = outcome(fn)
    assert [outcome(compiled) for _ in range(2)] == [wanted] * 2
