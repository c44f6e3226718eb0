"""``opmill.bisect(f)(*args)``: from a result that is wrong (a crash, a slow call, a leak) to the part of the compiler, the operators
and the kernel that make it so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compile import arguments_of
from ..errors import UsageValueError
from .check import TOLERANCE
from .copies import Program, uncompiled
from .finding import Finding


def bisect(model: Any, *, of: str = "numbers", tolerance: float = TOLERANCE, **arguments: Any) -> Callable[..., Finding]:
    """``bisect(f, **compile_arguments)(*args)`` finds what makes the compiled result of ``f`` wrong.

    Halves frontend against backend, then graphs, then operators (to the smallest graph that still differs from eager), then the steps of
    the compiler (each is left out in turn), then kernels (each launch is compared with its loops). What is compared, and how, is said at
    ``opmill.check``. Takes as long as some dozens of compiles of ever smaller graphs.

    Other things than wrong results are found by the same means: ``of="crash"``, a process that dies or hangs (each call is made in a child
    process, on CPUs); ``of="time"``, calls slower than eager's; ``of="memory"``, calls that leave memory behind, or on GPUs need more of
    it; ``of="race"``, results that differ from call to call, because threads meet in one place. Of what was compiled and called before,
    results are compared as it gives them then: one that is stale, since nothing looks at what has changed, is told from one that is wrong.

    Args:
        model: a function, method or module, compiled or not.
        of: what is looked for: ``"numbers"``, ``"crash"``, ``"time"``, ``"memory"`` or ``"race"``.
        tolerance: how many times eager's own error counts as right.
        arguments: of ``opmill.compile``.

    Raises:
        ValueError: another ``of`` (OM027); a crash is looked for in a process that uses CUDA (OM025).
    """
    from .symptoms import SYMPTOMS

    if of not in SYMPTOMS:
        raise UsageValueError("OM027", f"{of!r} is nothing to bisect", hint=f"of= is one of {', '.join(map(repr, SYMPTOMS))}")

    def call(*args: Any, **kwargs: Any) -> Finding:
        from .search import Search, before_of  # not above: it needs the whole compiler, and most programs never bisect

        before = None if arguments or of != "numbers" else before_of(model)
        return Search(Program(uncompiled(model), args, kwargs), tolerance, arguments_of(model, arguments), SYMPTOMS[of], before).found()

    return call
