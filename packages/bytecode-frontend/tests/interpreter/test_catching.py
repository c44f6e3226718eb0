"""Of each recorded operation is known whether the program itself may handle what it raises: oracle is the program, run with an operation
that fails."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


class Passing:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


class Holding(Passing):
    def __exit__(self, *error):
        return True


def inner(x):
    return torch.neg(x)


def guarded(x):
    try:
        return inner(x)
    except RuntimeError:
        return x


def numbers(x):
    yield inner(x)
    yield inner(x)


def nothing(x):
    return inner(x)


def a_clause_around(x):
    try:
        x = torch.neg(x)
    except RuntimeError:
        pass
    return x


def a_clause_in_a_caller(x):
    return guarded(x)


def a_clause_before(x):
    guarded(x + 1)
    return torch.neg(x)


def a_clause_of_what_no_kernel_raises(x):
    try:
        x = inner(x)
    except (KeyError, TypeError):
        pass
    return x


def any_exception(x):
    try:
        x = inner(x)
    except:  # noqa: E722 - this is what is tested
        pass
    return x


def a_clause_around_a_clause(x):
    try:
        try:
            x = inner(x)
        except KeyError:
            pass
    except ValueError:
        pass
    except Exception:
        pass
    return x


def a_finally(x):
    try:
        x = inner(x)
    finally:
        x = x + 1
    return x


def torchs_own_block(x):
    with torch.no_grad():
        return inner(x)


def a_block_that_holds_it(x):
    with Holding():
        x = inner(x)
    return x


def blocks_in_turn(x):
    for manager in (Passing(), Holding()):
        with manager:
            x = inner(x)
    return x


def a_generator_that_goes_on_elsewhere(x):
    made = numbers(x)
    first = next(made)
    try:
        second = next(made)
    except RuntimeError:
        second = x
    return first + second


#: program -> of its calls of torch.neg, which are caught. A block of the program's own may hold anything.
PROGRAMS: dict[Any, list[bool]] = {
    nothing: [False],
    a_clause_around: [True],
    a_clause_in_a_caller: [True],
    a_clause_before: [True, False],
    a_clause_of_what_no_kernel_raises: [False],
    any_exception: [True],
    a_clause_around_a_clause: [True],
    a_finally: [False],
    torchs_own_block: [False],
    a_block_that_holds_it: [True],
    blocks_in_turn: [True, True],
    a_generator_that_goes_on_elsewhere: [False, True],
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_what_is_caught(program):
    graphs: list[Any] = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    x = torch.arange(3.0)
    torch.testing.assert_close(capture(program, backend, fullgraph=True)(x), program(x), rtol=0, atol=0)
    assert [node.meta["caught"] for node in graphs[0].graph.nodes if node.target is torch.neg] == PROGRAMS[program]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_what_is_caught_is_what_the_program_survives(program, monkeypatch):
    calls = PROGRAMS[program]
    for at, caught in enumerate(calls):
        seen: list[int] = []

        def neg(x, at=at, seen=seen):
            seen.append(at)
            if len(seen) == at + 1:
                raise RuntimeError("planted")
            return -x

        with monkeypatch.context() as patch:
            patch.setattr(torch, "neg", neg)
            survives = False
            with contextlib.suppress(RuntimeError):
                program(torch.arange(3.0))
                survives = True
        assert caught or not survives
