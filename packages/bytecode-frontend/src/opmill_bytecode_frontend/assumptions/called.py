"""The function that is called, where one capture serves all functions of a piece of code: guards and generated code find it beside the
arguments, and what it has in its cells, defaults and attributes is read of it at each call."""

from __future__ import annotations

import types

from opmill_guards.source import Local

CALLED = Local(".function")
"""Where guards find it: no parameter has such a name."""
NAME = "_called_function"
"""What generated code calls it."""
LEFT_OUT = type("_left_out", (), {"__repr__": lambda self: "<the default>"})()
"""What stands for the default of a parameter until it is known of which function."""


def hollow(function: types.FunctionType) -> types.FunctionType:
    """A function of the same code that has nothing of what the function has in its cells, defaults and attributes; as many of them."""
    cells = tuple(types.CellType() for _ in function.__code__.co_freevars)
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, cells)
    made.__qualname__ = function.__qualname__
    made.__defaults__, made.__kwdefaults__ = left_out(function)
    return made


def left_out(function: types.FunctionType) -> tuple[tuple[object, ...] | None, dict[str, object] | None]:
    """What stands for defaults of a function that several share."""
    positional: tuple[object, ...] | None = function.__defaults__
    named: dict[str, object] | None = function.__kwdefaults__
    return (
        None if positional is None else (LEFT_OUT,) * len(positional),
        None if named is None else dict.fromkeys(named, LEFT_OUT),
    )


__all__ = ["CALLED", "LEFT_OUT", "NAME", "hollow", "left_out"]
