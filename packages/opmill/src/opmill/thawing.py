"""``opmill.thaw``: weights that were frozen are read anew."""

from __future__ import annotations

from typing import Any

from .compile import record_of
from .errors import UsageTypeError


def thaw(compiled: Any) -> int:
    """Forgets what was made of the weights of ``compiled``, which was compiled with ``options={"freeze": True}``, and frees its memory. The
    next call makes it again, of what the weights hold then.

    For writes that no call can see: through ``tensor.data``, NumPy, shared memory or another library. Modules of one class that were
    compiled alike share what was compiled: all of theirs is forgotten. Calls that run meanwhile end as they began.

    Returns how many sets of weights were forgotten. Raises ``TypeError`` (OM021) for what ``opmill.compile`` did not make."""
    found = record_of(compiled)
    if found is None:
        raise UsageTypeError("OM021", f"opmill.thaw takes what opmill.compile gave, not {type(compiled).__name__}")
    return sum(runner.thaw() for runner in list(found[1].frozen))


__all__ = ["thaw"]
