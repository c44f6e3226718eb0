"""Shape rules written as rows, one family a file; what has no row goes to torch's meta kernels.

Torch's Python meta kernels cost 50 to 400 us a call; a row costs about 5. A row takes the arguments with meta tensors for tensors and
gives meta tensors, or ``NotImplemented`` where torch's own kernel shall answer. Sizes may be symbolic (``torch.SymInt``): a row computes
with them as with integers, and what it compares is decided and recorded by their environment.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ..lazily import submodules

Rule = Callable[..., Any]


@functools.cache
def rules() -> Mapping[str, Rule]:
    """All rows, by name of the operator without overload (``"aten::add"``). Each file of this folder has a dict ``RULES``."""
    return _collected("RULES")


@functools.cache
def symbolic_rules() -> Mapping[str, Rule]:
    """Rows for symbolic sizes alone, from the dicts ``SYMBOLIC`` that some files have: torch's kernels answer them in C++ for integers."""
    return _collected("SYMBOLIC")


@functools.cache
def elsewhere_rules() -> Mapping[str, Rule]:
    """Rows for devices that are no processors, from the dict ``ELSEWHERE``: they are asked first there."""
    return _collected("ELSEWHERE")


@functools.cache
def counted_rules() -> Mapping[str, Rule]:
    """Rows of operators whose results have sizes that only data tell, from the dicts ``COUNTED``."""
    return _collected("COUNTED")


@functools.cache
def checks() -> Mapping[str, Rule]:
    """Rows that raise as kernels do, from the dicts ``CHECKS``."""
    return _collected("CHECKS")


def _collected(table: str) -> dict[str, Rule]:
    out: dict[str, Rule] = {}
    for name in submodules(__path__):
        out.update(getattr(importlib.import_module(f"{__name__}.{name}"), table, {}))
    return out
