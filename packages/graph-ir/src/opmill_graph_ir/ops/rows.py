"""Rows: which function lowers which operator. Each family file makes a ``Rows`` and fills it; the folder is searched for them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

Lowering = Callable[..., Any]


class Rows(dict[str, Lowering]):
    """Lowerings by operator name (``"aten::add.Tensor"``; ``"aten::relu"`` for a default overload)."""

    def lowers(self, *names: str) -> Callable[[Lowering], Lowering]:
        """Declares that the decorated function lowers these operators (names without ``aten::``).

        It takes the context, the node and the operator's arguments (tensors as ``View``s), and returns ``NotImplemented`` where the
        operator shall be called as it is."""

        def add(fn: Lowering) -> Lowering:
            self.update({f"aten::{n}": fn for n in " ".join(names).split()})
            return fn

        return add


@functools.cache
def all_rows() -> Mapping[str, Lowering]:
    """The rows of every family file beside this one; other files there have none."""
    package = __name__.rpartition(".")[0]
    out: dict[str, Lowering] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        out.update(getattr(importlib.import_module(f"{package}.{info.name}"), "ROWS", {}))
    return out
