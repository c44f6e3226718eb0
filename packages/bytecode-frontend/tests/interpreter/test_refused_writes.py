"""Writes that autograd refuses are refused, wherever they stand; who refers to an object is told as without a capture."""

import contextlib
import gc
import sys
import weakref

import pytest
import torch

from opmill_bytecode_frontend import capture

apart = torch.compiler.disable(lambda: None)


def unbound(x):
    a, b = torch.unbind(x * 2)
    a.add_(1)
    return a + b


def of_a_loop(x):
    y = x * 2
    for row in y:
        row.mul_(2)
    return y


def behind_a_break(x):
    y = x * 2
    a, b = y.split(1)
    apart()
    a.add_(1)
    return y


def of_an_argument_behind_a_break(x):
    a, b = x.unbind()
    apart()
    a.add_(1)
    return x * 1


def of_a_view_of_one(x):
    a = (x * 2).unbind()[0][:1]
    return a.zero_()


def handled(x):
    a, b = (x * 2).chunk(2)
    try:
        return a.add_(1)
    except RuntimeError:
        return b * 5


def given(x):
    return (x * 2).unbind()[1]


def read_behind_a_write_without_gradients(x):
    y = x * 2
    a = y.chunk(2)[0]
    with torch.no_grad():
        a.mul_(2)
    return y + a


def read_behind_a_write_to_what_it_is_of(x):
    y = x * 2
    a, b = y.unbind()
    with torch.no_grad():
        y.mul_(2)
    return a * b


def made_without_gradients(x):
    with torch.no_grad():
        a, b = x.chunk(2)
        a.mul_(2)
    return a, b * 2


def made_without_gradients_of_a_step(x):
    y = x * 2
    with torch.no_grad():
        a = y[0]
    y.mul_(2)
    return a * 2


def handled_behind_a_write(x):
    a, b = (x * 2).chunk(2)
    with torch.no_grad():
        b.mul_(2)
    try:
        return a + b
    except RuntimeError:
        return x * 5


def a_slice(x):
    y = x * 2
    apart()
    a = y[0]
    apart()
    a.add_(1)
    return y


@pytest.mark.parametrize("backend", ["eager", lambda gm, _: gm])
@pytest.mark.parametrize(
    "function",
    [
        unbound, of_a_loop, behind_a_break, of_an_argument_behind_a_break, of_a_view_of_one, handled, given, a_slice,
        read_behind_a_write_without_gradients, read_behind_a_write_to_what_it_is_of, made_without_gradients_of_a_step, handled_behind_a_write,
    ],
)  # fmt: skip
def test_writes_to_one_of_several_views(function, backend):
    def outcome(call):
        for mode in (torch.enable_grad, torch.no_grad):
            x = torch.arange(4.0).reshape(2, 2).clone().requires_grad_()
            try:
                with mode():
                    y = call(x)
                yield y.tolist()
                yield y.add_(1).tolist()
                if mode is torch.enable_grad:
                    y.sum().backward()
                    yield x.grad.tolist()
            except RuntimeError as error:
                yield str(error).partition("modified inplace")[2]

    assert list(outcome(capture(function, backend))) == list(outcome(function))


@pytest.mark.parametrize(
    "function",
    [
        unbound, of_a_loop, behind_a_break, of_a_view_of_one, read_behind_a_write_without_gradients, read_behind_a_write_to_what_it_is_of,
        made_without_gradients, made_without_gradients_of_a_step, handled_behind_a_write,
    ],
)  # fmt: skip
def test_what_autograd_refuses_is_no_error_of_the_compiler(function, caplog):
    caplog.set_level("INFO", "opmill.internal")
    captured, x = capture(function, "eager"), torch.arange(4.0).reshape(2, 2).requires_grad_()
    with contextlib.suppress(RuntimeError):
        captured(x * 1)
    assert not caplog.messages


class Thing:
    pass


THING = Thing()


def swapped(x):
    other = x.detach().clone() + 1
    torch.utils.swap_tensors(x, other)
    return x + other


def counted(x):
    y = x * 1
    return y + sys.getrefcount(y) + weakref.getweakrefcount(x) + len(weakref.getweakrefs(THING)) + len(gc.get_referrers(y))


@pytest.mark.parametrize("function", [swapped, counted])
def test_who_refers_to_an_object(function):
    call = capture(function, "eager")
    for _ in range(2):
        assert call(torch.ones(2)).tolist() == function(torch.ones(2)).tolist()


@pytest.mark.parametrize(
    "write", [lambda t, x: t.fill_(2), lambda t, x: t.mul_(x), lambda t, x: t.__setitem__(0, 2), lambda t, x: t[:1].add_(x[:1])]
)
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3).requires_grad_()[1:], lambda: (torch.ones(2, 2).requires_grad_() * 2).unbind()[0],
        lambda: torch.ones(2).requires_grad_() * 2, lambda: (torch.ones(3).requires_grad_() * 2)[1:], lambda: torch.ones(3)[1:],
    ],
    ids=["of a leaf", "one of several", "no view", "of a step", "without gradients"],
)  # fmt: skip
def test_the_program_sees_that_a_given_view_is_not_written(make, write):
    def f(t, x):
        try:
            write(t, x)
        except RuntimeError as error:
            return str(error), t, x + 1
        with torch.no_grad():
            t.detach().add_(1)
        return "written", t, x + 1

    captured = capture(f, "eager")
    for _ in range(2):
        assert str(captured(make(), torch.ones(2))) == str(f(make(), torch.ones(2)))


@pytest.mark.parametrize(
    "same",
    [lambda t: t.to(t.dtype), lambda t: t.contiguous(), lambda t: t.float(), lambda t: t.real, lambda t: t.conj(), lambda t: t.cpu()],
    ids=["to", "contiguous", "float", "real", "conj", "cpu"],
)
@pytest.mark.parametrize("make", [lambda x: x[1:], lambda x: (x * 2).unbind()[0]], ids=["of a leaf", "one of several"])
def test_a_view_that_is_given_back_as_it_was_is_not_written(make, same):
    """An operation that has nothing to do is no write: graphs ended there."""

    def f(t):
        return same(t) * 2 + t

    x = torch.ones(3, 3).requires_grad_()
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    assert torch.equal(capture(f, backend)(make(x)), f(make(x)))
    assert len(graphs) == 1
