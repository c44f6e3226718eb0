"""Methods that are bound in C (by Cython, pybind11, a cache) are those of the class that is asked, also where ``super()`` asks for them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

bound_in_c: Any = ctypes.pythonapi.PyInstanceMethod_New
bound_in_c.restype, bound_in_c.argtypes = ctypes.py_object, [ctypes.py_object]
BINDING: dict[str, Callable[[Any], Any]] = {
    "function": lambda function: function,
    "cache": functools.lru_cache,
    "instance method": bound_in_c,
}


def family(binds: Callable[[Any], Any], below: Callable[[Any], Any]) -> Any:
    """An object of three classes with methods of one name."""

    class First:
        value = 2

        @binds
        def method(self, n: Any) -> Any:
            return n + self.value

        @binds
        def other(self, n: Any) -> Any:
            return n * self.value

    class Second(First):
        @below
        def method(self, n: Any) -> Any:
            return super().method(n) * 10

        def further(self, n: Any) -> Any:
            print(end="")
            return super().method(n) + super().other(n) + self.other(n)

    class Third(Second):
        @below
        def method(self, n: Any) -> Any:
            return super().method(n) - super(Second, self).method(n)

    return Third()


def called(x: Any, given: Any) -> Any:
    return x + given.method(3)


def further(x: Any, given: Any) -> Any:
    return x + given.further(3)


def by_super(x: Any, given: Any) -> Any:
    return x + super(type(given), given).method(3)


def over_a_break(x: Any, given: Any) -> Any:
    bound = super(type(given), given).method
    y = x * 2
    print(end="")
    return y + bound(3)


def of_itself(x: Any, given: Any) -> Any:
    given.method = lambda n: n * 7  # in the dictionary, before those of the classes
    return x + given.method(3) + type(given).method(given, 3) + super(type(given), given).method(3)


@pytest.mark.parametrize("below", BINDING)
@pytest.mark.parametrize("binds", BINDING)
@pytest.mark.parametrize("function", [called, further, by_super, over_a_break, of_itself])
def test_which_method_it_is(function: Callable[..., Any], binds: str, below: str) -> None:
    captured, x = capture(function, "eager"), torch.ones(2)
    for _ in range(2):
        assert torch.equal(captured(x, family(BINDING[binds], BINDING[below])), function(x, family(BINDING[binds], BINDING[below])))
    given = family(BINDING[binds], BINDING[below])
    for value in (2, 5):
        type(given).value = value
        for each in type(given).__mro__:
            clear = getattr(vars(each).get("method"), "cache_clear", None) or getattr(vars(each).get("other"), "cache_clear", None)
            if clear is not None:
                clear()
        found = captured(x, given)
        assert torch.equal(found, function(x, given))
