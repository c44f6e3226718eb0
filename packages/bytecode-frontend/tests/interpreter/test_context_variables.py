"""Context variables: read, set and reset in captured code, seen by what runs between graphs, of other values in other calls."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import weakref
from typing import Any

import pytest
import torch

from conftest import same
from opmill_bytecode_frontend import capture

SCALE: contextvars.ContextVar[Any] = contextvars.ContextVar("scale", default=1)
UNSET: contextvars.ContextVar[Any] = contextvars.ContextVar("unset")


def B(x):
    """Breaks the graph, and sees what is set."""
    return x + SCALE.get()


B._torchdynamo_disable = True


@contextlib.contextmanager
def scaled(value):
    token = SCALE.set(value)
    try:
        yield
    finally:
        SCALE.reset(token)


def set_and_reset(x):
    token = SCALE.set(3)
    y = x * SCALE.get()
    SCALE.reset(token)
    return y + SCALE.get()


def nested(x):
    first, second = SCALE.set(3), SCALE.set(4)
    y = x * SCALE.get()
    SCALE.reset(second)
    y = y * SCALE.get()
    SCALE.reset(first)
    return y * SCALE.get()


def of_a_manager(x):
    with scaled(5):
        y = x * SCALE.get()
    return y + SCALE.get()


def counted(x):
    SCALE.set(SCALE.get() + 1)
    return x * SCALE.get()


def unset(x):
    try:
        return x * UNSET.get()
    except LookupError as error:
        return x + 1, error.args[0] is UNSET, UNSET.get(7), SCALE.get(8)


def set_again(x):
    SCALE.set(2)
    y = x * SCALE.get()
    SCALE.set(4)
    return y * SCALE.get(), SCALE.get(9)


def named(x):
    return x * len(SCALE.name)


WHOLE = [set_and_reset, nested, of_a_manager, counted, unset, set_again, named]


def across_a_break(x):
    token = SCALE.set(3)
    y = B(x * SCALE.get())
    SCALE.reset(token)
    return y + SCALE.get()


def manager_across_a_break(x):
    with scaled(5):
        y = B(x * SCALE.get())
    return y + SCALE.get()


def token_given(x):
    token = SCALE.set(3)
    return x * 2, token


def twice_reset(x):
    token = SCALE.set(3)
    SCALE.reset(token)
    try:
        SCALE.reset(token)
    except RuntimeError:
        return x + 1
    return x


def of_another(x):
    token = SCALE.set(3)
    try:
        UNSET.reset(token)
    except ValueError:
        return x * SCALE.get()
    return x


def seen_in_between(x):
    token = SCALE.set(3)
    seen = [B(x)]
    SCALE.reset(token)
    return seen, SCALE.get()


def copied(x):
    SCALE.set(6)
    context = contextvars.copy_context()
    return context.run(lambda y: y * SCALE.get(), x), context[SCALE]


PROGRAMS = [
    *WHOLE,
    across_a_break,
    manager_across_a_break,
    token_given,
    twice_reset,
    of_another,
    seen_in_between,
    copied,
]


def outcomes(program):
    """What three calls give in a context of their own, and what they leave there."""

    def run():
        given = []
        for k in range(3):
            result = program(torch.full((2,), 1.0 + k))
            if program_gives_token(result):
                result, token = result
                SCALE.reset(token)
            given.append((result, SCALE.get(), UNSET.get("unset")))
        return given

    return contextvars.Context().run(run)


def program_gives_token(result):
    return isinstance(result, tuple) and isinstance(result[-1], contextvars.Token)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_do_as_they_do_plainly(program):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    assert same(outcomes(program), outcomes(capture(program, backend, fullgraph=program in WHOLE)))
    assert graphs or program not in WHOLE


class Request:
    def __init__(self, number):
        self.number = number


def test_an_object_that_each_call_sets_is_no_capture_of_its_own_and_is_not_kept():
    graphs, held = [], []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = capture(lambda x: x * UNSET.get().number, backend, fullgraph=True)

    def run():
        for k in range(6):
            request = Request(2)
            held.append(weakref.ref(request))
            UNSET.set(request)
            assert same(compiled(torch.full((2,), 1.0 + k)), torch.full((2,), 2.0 + 2 * k))
        UNSET.set(None)

    contextvars.Context().run(run)
    del run
    gc.collect()
    assert len(graphs) == 1 and not any(each() is not None for each in held)


def test_tensors_and_numbers_that_change_are_inputs():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = capture(lambda x: x * UNSET.get(), backend, fullgraph=True)

    def run():
        for value in (2.0, 3.0, 4.0, 5.0, torch.full((2,), 6.0), torch.full((2,), 7.0)):
            UNSET.set(value)
            assert same(compiled(torch.ones(2)), torch.ones(2) * value)

    contextvars.Context().run(run)
    assert len(graphs) == 3  # a number, any number, a tensor
