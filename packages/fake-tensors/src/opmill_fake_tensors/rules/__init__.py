"""Shape rules written as rows, one family a file; what has no row goes to torch's meta kernels.

Torch's Python meta kernels cost 50 to 400 us a call; a row costs about 5. A row takes the arguments with meta tensors for tensors and
gives meta tensors, or ``NotImplemented`` where torch's own kernel shall answer.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

Rule = Callable[..., Any]


@functools.cache
def rules() -> Mapping[str, Rule]:
    """All rows, by name of the operator without overload (``"aten::add"``). Each file of this folder has a dict ``RULES``."""
    out: dict[str, Rule] = {}
    for info in pkgutil.iter_modules(__path__):
        out.update(importlib.import_module(f"{__name__}.{info.name}").RULES)
    return out
