"""The kinds of guards, one a file: each file of this folder that defines ``KIND`` adds one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from ..errors import GuardError
from .kind import Kind


@cache
def kinds() -> dict[type, Kind]:
    """Guard class to kind, found in this folder."""
    found = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {module.KIND.guard: module.KIND for module in found if hasattr(module, "KIND")}


def kind_of(guard: Any) -> Kind:
    """The kind of this guard; GuardError GU003 where there is none."""
    kind = kinds().get(type(guard))
    if kind is None:
        raise GuardError("GU003", what=f"{guard!r} is no guard", why=f"{type(guard).__qualname__} has no file in kinds/")
    return kind
