"""torch.compile's own options: what they mean here, and which names there are."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from .errors import warn_once

MEANINGS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "triton.cudagraphs": lambda value: {"cuda_graphs": bool(value)},
    "freezing": lambda value: {"freeze": bool(value)},
    "max_autotune": lambda value: {"autotune": bool(value)},
    "max_autotune_gemm": lambda value: {"autotune": bool(value)},
}
"""torch's name -> the options of this package that say the same."""
_OF_THE_FRONTEND = frozenset({"guard_filter_fn", "recompile_limit"})


def translated(options: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with names of torch.compile's in the words of this package, or left out, with one warning (OM020), where they have no
    meaning here. Names that are neither's stay as they are: whoever checks them says so."""
    given, ignored = dict(options), []
    for name in [name for name in given if isinstance(name, str) and name not in known]:
        plain = name.replace("-", "_")
        if plain in MEANINGS:
            given = {**MEANINGS[plain](given.pop(name)), **given}
        elif plain in _OF_THE_FRONTEND or plain in _names():
            del given[name]
            ignored.append(name)
    if ignored:
        warn_once("OM020", f"options of torch's own compiler mean nothing here and are ignored: {', '.join(sorted(ignored))}")
    return given


@functools.cache
def _names() -> frozenset[str]:
    """The names that torch's compiler knows: what its file of options assigns, those of a class in it with the class before them. Read, not
    imported: that takes seconds. None where this torch keeps them elsewhere."""
    try:
        tree = ast.parse((Path(torch.__file__).parent / "_inductor" / "config.py").read_text())
    except (OSError, SyntaxError):
        return frozenset()
    names = set(_assigned(tree.body))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for name in _assigned(node.body)}
    return frozenset(names)


def _assigned(body: list[ast.stmt]) -> list[str]:
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    return [target.id for target in targets if isinstance(target, ast.Name) and not target.id.startswith("_")]


__all__ = ["MEANINGS", "translated"]
