"""``opmill.bisect(f)(*args)``: from a result that is wrong to the part of the compiler, the operators and the kernel that make it so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .check import TOLERANCE
from .copies import Program, uncompiled
from .finding import Finding


def bisect(model: Any, *, tolerance: float = TOLERANCE, **arguments: Any) -> Callable[..., Finding]:
    """``bisect(f, **compile_arguments)(*args)`` finds what makes the compiled result of ``f`` wrong.

    Halves frontend against backend, then graphs, then operators (to the smallest graph that still differs from eager), then the steps of
    the compiler (each is left out in turn), then kernels (each launch is compared with its loops). What is compared, and how, is said at
    ``opmill.check``. Takes as long as some dozens of compiles of ever smaller graphs.

    Args:
        model: a function, method or module, compiled or not.
        tolerance: how many times eager's own error counts as right.
        arguments: of ``opmill.compile``.
    """

    def call(*args: Any, **kwargs: Any) -> Finding:
        from .search import Search  # not above: it needs the whole compiler, and most programs never bisect

        return Search(Program(uncompiled(model), args, kwargs), tolerance, arguments).found()

    return call
