"""Arguments to parameters: all kinds of signatures and calls, against Python."""

import itertools

import pytest
from differing import attempt, differs

from opmill_bytecode_frontend.interpretation.binding import bind_real


def plain(a, b=2):
    return a, b


def positional(a, b=2, /, c=3):
    return a, b, c


def named(a, *, b, c=3):
    return a, b, c


def more(a, *args, b=2, **kwargs):
    return a, args, b, kwargs


def everything(a, b=2, /, c=3, *args, d, e=5, **kwargs):
    return a, b, c, args, d, e, kwargs


def none():
    return ()


CALLS = [
    (args, dict(kwargs))
    for args in ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4))
    for kwargs in itertools.chain.from_iterable(itertools.combinations([("a", 7), ("b", 8), ("d", 9), ("z", 0)], n) for n in range(4))
]
FUNCTIONS = (plain, positional, named, more, everything, none)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_calls_in_captured_code(function):
    differs(lambda x: ([attempt(lambda args=args, kwargs=kwargs: function(*args, **kwargs)) for args, kwargs in CALLS], x + 1))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_real_arguments_by_parameter(function):
    for args, kwargs in CALLS:
        try:
            want = function(*args, **kwargs)
        except TypeError:
            with pytest.raises(TypeError):
                bind_real(function, args, kwargs)
            continue
        assert list(bind_real(function, args, kwargs).values()) == list(want)


def test_defaults_are_those_of_now():
    def function(a=1, *, b=2):
        return a, b

    assert list(bind_real(function, (), {}).values()) == [1, 2]
    function.__defaults__, function.__kwdefaults__ = (5,), {"b": 6}
    assert list(bind_real(function, (), {}).values()) == [5, 6]
    differs(lambda x: (function(), x + 1))
