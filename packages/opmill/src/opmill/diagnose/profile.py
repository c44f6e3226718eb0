"""``opmill.profile(f)(*args)``: how long each kernel and operator takes, what it moves and computes, and the lines that it comes from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..compile import arguments_of
from .profiled import Profile


def profile(model: Any, *, calls: int = 10, **arguments: Any) -> Callable[..., Profile]:
    """``profile(f, **compile_arguments)(*args)`` measures what a compiled call of ``f`` consists of, its backward included.

    Each kernel and operator is run by itself, one after the other, by the reference executor: numbers are those of the device at work,
    without the host's part; the time of a whole call is measured apart, through the native executor, beside eager's. Where an output
    requires grad, the gradient of its sum is taken. ``f`` is called itself, ``calls`` times in each of three ways: what it writes is
    written as often. With ``OPMILL_TRACE`` the times go to the trace as well, so that ``opmill report`` shows them.

    Args:
        model: a function, method or module, compiled or not.
        calls: how many calls are measured, after some to warm up; the median counts.
        arguments: of ``opmill.compile``; ``backend`` has to be opmill's own.

    Raises:
        ValueError: another backend than opmill's.
    """

    def call(*args: Any, **kwargs: Any) -> Profile:
        from .watching import measure  # not above: it needs the whole compiler

        found = measure(model, args, kwargs, arguments_of(model, arguments), calls)
        if os.environ.get("OPMILL_TRACE"):
            from ..trace.writer import tracing_of

            if (tracing := tracing_of(getattr(model, "__qualname__", type(model).__qualname__))) is not None:
                tracing.measured(found)
        return found

    return call
