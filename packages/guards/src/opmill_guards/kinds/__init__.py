"""The kinds of guards, one a file: each file of this folder that defines ``KIND`` adds one."""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Any

from ..errors import GuardError
from .kind import Kind


@cache
def kinds() -> dict[type, Kind]:
    """Guard class to kind, found in this folder."""
    # Not by pkgutil: to it a folder that cannot be read (no memory, too many open files) is an empty one.
    names = sorted(name.removesuffix(".py") for folder in __path__ for name in os.listdir(folder) if name.endswith(".py"))
    found = [importlib.import_module(f"{__name__}.{name}") for name in names if name != "__init__"]
    return {module.KIND.guard: module.KIND for module in found if hasattr(module, "KIND")}


def kind_of(guard: Any) -> Kind:
    """The kind of this guard; GuardError GU003 where there is none."""
    kind = kinds().get(type(guard))
    if kind is None:
        raise GuardError("GU003", what=f"{guard!r} is no guard", why=f"{type(guard).__qualname__} has no file in kinds/")
    return kind
