"""Rows: which function lowers which operator. Each family file makes a ``Rows`` and fills it; the folder is searched for them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import GraphError

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


def moves(fn: Lowering) -> Lowering:
    """Marks a lowering that places or converts elements and computes with none: it takes types, too, that loops only move."""
    fn.__dict__["moves"] = True
    return fn


@functools.cache
def all_rows() -> Mapping[str, Lowering]:
    """The rows of every family file beside this one; other files there have none. Raises GraphError GI041 for an operator in two families: which
    row was meant would be a matter of the files' names."""
    package = __name__.rpartition(".")[0]
    names = (info.name for info in pkgutil.iter_modules(importlib.import_module(package).__path__))
    return joined({name: getattr(importlib.import_module(f"{package}.{name}"), "ROWS", {}) for name in names})


def joined(families: Mapping[str, Mapping[str, Lowering]]) -> dict[str, Lowering]:
    """All rows of some families. Raises GraphError GI041 for an operator that two have."""
    out: dict[str, Lowering] = {}
    owner: dict[str, str] = {}
    for family, rows in families.items():
        for name in rows:
            if (other := owner.setdefault(name, family)) != family:
                raise GraphError("GI041", f"{name} has rows in {other} and in {family}", hint="keep one of them")
        out.update(rows)
    return out
