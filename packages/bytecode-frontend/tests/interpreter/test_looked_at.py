"""Functions that look at the variables of their callers see those of the program, also behind breaks."""

import inspect
import sys

import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.breaks.looked_at import is_looked_at


def breaks():
    open("/dev/null").close()


def of_caller():
    return dict(sys._getframe(1).f_locals)


def of_back():
    return dict(inspect.currentframe().f_back.f_locals)


def between():
    return two_up()


def two_up():
    return dict(sys._getframe(2).f_locals)


class Looking:
    def look(self):
        return dict(sys._getframe(1).f_locals)

    def by_another(self):
        return two_up()


def behind_a_break(x):
    y = x * 2
    open("/dev/null").close()
    w = y.sum()
    del w
    return of_caller()


def without_a_break(x):
    y = x * 2  # noqa: F841
    return of_caller()


def by_the_frame_behind(x):
    y = x * 2  # noqa: F841
    open("/dev/null").close()
    return of_back()


def two_calls_up(x):
    y = x * 2  # noqa: F841
    open("/dev/null").close()
    return between()


def by_a_method(x):
    looking, y = Looking(), x * 2  # noqa: F841
    open("/dev/null").close()
    return {k: v for k, v in looking.look().items() if k != "looking"}


def by_a_method_of_a_method(x):
    looking, y = Looking(), x * 2  # noqa: F841
    open("/dev/null").close()
    return {k: v for k, v in looking.by_another().items() if k != "looking"}


def by_a_nested_function(x):
    y = x * 2  # noqa: F841
    open("/dev/null").close()

    def up():
        return {k: v for k, v in sys._getframe(1).f_locals.items() if k != "up"}

    return up()


def under_another_name(x):
    y = x * 2  # noqa: F841
    open("/dev/null").close()
    return (of_caller or breaks)()


def inside(x):
    y = x * 2  # noqa: F841
    open("/dev/null").close()
    return of_caller()


def in_a_callee(x):
    k = x + 1
    return inside(k), of_caller()


def for_a_text(x):
    y = x * 2  # noqa: F841
    open("/dev/null").close()
    return "{y}".format_map(of_caller()), eval("y + 1", {}, of_caller())


def by_locals(x):
    y = x * 2  # noqa: F841
    open("/dev/null").close()
    return {**locals()}, sorted(vars()), dir(), sorted(sys._getframe().f_locals)


PROGRAMS = [
    *(behind_a_break, without_a_break, by_the_frame_behind, two_calls_up, by_a_method, by_a_method_of_a_method, by_a_nested_function),
    *(under_another_name, in_a_callee, for_a_text, by_locals),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_variables_are_those_of_the_program(program):
    x = torch.ones(2)
    expected = repr(program(x))
    compiled = capture(program)
    assert [repr(compiled(x)) for _ in range(3)] == [expected] * 3


def test_what_may_be_looked_at():
    assert all(is_looked_at(program.__code__, globals()) for program in PROGRAMS)
    assert not any(is_looked_at(function.__code__, globals()) for function in (breaks, test_what_may_be_looked_at))
    assert not is_looked_at(torch.nn.Linear.forward.__code__, torch.nn.Linear.forward.__globals__)
