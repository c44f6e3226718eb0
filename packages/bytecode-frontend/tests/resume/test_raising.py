"""Resume functions that begin by raising: the handlers of the original function run in them."""

import types

import pytest

from opmill_bytecode_frontend.bytecode import decode
from opmill_bytecode_frontend.errors import Unsupported
from opmill_bytecode_frontend.resume import ParameterKind, make_resume

LOG = []


class Manager:
    def __enter__(self):
        return self

    def __exit__(self, *exception):
        LOG.append(exception[1])
        return True


def caught(x):
    y = [x]
    try:
        z = len(x)
    except TypeError as error:
        return "caught", error, y
    return z


def under_a_manager(x):
    with Manager():
        len(x)
    return "after"


def call_of_len(program):
    place = next(n for n, i in enumerate(program.instructions) if i.argval == "len")
    return next(i for i in program.instructions[place:] if i.opname == "CALL")


def raising(function, **state):
    program = decode(function.__code__)
    resume = make_resume(program, call_of_len(program), raising=True)
    values = [state[p.name] if p.kind is ParameterKind.LOCAL else state[p.kind.value] for p in resume.parameters]
    return types.FunctionType(resume.code, globals())(*values)


def test_the_handler_gets_the_exception():
    error = TypeError("given")
    assert raising(caught, y=[1], x=1, exception=error) == ("caught", error, [1])


def test_what_the_handler_does_not_take_goes_on():
    error = KeyError("given")
    with pytest.raises(KeyError) as seen:
        raising(caught, y=[1], x=1, exception=error)
    assert seen.value is error
    assert error.__context__ is None


def test_a_manager_is_left():
    LOG.clear()
    error = TypeError("given")
    assert raising(under_a_manager, x=1, stack=Manager().__exit__, exception=error) == "after"
    assert LOG == [error]


def test_without_a_handler_it_is_refused():
    def plain(x):
        return len(x)

    program = decode(plain.__code__)
    with pytest.raises(Unsupported) as refusal:
        make_resume(program, call_of_len(program), raising=True)
    assert refusal.value.code == "FE104"
