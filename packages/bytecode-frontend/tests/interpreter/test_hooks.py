"""Hooks on gradients that captured code registers."""

from __future__ import annotations

import functools

import pytest
import torch

from conftest import same
from opmill_bytecode_frontend import capture


def played(whole):
    """A scenario: ``play(x, ...)`` is captured; ``whole``: as one graph."""

    def add(play):
        play.whole = whole
        return play

    return add


@played(True)
def scaled(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return (y * y).sum()


@played(True)
def only_looked_at(x):
    y = x * 2
    y.register_hook(lambda g: None)
    return y.sin()


@played(True)
def used_before(x):
    y = x.sin()
    z = y * x
    y.register_hook(lambda g: g * 5 + 1)
    return z + y.exp(), y


@played(True)
def two_in_order(x):
    y = x.sin()
    z = y * 2
    y.register_hook(lambda g: g + 1)
    w = y + z
    y.register_hook(lambda g: g * 10)
    return (w * y).sum() + z.sum(), y


@played(False)
def two_of_which_one_tells(x):
    y = x.sin()
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: SEEN.append(g.sum()) or g * 10)
    return y * y


@played(True)
def reads_others(x):
    k = x.detach() * 2
    y = x.sin()
    y.register_hook(functools.partial(lambda g, k, s: g * k + s, k=k, s=3))
    return y * 2


@played(True)
def a_result_that_is_written_later(x):
    y = x.sin()
    y.register_hook(lambda g: g * 2)
    return y.t()


@played(True)
def strided(x):
    y = (x[:, ::2] + 0).t()[1:]
    z = y * 1
    z.register_hook(lambda g: g * 2)
    return z


@played(False)
def reads_what_comes_later(x):
    y = x.sin()
    z = y * 2
    k = z.detach().exp()
    y.register_hook(lambda g: g * k)
    return y * z


@played(False)
def of_a_view(x):
    y = x.sin()
    v = y[0]
    v.register_hook(lambda g: g * 2)
    y.mul_(3)
    return v, y


@played(False)
def written_before(x):
    y = x * 2
    y.mul_(3)
    y.register_hook(lambda g: g * 7)
    return y * y


@played(True)
def written_after(x):
    y = x * 2
    y.register_hook(lambda g: g * 7)
    z = y + 1
    z.mul_(3)
    return y * z


@played(True)
def of_an_argument(x):
    x.register_hook(lambda g: g * 3)
    return x.sin()


@played(True)
def taken_off_an_argument(x):
    handle = x.register_hook(lambda g: g * 3)
    y = x.sin()
    handle.remove()
    return y


@played(False)
def taken_off(x):
    y = x.sin()
    handle = y.register_hook(lambda g: g * 3)
    handle.remove()
    return y


SEEN: list = []


@played(False)
def tells(x):
    y = x.sin()
    y.register_hook(lambda g: SEEN.append(g.sum()))
    return y * y


@played(True)
def tells_of_an_argument(x):
    x.register_hook(lambda g: SEEN.append(g.sum()))
    return x * x


@played(True)
def tells_when_accumulated(x):
    x.register_post_accumulate_grad_hook(lambda p: SEEN.append(p.grad.sum()))
    return x * x


@played(False)
def without_a_gradient(x):
    y = x.detach() * 2
    try:
        y.register_hook(lambda g: g)
    except RuntimeError as error:
        SEEN.append(str(error))
    return x * y


PLAYS = [value for value in list(globals().values()) if hasattr(value, "whole")]


def outcome(play):
    SEEN.clear()
    found = []
    for _ in range(2):
        x = torch.linspace(-1, 2, 16).reshape(4, 4).requires_grad_()
        given = play(x)
        results = given if isinstance(given, tuple) else (given,)
        sum((r * r).sum() for r in results).backward()
        found.append(([r.detach() for r in results], x.grad, list(SEEN)))
    return found


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_as_plainly(play):
    want, breaks = outcome(play), []
    got = outcome(capture(play, on_break=breaks.append))
    assert same([w[1:] for w in want], [g[1:] for g in got])
    assert all(torch.allclose(a, b) and a.stride() == b.stride() for w, g in zip(want, got) for a, b in zip(w[0], g[0], strict=True))
    assert bool(breaks) != play.whole


def test_a_handle_that_is_kept_is_a_real_one():
    def f(x):
        return x * 2, x.register_hook(lambda g: g * 3)

    for call in (f, capture(f)):
        x = torch.ones(3, requires_grad=True)
        y, handle = call(x)
        handle.remove()
        y.sum().backward()
        assert x.grad.tolist() == [2.0] * 3


def shared(x):
    """The hook of what comes first runs last, and reads what the other one noted."""
    seen = {}

    def last(g):
        return None if len(seen) == 0 else g * seen["gradient"].abs().sum()

    y = x * 2
    y.register_hook(last)
    z = y.clone().relu()
    z.register_hook(lambda g: seen.update(gradient=g))
    return (z * torch.arange(-1.0, 3.0)).sum()


def late(x):
    y = x * 2
    for factor in (2, 3):
        y.register_hook(lambda g: g * factor)
    return y.sin().sum()


def rebound(x):
    scale = 2.0
    y = x * 2
    y.register_hook(lambda g: g * scale)
    scale = 5.0
    return (y * scale).sin().sum()


def changed(x):
    scales = [2.0]
    y = x * 2
    y.register_hook(lambda g: g * scales[-1])
    scales.append(7.0)
    return y.sin().sum()


def settled(x):
    scale, factors = 2.0, (1.0, 3.0)
    y = x * 2
    y.register_hook(functools.partial(lambda f, g: g * scale * f[1], factors))
    return y.sin().sum()


@pytest.mark.parametrize("function", [shared, late, rebound, changed, settled])
def test_hooks_read_what_is_there_when_the_backward_runs(function):
    def gradient(f):
        x = torch.linspace(-1, 1, 4).requires_grad_()
        f(x).backward()
        return x.grad

    wanted = gradient(function)
    assert torch.allclose(gradient(capture(function, "eager")), wanted)
    if function is settled:
        assert torch.allclose(gradient(capture(function, "eager", fullgraph=True)), wanted)
