"""What a program puts on tensors, and their gradients, read and assigned in captured code."""

from __future__ import annotations

import pytest
import torch

from conftest import same
from opmill_bytecode_frontend import Unsupported, capture


def scenario(function):
    function.is_scenario = True
    return function


@scenario
def put_on_an_argument(wrap):
    def f(x):
        x.note = 5
        x.twice = x * 2
        return x * x.note

    x = torch.ones(3)
    return wrap(f)(x), x.note, x.twice


@scenario
def put_on_a_result(wrap):
    def f(x):
        y = x + 1
        y.note = [y.shape[0]]
        setattr(y, "no name", y * 2)
        y.note.append(hasattr(y, "note") and not hasattr(y, "other"))
        return {"y": y}

    y = wrap(f)(torch.ones(3))["y"]
    return y, y.note, vars(y)["no name"]


@scenario
def put_on_what_does_not_leave(wrap):
    def f(x):
        y = x + 1
        y.scale = 3
        return y * y.scale

    return wrap(f)(torch.ones(3))


@scenario
def taken_off(wrap):
    def f(x):
        n = x.note
        del x.note
        return x * n

    x = torch.ones(3)
    x.note = 4
    return wrap(f)(x), hasattr(x, "note")


@scenario
def looked_for(wrap):
    f, x, found = wrap(lambda x: x * getattr(x, "note", 1) if hasattr(x, "note") else x * 3), torch.ones(3), []
    for note in (None, 2, 7, None):
        if note is None:
            vars(x).pop("note", None)
        else:
            x.note = note
        found.append(f(x))
    return found


@scenario
def looked_for_on_a_parameter(wrap):
    torch.manual_seed(0)
    module, found = torch.nn.Linear(2, 2), []
    f = wrap(lambda x: module(x) * getattr(module.weight, "note", 1))
    for note in (None, 2, 7, None):
        if note is None:
            vars(module.weight).pop("note", None)
        else:
            module.weight.note = note
        found.append(f(torch.ones(2)).detach())
    return found


def with_gradient(value=1.0):
    x = torch.full((3,), value, requires_grad=True)
    (x * x).sum().backward()
    return x


@scenario
def gradient_dropped(wrap):
    def f(x):
        before = x.grad * 2
        x.grad = None
        return before, x.grad is None

    x = with_gradient()
    return wrap(f)(x), x.grad


@scenario
def gradient_assigned(wrap):
    def f(x, g):
        x.grad = g * 2
        return x.grad + 1

    x = with_gradient()
    return wrap(f)(x, torch.ones(3)), x.grad


@scenario
def steps_by_hand(wrap):
    def step(ps):
        with torch.no_grad():
            for p in ps:
                if p.grad is not None:
                    p -= 0.1 * p.grad
                    p.grad = None

    ps, step = [with_gradient(), with_gradient(2.0), torch.ones(2, requires_grad=True)], wrap(step)
    for _ in range(3):
        step(ps)
        sum((p * p).sum() for p in ps).backward()
    return [p.detach() for p in ps], [p.grad for p in ps]


@scenario
def whether_it_requires_grad(wrap):
    def f(x, p):
        told = []
        p.requires_grad = True
        made = torch.ones(3)
        made.requires_grad = True
        (made * x.detach()).sum().backward()
        for tensor, flag in ((x * 2, False), (x.detach().long(), True), (p.detach() * 2, False)):
            try:
                tensor.requires_grad = flag
            except RuntimeError as error:
                told.append(str(error))
        return made.grad * p, told

    x = torch.ones(3, requires_grad=True)
    y, told = wrap(f)(x, torch.nn.Parameter(torch.ones(3)))
    y.sum().backward()
    return y.detach(), told, x.grad


SCENARIOS = [value for value in list(globals().values()) if getattr(value, "is_scenario", False)]


@pytest.mark.parametrize("play", SCENARIOS, ids=lambda play: play.__name__)
def test_as_plainly(play):
    assert same(play(lambda f: f), play(lambda f: capture(f, fullgraph=True)))


def wrong_size(x):
    x.grad = torch.ones(7)


def wrong_type(x):
    x.grad = 5


def other_flag(x):
    x.requires_grad = False


@pytest.mark.parametrize("fn", [wrong_size, wrong_type, other_flag])
def test_what_torch_looks_at_runs_natively(fn):
    def run(call):
        x = with_gradient()
        try:
            call(x)
        except (RuntimeError, TypeError) as error:
            return type(error), str(error)
        return x.requires_grad

    assert run(capture(fn)) == run(fn)
    with pytest.raises(Unsupported, match="FE032"):
        capture(fn, fullgraph=True)(with_gradient())


def test_what_only_the_class_has_is_no_attribute():
    def f(x):
        named = hasattr(x, "__name__"), getattr(x, "__qualname__", None)
        x.__name__ = "mine"
        return named, x.__name__, x * 2

    want, got = f(torch.ones(2)), capture(f, "eager", fullgraph=True)(torch.ones(2))
    assert got[:2] == want[:2] == ((False, None), "mine")


@pytest.mark.parametrize("make", [lambda: torch.ones(3), lambda: torch.ones(3)[1:], lambda: torch.ones(3).requires_grad_()[1:]])
def test_what_belongs_to_the_object_is_asked_of_it(make):
    def f(t, x):
        return t._is_view(), t[:1]._is_view(), t.is_set_to(t.detach()), t._grad_fn is None, type(t.__iter__()), x + 1

    assert str(capture(f, "eager")(make(), torch.ones(1))) == str(f(make(), torch.ones(1)))


def test_views_of_tensors_of_inference_mode_are_such():
    def f(t):
        return t.is_inference(), t[:1].is_inference(), t.detach().is_inference()

    with torch.inference_mode():
        t = torch.ones(3)
    assert capture(f, "eager")(t) == f(t)


def test_a_view_is_not_detached_in_place():
    def f(t, x):
        try:
            t.detach_()
        except RuntimeError as error:
            return str(error), x + 1

    assert str(capture(f, "eager")(torch.ones(3)[1:], torch.ones(1))) == str(f(torch.ones(3)[1:], torch.ones(1)))
